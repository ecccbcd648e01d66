package log

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/segment"
)

// producers is what a log knows of those who write to it: idempotence, open transactions, and the snapshots of all that.
type producers struct {
	state    *producerstate.State // guarded by Log.write, or by nobody else having the log yet
	unstable *producerstate.Unstable

	// due are the snapshots that a roll made and that the next move of the recovery point writes. mu is a leaf.
	mu       sync.Mutex
	due      []producerstate.Snapshot
	dueBytes int
	stored   map[int64]bool // offsets of snapshots in the folder; of some of them the file is gone
}

// mostDue bounds the bytes of snapshots that wait: from there on the next round moves the recovery point.
const mostDue = 8 << 20

func newProducers(c Config) *producers {
	s := producerstate.New(producerstate.Config{ExpireAfter: boundMillis(c.ProducerExpiry)}, 0)
	return &producers{state: s, unstable: s.Unstable()}
}

// remember takes the snapshot of a roll to base. One behind a gap gets its own, whatever the one at the end of the records: a recovery
// looks for it at the base. The caller holds write.
func (p *producers) remember(base, end int64) error {
	if base == end && !p.state.Due() {
		return nil
	}
	s, err := p.state.Snapshot()
	if err != nil {
		return err
	}
	s.Offset = base // no batch lies between
	if base == end {
		p.state.Taken(base)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due = append(p.due, s)
	p.dueBytes += 64 + 46*p.state.Len()
	return nil
}

// storedLocked notes snapshots that are in the folder. mu is held.
func (p *producers) storedLocked(offsets ...int64) {
	if p.stored == nil {
		p.stored = map[int64]bool{}
	}
	for _, offset := range offsets {
		p.stored[offset] = true
	}
}

// takeStored says whether there may be a snapshot at an offset, for a caller that takes it away.
func (p *producers) takeStored(offset int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	there := p.stored[offset]
	delete(p.stored, offset)
	return there
}

// overdue says that too much waits to be written.
func (p *producers) overdue() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dueBytes > mostDue
}

// unwritten says that a snapshot is due, for a roll or for the end of the log. The caller holds write.
func (p *producers) unwritten() bool {
	p.mu.Lock()
	waiting := len(p.due)
	p.mu.Unlock()
	return waiting > 0 || p.state.Due()
}

// dropAt forgets the waiting snapshot at an offset.
func (p *producers) dropAt(offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due = slices.DeleteFunc(p.due, func(s producerstate.Snapshot) bool { return s.Offset == offset })
}

// drop forgets the waiting snapshots outside (start, end].
func (p *producers) drop(start, end int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var keep []producerstate.Snapshot
	for _, s := range p.due {
		if s.Offset > start && s.Offset <= end {
			keep = append(keep, s)
		}
	}
	p.due = keep
}

// writeSnapshots writes what is due. The caller holds the round token. errBusy or the error of a context: somebody else is
// writing one.
func (l *Log) writeSnapshots(w turn) error {
	if err := w.take(&l.snapshots); err != nil {
		return err
	}
	defer l.snapshots.unlock()
	for {
		l.producers.mu.Lock()
		due := l.producers.due
		if len(due) == 0 {
			l.producers.dueBytes = 0
		}
		l.producers.mu.Unlock()
		if len(due) == 0 {
			return nil
		}
		if err := due[0].Write(l.fs, l.name); err != nil {
			return fmt.Errorf("write the producer snapshot of %s: %w", l.name, err)
		}
		l.producers.mu.Lock()
		l.producers.storedLocked(due[0].Offset)
		if now := l.producers.due; len(now) > 0 && now[0].Offset == due[0].Offset {
			l.producers.due = now[1:]
		}
		l.producers.mu.Unlock()
	}
}

// writeSnapshotAt writes the one that is due at an offset, if there is one. The caller holds snapshots.
func (l *Log) writeSnapshotAt(offset int64) error {
	p := l.producers
	p.mu.Lock()
	i := slices.IndexFunc(p.due, func(s producerstate.Snapshot) bool { return s.Offset == offset })
	if i < 0 {
		p.mu.Unlock()
		return nil
	}
	s := p.due[i]
	p.mu.Unlock()
	if err := s.Write(l.fs, l.name); err != nil {
		return fmt.Errorf("write the producer snapshot of %s: %w", l.name, err)
	}
	p.mu.Lock()
	p.storedLocked(offset)
	p.mu.Unlock()
	p.dropAt(offset)
	return nil
}

// storeSnapshots is writeSnapshots where there is room. Those that found none are tried again later: they only save
// reading the log.
func (l *Log) storeSnapshots() error {
	if err := l.writeSnapshots(turn{context.Background()}); err != nil && !isNoSpace(err) {
		return err
	}
	return nil
}

// restable computes the last stable offset anew. It runs under marks.mu; the lock of unstable is a leaf.
func (l *Log) restable(o *Offsets) {
	o.LastStable = l.producers.unstable.LastStable(o.HighWatermark, o.LogStart)
}

// judge asks the producer state whether the batches may be appended. nil: nothing in them concerns it. The caller holds
// write.
func (l *Log) judge(p *prepared, o *AppendOptions) (*producerstate.Pending, error) {
	s := l.producers.state
	s.ExpireDue(p.now.UnixMilli())
	if !p.producers {
		return nil, nil
	}
	if h := p.of; h != nil {
		if err := l.judgeHandle(h, p); err != nil {
			return nil, err
		}
	}
	pending, err := s.Check(p.raw, producerstate.Options{Origin: p.origin, TransactionVersion: p.txnVersion, Verify: o.Verify, Guard: o.Guard})
	if err != nil {
		return nil, l.refusedProducer(err)
	}
	if t := p.within; t != nil {
		if known, ok := s.Producer(t.ProducerID); !ok || known.TxnFirstOffset != t.FirstOffset {
			return nil, l.noTransaction(t.ProducerID, t.FirstOffset)
		}
	}
	return pending, nil
}

// refusedProducer gives the refusals of the producer state this package's names; the cause stays reachable.
func (l *Log) refusedProducer(err error) error {
	for _, known := range [...]struct{ theirs, ours error }{
		{producerstate.ErrOutOfOrder, ErrOutOfOrder},
		{producerstate.ErrFenced, ErrFenced},
		{producerstate.ErrTxnState, ErrTxnState},
	} {
		if errors.Is(err, known.theirs) {
			return fmt.Errorf("%w: %s: %w", known.ours, l.name, err)
		}
	}
	return refusedRecord(err)
}

// take accepts what judge found, now that the batches are written up to end: first the index of aborted transactions,
// then the state, and only then may the marks move. If the index cannot be written the batches are cut off again, and
// nothing has changed. The caller holds write.
func (l *Log) take(pending *producerstate.Pending, first, end int64) error {
	if pending == nil {
		l.producers.state.SetEnd(end)
		return nil
	}
	active := l.list.Load().active()
	for _, c := range pending.Completed() {
		if !c.Aborted {
			continue
		}
		if err := active.AppendAborted(abortedOf(c)); err != nil {
			return l.takeBack(active, first, err)
		}
	}
	l.producers.state.Commit(pending)
	return nil
}

func abortedOf(c producerstate.Completed) segment.AbortedTxn {
	return segment.AbortedTxn{ProducerID: c.ProducerID, FirstOffset: c.FirstOffset, LastOffset: c.LastOffset, LastStable: c.LastStable}
}

// takeBack cuts off batches from first on, which nobody was shown.
func (l *Log) takeBack(active *segment.Segment, first int64, cause error) error {
	if err := l.commits.acquire(context.Background()); err != nil {
		return l.fail(errors.Join(cause, err))
	}
	defer l.commits.release()
	if l.ended() != nil {
		return l.ended()
	}
	if _, err := active.Truncate(first); err != nil {
		return l.fail(errors.Join(cause, err))
	}
	if isNoSpace(cause) {
		return fmt.Errorf("%w: %w", ErrNoSpace, cause)
	}
	return fmt.Errorf("append to %s: %w", l.name, cause)
}
