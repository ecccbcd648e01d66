package segment

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"syscall"

	"github.com/partlog/partlog/record"
)

// Region is a byte range of one segment. It starts at a batch boundary and may end inside a batch. It holds a reference
// to the segment until Close. The zero Region is empty. ReadAt and WriteTo may run concurrently; Close may not run
// beside them. Do not copy a Region that is going to be closed twice.
type Region struct {
	s     *Segment
	pos   int64
	n     int64
	cuts  int64
	first Position
}

// Region returns the bytes from the batch that holds offset on (it may begin before offset; behind a gap it is the next
// batch). The range holds whole batches whose last offset is below bound, but is cut to maxBytes, which may be inside a
// batch; with atLeastOne the first batch is whole even if it is larger than maxBytes. A bound at or above NextOffset
// costs no look-up.
//
// ErrNotFound: no batch here ends at or above offset. An empty Region: the batch is there, but not below bound, or
// maxBytes is 0. Errors as Find.
func (s *Segment) Region(offset, maxBytes, bound int64, atLeastOne bool) (Region, error) {
	if maxBytes < 0 {
		return Region{}, fmt.Errorf("segment: %d is no size for a region", maxBytes)
	}
	if !s.Retain() {
		return Region{}, ErrClosed
	}
	var r Region
	err := s.reading(func(v view) (err error) {
		r, err = v.region(offset, maxBytes, bound, atLeastOne)
		return err
	})
	if err != nil {
		s.Release()
		return Region{}, err
	}
	r.s = s
	return r, nil
}

func (v view) region(offset, maxBytes, bound int64, atLeastOne bool) (Region, error) {
	p, err := v.find(offset)
	if err != nil {
		return Region{}, err
	}
	limit := v.m.size
	if v.m.next < 0 || bound < v.m.next {
		q, err := v.find(bound)
		bad, damaged := errors.AsType[*badBatch](err)
		switch {
		case err == nil:
			limit = q.Pos
		case damaged && bad.pos > p.Pos:
			limit = bad.pos // what stands before it can be read; whoever asks for what is behind is told
		case err != ErrNotFound:
			return Region{}, err
		}
	}
	n := maxBytes
	if atLeastOne {
		n = max(n, p.Size)
	}
	return Region{pos: p.Pos, n: max(min(n, limit-p.Pos), 0), cuts: v.m.cuts, first: p}, nil
}

// Trim shortens the region to whole batches, none if not even the first one fits. ErrChanged as ReadAt; other errors as
// Find.
func (r *Region) Trim() error {
	if r.n == 0 {
		return nil
	}
	var n int64
	err := r.s.reading(func(v view) (err error) {
		if v.m.cuts != r.cuts {
			return nil
		}
		n, _, err = v.whole(r.pos, r.pos+r.n)
		return err
	})
	if err == nil && r.s.pub.cuts.Load() != r.cuts {
		err = ErrChanged
	}
	if err == nil {
		r.n = n
	}
	return err
}

// Next is an offset behind the last whole batch of the region, and not behind the batch that follows. Errors as Trim; the
// region stays as it is.
func (r *Region) Next() (next int64, err error) {
	if r.n == 0 {
		return r.first.Base, nil
	}
	err = r.s.reading(func(v view) (err error) {
		switch end := r.pos + r.n; {
		case v.m.cuts != r.cuts:
		case v.m.next >= 0 && end == v.m.size:
			next = v.m.next
		default:
			_, next, err = v.whole(r.pos, end)
		}
		return err
	})
	if err == nil && r.s.pub.cuts.Load() != r.cuts {
		err = ErrChanged
	}
	return next, err
}

// whole is how many bytes of [pos, end) are whole batches, and where the offsets of what follows begin. The last index
// entry below end leads there.
func (v view) whole(pos, end int64) (n, next int64, err error) {
	from := pos
	behind, ok, err := v.ix.offset.UpperBound(end)
	if err != nil {
		return 0, 0, err
	}
	e, _ := v.ix.offset.Last()
	if ok {
		if e, err = v.ix.offset.Lookup(behind.Offset - 1); err != nil {
			return 0, 0, err
		}
	}
	if e.Position > from && e.Position < end {
		from = e.Position
	}
	w := walk(v.f, from, v.m.size)
	defer w.close()
	for {
		at := w.pos
		h, err := w.next()
		switch {
		case err == nil && at == from && from == e.Position && from > pos:
			err = v.trustEntry(e, h, at)
		case err == io.EOF:
			return at - pos, next, nil
		}
		switch {
		case err != nil:
			return 0, 0, v.suspect(err, from)
		case w.pos == end:
			return end - pos, h.last + 1, nil
		case w.pos > end:
			return at - pos, h.base, nil
		}
		next = h.last + 1
	}
}

// Len is the number of bytes.
func (r *Region) Len() int64 { return r.n }

// First is the batch the region starts with, also if the region is empty because of its bound or size.
func (r *Region) First() Position { return r.first }

// Position is the first byte of the region in the .log.
func (r *Region) Position() int64 { return r.pos }

// Batches iterates over the whole batches of the region, CRCs checked; a batch that the region's end cuts in two is left
// out. Views, valid until the next step; errors as Segment.Batches.
func (r *Region) Batches() iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		at := r.pos
		if r.n == 0 {
			return
		}
		for b, err := range r.s.Batches(r.pos) {
			if err == nil {
				if at += int64(b.Size()); at > r.pos+r.n {
					return
				}
			}
			if !yield(b, err) || err != nil || at == r.pos+r.n {
				return
			}
		}
	}
}

// ReadAt reads from the region as an io.ReaderAt: io.EOF at its end. ErrChanged if the segment was truncated since the
// region was made, whether or not the bytes asked for were touched.
func (r *Region) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("segment: negative offset %d in a region", off)
	}
	if off >= r.n {
		return 0, io.EOF
	}
	h, err := r.s.acquire()
	if err != nil {
		return 0, err
	}
	defer h.release()
	want := int(min(int64(len(p)), r.n-off))
	n, err := readFull(h, p[:want], r.pos+off)
	if err == nil {
		err = r.check(off+int64(n), n == want)
	}
	if err == nil && want < len(p) {
		err = io.EOF
	}
	return n, err
}

// check judges bytes that were just read or sent: at is where they end in the region.
func (r *Region) check(at int64, whole bool) error {
	if r.s.pub.cuts.Load() != r.cuts || !whole && r.s.shrunk() {
		if whole {
			return ErrChanged
		}
		return errors.Join(ErrChanged, io.ErrUnexpectedEOF)
	}
	if !whole {
		return &CorruptError{File: r.s.File(), Position: r.pos + at, Offset: -1, Reason: "the file is shorter than it was", Err: io.ErrUnexpectedEOF}
	}
	return nil
}

// WriteTo sends the region. To a socket on Linux it is sendfile with an offset of its own, so that any number of
// goroutines may send from one file; the socket's write deadline ends a stalled send. Elsewhere, and to other writers, it
// copies through a pooled buffer. A file that became shorter is io.ErrUnexpectedEOF (and ErrChanged if it was cut).
func (r *Region) WriteTo(w io.Writer) (int64, error) {
	if r.n == 0 {
		return 0, nil
	}
	h, err := r.s.acquire()
	if err != nil {
		return 0, err
	}
	defer h.release()
	var sent int64
	if c, ok := w.(syscall.Conn); ok && r.s.o.FS.Traits(r.s.dir).Sendfile {
		n, handled, err := r.send(c, h)
		if err != nil || handled {
			return n, err
		}
		sent = n
	}
	n, err := r.copyTo(w, h, sent)
	return sent + n, err
}

func (r *Region) copyTo(w io.Writer, h *handle, from int64) (sent int64, err error) {
	buf := readBuffers.Get().(*[readBuffer]byte)
	defer readBuffers.Put(buf)
	for at := from; at < r.n; {
		want := int(min(readBuffer, r.n-at))
		n, err := readFull(h, buf[:want], r.pos+at)
		if err != nil {
			return sent, err
		}
		bad := r.check(at+int64(n), n == want)
		if errors.Is(bad, ErrChanged) || n == 0 {
			return sent, bad
		}
		m, err := w.Write(buf[:n])
		sent += int64(m)
		if err == nil && m < n {
			err = io.ErrShortWrite
		}
		if err == nil {
			err = bad
		}
		if err != nil {
			return sent, err
		}
		at += int64(n)
	}
	return sent, nil
}

// Close gives the reference back. A second Close does nothing.
func (r *Region) Close() error {
	if s := r.s; s != nil {
		r.s, r.n = nil, 0
		s.Release()
	}
	return nil
}
