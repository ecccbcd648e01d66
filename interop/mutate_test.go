package interop

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/record"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Positions of a magic 2 header; offset, length and magic stand there in old formats too.
const (
	atLength     = 8
	atMagic      = 16
	atCRC        = 17
	atAttributes = 21
	atCount      = 57
	atRecords    = 61
)

// corpus is every batch of the golden folders of moderate size, by whether it is compressed.
func corpus(t *testing.T) (plain, compressed [][]byte) {
	t.Helper()
	for _, name := range golden.Cases() {
		dir, err := golden.PartitionDir(golden.Copy(t, name))
		require.NoError(t, err)
		for _, file := range partitionFiles(t, dir, ".log") {
			b, err := os.ReadFile(file)
			require.NoError(t, err, filepath.Base(file))
			for len(b) > 0 {
				batch, rest, err := record.Next(b)
				if err != nil {
					break // a damaged case ends here
				}
				b = rest
				if batch.Size() > 4096 {
					continue
				}
				if batch.Codec() == record.None {
					plain = append(plain, batch.Bytes())
				} else {
					compressed = append(compressed, batch.Bytes())
				}
			}
		}
	}
	require.Greater(t, len(plain), 100)
	require.Greater(t, len(compressed), 30)
	return plain, compressed
}

// mutate returns a damaged copy of b. Most copies get the checksum that fits the damage, else every one of them would be
// refused for the same dull reason; and about half get a fitting length.
func mutate(r *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	for range 1 + r.IntN(3) {
		b = mutateOnce(r, b)
	}
	if r.IntN(2) == 0 && len(b) >= 12 {
		binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-12))
	}
	if r.IntN(8) > 0 {
		seal(b)
	}
	return b
}

func mutateOnce(r *rand.Rand, b []byte) []byte {
	if len(b) == 0 {
		return append(b, byte(r.Uint32()))
	}
	at := r.IntN(len(b))
	if len(b) > atRecords && r.IntN(2) == 0 {
		at = atRecords + r.IntN(len(b)-atRecords)
	}
	switch r.IntN(10) {
	case 0:
		b[at] ^= 1 << r.IntN(8)
	case 1:
		b[at] = byte(r.Uint32())
	case 2: // a varint that says 0, -1, 1, or goes on
		b[at] = []byte{0, 1, 2, 0x80, 0xff, 0x7f}[r.IntN(6)]
	case 3:
		b = append(b[:at], append([]byte{byte(r.Uint32())}, b[at:]...)...)
	case 4:
		b = append(b[:at], b[at+1:]...)
	case 5:
		b = b[:at]
	case 6:
		for range 1 + r.IntN(20) {
			b = append(b, byte(r.Uint32()))
		}
	case 7: // a stretch moved over another
		n := min(1+r.IntN(16), len(b)-at)
		copy(b[r.IntN(len(b)):], b[at:at+n])
	case 8: // a header field with a telling value
		if len(b) >= atRecords {
			mutateField(r, b)
		}
	case 9: // a varint of ten bytes, or of eleven
		n := 9 + r.IntN(2)
		v := bytes.Repeat([]byte{0xff}, n)
		v = append(v, byte(r.IntN(3)))
		b = append(b[:at], append(v, b[at:]...)...)
	}
	return b
}

func mutateField(r *rand.Rand, b []byte) {
	values := []int64{0, 1, -1, 2, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64, int64(r.Uint64()), int64(r.IntN(200))}
	v := values[r.IntN(len(values))]
	switch field := []int{0, atLength, 12, atMagic, atAttributes, 23, 27, 35, 43, 51, 53, atCount}[r.IntN(12)]; field {
	case 0, 27, 35, 43:
		binary.BigEndian.PutUint64(b[field:], uint64(v))
	case atMagic:
		b[field] = byte(r.IntN(4))
	case atAttributes, 51:
		binary.BigEndian.PutUint16(b[field:], uint16(v))
		if field == atAttributes && r.IntN(2) == 0 {
			b[field+1] &^= 7
		}
	default:
		if field == atCount && r.IntN(2) == 0 {
			v = int64(int32(binary.BigEndian.Uint32(b[field:]))) + int64(r.IntN(3)) - 1
		}
		binary.BigEndian.PutUint32(b[field:], uint32(v))
	}
}

// seal stamps the checksum the bytes deserve.
func seal(b []byte) {
	switch {
	case len(b) > atMagic && b[atMagic] < 2:
		binary.BigEndian.PutUint32(b[12:], crc32.ChecksumIEEE(b[atMagic:]))
	case len(b) > atAttributes:
		binary.BigEndian.PutUint32(b[atCRC:], crc32.Checksum(b[atAttributes:], castagnoli))
	}
}
