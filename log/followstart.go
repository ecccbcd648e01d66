package log

import "context"

// FollowLogStart raises the log start offset as a follower does when its leader's log starts higher: like DeleteRecords,
// but whatever cleanup.policy says, because the leader has judged that. Below the present start it changes nothing; above the
// high watermark it is *OffsetRangeError.
func (l *Log) FollowLogStart(ctx context.Context, start int64) error {
	if err := l.admit(ctx); err != nil {
		return err
	}
	if start < 0 {
		o := l.load()
		return &OffsetRangeError{Offset: start, LogStart: o.LogStart, LogEnd: o.HighWatermark}
	}
	return l.raise(ctx, start)
}
