package record

import (
	"errors"
	"math"
)

// The most that one byte of a payload can unpack to. A zstd block says more itself.
const (
	gzipRatio   = 1032 // a match of 258 bytes in two bits
	lz4Ratio    = 255  // a length byte of 255
	snappyRatio = 22   // a copy of 64 bytes in three
)

// Fits says whether the decoder's limits let all records of a batch be read: nil, or ErrTooLarge. Damage is not looked
// for. It is cheap unless the payload's size and block headers leave a doubt: then the batch is unpacked.
func (d *Decoder) Fits(b Batch) error {
	bound, exact := unpackedBound(b)
	if bound <= int64(d.lim.MaxDecompressedBytes) && !(exact && bound > 2*int64(d.lim.maxHeaders())) {
		return nil
	}
	for _, err := range b.Records(d) {
		if errors.Is(err, ErrTooLarge) {
			return err
		}
	}
	return nil
}

// unpackedBound is the most that the records of a batch unpack to. exact says that it is not far above what they do.
func unpackedBound(b Batch) (bound int64, exact bool) {
	n := int64(b.Size())
	switch b.Codec() {
	case None:
		return n, true
	case Gzip:
		return n * gzipRatio, false
	case LZ4:
		return n * lz4Ratio, false
	case Snappy:
		return n * snappyRatio, false
	}
	if b.legacy() {
		return n << 16, false // no such thing; whoever reads it will say so
	}
	bound, exact = 0, true
	for src := b.b[HeaderSize:]; len(src) > 0; {
		f, err := cutZstd(src)
		if err != nil || f.window > zstdMaxWindow {
			return math.MaxInt64, false // not to be read; whoever tries will say why
		}
		bound, exact = bound+f.bound, exact && (f.known || f.skip)
		src = src[f.size:]
	}
	return bound, exact
}
