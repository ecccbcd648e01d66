package record

import (
	"encoding/binary"
	"math/bits"
)

// The primes of the 32-bit xxHash, the checksum inside lz4 frames.
const (
	xxh1 uint32 = 2654435761
	xxh2 uint32 = 2246822519
	xxh3 uint32 = 3266489917
	xxh4 uint32 = 668265263
	xxh5 uint32 = 374761393
)

// xxh32 is xxHash32 of b with seed 0.
func xxh32(b []byte) uint32 {
	size := uint32(len(b))
	h := xxh5
	if len(b) >= 16 {
		h = xxh32Stripes(&b)
	}
	h += size
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*xxh3, 17) * xxh4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*xxh5, 11) * xxh1
	}
	h = (h ^ h>>15) * xxh2
	h = (h ^ h>>13) * xxh3
	return h ^ h>>16
}

// xxh32Stripes folds the whole 16-byte stripes at the start of b and leaves the rest in it.
func xxh32Stripes(b *[]byte) uint32 {
	p := *b
	seed := uint32(0)
	v := [4]uint32{seed + xxh1 + xxh2, seed + xxh2, seed, seed - xxh1}
	for ; len(p) >= 16; p = p[16:] {
		for i := range v {
			v[i] = bits.RotateLeft32(v[i]+binary.LittleEndian.Uint32(p[4*i:])*xxh2, 13) * xxh1
		}
	}
	*b = p
	return bits.RotateLeft32(v[0], 1) + bits.RotateLeft32(v[1], 7) + bits.RotateLeft32(v[2], 12) + bits.RotateLeft32(v[3], 18)
}
