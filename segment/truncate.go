package segment

import (
	"errors"
	"io"

	"github.com/partlog/partlog/index"
)

// Truncate removes the batch that holds offset and everything behind it, and returns the bytes that went away. It cuts
// between batches: NextOffset afterwards is the end that was really left, which may be below offset, never above. The
// segment takes appends again. It is not durable before Sync.
//
// Readers are not waited for: one that read what went away gets ErrChanged. If the cut fails halfway the segment stops
// (ErrBroken).
//
// A .log that has other names (hard links: a backup) is copied first, and the copy is cut: what is under the other names
// stays whole. So does Recover where it cuts, and the first append after Open.
func (s *Segment) Truncate(offset int64) (cut int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.state.get()
	if was == sealed && !s.gone {
		s.state.set(opened)
	}
	if was != active {
		s.owned = false // it may have got another name since
	}
	x, err := s.activate()
	if err != nil {
		s.state.set(was)
		return 0, err
	}
	if err := s.own(); err != nil {
		return 0, err
	}
	h, err := s.acquire()
	if err != nil {
		return 0, err
	}
	defer h.release()
	defer h.wrote()
	v := view{s: s, f: h, ix: x, m: s.pub.load()}
	keep, err := v.endBefore(offset)
	if errors.Is(err, errIndex) {
		s.rebuilt.Store(true)
		if v.ix, err = s.rebuildIndexes(true); err == nil {
			keep, err = v.endBefore(offset)
		}
	}
	if err != nil {
		return 0, s.blame(err, v.m.cuts)
	}
	if err := s.truncateAt(v, offset, keep); err != nil {
		return 0, s.stop(err)
	}
	s.since = 0
	return v.m.size - keep.size, nil
}

// endBefore finds the marks of the segment without the batch that holds offset and those behind it. Timestamps are left
// to learnMax.
func (v view) endBefore(offset int64) (marks, error) {
	keep := v.m
	p, err := v.find(offset)
	if err == ErrNotFound {
		return keep, nil
	}
	if err != nil {
		return keep, err
	}
	keep.size, keep.next = p.Pos, v.s.base
	if p.Pos == 0 {
		keep.firstTs, keep.maxTs, keep.maxTsOffset = unknown, -1, v.s.base
		return keep, nil
	}
	// The batch before: walk to it from an entry that is below the one found.
	e, err := v.ix.offset.Lookup(max(min(p.Base, offset)-1, v.s.base))
	if err != nil {
		return keep, err
	}
	if e.Position >= p.Pos {
		e = index.Entry{Offset: v.s.base}
	}
	w := walk(v.f, e.Position, p.Pos)
	defer w.close()
	for {
		h, err := w.next()
		if err == io.EOF {
			return keep, nil
		}
		if err != nil {
			return keep, v.suspect(err, e.Position)
		}
		keep.next = h.last + 1
	}
}

// truncateAt cuts indexes and log. The shorter marks are published first, so that a reader that starts meanwhile does not
// look at bytes that go away.
func (s *Segment) truncateAt(v view, offset int64, keep marks) error {
	if keep.size == v.m.size {
		offset = keep.next
	}
	if keep.size < v.m.size {
		s.pub.cut(keep)
	}
	defer s.dirtyIndexes()
	if err := errors.Join(v.ix.offset.Truncate(offset), v.ix.time.Truncate(offset), s.txn.truncate(s, offset)); err != nil {
		return err
	}
	if keep.size < v.m.size {
		if err := v.f.Truncate(keep.size); err != nil {
			return err
		}
	}
	s.modTime.Store(s.o.Now().UnixMilli())
	if keep.size == 0 {
		s.created.Store(s.o.Now().UnixMilli())
		return nil
	}
	v.m = s.pub.load()
	ts, off, err := v.largest()
	if errors.Is(err, errIndex) {
		if v.ix, err = s.rebuildIndexes(true); err == nil {
			ts, off, err = v.largest()
		}
	}
	if err != nil {
		return err
	}
	s.pub.learn(v.m.cuts, func(m *marks) { m.maxTs, m.maxTsOffset = ts, off })
	return nil
}

// largest recomputes the largest timestamp: the last time entry, or a batch behind it with a larger one.
func (v view) largest() (ts, offset int64, err error) {
	ts, offset = lastTime(v.ix, v.s.base)
	e, err := v.ix.offset.Lookup(max(offset, v.s.base))
	if err != nil {
		return 0, 0, err
	}
	if e.Position < 0 || e.Position > v.m.size {
		return 0, 0, errIndex
	}
	w := walk(v.f, e.Position, v.m.size)
	defer w.close()
	for first := true; ; first = false {
		at := w.pos
		h, err := w.next()
		if err == io.EOF {
			return ts, offset, nil
		}
		if err == nil && first && at > 0 {
			err = v.trustEntry(e, h, at)
		}
		if err != nil {
			return 0, 0, v.suspect(err, e.Position)
		}
		if h.maxTs > ts {
			ts, offset = h.maxTs, h.last
		}
	}
}
