package record

import (
	"fmt"
	"hash/crc32"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func randomBytes(n int) []byte {
	r := rand.New(rand.NewPCG(uint64(n), 7))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestChecksumOfEveryLengthIsTheStandardLibrarys(t *testing.T) {
	b := randomBytes(4600)
	same := func(at, n int) {
		if p := b[at : at+n]; crc32c(p) != crc32.Checksum(p, castagnoli) {
			t.Fatalf("%d bytes at %d", n, at)
		}
	}
	for n := 0; n <= 1800; n++ {
		for at := 0; at < 100; at += 33 {
			same(at, n)
		}
	}
	for n := 4000; n <= 4500; n++ { // from some length on pieces are looked at from a cache line's start on
		for at := range 64 {
			same(at, n)
		}
	}
}

func TestChecksumGoesOnFromAnySum(t *testing.T) {
	b := randomBytes(70_000)
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		i := r.IntN(len(b))
		j := i + r.IntN(len(b)-i+1)
		sum := r.Uint32()
		require.Equal(t, crc32.Update(sum, castagnoli, b[i:j]), crc32cUpdate(sum, b[i:j]), "bytes %d to %d after %#x", i, j, sum)
	}
}

func TestEachBitCountsInTheChecksum(t *testing.T) {
	b := randomBytes(1100)
	sum := crc32c(b)
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			if crc32c(b) == sum {
				t.Fatalf("byte %d, bit %d", i, bit)
			}
			b[i] ^= 1 << bit
		}
	}
}

// Those of crc32c_amd64.s, from what they are said to be.
func TestConstantsOfTheChecksum(t *testing.T) {
	power := func(n int) uint64 { // x^n mod P
		r := uint64(1)
		for range n {
			if r <<= 1; r>>32 != 0 {
				r ^= 0x11EDC6F41
			}
		}
		return uint64(bits.Reverse32(uint32(r))) << 1
	}
	for d, want := range map[int][2]uint64{
		2048: {0x0dcb17aa4, 0x0b9e02b86},
		512:  {0x0740eef02, 0x09e4addf8},
		384:  {0x01c291d04, 0x1d82c63da},
		256:  {0x1384aa63a, 0x0ba4fc28e},
		128:  {0x0f20c0dfe, 0x14cd00bd6},
	} {
		require.Equal(t, want, [2]uint64{power(d + 32), power(d - 32)}, "%d bits", d)
	}
}

func FuzzChecksumIsTheStandardLibrarys(f *testing.F) {
	f.Add(uint32(0), []byte("123456789"))
	f.Add(uint32(1), randomBytes(300))
	f.Add(^uint32(0), make([]byte, 1000))
	f.Fuzz(func(t *testing.T, sum uint32, b []byte) {
		require.Equal(t, crc32.Update(sum, castagnoli, b), crc32cUpdate(sum, b))
	})
}

func BenchmarkChecksum(b *testing.B) {
	for _, n := range []int{64, 256, 512, 1024, 12_588, 256 << 10} {
		p := randomBytes(n)
		for _, f := range []struct {
			name string
			sum  func([]byte) uint32
		}{
			{"", crc32c}, {" by hash", func(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }},
		} {
			b.Run(fmt.Sprint(n, f.name), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					f.sum(p)
				}
			})
		}
	}
}
