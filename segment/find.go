package segment

import (
	"errors"
	"io"
	"io/fs"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/vfs"
)

// Position is a batch of the segment as its header describes it.
type Position struct {
	Base, LastOffset int64 // of the batch; for legacy entries both are the entry's offset
	Pos, Size        int64 // first byte in the .log, and bytes
	LeaderEpoch      int32 // -1 none
	MaxTimestamp     int64 // -1 none
	Magic            int8
}

// tries bounds how often a read starts over because the segment changed under it.
const tries = 8

// reading runs f with the open log, the indexes and a reading of the marks, and again if an index turned out not to fit
// or the segment was cut meanwhile.
func (s *Segment) reading(f func(v view) error) error {
	var err error
	for range tries {
		if err = s.readOnce(f); err == nil {
			return nil
		}
		switch {
		case errors.Is(err, errRetry), errors.Is(err, ErrChanged):
		default:
			return err
		}
	}
	if errors.Is(err, errRetry) {
		return ErrChanged
	}
	return err
}

var errRetry = errors.New("segment: start over")

// view is what one attempt to read works with.
type view struct {
	s  *Segment
	f  vfs.File
	ix *indexes
	m  marks
}

func (s *Segment) readOnce(f func(v view) error) error {
	if s.growing() {
		if err := s.settle(); err != nil {
			return err
		}
	}
	m := s.pub.load()
	ix, err := s.readIndexes()
	if err != nil {
		return err
	}
	h, err := s.acquire()
	if err != nil {
		return err
	}
	defer h.release()
	err = f(view{s: s, f: h, ix: ix, m: m})
	switch {
	case err == nil || err == ErrNotFound:
		if s.pub.cuts.Load() != m.cuts {
			return ErrChanged
		}
		return err
	case errors.Is(err, fs.ErrClosed) && s.ix.Load() != ix:
		return errRetry
	case errors.Is(err, errIndex) || errors.Is(err, index.ErrDamaged) || errors.Is(err, vfs.ErrFault):
		if s.pub.cuts.Load() != m.cuts {
			return ErrChanged
		}
		if e := s.distrust(ix); e != nil && !errors.Is(e, errIndex) {
			return e
		} else if e != nil {
			return &CorruptError{File: s.File(), Position: 0, Offset: -1, Reason: "the log does not fit an index just made from it", Err: err}
		}
		return errRetry
	}
	return s.blame(err, m.cuts)
}

// blame turns an internal error into what the caller sees: ErrChanged if the segment was cut since cuts were counted,
// *CorruptError otherwise.
func (s *Segment) blame(err error, cuts int64) error {
	bad, ok := errors.AsType[*badBatch](err)
	if !ok {
		return err
	}
	if s.pub.cuts.Load() != cuts || s.shrunk() {
		return ErrChanged
	}
	return s.corrupt(bad)
}

func (s *Segment) corrupt(bad *badBatch) *CorruptError {
	return &CorruptError{File: s.File(), Position: bad.pos, Offset: bad.offset, Reason: bad.reason, Err: bad.err}
}

// Find returns the first batch whose last offset is at or above offset: the batch that holds it, or the next one behind
// a gap. ErrNotFound if there is none here; never for unreadable bytes, which are a *CorruptError. Lock-free but for
// the first use of an index.
func (s *Segment) Find(offset int64) (Position, error) {
	var p Position
	err := s.reading(func(v view) (err error) {
		p, err = v.find(offset)
		return err
	})
	return p, err
}

func (v view) find(offset int64) (Position, error) {
	if v.m.next >= 0 && offset >= v.m.next || v.m.size == 0 {
		return Position{}, ErrNotFound
	}
	e := index.Entry{Offset: v.s.base}
	if offset > v.s.base {
		var err error
		if e, err = v.ix.offset.Lookup(offset); err != nil {
			return Position{}, err
		}
	}
	return v.findFrom(e, offset)
}

// findFrom walks from an index entry to the first batch that ends at or above offset.
func (v view) findFrom(e index.Entry, offset int64) (Position, error) {
	p, _, err := v.walkFrom(e, offset, false)
	return p, err
}

// walkFrom walks from an index entry to the first batch that ends at or above offset, or, if begins is true, begins there.
// before is then the last batch in front of that, its Size 0 if there is none; it is known with ErrNotFound, too.
func (v view) walkFrom(e index.Entry, offset int64, begins bool) (found, before Position, err error) {
	if e.Position < 0 || e.Position >= v.m.size {
		return found, before, errIndex
	}
	w := walk(v.f, e.Position, v.m.size)
	defer w.close()
	o := order{base: v.s.base, end: v.m.next, next: v.s.base}
	if e.Position > 0 {
		o.next = -1
	}
	for first := true; ; first = false {
		at := w.pos
		h, err := w.next()
		if err == io.EOF {
			return found, before, ErrNotFound
		}
		if err == nil && first && at > 0 {
			err = v.trustEntry(e, h, at)
		}
		if err == nil && !first && e.Position > 0 && o.next <= e.Offset && h.last > e.Offset {
			err = errIndex // an old broker's entry names the last of several batches: there is no such batch
		}
		reached := h.last >= offset
		if begins {
			reached = h.base >= offset
		}
		if err == nil {
			err = w.inOrder(&o, h, at, reached)
		}
		if err != nil {
			return found, Position{}, v.suspect(err, e.Position)
		}
		if reached {
			return h.position(at), before, nil
		}
		if begins {
			before = h.position(at)
		}
	}
}

// trustEntry checks that a batch does begin where an index entry says. Kafka's entries name the last offset of that batch;
// old brokers made one entry for several batches written together, named after the last of them: then the CRC decides.
func (v view) trustEntry(e index.Entry, h header, at int64) error {
	if h.last == e.Offset && h.base >= v.s.base {
		return nil
	}
	if h.last > e.Offset || h.base < v.s.base {
		return errIndex
	}
	ok, err := checksum(v.f, at, h)
	if err == nil && !ok {
		err = errIndex
	}
	return err
}

// suspect blames the index for a bad batch on a walk that began where an entry says, unless the index has just been made
// from the log.
func (v view) suspect(err error, from int64) error {
	if _, bad := errors.AsType[*badBatch](err); bad && from > 0 && !v.s.rebuilt.Load() {
		return errIndex
	}
	return err
}

// First returns the segment's first batch; ErrNotFound if it is empty. Its base and epoch are what an overlap with the
// segment before is judged by.
func (s *Segment) First() (Position, error) {
	m := s.pub.load()
	h, err := s.acquire()
	if err != nil {
		return Position{}, err
	}
	defer h.release()
	w := walk(h, 0, m.size)
	defer w.close()
	hd, err := w.next()
	if err == io.EOF {
		return Position{}, ErrNotFound
	}
	if err != nil {
		return Position{}, s.blame(err, m.cuts)
	}
	if s.pub.cuts.Load() != m.cuts {
		return Position{}, ErrChanged
	}
	s.pub.learn(m.cuts, func(m *marks) { m.firstTs = hd.maxTs })
	return hd.position(0), nil
}

// NextOffset is the offset behind the last batch, the base if there is none. After Open the first call reads the
// log from the last index entry on, with CRCs; a tail that is not whole batches is a *CorruptError (Recover cuts it).
func (s *Segment) NextOffset() (int64, error) {
	if m := s.pub.load(); m.next >= 0 {
		return m.next, nil
	}
	if err := s.settle(); err != nil {
		return 0, err
	}
	return s.pub.load().next, nil
}

// growing says that another process may be appending: what is not whole batches at the end is not there yet.
func (s *Segment) growing() bool { return s.o.ReadOnly && !s.o.Whole }

// settle learns the next offset.
func (s *Segment) settle() error {
	if s.pub.load().next >= 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settleLocked()
}

func (s *Segment) settleLocked() error {
	m := s.pub.load()
	if m.next >= 0 {
		return nil
	}
	ix, passing, err := s.settlingIndexes()
	if err != nil {
		return err
	}
	if passing {
		defer ix.close() // nothing was written
	}
	h, err := s.acquire()
	if err != nil {
		return err
	}
	defer h.release()
	r, err := s.settleFrom(h, ix, m.size)
	if err != nil {
		return err
	}
	if r.bad != nil && !s.growing() {
		return s.corrupt(r.bad)
	}
	if r.next-1-s.base > maxRelative && !s.o.ReadOnly { // it can be read all the same
		return &OverflowError{File: s.name(logSuffix), Base: s.base, Offset: r.next - 1}
	}
	s.pub.learn(m.cuts, func(m *marks) { m.size, m.next = r.end, r.next })
	if r.last.Size > 0 {
		s.settled.Store(&settled{size: r.end, cuts: m.cuts, last: r.last})
	}
	return nil
}

// settlingIndexes are the indexes for a look at the end. Of a segment that nobody has used yet they serve for that look
// only, unmapped: an idle log keeps nothing open.
func (s *Segment) settlingIndexes() (ix *indexes, passing bool, err error) {
	if s.ix.Load() == nil && s.state.get() == opened && !s.gone && !s.o.ReadOnly {
		o := s.o.index()
		o.Map = index.Never
		if ix, err = s.openIndexes(false, o); err == nil {
			return ix, true, nil
		}
	}
	ix, err = s.loadIndexes(s.state.get() == active) // says, or repairs, what is wrong
	return ix, false, err
}

// settled is the last batch of a segment as long as its size and cuts are these.
type settled struct {
	size, cuts int64
	last       Position
}

// Last returns the segment's last batch; ErrNotFound if it is empty. Errors as NextOffset and Find.
func (s *Segment) Last() (Position, error) {
	next, err := s.NextOffset()
	if err != nil {
		return Position{}, err
	}
	m := s.pub.load()
	if e := s.settled.Load(); e != nil && e.size == m.size && e.cuts == m.cuts {
		return e.last, nil
	}
	return s.Find(next - 1)
}

// stretch is what lies between a position and the end of the file.
type stretch struct {
	end, next int64     // where its batches end, and the offset behind them
	last      Position  // the last of them; Size is 0 if there is none
	bad       *badBatch // why that is before the end of the file
}

// settleFrom reads to the end from the last index entry; if not even its batch is good, from the entry before it, and at
// last from the start.
func (s *Segment) settleFrom(f vfs.File, ix *indexes, size int64) (stretch, error) {
	e, _ := ix.offset.Last()
	for range 2 {
		r, err := s.readToEnd(f, e.Position, size, s.base)
		if err != nil || r.bad == nil || r.end > e.Position || e.Position == 0 {
			return r, err
		}
		if e, err = ix.offset.Lookup(e.Offset - 1); err != nil {
			return stretch{}, err
		}
	}
	return s.readToEnd(f, 0, size, s.base)
}

// readToEnd verifies the batches from pos on, none of which may lie below from.
func (s *Segment) readToEnd(f vfs.File, pos, size, from int64) (stretch, error) {
	r := newReader(f, pos, size)
	defer r.close()
	all := stretch{end: pos, next: from}
	o := order{base: s.base, end: unknown, next: -1}
	if pos == 0 || from > s.base {
		o.next = from
	}
	for {
		b, at, err := r.next()
		all.end = at
		if err == io.EOF {
			return all, nil
		}
		if err == nil {
			err = r.inOrder(&o, b, at)
		}
		if bad, ok := errors.AsType[*badBatch](err); ok {
			bad.offset = all.next
			all.bad = bad
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all.next, all.last = b.NextOffset(), headerOf(b).position(at)
	}
}

// shrunk says whether another process has cut the file of a read-only segment, and counts that as a cut.
func (s *Segment) shrunk() bool {
	if !s.o.ReadOnly {
		return false
	}
	info, err := s.o.FS.Stat(s.name(logSuffix))
	if err != nil || info.Size() >= s.pub.load().size {
		return false
	}
	s.pub.cut(marks{size: info.Size(), next: unknown, maxTs: unknown, maxTsOffset: s.base, firstTs: unknown})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropIndexes()
	return true
}
