package log

import (
	"context"
	"errors"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/segment"
)

// ResetTo removes everything and leaves an empty log that starts at offset, as a follower does whose leader no longer
// has what it lacks. Durable when it returns; errors and negative offsets as Truncate.
func (l *Log) ResetTo(ctx context.Context, offset int64) error {
	if offset < 0 {
		o := l.load()
		return &OffsetRangeError{Offset: offset, LogStart: o.LogStart, LogEnd: o.LogEnd}
	}
	unlock, err := l.exclusive(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	segs := *l.list.Load()
	if err := l.beginCut(min(offset, segs[0].Base()), segs); err != nil {
		return err
	}
	if err := l.resetTo(offset, segs); err != nil {
		return l.fail(err)
	}
	return nil
}

// resetTo empties the log. A crash between its steps leaves a prefix of the old log, or an empty log at the old first
// segment or start offset, or at the new start offset. The caller holds write and the round token.
func (l *Log) resetTo(offset int64, segs segments) error {
	old := segs[0]
	if err := l.lowerMarks(min(offset, old.Base())); err != nil {
		return err
	}
	if _, err := l.truncateTo(old.Base(), segs); err != nil {
		return err
	}
	if err := l.epochs.Clear(); err != nil {
		return err
	}
	l.publishEpoch()
	if offset == old.Base() {
		return l.resetProducers(offset)
	}
	// Once the last segment is gone an open starts one at the start offset, so that must be the new one by then.
	if err := l.dir.points.store(context.Background(), checkpoint.LogStarts, l.tp, offset); err != nil {
		return err
	}
	if err := l.replaceLast(old, offset); err != nil {
		return err
	}
	return l.persistStart(offset)
}

// replaceLast puts an empty segment at offset in the place of the one that is left, which is empty too.
func (l *Log) replaceLast(old *segment.Segment, offset int64) error {
	suffix, err := l.unusedMark(old.Base())
	if err == nil {
		err = old.Rename(suffix)
	}
	if err != nil {
		return err
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	next, err := segment.Create(l.name, offset, l.cfg().segOpts)
	if err != nil {
		return err
	}
	list := segments{next}
	l.list.Store(&list)
	if err := next.Sync(); err != nil {
		return err
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	l.commits.born = offset
	l.marks.cut(min(offset, old.Base()), func(o *Offsets) {
		*o = Offsets{LogStart: offset, LastStable: offset, HighWatermark: offset, LogEnd: offset,
			Durable: offset, RecoveryPoint: o.RecoveryPoint, LeaderEpoch: o.LeaderEpoch}
	})
	return errors.Join(discard(old), l.resetProducers(offset))
}
