package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
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

// remember takes the snapshot of a roll to base. The caller holds write.
func (p *producers) remember(base, end int64) error {
	if !p.state.Due() {
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

// writeSnapshots writes what is due. The caller holds the round token.
func (l *Log) writeSnapshots() error {
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

// writeSnapshotAt writes the one that is due at an offset, if there is one. The caller holds the round token.
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
	p.dropAt(offset)
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
	pending, err := s.Check(p.raw, producerstate.Options{Origin: p.origin, TransactionVersion: p.txnVersion, Verify: o.Verify, Guard: o.Guard})
	if err != nil {
		return nil, l.refusedProducer(err)
	}
	if t := p.within; t != nil {
		if known, ok := s.Producer(t.ProducerID); !ok || known.TxnFirstOffset != t.FirstOffset {
			return nil, fmt.Errorf("%w: %s: producer %d has no transaction open since offset %d", ErrTxnState, l.name, t.ProducerID, t.FirstOffset)
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

// reload is where a producer state of this log comes from.
func (l *Log) reload(start, end int64) producerstate.Reload {
	return producerstate.Reload{FS: l.fs, Folder: l.name, LogStart: start, End: end, Now: l.now().UnixMilli()}
}

// reloadBelow makes the producer state that of the offsets below end, from the newest snapshot and the batches behind it,
// and leaves snapshots as Kafka does: at the start of the last segments, and at the end if batches had to be read.
func (l *Log) reloadBelow(ctx context.Context, segs segments, r producerstate.Reload, report *RecoveryReport) (producerstate.Reloaded, error) {
	s := l.producers.state
	end := r.End
	res, err := s.Reload(r)
	if err != nil {
		return res, err
	}
	for _, err := range res.Damaged {
		report.find(Finding{File: l.name, Position: -1, Offset: -1, Kind: FindingSnapshot, Detail: err.Error() + "; an older one is used and the log read from there"})
	}
	for _, offset := range res.Removed {
		if r.ReadOnly {
			break
		}
		report.Removed = append(report.Removed, l.path(producerstate.FileName(offset)))
	}
	if res.From < end {
		points := producerstate.Points(segs.bases(), end)
		err = l.replay(ctx, segs, res.From, end, report, func(b record.Batch) { s.Replay(b) }, func(base int64) error {
			if base <= res.From || !slices.Contains(points, base) {
				return nil
			}
			s.SetEnd(base)
			return l.producers.remember(base, base)
		})
		if err != nil {
			return res, err
		}
		s.Expire(l.now().UnixMilli())
	}
	s.SetEnd(end)
	if res.From < end {
		err = l.producers.remember(end, end)
	}
	return res, err
}

// storeSnapshots is writeSnapshots where there is room. Those that found none are tried again later: they only save
// reading the log.
func (l *Log) storeSnapshots() error {
	if err := l.writeSnapshots(); err != nil && !isNoSpace(err) {
		return err
	}
	return nil
}

// replay gives the batches of [from, end) to each; at, if not nil, is called before each segment with its base. Batches
// that cannot be read say nothing here: reading them will.
func (l *Log) replay(ctx context.Context, segs segments, from, end int64, report *RecoveryReport, each func(record.Batch), at func(base int64) error) error {
	for i := max(0, segs.floor(from)); i < len(segs) && segs[i].Base() < end; i++ {
		if at != nil {
			if err := at(segs[i].Base()); err != nil {
				return err
			}
		}
		batches := segs[i].Batches(0)
		if from > segs[i].Base() {
			batches = segs[i].BatchesFrom(from)
		}
		for b, err := range batches {
			if errors.Is(err, segment.ErrNotFound) {
				break
			}
			if errors.Is(err, segment.ErrCorrupt) {
				report.find(Finding{File: segs[i].File(), Position: -1, Offset: -1, Kind: FindingProducers,
					Detail: err.Error() + "; what it says of producers is not known"})
				break
			}
			if err != nil {
				return err
			}
			if b.BaseOffset() >= end {
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			report.Scanned += int64(b.Size())
			each(b)
		}
		if i+1 < len(segs) {
			if err := segs[i].Park(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s segments) bases() []int64 {
	all := make([]int64, len(s))
	for i, seg := range s {
		all[i] = seg.Base()
	}
	return all
}

// loadProducers makes the producer state whole at the end of a log that is being opened: a recovery has done most of it.
func (l *Log) loadProducers(ctx context.Context, segs segments, start, end int64) error {
	entries, err := l.listing()
	if err != nil {
		return err
	}
	snapshots := producerstate.Snapshots(entries)
	strays := producerstate.Strays(snapshots, segs.bases())
	if err := producerstate.Remove(l.fs, l.name, strays); err != nil {
		return err
	}
	for _, offset := range strays {
		l.recovery.Removed = append(l.recovery.Removed, l.path(producerstate.FileName(offset)))
	}
	r := l.reload(start, end)
	r.Listed = true
	r.Snapshots = slices.DeleteFunc(snapshots, func(offset int64) bool { return slices.Contains(strays, offset) })
	l.producers.mu.Lock()
	l.producers.storedLocked(r.Snapshots...)
	l.producers.mu.Unlock()
	res, err := l.reloadBelow(ctx, segs, r, &l.recovery)
	if err != nil {
		return err
	}
	if err := l.storeSnapshots(); err != nil {
		return err
	}
	if res.Missing {
		l.recovery.Rebuilt = append(l.recovery.Rebuilt, l.path(producerstate.FileName(end)))
	}
	return l.checkAborted(ctx, segs, start)
}

// checkAborted makes damaged indexes of aborted transactions anew.
func (l *Log) checkAborted(ctx context.Context, segs segments, start int64) error {
	for i, seg := range segs {
		err := seg.CheckAborted()
		if errors.Is(err, segment.ErrCorrupt) {
			err = l.rebuildAborted(ctx, segs[:i+1], start, err)
		}
		if err == nil && i+1 < len(segs) {
			err = seg.Park()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// rebuildAborted rebuilds the index of the last of the segments.
func (l *Log) rebuildAborted(ctx context.Context, segs segments, start int64, why error) error {
	seg := segs.active()
	end, err := seg.NextOffset()
	if err != nil {
		return segs.explain(err)
	}
	s := producerstate.New(producerstate.Config{ExpireAfter: -1}, start)
	r := l.reload(start, seg.Base())
	r.ReadOnly = true
	res, err := s.Reload(r)
	if err != nil {
		return err
	}
	s.SetEnd(res.From)
	var all []segment.AbortedTxn
	err = l.replay(ctx, segs, res.From, end, &l.recovery, func(b record.Batch) {
		all = appendAborted(all, s.Replay(b), seg.Base())
	}, nil)
	if err != nil {
		return err
	}
	if err := seg.SetAborted(all); err != nil {
		return err
	}
	name := l.path(segment.FileName(seg.Base(), ".txnindex"))
	l.recovery.Rebuilt = append(l.recovery.Rebuilt, name)
	l.find(Finding{File: name, Position: -1, Offset: seg.Base(), Kind: FindingTxnIndex, Detail: why.Error() + "; rebuilt from the batches"})
	return seg.Sync()
}

// appendAborted adds the aborted transactions whose marker is at or above from.
func appendAborted(all []segment.AbortedTxn, p *producerstate.Pending, from int64) []segment.AbortedTxn {
	for _, c := range p.Completed() {
		if c.Aborted && c.LastOffset >= from {
			all = append(all, abortedOf(c))
		}
	}
	return all
}

// truncateProducers follows a truncation to end. The caller holds write and the round token.
func (l *Log) truncateProducers(end int64) error {
	segs, o := *l.list.Load(), l.load()
	l.producers.drop(-1, end)
	if _, err := l.reloadBelow(context.Background(), segs, l.reload(o.LogStart, end), &RecoveryReport{}); err != nil {
		return err
	}
	if err := l.producers.remember(end, end); err != nil {
		return err
	}
	if err := l.storeSnapshots(); err != nil {
		return err
	}
	l.update(l.restable)
	return nil
}

// resetProducers follows the emptying of a log that begins at offset now.
func (l *Log) resetProducers(offset int64) error {
	l.producers.drop(-1, -1)
	l.producers.state.Reset(offset)
	l.update(l.restable)
	return l.dropSnapshotsAbove(-1)
}

// beginProducers makes the state that of the segments below segs[from], where a recovery begins. No file is changed: the
// recovery may be refused.
func (l *Log) beginProducers(ctx context.Context, segs segments, from int, at stored) error {
	l.producers.drop(-1, -1)
	// The stored start, which segments that are gone do not raise: the snapshot at the first segment's base counts, as by Kafka.
	r := l.reload(at.logStart, segs[from].Base())
	r.ReadOnly = true
	if base := segs[max(0, segs.floor(r.LogStart))].Base(); r.LogStart > base && r.End <= base {
		// What is read anyway counts, deleted or not: a producer whose records were deleted may still repeat them.
		r.LogStart = base
	}
	_, err := l.reloadBelow(ctx, segs, r, &l.recovery)
	return err
}

// recoveredTo notes the state at the end of a segment that was recovered. Who expired is forgotten there, as by Kafka, which
// takes each segment's state from the snapshot behind the one before: a later batch then finds a new producer, as it did
// when it was appended if the producer had expired by that time.
func (l *Log) recoveredTo(end int64) error {
	p := l.producers
	p.state.SetEnd(end)
	if err := p.remember(end, end); err != nil {
		return err
	}
	p.state.Expire(l.now().UnixMilli())
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := len(p.due); n > 4 && p.dueBytes > mostDue; n-- {
		p.dueBytes -= p.dueBytes / n
		p.due = p.due[1:] // an older one serves as well
	}
	return nil
}

// settleSnapshots replaces the snapshots above from, which nothing vouches for, by those of a recovery that went through.
func (l *Log) settleSnapshots(from int64) error {
	all, err := producerstate.List(l.fs, l.name)
	if err != nil {
		return err
	}
	stale := slices.DeleteFunc(all, func(offset int64) bool { return offset <= from })
	if err := producerstate.Remove(l.fs, l.name, stale); err != nil {
		return err
	}
	return l.storeSnapshots()
}
