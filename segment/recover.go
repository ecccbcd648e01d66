package segment

import (
	"context"
	"io"

	"github.com/partlog/partlog/internal/nospace"
)

// Recover scans the segment, cuts what is behind the last good batch and rebuilds both indexes from the log, by Kafka's
// rule, so that running it twice leaves the same bytes as once. The transaction index only loses entries that speak of
// offsets that went away; SetAborted replaces it.
//
// Damage below o.Durable is never cut: the error is the *CorruptError of Scan.FirstBad and nothing was written. The same
// holds for every other error that comes before the first write: the context's, Each's, BeforeCut's, *OverflowError. On a full
// device the index files go, and what would be in them is kept in memory: Scan.IndexesKept. A Sync that finds room writes them.
//
// Nothing is durable before Sync. With Options.ReadOnly nothing is written: the cut and the indexes exist in memory only.
// It must not run beside an append; readers are legal and get ErrChanged where bytes went away.
func (s *Segment) Recover(ctx context.Context, o ScanOptions) (Scan, error) {
	if err := s.failure(); err != nil {
		return Scan{}, err
	}
	before, err := s.takeLength()
	if err != nil {
		return Scan{}, err
	}
	scan, b, err := s.scan(ctx, o)
	if err != nil {
		return scan, err
	}
	if scan.Verdict == Damaged {
		return scan, scan.FirstBad
	}
	if scan.CutBytes > 0 && o.BeforeCut != nil && !s.o.ReadOnly {
		if err := s.beforeCut(scan, o.BeforeCut); err != nil {
			return scan, err
		}
	}
	return scan, s.settleAt(&scan, b, before)
}

// takeLength makes the file's present length the published one: what a crash left is looked at too, with the space that
// was allocated ahead.
func (s *Segment) takeLength() (marks, error) {
	h, err := s.acquire()
	if err != nil {
		return marks{}, err
	}
	defer h.release()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.pub.load()
	if s.state.get() == active || s.o.ReadOnly {
		return m, nil
	}
	size, err := h.Size()
	if err != nil {
		return m, err
	}
	if size > maxBytes {
		return m, &OverflowError{File: s.name(logSuffix), Base: s.base, Offset: s.base, Bytes: size}
	}
	if size != m.size {
		m.size, m.next = size, unknown
		s.pub.store(m)
	}
	return m, nil
}

func (s *Segment) beforeCut(scan Scan, call func(Scan, io.ReaderAt) error) error {
	h, err := s.acquire()
	if err != nil {
		return err
	}
	defer h.release()
	return call(scan, h)
}

// settleAt is the writing half: indexes, then the log's length, then what readers see.
func (s *Segment) settleAt(scan *Scan, b *builder, before marks) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.pub.load(); m.cuts != before.cuts || m.size != before.size && !s.o.ReadOnly {
		return ErrChanged
	}
	if s.state.get() == closed || s.closing.Load() {
		return ErrClosed
	}
	now := marks{size: scan.ValidBytes, next: scan.NextOffset, maxTs: b.maxTs, maxTsOffset: b.maxTsOffset, firstTs: unknown}
	if scan.Batches > 0 {
		now.firstTs = b.first
	}
	b.finish()
	if err := s.dropIndexes(); err != nil {
		return err
	}
	s.since = 0
	if s.o.ReadOnly || s.gone {
		s.publishRecovered(now, before)
		_, err := s.useBuilt(b, false)
		scan.IndexesRebuilt = err == nil
		return err
	}
	if err := s.writeIndexes(b); nospace.Is(err) {
		if err := s.unfile(); err != nil {
			return err
		}
		if _, err := s.useHeap(b); err != nil {
			return err
		}
		scan.IndexesKept = true
	} else if err != nil {
		return err
	}
	scan.IndexesRebuilt = !scan.IndexesKept
	s.entries[0].Store(int64(len(b.offsets)))
	s.entries[1].Store(int64(len(b.times)))
	s.publishRecovered(now, before)
	if s.state.get() == active {
		s.state.set(opened) // the next append opens the new index files
	}
	if err := s.cutFile(scan.ValidBytes); err != nil {
		return s.stop(err)
	}
	return s.txn.truncate(s, scan.NextOffset)
}

func (s *Segment) publishRecovered(now, before marks) {
	if now.size < before.size {
		s.pub.cut(now)
		return
	}
	s.pub.store(now)
}

// cutFile makes the file as long as its good batches.
func (s *Segment) cutFile(size int64) error {
	h, err := s.acquire()
	if err != nil {
		return err
	}
	n, err := h.Size()
	h.release()
	if err != nil || n == size {
		return err
	}
	s.owned = false
	if err := s.own(); err != nil {
		return err
	}
	if h, err = s.acquire(); err != nil {
		return err
	}
	defer h.release()
	defer h.wrote()
	return h.Truncate(size)
}

// Refresh makes a read-only segment look at its file again: batches that a live writer has added are published, a file
// that became shorter counts as a truncation. It says whether there is more to read than before.
func (s *Segment) Refresh() (grew bool, err error) {
	if !s.o.ReadOnly {
		return false, nil
	}
	if s.shrunk() {
		return false, s.settle()
	}
	if err := s.settle(); err != nil {
		return false, err
	}
	h, err := s.acquire()
	if err != nil {
		return false, err
	}
	defer h.release()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.pub.load()
	size, err := h.Size()
	if err != nil || size <= m.size || m.next < 0 {
		return false, err
	}
	r, err := s.readToEnd(h, m.size, min(size, maxBytes), m.next)
	if err != nil || r.end == m.size {
		return false, err
	}
	s.pub.learn(m.cuts, func(m *marks) { m.size, m.next, m.maxTs = r.end, r.next, unknown })
	return true, nil
}
