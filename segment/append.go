package segment

import (
	"errors"
	"fmt"
	"time"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/timeindex"
)

// Append writes whole batches behind the last one, with one positional write, and publishes them. raw is not kept. The
// batches must be verified already (their CRCs are not looked at), with final offsets that continue the segment: at or
// above the next offset, ascending; gaps are legal. The very first batch may begin below the segment's base if it ends at or
// above it: a log can begin inside a batch. It returns the position of the first batch.
//
// Nothing of raw is in the segment after an error: *OrderError, *OverflowError (roll first), a *record.CorruptError for
// bytes that are no batches, ErrSealed, ErrReadOnly, ErrClosed, an I/O error. If a failed write could not be undone
// the error is ErrBroken and the segment takes no more appends.
func (s *Segment) Append(raw []byte) (position int64, err error) { return s.AppendAt(raw, s.o.Now()) }

// AppendAt is Append for a caller that has read the clock already: now becomes Info.ModTime.
func (s *Segment) AppendAt(raw []byte, now time.Time) (position int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ix, err := s.activate()
	if err != nil {
		return 0, err
	}
	m := s.pub.load()
	only, err := s.admit(raw, &m)
	if err != nil {
		return 0, err
	}
	if len(raw) == 0 {
		return m.size, nil
	}
	if err := s.own(); err != nil {
		return 0, err
	}
	if err := s.write(ix, raw, only, &m, now); err != nil {
		return 0, err
	}
	return m.size, nil
}

// write is an append of what was admitted, behind m.
func (s *Segment) write(ix *indexes, raw []byte, only record.Batch, m *marks, now time.Time) error {
	h, err := s.acquire() // or the budget could close it
	if err != nil {
		return err
	}
	defer h.release()
	n, err := h.WriteAt(raw, m.size)
	h.wrote()
	if err != nil || n < len(raw) {
		if err == nil {
			err = fmt.Errorf("%s: wrote %d of %d bytes", s.name(logSuffix), n, len(raw))
		}
		return s.cutBack(h, *m, err)
	}
	grown, since := *m, s.since
	if err := s.enter(ix, raw, only, &grown, &since); err != nil {
		err = errors.Join(err, ix.offset.Truncate(m.next), ix.time.Truncate(m.next))
		return s.cutBack(h, *m, err)
	}
	s.since = since
	s.pub.store(grown)
	s.modTime.Store(now.UnixMilli())
	return nil
}

// activate makes the segment ready for appends: indexes open for writing, marks known; mu is held.
func (s *Segment) activate() (*indexes, error) {
	switch {
	case s.o.ReadOnly:
		return nil, ErrReadOnly
	case s.state.get() == closed || s.closing.Load():
		return nil, ErrClosed
	case s.state.get() == sealed:
		return nil, ErrSealed
	}
	if err := s.failure(); err != nil {
		return nil, err
	}
	if s.state.get() == active {
		if x := s.ix.Load(); x != nil && x.writable {
			return x, nil
		}
	}
	return s.activateSlow()
}

func (s *Segment) activateSlow() (*indexes, error) {
	if err := s.settleLocked(); err != nil {
		return nil, err
	}
	x, err := s.loadIndexes(true)
	if err != nil {
		return nil, err
	}
	err = s.learnTimestamps(x)
	if errors.Is(err, errIndex) && !s.rebuilt.Swap(true) {
		if x, err = s.rebuildIndexes(true); err == nil {
			err = s.learnTimestamps(x)
		}
	}
	if err != nil {
		return nil, err
	}
	s.state.set(active)
	return x, nil
}

// learnTimestamps fills the marks that appends go on from.
func (s *Segment) learnTimestamps(x *indexes) error {
	m := s.pub.load()
	if m.maxTs == unknown {
		h, err := s.acquire()
		if err != nil {
			return err
		}
		ts, off, err := view{s: s, f: h, ix: x, m: m}.largest()
		h.release()
		if err != nil {
			return s.blame(err, m.cuts)
		}
		s.pub.learn(m.cuts, func(m *marks) { m.maxTs, m.maxTsOffset = ts, off })
	}
	if m.firstTs == unknown && m.size > 0 {
		if _, err := s.FirstTimestamp(); err != nil {
			return err
		}
	}
	return nil
}

func lastTime(x *indexes, base int64) (ts, offset int64) {
	e, ok := x.time.Last()
	if !ok {
		return -1, base
	}
	return e.Timestamp, e.Offset
}

// admit checks that raw is whole batches that continue the segment and fit into it. A batch that is all of raw comes back.
func (s *Segment) admit(raw []byte, m *marks) (only record.Batch, err error) {
	next := m.next
	for rest := raw; len(rest) > 0; {
		b, after, err := record.Next(rest)
		if err != nil {
			return only, fmt.Errorf("%s: bytes to append: %w", s.name(logSuffix), err)
		}
		first, last := b.BaseOffset(), b.LastOffset()
		switch {
		case first < next && !(m.size == 0 && next == s.base && last >= next) || last < first:
			return only, &OrderError{File: s.name(logSuffix), Offset: first, Want: next}
		case last-s.base > maxRelative:
			return only, &OverflowError{File: s.name(logSuffix), Base: s.base, Offset: last}
		}
		if b.Size() == len(raw) {
			only = b
		}
		next, rest = last+1, after
	}
	if m.size+int64(len(raw)) > maxBytes {
		return only, &OverflowError{File: s.name(logSuffix), Base: s.base, Offset: s.base, Bytes: m.size + int64(len(raw))}
	}
	return only, nil
}

// enter offers the batches of raw, which begin at m.size, to the indexes and moves the marks behind them. An index that is
// full takes no entry: look-ups walk further, and the next append rolls.
func (s *Segment) enter(ix *indexes, raw []byte, only record.Batch, m *marks, since *int64) error {
	if only.Size() > 0 {
		return s.enterBatch(ix, only, m, since)
	}
	for rest := raw; len(rest) > 0; {
		b, after, err := record.Next(rest)
		if err == nil {
			err = s.enterBatch(ix, b, m, since)
		}
		if err != nil {
			return err
		}
		rest = after
	}
	return nil
}

func (s *Segment) enterBatch(ix *indexes, b record.Batch, m *marks, since *int64) error {
	ts, last, size := b.MaxTimestamp(), b.LastOffset(), int64(b.Size())
	if m.size == 0 {
		m.firstTs = ts
	}
	if ts > m.maxTs {
		m.maxTs, m.maxTsOffset = ts, last
	}
	if *since > s.o.IndexIntervalBytes {
		if err := s.index(ix, m, last); err != nil {
			return err
		}
		*since = 0
	}
	m.size += size
	*since += size
	m.next = last + 1
	return nil
}

func (s *Segment) index(ix *indexes, m *marks, last int64) error {
	err := ix.offset.Append(index.Entry{Offset: last, Position: m.size})
	if err != nil && !errors.Is(err, index.ErrFull) {
		return err
	}
	s.dirtyIdx[offsetIndex].Store(true)
	if m.maxTs < 0 {
		return nil
	}
	added, err := ix.time.Append(timeindex.Entry{Timestamp: m.maxTs, Offset: m.maxTsOffset})
	if added {
		s.dirtyIdx[timeIndex].Store(true)
	}
	if err != nil && !errors.Is(err, index.ErrFull) {
		return err
	}
	return nil
}

// cutBack undoes a failed append: the file ends where it did. If that fails too the segment stops.
func (s *Segment) cutBack(h *handle, m marks, cause error) error {
	err := h.Truncate(m.size)
	h.wrote()
	if err != nil {
		return s.stop(errors.Join(cause, err))
	}
	return fmt.Errorf("%s: append at offset %d: %w", s.name(logSuffix), m.next, cause)
}
