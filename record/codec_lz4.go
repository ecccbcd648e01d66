package record

import (
	"encoding/binary"
	"sync"

	"github.com/pierrec/lz4/v4"
)

// An lz4 payload is one LZ4 frame of independent blocks. All its integers are little-endian.
//
//	04 22 4d 18 | FLG | BD | content size 8, if flagged | HC
//	then per block: length int32, bit 31 = stored as it is | data | xxh32 of the data, if flagged
//	00 00 00 00 | xxh32 of the content, if flagged
//
//	FLG  bits 7-6 version 1, 5 blocks independent, 4 block checksums, 3 content size, 2 content checksum, 1-0 zero
//	BD   bits 6-4 largest block: 4 = 64 KiB, 5 = 256 KiB, 6 = 1 MiB, 7 = 4 MiB; the others zero
//	HC   second byte of xxh32 of FLG up to HC
//
// Written with FLG 60, BD 40. The content size and the content checksum are skipped when read. Writers of magic 0 hashed the
// frame's magic into HC too, so for magic 0 HC is not verified.

const (
	lz4Magic         = 0x184d2204
	lz4Stored        = 1 << 31
	lz4Block         = 64 << 10
	lz4FlagBlockSum  = 0x10
	lz4FlagSize      = 0x08
	lz4FlagContent   = 0x04
	lz4MinMatch      = 4
	lz4FastLevel     = 9 // Kafka's default; all other levels search deeper
	lz4DeepestSearch = 9
)

// lz4Header is FLG 60, BD 40 and their checksum.
var lz4Header = []byte{0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82}

var (
	lz4Fast = sync.Pool{New: func() any { return new(lz4.Compressor) }}
	lz4High = sync.Pool{New: func() any { return new(lz4.CompressorHC) }}
)

func lz4Compress(dst, src []byte, level int) ([]byte, error) {
	dst = append(dst, lz4Header...)
	var compressor interface {
		CompressBlock(src, dst []byte) (int, error)
	}
	if level == lz4FastLevel {
		c := lz4Fast.Get().(*lz4.Compressor)
		defer lz4Fast.Put(c)
		compressor = c
	} else {
		c := lz4High.Get().(*lz4.CompressorHC)
		defer lz4High.Put(c)
		c.Level = lz4.Level1 << (min(level, lz4DeepestSearch) - 1)
		compressor = c
	}
	for len(src) > 0 {
		n := min(len(src), lz4Block)
		at := len(dst)
		dst = reserve(dst, 4+lz4.CompressBlockBound(n)+4)
		size, err := compressor.CompressBlock(src[:n], dst[at+4:at+4+lz4.CompressBlockBound(n)])
		if err != nil {
			return dst[:at], err
		}
		header := uint32(size)
		if size == 0 || size >= n {
			size = copy(dst[at+4:at+4+n], src[:n])
			header = uint32(n) | lz4Stored
		}
		dst = dst[:at+4+size]
		binary.LittleEndian.PutUint32(dst[at:], header)
		src = src[n:]
	}
	return append(dst, 0, 0, 0, 0), nil
}

// lz4Frame is a frame whose header has been read.
type lz4Frame struct {
	p         []byte // from the first block to the end of the payload
	at        int    // byte of the payload where p starts
	maxBlock  int
	blockSums bool
	content   bool // a content checksum follows the end mark
}

func (s *codecState) unlz4(src []byte, limit int, verify bool) ([]byte, error) {
	f, err := openLZ4(src, verify)
	if err != nil {
		return nil, err
	}
	total, err := f.blocks(limit, nil)
	if err != nil {
		return nil, err
	}
	out := s.buffer(total)
	_, err = f.blocks(limit, func(at int, data []byte, stored bool, size int) error {
		n := len(out)
		out = out[:n+size]
		if stored {
			copy(out[n:], data)
			return nil
		}
		got, err := lz4.UncompressBlock(data, out[n:n+size:n+size])
		if err != nil || got != size {
			return corruptStream(LZ4, "byte %d: the block does not decode", at)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func openLZ4(src []byte, verify bool) (lz4Frame, error) {
	if len(src) < len(lz4Header) {
		return lz4Frame{}, corruptStream(LZ4, "the frame header is cut short")
	}
	if binary.LittleEndian.Uint32(src) != lz4Magic {
		return lz4Frame{}, corruptStream(LZ4, "no frame starts here")
	}
	flg, bd := src[4], src[5]
	switch {
	case flg>>6 != 1:
		return lz4Frame{}, corruptStream(LZ4, "frame version %d", flg>>6)
	case flg&0x20 == 0:
		return lz4Frame{}, corruptStream(LZ4, "blocks depend on each other")
	case flg&0x03 != 0 || bd&0x8f != 0:
		return lz4Frame{}, corruptStream(LZ4, "reserved bits are set in %02x %02x", flg, bd)
	case bd>>4 < 4:
		return lz4Frame{}, corruptStream(LZ4, "block size code %d", bd>>4)
	}
	end := 6
	if flg&lz4FlagSize != 0 {
		end += 8
	}
	if len(src) <= end {
		return lz4Frame{}, corruptStream(LZ4, "the frame header is cut short")
	}
	if sum := byte(xxh32(src[4:end]) >> 8); verify && sum != src[end] {
		return lz4Frame{}, corruptStream(LZ4, "header checksum %02x, computed %02x", src[end], sum)
	}
	return lz4Frame{
		p: src[end+1:], at: end + 1,
		maxBlock:  1 << (8 + 2*(bd>>4)),
		blockSums: flg&lz4FlagBlockSum != 0,
		content:   flg&lz4FlagContent != 0,
	}, nil
}

// blocks walks the frame to its end mark, which must end the payload, and returns the unpacked size. Without each it also
// measures every block and verifies block checksums; with each it hands them out.
func (f lz4Frame) blocks(limit int, each func(at int, data []byte, stored bool, size int) error) (total int, err error) {
	for {
		data, stored, end, err := f.next()
		if err != nil || end {
			return total, err
		}
		at := f.at - len(data)
		size := len(data)
		if !stored {
			var ok bool
			if size, ok = lz4Size(data, f.maxBlock); !ok {
				return 0, corruptStream(LZ4, "byte %d: the block does not decode to at most %d bytes", at, f.maxBlock)
			}
		}
		if f.blockSums {
			if len(f.p) < 4 {
				return 0, corruptStream(LZ4, "byte %d: a block checksum is cut short", f.at)
			}
			if each == nil && binary.LittleEndian.Uint32(f.p) != xxh32(data) {
				return 0, corruptStream(LZ4, "byte %d: the block checksum does not match", at)
			}
			f.skip(4)
		}
		if size > limit-total {
			return 0, tooLarge(LZ4, limit)
		}
		if each != nil {
			if err := each(at, data, stored, size); err != nil {
				return 0, err
			}
		}
		total += size
	}
}

// next cuts one block off; end is the end mark.
func (f *lz4Frame) next() (data []byte, stored, end bool, err error) {
	if len(f.p) < 4 {
		return nil, false, false, corruptStream(LZ4, "byte %d: the frame has no end mark", f.at)
	}
	header := binary.LittleEndian.Uint32(f.p)
	n := int(header &^ lz4Stored)
	f.skip(4)
	switch {
	case header == 0:
		return nil, false, true, f.finish()
	case n == 0:
		return nil, false, false, corruptStream(LZ4, "byte %d: a stored block of no bytes", f.at-4)
	case n > f.maxBlock:
		return nil, false, false, corruptStream(LZ4, "byte %d: a block of %d bytes, %d are allowed", f.at-4, n, f.maxBlock)
	case n > len(f.p):
		return nil, false, false, corruptStream(LZ4, "byte %d: a block of %d bytes, %d are left", f.at-4, n, len(f.p))
	}
	data = f.p[:n]
	f.skip(n)
	return data, header&lz4Stored != 0, false, nil
}

func (f *lz4Frame) finish() error {
	want := 0
	if f.content {
		want = 4
	}
	if len(f.p) != want {
		return corruptStream(LZ4, "byte %d: %d bytes follow the end mark, %d are due", f.at, len(f.p), want)
	}
	return nil
}

func (f *lz4Frame) skip(n int) {
	f.p = f.p[n:]
	f.at += n
}

// lz4Size measures what a block unpacks to by its tokens alone, so that a buffer of the very size can be made. A block is a
// run of sequences, the last of which is only literals:
//
//	token: 4 bits literals, 4 bits match length - 4 | more literal length, if 15 | literals | offset int16 | more match length, if 15
func lz4Size(b []byte, limit int) (int, bool) {
	total := 0
	for len(b) > 0 {
		token := b[0]
		literals, rest, ok := lz4Length(int(token>>4), b[1:], limit)
		if !ok || literals > len(rest) || literals > limit-total {
			return 0, false
		}
		total += literals
		b = rest[literals:]
		if len(b) == 0 {
			return total, true
		}
		if len(b) < 2 {
			return 0, false
		}
		match, rest, ok := lz4Length(int(token&15), b[2:], limit)
		if match += lz4MinMatch; !ok || match > limit-total {
			return 0, false
		}
		total += match
		b = rest
	}
	return 0, false
}

// lz4Length reads the rest of a length whose four bits are n; beyond limit it is not ok.
func lz4Length(n int, b []byte, limit int) (int, []byte, bool) {
	if n < 15 {
		return n, b, true
	}
	for i, c := range b {
		n += int(c)
		if n > limit {
			return 0, nil, false
		}
		if c < 255 {
			return n, b[i+1:], true
		}
	}
	return 0, nil, false
}
