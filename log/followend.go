package log

import (
	"context"
	"errors"
	"math"
)

// FollowEnd raises the log end to offset without a record, as a follower does whose leader's log ends behind a gap: what was there
// compaction has removed, and the segment behind it is empty. The next append goes to offset, also when the log was opened again. It
// is not durable when it returns: until the next Sync a crash may take it back. At or below the end nothing changes, nor after an error.
// The gap belongs to the leader epoch the log is at: AssignEpoch comes before it. *OffsetRangeError: offset is negative, or none is left
// behind it; other errors are Roll's.
func (l *Log) FollowEnd(ctx context.Context, offset int64) error {
	if offset < 0 || offset == math.MaxInt64 {
		o := l.load()
		return &OffsetRangeError{Offset: offset, LogStart: o.LogStart, LogEnd: o.LogEnd}
	}
	return l.rolling(ctx, func() error {
		if offset <= l.load().LogEnd {
			return nil
		}
		if err := l.endAt(ctx, offset); err != nil {
			return errors.Join(err, l.unroll())
		}
		return nil
	})
}

// endAt begins a segment at offset, which is above the end: the gap between is not to be filled. The caller holds write.
func (l *Log) endAt(ctx context.Context, offset int64) error {
	if err := l.roll(ctx, offset); err != nil {
		return err
	}
	l.producers.state.SetEnd(offset)
	l.producers.state.Taken(offset)
	l.published(offset)
	return nil
}
