package segment

import (
	"errors"
	"io"
	"io/fs"
	"iter"
	"math"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/timeindex"
)

// indexes are the two open index objects of a segment. They are replaced together; a reader that meets one closed under
// it takes the new pair.
type indexes struct {
	offset   *index.Index
	time     *timeindex.Index
	writable bool
	heap     bool // built in memory, no file behind them
}

func (x *indexes) close() error { return errors.Join(x.offset.Close(), x.time.Close()) }

// errIndex: an index entry does not fit the log. Internal: the caller rebuilds and tries again.
var errIndex = errors.New("segment: index does not fit the log")

// createIndexes makes the empty files of a new segment; mu is held.
func (s *Segment) createIndexes() (*indexes, error) {
	for _, kind := range []string{idxSuffix, timeSuffix, txnSuffix} { // an index without its log is nobody's
		if err := s.o.FS.Remove(s.name(kind)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	off, err := index.Create(s.name(idxSuffix), s.base, s.o.index())
	if err != nil {
		return nil, err
	}
	tim, err := timeindex.Create(s.name(timeSuffix), s.base, s.o.index())
	if err != nil {
		off.Close()
		return nil, err
	}
	x := &indexes{offset: off, time: tim, writable: true}
	s.dirtyIndexes()
	s.ix.Store(x)
	return x, nil
}

// The places of the two indexes in Segment.dirtyIdx and Segment.entries.
const (
	offsetIndex = iota
	timeIndex
)

// dirtyIndexes notes that both were written.
func (s *Segment) dirtyIndexes() {
	s.dirtyIdx[offsetIndex].Store(true)
	s.dirtyIdx[timeIndex].Store(true)
}

// dropIndexes closes the index objects; mu is held.
func (s *Segment) dropIndexes() error {
	if x := s.ix.Swap(nil); x != nil {
		s.countEntries(x)
		return x.close()
	}
	return nil
}

func (s *Segment) countEntries(x *indexes) {
	s.entries[0].Store(int64(x.offset.Len()))
	s.entries[1].Store(int64(x.time.Len()))
}

// entryCounts is how many entries both indexes have; it opens them if nobody has yet.
func (s *Segment) entryCounts() (offset, time int64) {
	if x := s.ix.Load(); x != nil {
		return int64(x.offset.Len()), int64(x.time.Len())
	}
	if s.entries[0].Load() < 0 {
		if x, err := s.readIndexes(); err == nil {
			return int64(x.offset.Len()), int64(x.time.Len())
		}
	}
	return max(s.entries[0].Load(), 0), max(s.entries[1].Load(), 0)
}

// readIndexes returns the indexes for a look-up, opening them if need be.
func (s *Segment) readIndexes() (*indexes, error) {
	if x := s.ix.Load(); x != nil {
		return x, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loadIndexes(s.state.get() == active)
}

// loadIndexes opens and checks the index files, and rebuilds them if they are missing or damaged; mu is held.
func (s *Segment) loadIndexes(writable bool) (*indexes, error) {
	x := s.ix.Load()
	if x != nil && (x.writable || !writable) {
		return x, nil
	}
	if s.state.get() == closed {
		return nil, ErrClosed
	}
	if err := s.dropIndexes(); err != nil {
		return nil, err
	}
	if s.gone {
		return s.rebuildIndexes(writable)
	}
	x, err := s.openIndexes(writable, s.o.index())
	if errors.Is(err, index.ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
		return s.rebuildIndexes(writable)
	}
	if err != nil {
		return nil, err
	}
	s.ix.Store(x)
	return x, nil
}

// openIndexes opens and checks both files. index.ErrDamaged and fs.ErrNotExist mean: rebuild.
func (s *Segment) openIndexes(writable bool, o index.Options) (*indexes, error) {
	x, err := s.openUnchecked(writable, o)
	if err != nil {
		return nil, err
	}
	if err := s.checkIndexes(x); err != nil {
		x.close()
		return nil, err
	}
	return x, nil
}

func (s *Segment) openUnchecked(writable bool, o index.Options) (*indexes, error) {
	openOffset, openTime := index.OpenSealed, timeindex.OpenSealed
	if writable {
		openOffset, openTime = index.Open, timeindex.Open
	}
	off, err := openOffset(s.name(idxSuffix), s.base, o)
	if err != nil {
		return nil, err
	}
	tim, err := openTime(s.name(timeSuffix), s.base, o)
	if err != nil {
		off.Close()
		return nil, err
	}
	return &indexes{offset: off, time: tim, writable: writable}, nil
}

// checkIndexes looks for what can be seen without reading the log: order, bounds, padding.
func (s *Segment) checkIndexes(x *indexes) error {
	m := s.pub.load()
	if err := s.tolerate(x.offset.Check(m.size)); err != nil {
		return err
	}
	last := s.base + min(maxRelative, math.MaxInt64-s.base)
	if m.next >= 0 {
		last = m.next - 1
	}
	if err := s.tolerate(x.time.Check(last)); err != nil {
		return err
	}
	if s.o.ReadOnly {
		return nil
	}
	return s.checkFirstTime(x)
}

// checkFirstTime looks for a time index that was emptied or begins with zeros, as a length that reached the disk before
// its data leaves it: legal only if no batch has a timestamp, or if the first one has 0.
func (s *Segment) checkFirstTime(x *indexes) error {
	first, any, err := x.time.At(0)
	if err != nil || !any && s.pub.load().size == 0 || any && (first.Timestamp != 0 || first.Offset != s.base) {
		return err
	}
	if ts, err := s.FirstTimestamp(); err == nil && (!any && ts >= 0 || any && ts > 0) {
		return index.ErrDamaged
	}
	return nil
}

// tolerate lets zero padding pass for a reader beside a live broker, whose active indexes look like that.
func (s *Segment) tolerate(err error) error {
	if d, ok := errors.AsType[*index.DamageError](err); ok && d.Padding && s.o.ReadOnly {
		return nil
	}
	return err
}

// rebuildIndexes builds both indexes from the log as far as it parses; mu is held.
func (s *Segment) rebuildIndexes(writable bool) (*indexes, error) {
	h, err := s.acquire()
	if err != nil {
		return nil, err
	}
	defer h.release()
	b := s.newBuilder()
	w := walk(h, 0, s.pub.load().size)
	defer w.close()
	o := order{base: s.base, end: unknown, next: s.base}
	for {
		hd, err := w.next()
		if _, bad := errors.AsType[*badBatch](err); bad || err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		err = w.inOrder(&o, hd, b.pos, true)
		if err == nil && hd.last-s.base > maxRelative && !s.o.ReadOnly {
			return nil, &OverflowError{File: s.name(logSuffix), Base: s.base, Offset: hd.last}
		}
		if _, bad := errors.AsType[*badBatch](err); bad || hd.last-s.base > maxRelative {
			break
		}
		if err != nil {
			return nil, err
		}
		b.add(hd)
	}
	return s.useBuilt(b, writable)
}

// useBuilt writes what the builder gathered and opens it; mu is held. Where it cannot be written, on a full device say,
// readers do without files: the log is all they need, and the next use of the segment tries again.
func (s *Segment) useBuilt(b *builder, writable bool) (*indexes, error) {
	if err := s.dropIndexes(); err != nil {
		return nil, err
	}
	b.finish()
	if s.o.ReadOnly || s.gone {
		return s.useHeap(b)
	}
	if err := s.writeIndexes(b); err != nil {
		if writable {
			return nil, err
		}
		return s.useHeap(b)
	}
	// They are as good as the log is. Where that is bad from its first batch on they are empty, which is no fault of theirs:
	// whoever reads the log finds it.
	x, err := s.openUnchecked(writable, s.o.index())
	if err != nil {
		return nil, err
	}
	s.ix.Store(x)
	return x, nil
}

// useHeap is useBuilt without files.
func (s *Segment) useHeap(b *builder) (*indexes, error) {
	off, err := index.Build(s.base, b.offsetEntries())
	if err != nil {
		return nil, err
	}
	tim, err := timeindex.Build(s.base, b.timeEntries())
	if err != nil {
		off.Close()
		return nil, err
	}
	x := &indexes{offset: off, time: tim, heap: true}
	s.ix.Store(x)
	return x, nil
}

// unfile removes both index files, for want of room for better ones. Without them whoever opens the segment makes them anew,
// as a broker does. mu is held, no index is open.
func (s *Segment) unfile() error {
	s.dirtyIndexes()
	for _, kind := range []string{idxSuffix, timeSuffix} {
		if err := s.o.FS.Remove(s.name(kind)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// refile gives indexes that are in memory alone their files, if there is room by now.
func (s *Segment) refile() {
	if x := s.ix.Load(); x == nil || !x.heap || s.o.ReadOnly {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.ix.Load()
	if x == nil || !x.heap || s.gone || s.state.get() == closed {
		return
	}
	if err := s.writeEntries(x.offset.Entries(), x.time.Entries()); err != nil {
		_ = s.unfile() // one without the other is no better
		return
	}
	if filed, err := s.openUnchecked(false, s.o.index()); err == nil {
		s.ix.Store(filed)
		_ = x.close() // there is nothing behind it
	}
}

// writeIndexes replaces both index files by what the builder gathered, exactly sized; mu is held, no index is open.
func (s *Segment) writeIndexes(b *builder) error {
	return s.writeEntries(b.offsetEntries(), b.timeEntries())
}

func (s *Segment) writeEntries(offsets iter.Seq2[index.Entry, error], times iter.Seq2[timeindex.Entry, error]) error {
	defer s.dirtyIndexes()
	off, err := index.Rebuild(s.name(idxSuffix), s.base, s.o.index(), offsets)
	if err != nil {
		return err
	}
	if err := errors.Join(off.Seal(), off.Close()); err != nil {
		return err
	}
	tim, err := timeindex.Rebuild(s.name(timeSuffix), s.base, s.o.index(), times)
	if err != nil {
		return err
	}
	return errors.Join(tim.Seal(), tim.Close())
}

// distrust rebuilds the indexes after a reader found that bad does not fit the log. It does so once in the life of a
// Segment; if that does not help the log itself is to blame.
func (s *Segment) distrust(bad *indexes) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ix.Load() != bad {
		return nil // somebody was faster
	}
	if s.rebuilt.Swap(true) {
		return errIndex
	}
	_, err := s.rebuildIndexes(bad.writable)
	return err
}

// builder gathers the entries that a rebuild of the indexes from the log has, by the rule of recovery: a batch gets one
// if it starts more than the interval behind the last batch that got one.
type builder struct {
	base, interval     int64
	maxOffset, maxTime int
	pos, lastIndexed   int64
	first, last        int64 // first batch's largest timestamp; last offset so far
	maxTs, maxTsOffset int64
	offsets            []offsetPoint
	times              []timePoint
}

type offsetPoint struct{ relative, position uint32 }

type timePoint struct {
	timestamp int64
	relative  uint32
}

func (s *Segment) newBuilder() *builder {
	return &builder{base: s.base, interval: s.o.IndexIntervalBytes, maxOffset: int(s.o.IndexMaxBytes / index.EntrySize),
		maxTime: int(s.o.IndexMaxBytes / timeindex.EntrySize), first: -1, last: s.base - 1, maxTs: -1, maxTsOffset: s.base}
}

// add offers the next batch. An index that is full stays as it is: look-ups behind its end walk further.
func (b *builder) add(h header) {
	if h.maxTs > b.maxTs {
		b.maxTs, b.maxTsOffset = h.maxTs, h.last
	}
	if b.pos == 0 {
		b.first = h.maxTs
	}
	if b.pos-b.lastIndexed > b.interval && len(b.offsets) < b.maxOffset {
		b.offsets = append(b.offsets, offsetPoint{uint32(h.last - b.base), uint32(b.pos)})
		b.time(b.maxTime - 1)
		b.lastIndexed = b.pos
	}
	b.pos += h.size
	b.last = h.last
}

func (b *builder) time(limit int) {
	n := len(b.times)
	if n >= limit || b.maxTs < 0 || n > 0 && b.times[n-1].timestamp >= b.maxTs {
		return
	}
	b.times = append(b.times, timePoint{b.maxTs, uint32(b.maxTsOffset - b.base)})
}

// finish adds the last time entry, which may use the reserved slot.
func (b *builder) finish() { b.time(b.maxTime) }

func (b *builder) offsetEntries() iter.Seq2[index.Entry, error] {
	return func(yield func(index.Entry, error) bool) {
		for _, p := range b.offsets {
			if !yield(index.Entry{Offset: b.base + int64(p.relative), Position: int64(p.position)}, nil) {
				return
			}
		}
	}
}

func (b *builder) timeEntries() iter.Seq2[timeindex.Entry, error] {
	return func(yield func(timeindex.Entry, error) bool) {
		for _, p := range b.times {
			if !yield(timeindex.Entry{Timestamp: p.timestamp, Offset: b.base + int64(p.relative)}, nil) {
				return
			}
		}
	}
}
