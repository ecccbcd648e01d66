package record

import (
	"bytes"
	"encoding/binary"

	"github.com/klauspost/compress/snappy"
)

// A snappy payload is written in the frame of the Java library (xerial), 32 KiB of input a block. Payloads without the frame,
// one raw block from first byte to last, are read too: other clients write them.
//
//	82 53 4e 41 50 50 59 00 | 00 00 00 01 | 00 00 00 01 | then per block: int32 BE length | raw snappy block
//	magic                     version       compatible
//
// A raw block is a varint of its unpacked length followed by literals and copies. One tag byte and its operands cannot stand for
// more than 64 bytes in 3, which is how a claimed length is judged before anything is allocated for it.

var snappyHeader = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

const (
	snappyMagic    = 8
	snappyBlock    = 32 << 10
	maxSnappyRatio = 22
)

func snappyCompress(dst, src []byte) []byte {
	dst = append(dst, snappyHeader...)
	for len(src) > 0 {
		n := min(len(src), snappyBlock)
		at := len(dst)
		dst = reserve(dst, 4+snappy.MaxEncodedLen(n))
		block := snappy.Encode(dst[at+4:cap(dst)], src[:n])
		dst = dst[:at+4+len(block)]
		binary.BigEndian.PutUint32(dst[at:], uint32(len(block)))
		src = src[n:]
	}
	return dst
}

// reserve makes room for n more bytes behind b.
func reserve(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	return append(make([]byte, 0, max(2*cap(b), len(b)+n)), b...)
}

func (s *codecState) unsnappy(src []byte, limit int) ([]byte, error) {
	if len(src) == 0 {
		return nil, corruptStream(Snappy, "no bytes")
	}
	if !bytes.HasPrefix(src, snappyHeader[:snappyMagic]) {
		size, err := snappySize(src, limit)
		if err != nil {
			return nil, err
		}
		return snappyAppend(s.buffer(size), src, size)
	}
	total, err := snappyFrames(src, limit, nil)
	if err != nil {
		return nil, err
	}
	out := s.buffer(total)
	_, err = snappyFrames(src, limit, func(block []byte, size int) error {
		out, err = snappyAppend(out, block, size)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// snappyFrames walks the blocks of a xerial stream and returns their unpacked size. A stream may begin anew in the middle.
func snappyFrames(src []byte, limit int, each func(block []byte, size int) error) (total int, err error) {
	for at := 0; at < len(src); {
		rest := src[at:]
		if bytes.HasPrefix(rest, snappyHeader[:snappyMagic]) {
			if len(rest) < len(snappyHeader) {
				return 0, corruptStream(Snappy, "byte %d: the stream header is cut short", at)
			}
			if v := int32(binary.BigEndian.Uint32(rest[snappyMagic:])); v < 1 {
				return 0, corruptStream(Snappy, "byte %d: stream version %d", at, v)
			}
			at += len(snappyHeader)
			continue
		}
		if len(rest) < 4 {
			return 0, corruptStream(Snappy, "byte %d: a block length is cut short", at)
		}
		n := binary.BigEndian.Uint32(rest)
		if uint64(n) > uint64(len(rest)-4) {
			return 0, corruptStream(Snappy, "byte %d: a block of %d bytes, %d are left", at, n, len(rest)-4)
		}
		block := rest[4 : 4+int(n)]
		size, err := snappySize(block, limit-total)
		if err != nil {
			return 0, err
		}
		if each != nil {
			if err := each(block, size); err != nil {
				return 0, err
			}
		}
		total += size
		at += 4 + len(block)
	}
	return total, nil
}

// snappySize reads the unpacked length a raw block claims and refuses what its bytes cannot hold.
func snappySize(block []byte, limit int) (int, error) {
	size, n := binary.Uvarint(block)
	if n <= 0 || size > 1<<32-1 {
		return 0, corruptStream(Snappy, "a block without a length")
	}
	if size > uint64(len(block)-n)*maxSnappyRatio {
		return 0, corruptStream(Snappy, "a block of %d bytes claims to hold %d", len(block), size)
	}
	if size > uint64(max(limit, 0)) {
		return 0, tooLarge(Snappy, limit)
	}
	return int(size), nil
}

// snappyAppend unpacks a block of a size already judged; out has the room. Extensions of the format that Kafka's library does
// not read are refused.
func snappyAppend(out, block []byte, size int) ([]byte, error) {
	n := len(out)
	if _, err := snappy.DecodeStrict(out[n:n+size:n+size], block); err != nil {
		return out, corruptStream(Snappy, "%v", err)
	}
	return out[:n+size], nil
}
