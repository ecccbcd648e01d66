package record

import "hash/crc32"

// The checksum of batches, CRC-32C, where hash/crc32 is what a scan would wait for longest: a processor that multiplies
// polynomials 64 bytes wide has it three times as fast. Without one, and for short pieces, it is hash/crc32.
//
// A CRC is the remainder of the message, read as one long polynomial, by a fixed one, P. Adding a multiple of P to the
// message leaves it as it is, so any piece of the message may be replaced by something congruent to it further on:
//
//	message     | a (64 bytes) |  ... d bits from a's end to b's ...  | b (64 bytes) | rest
//	congruent                                                         | a*x^d + b    | rest
//
// where a*x^d is made of a's halves of 8 bytes, each times a constant below P. In the end 16 bytes and a short rest are
// left, for which there is an instruction. Tests hold every length to hash/crc32.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crc32c is the CRC-32C of b.
func crc32c(b []byte) uint32 { return crc32cUpdate(0, b) }

// crc32cUpdate is the CRC-32C of what sum is that of, followed by b.
func crc32cUpdate(sum uint32, b []byte) uint32 {
	if folds && len(b) >= foldLeast {
		return ^fold(^sum, b)
	}
	return crc32.Update(sum, castagnoli, b)
}
