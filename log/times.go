package log

import (
	"context"
	"errors"
	"time"

	"github.com/partlog/partlog/segment"
)

// At is where a time is in the log.
type At struct {
	Offset      int64
	Timestamp   int64 // Unix ms of the record at Offset
	LeaderEpoch int32 // of its batch; -1 none
}

// OffsetForTime finds the first record whose timestamp is at or after t, among those readers can see. As in Kafka the
// answer comes from the first segment whose largest timestamp is at or after t (a segment without timestamps counts
// with its file's modification time), so in a log with disordered timestamps earlier offsets may hold later times and
// the other way round. ErrNotFound if there is none.
func (l *Log) OffsetForTime(ctx context.Context, t time.Time) (At, error) {
	return l.offsetForTime(ctx, t)
}

// OffsetOfMaxTime finds the first record that has the log's largest timestamp, among those readers can see.
// ErrNotFound in a log without timestamps.
func (l *Log) OffsetOfMaxTime(ctx context.Context) (At, error) { return l.offsetOfMaxTime(ctx) }

func (v *view) offsetForTime(ctx context.Context, t time.Time) (At, error) {
	ts := max(0, t.UnixMilli())
	return v.lookup(ctx, func(o Offsets, segs segments) (segment.TimePosition, error) {
		for _, seg := range segs {
			if err := ctx.Err(); err != nil {
				return segment.TimePosition{}, err
			}
			largest, _, err := seg.LargestTimestamp()
			if err != nil {
				return segment.TimePosition{}, err
			}
			if largest >= ts {
				return seg.FindTime(ts, o.LogStart)
			}
		}
		return segment.TimePosition{}, segment.ErrNotFound
	})
}

func (v *view) offsetOfMaxTime(ctx context.Context) (At, error) {
	return v.lookup(ctx, func(_ Offsets, segs segments) (segment.TimePosition, error) {
		var best *segment.Segment
		most := int64(-1)
		for _, seg := range segs {
			if err := ctx.Err(); err != nil {
				return segment.TimePosition{}, err
			}
			largest, offset, err := seg.LargestTimestamp()
			if err != nil {
				return segment.TimePosition{}, err
			}
			if offset >= 0 && largest > most {
				best, most = seg, largest
			}
		}
		if best == nil {
			return segment.TimePosition{}, segment.ErrNotFound
		}
		return best.OffsetOfMaxTimestamp()
	})
}

// lookup runs find over the present segments, and again if a truncation got in its way.
func (v *view) lookup(ctx context.Context, find func(Offsets, segments) (segment.TimePosition, error)) (At, error) {
	for {
		if v.closed.Load() {
			return At{}, ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return At{}, err
		}
		o, cuts := v.loadCuts()
		list := v.list.Load()
		p, err := find(o, *list)
		switch {
		case errors.Is(err, segment.ErrNotFound), err == nil && p.Offset >= o.HighWatermark:
			return At{}, ErrNotFound
		case err == nil:
			return At{Offset: p.Offset, Timestamp: p.Timestamp, LeaderEpoch: p.LeaderEpoch}, nil
		}
		if _, now := v.loadCuts(); now == cuts && v.list.Load() == list {
			return At{}, (*list).explain(err)
		}
	}
}
