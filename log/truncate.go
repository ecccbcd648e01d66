package log

import (
	"context"
	"errors"
	"fmt"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/segment"
)

// Truncate removes every batch that holds offset or a later one, and returns the end the log then has: offset, or the first offset of
// the batch that offset lay inside. Where that leaves a gap at the end, the next append goes behind it all the same, as after FollowEnd:
// what was there others may have read. (Of batches older than format 2 it is not known where they begin: the log then ends behind
// the batch before.) It is durable when it returns. An offset at or above the end changes no data (it only
// drops a leader epoch that was assigned but never written in); one below the first segment empties the log, which then
// starts there. Negative: *OffsetRangeError.
//
// Truncating below the high watermark or the log start moves these down. ErrNoSpace that is not ErrFailed: the checkpoints could
// not be lowered, and nothing was changed. After any other error but ErrClosed and ctx's the log is ErrFailed: reopen it; it
// then holds the log as it was before or a shorter prefix of it.
func (l *Log) Truncate(ctx context.Context, offset int64) (end int64, err error) {
	if offset < 0 {
		o := l.load()
		return o.LogEnd, &OffsetRangeError{Offset: offset, LogStart: o.LogStart, LogEnd: o.LogEnd}
	}
	unlock, err := l.exclusive(ctx)
	if err != nil {
		return l.load().LogEnd, err
	}
	defer unlock()
	o, segs := l.load(), *l.list.Load()
	if offset >= o.LogEnd {
		return o.LogEnd, l.dropBareEpoch(o.LogEnd)
	}
	if err := l.beginCut(offset, segs); err != nil {
		return o.LogEnd, err
	}
	if offset < segs[0].Base() {
		if err := l.resetTo(offset, segs); err != nil {
			return l.load().LogEnd, l.fail(err)
		}
		return offset, nil
	}
	end, err = l.truncateTo(offset, segs)
	if err != nil {
		return l.load().LogEnd, l.fail(err)
	}
	return end, nil
}

// beginCut lowers the checkpoints for a cut at offset. ErrNoSpace: there is no room for that, and nothing was changed; after any
// other error the log has failed.
func (l *Log) beginCut(offset int64, segs segments) error {
	base, end := segs[0].Base(), offset
	var err error
	if offset >= base {
		cut := segs[segs.floor(offset)]
		base = cut.Base()
		end, _, err = cutPoint(cut, offset)
	}
	if err == nil {
		err = l.lowerPoints(end)
	}
	if err == nil {
		err = l.lowerHint(end, base)
	}
	switch {
	case err == nil:
		return nil
	case isNoSpace(err):
		return fmt.Errorf("truncate %s: %w: %w", l.name, ErrNoSpace, err)
	}
	return l.fail(err)
}

// exclusive takes what a change of the log's end needs: no swap, no append, no roll, no commit round runs until unlock. From
// here on the call is not to be stopped, so it does not begin while the checkpoints hang in another log's write.
func (l *Log) exclusive(ctx context.Context) (unlock func(), err error) {
	if err := l.admit(ctx); err != nil {
		return nil, err
	}
	if err := l.lockNames(ctx); err != nil {
		return nil, err
	}
	if err := l.commits.acquire(ctx); err != nil {
		l.unlockNames()
		return nil, err
	}
	unlock = func() {
		l.commits.release()
		l.unlockNames()
	}
	if err := l.ended(); err != nil {
		unlock()
		return nil, err
	}
	if err := l.dir.points.idle(ctx); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// lockNames takes names, then starts and write.
func (l *Log) lockNames(ctx context.Context) error {
	if err := l.names.lock(ctx); err != nil {
		return err
	}
	err := l.starts.lock(ctx)
	if err == nil {
		if err = l.write.lock(ctx); err == nil {
			return nil
		}
		l.starts.unlock()
	}
	l.names.unlock()
	return err
}

func (l *Log) unlockNames() {
	l.write.unlock()
	l.starts.unlock()
	l.names.unlock()
}

// dropBareEpoch forgets an epoch that begins at the log end.
func (l *Log) dropBareEpoch(end int64) error {
	if !l.epochs.TruncateFromEnd(end) {
		return nil
	}
	l.publishEpoch()
	if err := l.epochs.Flush(context.Background()); err != nil {
		return l.epochRefused(err)
	}
	return nil
}

// truncateTo cuts inside the present segments. Every prefix of its steps recovers to a prefix of the old log:
//
//  1. recovery point, high watermark and hint are lowered, on the device (beginCut)
//  2. the segments above are renamed to .deleted, one by one from the highest, the directory synced after each
//  3. the segment that holds the cut is shortened and synced, indexes included
//  4. epochs and snapshots that speak of the removed offsets go
//  5. the producer state is taken from what is left
//  6. an empty segment keeps a gap at the end
//  7. the start offset follows if it lay above
func (l *Log) truncateTo(offset int64, segs segments) (end int64, err error) {
	keep := segs.floor(offset)
	cut, before := segs[keep], l.load()
	end, want, err := cutPoint(cut, offset)
	if err != nil {
		return 0, err
	}
	if err := l.lowerMarks(end); err != nil {
		return 0, err
	}
	if err := l.dropSegments(segs, keep+1); err != nil {
		return 0, err
	}
	if _, err := cut.Truncate(end); err != nil {
		return 0, err
	}
	if err := cut.Sync(); err != nil {
		return 0, err
	}
	if end, err = cut.NextOffset(); err != nil {
		return 0, err
	}
	if err := l.syncDir(); err != nil {
		return 0, err
	}
	l.commits.born = cut.Base()
	l.marks.cut(end, func(o *Offsets) {
		o.LogEnd, o.Durable = end, end
		o.clampToEnd()
	})
	if err := l.forgetAbove(end, want); err != nil {
		return 0, err
	}
	if err := l.truncateProducers(end); err != nil {
		return 0, err
	}
	if want > end {
		if err := l.keepGap(want, before); err != nil {
			return end, err
		}
	}
	return want, l.persistStart(segs[0].Base())
}

// keepGap ends the log at end again, where there is a gap in front of it, and puts the marks back that were in the gap.
func (l *Log) keepGap(end int64, before Offsets) error {
	if err := l.endAt(context.Background(), end); err != nil {
		return err
	}
	l.update(func(o *Offsets) {
		o.LogStart = max(o.LogStart, min(before.LogStart, end))
		o.HighWatermark = max(o.HighWatermark, min(before.HighWatermark, end))
		l.restable(o)
	})
	return l.syncRound()
}

// clampToEnd pulls every mark down to the log end.
func (o *Offsets) clampToEnd() {
	o.LogStart, o.HighWatermark = min(o.LogStart, o.LogEnd), min(o.HighWatermark, o.LogEnd)
	o.LastStable, o.RecoveryPoint = min(o.LastStable, o.LogEnd), min(o.RecoveryPoint, o.LogEnd)
	o.Durable = min(o.Durable, o.LogEnd)
}

// cutPoint is where a truncation to offset really cuts: behind the last batch that is left, which may be further down if
// there is a gap. All that is promised of what is left must go by this. next is where the log is to go on.
func cutPoint(seg *segment.Segment, offset int64) (end, next int64, err error) {
	p, err := seg.Find(offset)
	if errors.Is(err, segment.ErrNotFound) {
		end, err = seg.NextOffset() // behind the last batch of this segment
		return end, offset, err
	}
	if err != nil {
		return 0, 0, err
	}
	end, err = endBefore(seg, p)
	if p.Magic < 2 {
		return end, end, err
	}
	return end, min(offset, p.Base), err
}

// endBefore is where the batch before p ends: the segment's base if p is the first.
func endBefore(seg *segment.Segment, p segment.Position) (int64, error) {
	end := seg.Base()
	for back := int64(1); end < p.Base; back *= 2 {
		at := max(p.Base-back, seg.Base())
		for b, err := range seg.BatchesFrom(at) {
			if err != nil {
				return 0, err
			}
			if b.BaseOffset() >= p.Base {
				break
			}
			end = b.NextOffset()
		}
		if end > seg.Base() || at == seg.Base() {
			break
		}
	}
	return end, nil
}

// lowerMarks follows lowerPoints in memory. The checkpoints come first: from there on a crash may find the old data, the new, or
// anything between, and all of it is read as a tail. The caller holds write and the round token.
func (l *Log) lowerMarks(end int64) error {
	l.marks.cut(end, func(o *Offsets) {
		o.LogEnd = min(o.LogEnd, end) // readers must not look for what is about to go
		o.clampToEnd()
	})
	return l.lowerPoints(end) // nothing is to be done, unless a sweep of the checkpoints came between
}

// lowerPoints makes the root's checkpoints promise nothing above end. It changes nothing else in the log: where there was no room
// for it that goes on as it was.
func (l *Log) lowerPoints(end int64) error {
	if err := l.lowerFirstDirty(context.Background(), end); err != nil {
		return err
	}
	p, o := l.dir.points, l.load()
	if l.commits.stored() > end || o.RecoveryPoint > end {
		if err := l.storeRecoveryPoint(end, turn{context.Background()}); err != nil {
			return err
		}
	}
	if stored, ok, _ := p.get(checkpoint.HighWatermarks, l.tp); ok && stored > end || o.HighWatermark > end {
		return p.store(context.Background(), checkpoint.HighWatermarks, l.tp, min(o.HighWatermark, end))
	}
	return nil
}

// lowerHint is lowerPoints for the hint. base is that of the segment that will be the active one.
func (l *Log) lowerHint(end, base int64) error {
	h := hint{offset: min(l.load().Durable, end), base: base, recoveryPoint: l.commits.stored()}
	if err := l.dir.hints.lower(l.name, h); err != nil {
		return fmt.Errorf("lower the durable hint of %s: %w", l.name, err)
	}
	return nil
}

// dropSegments takes segs[from:] out of the log: out of the list, then renamed one by one from the highest down, each
// gone for good before the next, so that a crash leaves no hole; then removed. Readers that hold one finish.
func (l *Log) dropSegments(segs segments, from int) error {
	if from > 0 {
		rest := segs[:from:from]
		l.list.Store(&rest)
	}
	for i := len(segs) - 1; i >= from; i-- {
		suffix, err := l.unusedMark(segs[i].Base())
		if err == nil {
			err = segs[i].Rename(suffix)
		}
		if err != nil {
			return err
		}
		if err := l.syncDir(); err != nil {
			return err
		}
	}
	var errs []error
	for _, seg := range segs[from:] {
		errs = append(errs, discard(seg))
	}
	return errors.Join(errs...)
}

// forgetAbove drops what derived files say of offsets at or above end; epochs may begin in a gap that reaches to next.
func (l *Log) forgetAbove(end, next int64) error {
	l.epochs.TruncateFromEnd(next)
	l.publishEpoch()
	if err := l.epochs.Flush(context.Background()); err != nil {
		return err
	}
	if err := l.dropSnapshotsAbove(end); err != nil {
		return err
	}
	return l.syncDir()
}

// persistStart writes the start offset if the checkpoint says something else. Kafka's file names only logs that start
// above their first segment.
func (l *Log) persistStart(firstBase int64) error {
	o, p := l.load(), l.dir.points
	stored, ok, _ := p.get(checkpoint.LogStarts, l.tp)
	switch {
	case o.LogStart > firstBase && (!ok || stored != o.LogStart):
		return p.store(context.Background(), checkpoint.LogStarts, l.tp, o.LogStart)
	case o.LogStart <= firstBase && ok:
		p.drop(checkpoint.LogStarts, l.tp)
		return p.persist(context.Background(), checkpoint.LogStarts)
	}
	return nil
}
