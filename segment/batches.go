package segment

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"iter"
	"sync"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

const (
	readBuffer  = 256 << 10 // pooled; the most that is read ahead
	firstRead   = 16 << 10  // of a fresh reader; doubles up to readBuffer
	cacheLine   = 64        // bytes are put into a buffer as far behind one as in the file: such are copied fastest
	streamAbove = 8 << 20   // larger batches are CRC-checked in pieces before memory is taken for them
)

var readBuffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// reader reads whole, verified batches of [pos, end) in order, reading ahead. It is not safe for concurrent use.
type reader struct {
	f     vfs.File
	pos   int64 // of the next batch
	end   int64
	lent  *[readBuffer]byte
	buf   []byte // lent[:], or a larger one that a large batch needed
	r, n  int    // buf[r:n] are the bytes from pos on
	ahead int    // size of the next read
}

func newReader(f vfs.File, pos, end int64) reader {
	r := reader{f: f, pos: pos, end: end, ahead: firstRead, lent: readBuffers.Get().(*[readBuffer]byte)}
	r.buf = r.lent[:]
	return r
}

// close gives the buffer back: batches returned by next are invalid from now on.
func (r *reader) close() {
	if r.lent != nil {
		poison(r.buf)
		poison(r.lent[:])
		readBuffers.Put(r.lent)
		r.lent, r.buf = nil, nil
	}
}

// next returns the next batch and its position: io.EOF at the end, *badBatch where none can be read, or an I/O error.
// The position is right in all cases. The batch is valid until the next call.
func (r *reader) next() (record.Batch, int64, error) {
	at := r.pos
	if at >= r.end {
		return record.Batch{}, at, io.EOF
	}
	if err := r.fill(int(min(record.HeaderSize, r.end-at))); err != nil {
		return record.Batch{}, at, err
	}
	head := r.buf[r.r:r.n]
	h, reason := parseHeader(head[:min(len(head), record.HeaderSize)], r.end-at)
	if reason != "" {
		return record.Batch{}, at, &badBatch{pos: at, offset: -1, reason: reason}
	}
	if h.size > streamAbove && h.size > int64(len(r.buf)) {
		if ok, err := checksum(r.f, at, h); err != nil || !ok {
			return record.Batch{}, at, crcError(at, err)
		}
	}
	if err := r.fill(int(h.size)); err != nil {
		return record.Batch{}, at, err
	}
	b, err := record.View(r.buf[r.r : r.r+int(h.size) : r.r+int(h.size)])
	if err == nil {
		err = b.Verify()
	}
	if err != nil {
		bad := &badBatch{pos: at, offset: -1, reason: err.Error(), err: err}
		if c, ok := errors.AsType[*record.CorruptError](err); ok {
			bad.reason = c.Field + ": " + c.Reason
		}
		return record.Batch{}, at, bad
	}
	r.r += int(h.size)
	r.pos += h.size
	return b, at, nil
}

// fill makes at least n bytes of [pos, end) available in buf[r:].
func (r *reader) fill(n int) error {
	have := r.n - r.r
	if have >= n {
		return nil
	}
	at := int(r.pos % cacheLine)
	if at+n > len(r.buf) {
		at = 0
	}
	if n > len(r.buf) {
		grown := make([]byte, n) // n is bounded by what is left of the file
		copy(grown, r.buf[r.r:r.n])
		poison(r.buf)
		r.buf = grown
	} else if r.r != at {
		copy(r.buf[at:], r.buf[r.r:r.n])
	}
	r.r, r.n = at, at+have
	want := min(int64(max(n, min(r.ahead, len(r.buf)-at))-have), r.end-r.pos-int64(have))
	r.ahead = min(2*r.ahead, readBuffer)
	m, err := readFull(r.f, r.buf[r.n:r.n+int(want)], r.pos+int64(have))
	r.n += m
	if err != nil {
		return err
	}
	if r.n-r.r < n {
		return &badBatch{pos: r.pos, offset: -1, reason: "the file is shorter than it was", err: io.ErrUnexpectedEOF}
	}
	return nil
}

func crcError(at int64, err error) error {
	if err != nil {
		return err
	}
	return &badBatch{pos: at, offset: -1, reason: "crc: the checksum does not match the bytes", err: record.ErrCorrupt}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum compares the CRC of the batch at pos with its bytes without holding more than a small part of them.
//
//	magic 2     CRC-32C of everything behind the crc field (byte 17)
//	magic 0, 1  CRC-32 of everything behind the crc field (byte 12)
func checksum(f vfs.File, pos int64, h header) (bool, error) {
	table, field := castagnoli, int64(17)
	if h.magic < 2 {
		table, field = crc32.IEEETable, 12
	}
	buf := readBuffers.Get().(*[readBuffer]byte)
	defer readBuffers.Put(buf)
	var want, got uint32
	for at := field; at < h.size; {
		n, err := readFull(f, buf[:min(int64(len(buf)), h.size-at)], pos+at)
		if err != nil {
			return false, err
		}
		if n <= 4 && at == field {
			return false, nil
		}
		if n == 0 {
			return false, nil
		}
		b := buf[:n]
		if at == field {
			want, b = binary.BigEndian.Uint32(b), b[4:]
		}
		got = crc32.Update(got, table, b)
		at += int64(n)
	}
	return got == want, nil
}

// Batches iterates over the batches from position, which must be a batch boundary (Position.Pos), to the end of the
// segment as it is when ranging begins. A batch is a view that is valid until the next step. Every CRC is checked. The
// error, if any, comes once and last: ErrChanged, *CorruptError, ErrClosed, or an I/O error.
//
// A reference is held while ranging, nothing else. Batches of any size are read; memory beyond the pooled buffer is
// taken only for a batch that is larger than it and really there.
func (s *Segment) Batches(position int64) iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		if !s.Retain() {
			yield(record.Batch{}, ErrClosed)
			return
		}
		defer s.Release()
		if err := s.each(start{pos: position, ahead: firstRead}, yield); err != nil {
			yield(record.Batch{}, err)
		}
	}
}

func (s *Segment) each(at start, yield func(record.Batch, error) bool) error {
	if s.growing() {
		if err := s.settle(); err != nil {
			return err
		}
	}
	m := s.pub.load()
	if at.pos < 0 || at.pos > m.size {
		return ErrChanged
	}
	h, err := s.acquire()
	if err != nil {
		return err
	}
	defer h.release()
	r := newReader(h, at.pos, m.size)
	defer r.close()
	r.ahead = int(min(max(at.ahead, minHeader), readBuffer))
	o := order{base: s.base, end: m.next, next: -1}
	if at.pos == 0 {
		o.next = s.base
	}
	for ; ; at.guessed = false {
		b, pos, err := r.next()
		if at.guessed && (err != nil || !at.fits(b)) {
			return errGuess
		}
		if err == io.EOF {
			return nil
		}
		if bad, ok := errors.AsType[*badBatch](err); ok && o.next >= 0 {
			bad.offset = o.next
		}
		if err == nil {
			err = r.inOrder(&o, b, pos)
		}
		if err != nil {
			return s.blame(err, m.cuts)
		}
		if s.pub.cuts.Load() != m.cuts {
			return ErrChanged
		}
		if !yield(b, nil) {
			return nil
		}
	}
}
