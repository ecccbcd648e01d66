package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// A zstd payload is one or more Zstandard frames (RFC 8878), skippable ones among them. Little-endian inside.
//
//	28 b5 2f fd | descriptor | window, unless single segment | dictionary id 0-4 | content size 0-8
//	then blocks: 3 bytes (bit 0 last, bits 1-2 raw, repeat or compressed, size above) | data
//	checksum 4, if flagged
//
// Written without checksum, with the content size and a window of at most 2 MiB. Windows up to 128 MiB are read, as Kafka does.
//
// The decoder's buffer is made from what the block headers say before a byte is unpacked: a block holds at most 128 KiB, so
// frames have a bound. Where the bound is above the caller's limit, the decoder stops at the first block beyond the limit.

const (
	zstdMagic       = 0xfd2fb528
	zstdSkippable   = 0x184d2a50 // and the fifteen behind it
	zstdMaxBlock    = 128 << 10
	zstdMaxWindow   = 128 << 20
	zstdWriteWindow = 2 << 20
	zstdSlack       = zstdMaxBlock + 64 // a decoder may finish the block that crosses a limit
	zstdMinWindow   = 1 << 10
)

// zstdEncoders holds one pool for each of the four searches the encoder knows.
var zstdEncoders [int(zstd.SpeedBestCompression) + 1]sync.Pool

func zstdCompress(dst, src []byte, level int) ([]byte, error) {
	speed := zstd.EncoderLevelFromZstd(level)
	pool := &zstdEncoders[speed]
	e, _ := pool.Get().(*zstd.Encoder)
	if e == nil {
		var err error
		e, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(speed), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
			zstd.WithWindowSize(zstdWriteWindow), zstd.WithLowerEncoderMem(true), zstd.WithZeroFrames(true))
		if err != nil {
			return dst, err
		}
	}
	dst = e.EncodeAll(src, dst)
	pool.Put(e)
	return dst, nil
}

// zstdReader is a pooled decoder that starts no goroutine. It remembers the limit it was last told.
type zstdReader struct {
	d   *zstd.Decoder
	max int
}

var zstdReaders sync.Pool

func takeZstd() (*zstdReader, error) {
	if r, ok := zstdReaders.Get().(*zstdReader); ok {
		return r, nil
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(zstdMaxWindow), zstd.WithDecodeAllCapLimit(true))
	return &zstdReader{d: d}, err
}

func (s *codecState) unzstd(src []byte, limit int) ([]byte, error) {
	if len(src) == 0 {
		return nil, corruptStream(Zstd, "no bytes")
	}
	size, err := zstdRoom(src, limit)
	if err != nil {
		return nil, err
	}
	r, err := takeZstd()
	if err != nil {
		return nil, err
	}
	defer zstdReaders.Put(r)
	out := s.buffer(size)
	for at := 0; at < len(src); {
		f, _ := cutZstd(src[at:])
		if f.skip {
			at += f.size
			continue
		}
		if out, err = r.frame(out, src[at:at+f.size], f, limit); err != nil {
			if errors.Is(err, ErrTooLarge) {
				return nil, err
			}
			return nil, corruptStream(Zstd, "frame at byte %d: %v", at, err)
		}
		at += f.size
	}
	return out, nil
}

// zstdRoom walks all frames and returns the capacity that unpacking them within limit can need.
func zstdRoom(src []byte, limit int) (int, error) {
	bound, window := int64(0), int64(0)
	for at := 0; at < len(src); {
		f, err := cutZstd(src[at:])
		if err != nil {
			return 0, corruptStream(Zstd, "byte %d: %v", at, err)
		}
		if f.window > zstdMaxWindow {
			return 0, fmt.Errorf("%w: a zstd window of %d bytes, %d are allowed", ErrTooLarge, f.window, zstdMaxWindow)
		}
		if f.known && f.bound > int64(limit) {
			return 0, tooLarge(Zstd, limit)
		}
		bound += f.bound // below 2^62: frames are bounded by limit or by the payload's size times 2^16
		window = max(window, f.window)
		at += f.size
	}
	if bound <= int64(limit) {
		return int(bound) + zstdSlack, nil
	}
	if window > int64(limit) {
		return limit + limit/8 + zstdSlack, nil // the decoder can only be told limits that are windows: steps of an eighth
	}
	return limit + zstdSlack, nil
}

// frame appends one frame to out, whose capacity holds limit, or what the frames can hold, and the slack.
func (r *zstdReader) frame(out, src []byte, f zstdFrame, limit int) ([]byte, error) {
	left := limit - len(out)
	clamped := f.bound > int64(left)
	if clamped {
		if f.known {
			return out, tooLarge(Zstd, limit)
		}
		// The decoder wants its limit to be no less than the window, and a window is but a promise not to look further back.
		allowed := max(left, zstdMinWindow)
		if f.window > int64(allowed) {
			src = zstdNarrow(src, allowed)
			allowed = int(zstdWindow(src[5]))
		}
		if f.block > int64(allowed) {
			return out, tooLarge(Zstd, limit)
		}
		r.limit(allowed)
	} else {
		r.limit(max(limit, zstdMaxWindow))
	}
	got, err := r.d.DecodeAll(src, out[len(out):])
	switch {
	case clamped && errors.Is(err, zstd.ErrDecoderSizeExceeded), err == nil && len(got) > left:
		return out, tooLarge(Zstd, limit)
	case err != nil:
		return out, err
	case len(got) > cap(out)-len(out):
		return out, errors.New("the content is larger than its blocks can hold") // got is then not in out
	}
	return out[:len(out)+len(got)], nil
}

// limit tells the decoder how much it may unpack, unless it knows.
func (r *zstdReader) limit(n int) {
	if r.max == n {
		return
	}
	if err := r.d.ResetWithOptions(nil, zstd.WithDecoderMaxMemory(uint64(n))); err == nil {
		r.max = n
	}
}

// zstdFrame is what a frame's headers say without unpacking it.
type zstdFrame struct {
	size   int   // encoded bytes, checksum included
	bound  int64 // of the content
	known  bool  // the bound is the content size the header states
	window int64
	block  int64 // the largest size in a block header
	skip   bool
}

var (
	errZstdShort  = errors.New("the frame is cut short")
	errZstdMagic  = errors.New("no frame starts here")
	errZstdHeader = errors.New("a reserved bit or block type is set")
	errZstdDict   = errors.New("the frame needs a dictionary")
	errZstdBlock  = errors.New("a block is larger than 128 KiB or the window")
)

// cutZstd measures the frame at the start of b.
func cutZstd(b []byte) (f zstdFrame, err error) {
	if len(b) < 5 {
		return f, errZstdShort
	}
	magic := binary.LittleEndian.Uint32(b)
	if magic&^15 == zstdSkippable {
		if len(b) < 8 || uint64(binary.LittleEndian.Uint32(b[4:])) > uint64(len(b)-8) {
			return f, errZstdShort
		}
		return zstdFrame{skip: true, size: 8 + int(binary.LittleEndian.Uint32(b[4:]))}, nil
	}
	if magic != zstdMagic {
		return f, errZstdMagic
	}
	p, checksum, err := f.header(b)
	if err != nil {
		return f, err
	}
	stated := f.bound
	if f.bound, p, err = f.blocks(p); err != nil {
		return f, err
	}
	if checksum {
		if len(p) < 4 {
			return f, errZstdShort
		}
		p = p[4:]
	}
	f.size = len(b) - len(p)
	if f.known {
		if stated > f.bound {
			return f, errors.New("the stated content size is more than the blocks can hold")
		}
		f.bound = stated
	}
	return f, nil
}

// header fills in window and, if stated, the content size as bound; it returns what follows.
func (f *zstdFrame) header(b []byte) (rest []byte, checksum bool, err error) {
	d := b[4]
	if d&0x08 != 0 {
		return nil, false, errZstdHeader
	}
	p := b[5:]
	single := d&0x20 != 0
	if !single {
		if len(p) == 0 {
			return nil, false, errZstdShort
		}
		f.window = zstdWindow(p[0])
		p = p[1:]
	}
	dict := [4]int{0, 1, 2, 4}[d&3]
	size := [4]int{0, 2, 4, 8}[d>>6]
	if single && size == 0 {
		size = 1
	}
	if len(p) < dict+size {
		return nil, false, errZstdShort
	}
	for _, c := range p[:dict] {
		if c != 0 {
			return nil, false, errZstdDict
		}
	}
	if size > 0 {
		var raw [8]byte
		copy(raw[:], p[dict:dict+size])
		n := binary.LittleEndian.Uint64(raw[:])
		if size == 2 {
			n += 256
		}
		f.known = true
		f.bound = int64(min(n, 1<<62))
		if single {
			f.window = max(f.bound, zstdMinWindow)
		}
	}
	return p[dict+size:], d&0x04 != 0, nil
}

// blocks walks to behind the last block and adds up the most they can hold.
func (f *zstdFrame) blocks(p []byte) (bound int64, rest []byte, err error) {
	largest := min(f.window, zstdMaxBlock)
	for {
		if len(p) < 3 {
			return 0, nil, errZstdShort
		}
		header := uint32(p[0]) | uint32(p[1])<<8 | uint32(p[2])<<16
		size := int64(header >> 3)
		p = p[3:]
		stored, holds := size, size
		switch header >> 1 & 3 {
		case 1:
			stored = 1
		case 2:
			holds = largest
		case 3:
			return 0, nil, errZstdHeader
		}
		if size > largest {
			return 0, nil, errZstdBlock
		}
		if stored > int64(len(p)) {
			return 0, nil, errZstdShort
		}
		bound += holds
		f.block = max(f.block, size)
		p = p[stored:]
		if header&1 != 0 {
			return bound, p, nil
		}
	}
}

// zstdWindow is the window size a descriptor byte stands for.
func zstdWindow(b byte) int64 {
	base := int64(1) << (10 + b>>3)
	return base + base/8*int64(b&7)
}

// zstdNarrow copies a frame that has a window descriptor, with the smallest window of at least n bytes.
func zstdNarrow(frame []byte, n int) []byte {
	frame = append([]byte(nil), frame...)
	for b := range 256 {
		if zstdWindow(byte(b)) >= int64(n) {
			frame[5] = byte(b)
			break
		}
	}
	return frame
}
