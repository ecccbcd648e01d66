package log

import (
	"context"

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
	if err := l.resetTo(offset, *l.list.Load()); err != nil {
		return l.fail(err)
	}
	return nil
}

// resetTo empties the log. A crash between its steps leaves a prefix of the old log, or an empty log at the old or the
// new start offset. The caller holds write and the round token.
func (l *Log) resetTo(offset int64, segs segments) error {
	if err := l.lowerMarks(min(offset, segs[0].Base()), segs[0].Base()); err != nil {
		return err
	}
	for i := len(segs) - 1; i >= 0; i-- {
		if err := segs[i].Rename(".deleted"); err != nil {
			return err
		}
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	// From here on an open finds no segment and starts one at the start offset, so that must be the new one.
	l.dir.points.set(checkpoint.LogStarts, l.tp, offset)
	if err := l.dir.points.persist(checkpoint.LogStarts); err != nil {
		return err
	}
	next, err := segment.Create(l.name, offset, l.segOpts)
	if err != nil {
		return err
	}
	if err := next.Sync(); err != nil {
		return err
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	list := segments{next}
	l.list.Store(&list)
	l.marks.cut(func(o *Offsets) {
		*o = Offsets{LogStart: offset, LastStable: offset, HighWatermark: offset, LogEnd: offset,
			Durable: offset, RecoveryPoint: offset, LeaderEpoch: o.LeaderEpoch}
	})
	l.commits.born = offset
	for _, seg := range segs {
		if err := seg.Delete(); err != nil {
			return err
		}
	}
	if err := l.epochs.Clear(); err != nil {
		return err
	}
	if err := l.forgetAbove(-1); err != nil {
		return err
	}
	return l.persistStart(offset)
}
