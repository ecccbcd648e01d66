package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// minHeader is the part of a batch that all formats share, up to and including magic.
const minHeader = 17

// header is what the first record.HeaderSize bytes of a batch say; finding a position needs no more.
//
//	magic 2     | base 8 | size 4 | epoch 4 | magic | crc 4 | attr 2 | lastOffsetDelta 4 | baseTs 8 | maxTs 8 | ...
//	magic 0, 1  | last 8 | size 4 | crc 4   | magic | attr 1 | magic 1: timestamp 8 | ...
type header struct {
	base, last int64 // the same for legacy entries
	size       int64 // whole batch
	maxTs      int64 // -1 none
	epoch      int32 // -1 none
	magic      int8
}

// parseHeader reads a header of which b holds the first bytes, record.HeaderSize of them if the batch has so many.
// remaining is the number of bytes from the start of the batch to the end of the readable range. A non-empty reason
// says why no batch can begin here.
func parseHeader(b []byte, remaining int64) (h header, reason string) {
	if len(b) < minHeader {
		return h, "the header is cut short"
	}
	size, magic, err := record.Peek(b)
	if err != nil {
		if c, ok := errors.AsType[*record.CorruptError](err); ok {
			return h, c.Field + " " + c.Reason
		}
		return h, err.Error()
	}
	h.size, h.magic, h.maxTs, h.epoch = int64(size), magic, record.NoTimestamp, record.NoEpoch
	h.base = int64(binary.BigEndian.Uint64(b))
	h.last = h.base
	least := record.HeaderSize
	switch magic {
	case 0:
		least = 26
	case 1:
		least = 34
	case 2:
	default:
		return h, fmt.Sprintf("magic %d is unknown", magic)
	}
	switch {
	case size < least:
		return h, "the length is too small for the header"
	case h.size > remaining:
		return h, "the batch is cut short"
	case h.base < 0:
		return h, "the offset is negative"
	case len(b) < least:
		return h, "the header is cut short"
	}
	switch magic {
	case 1:
		h.maxTs = int64(binary.BigEndian.Uint64(b[18:]))
	case 2:
		h.epoch = int32(binary.BigEndian.Uint32(b[12:]))
		delta := int32(binary.BigEndian.Uint32(b[23:]))
		h.last += int64(delta)
		h.maxTs = int64(binary.BigEndian.Uint64(b[35:]))
		if delta < 0 || h.last < h.base {
			return h, "the last offset is below the first"
		}
	}
	if h.last == math.MaxInt64 {
		return h, "there is no offset behind its last one"
	}
	return h, ""
}

func (h header) position(at int64) Position {
	return Position{Base: h.base, LastOffset: h.last, Pos: at, Size: h.size, LeaderEpoch: h.epoch, MaxTimestamp: h.maxTs, Magic: h.magic}
}

// badBatch is an internal error: no batch can be read at pos. The segment turns it into ErrChanged or *CorruptError.
type badBatch struct {
	pos    int64
	offset int64 // -1 unknown
	reason string
	err    error
}

func (e *badBatch) Error() string { return fmt.Sprintf("byte %d: %s", e.pos, e.reason) }
func (e *badBatch) Unwrap() error { return e.err }

const walkWindow = 8 << 10

var walkBuffers = sync.Pool{New: func() any { return new([walkWindow]byte) }}

// walker steps from header to header of [pos, end) without reading what the batches hold. The caller closes it.
type walker struct {
	f        vfs.File
	pos, end int64
	buf      *[walkWindow]byte
	at       int64 // file position of buf[0]
	n        int
	near     bool // the batches so far were small: the next header lies in the window, too
}

// headerRead is what is read for one header alone: a page would cost as much as a small batch is worth.
const headerRead = 256

func walk(f vfs.File, pos, end int64) walker {
	return walker{f: f, pos: pos, end: end, buf: walkBuffers.Get().(*[walkWindow]byte)}
}

func (w *walker) close() { walkBuffers.Put(w.buf) }

// next returns the header at w.pos and steps behind its batch: io.EOF at the end, *badBatch, or an I/O error.
func (w *walker) next() (header, error) {
	if w.pos >= w.end {
		return header{}, io.EOF
	}
	want := int(min(record.HeaderSize, w.end-w.pos))
	if w.pos < w.at || w.pos+int64(want) > w.at+int64(w.n) {
		size := int64(headerRead)
		if w.near {
			size = walkWindow
		}
		n, err := readFull(w.f, w.buf[:min(size, w.end-w.pos)], w.pos)
		if err != nil {
			return header{}, err
		}
		w.at, w.n = w.pos, n
	}
	b := w.buf[w.pos-w.at : w.n]
	if len(b) > record.HeaderSize {
		b = b[:record.HeaderSize]
	}
	if len(b) < want {
		return header{}, &badBatch{pos: w.pos, offset: -1, reason: "the file is shorter than it was", err: io.ErrUnexpectedEOF}
	}
	h, reason := parseHeader(b, w.end-w.pos)
	if reason != "" {
		return header{}, &badBatch{pos: w.pos, offset: -1, reason: reason}
	}
	w.pos += h.size
	w.near = h.size < walkWindow/2
	return h, nil
}

// readFull reads len(p) bytes or up to the end of the file; the end is not an error.
func readFull(f vfs.File, p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		m, err := f.ReadAt(p[n:], off+int64(n))
		n += m
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if m == 0 {
			return n, io.ErrNoProgress
		}
	}
	return n, nil
}
