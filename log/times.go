package log

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/partlog/partlog/record"
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
// the other way round. A time before 1970 is the first millisecond of 1970. ErrNotFound if there is none; else ErrClosed,
// ctx's error, ErrTooLarge for a batch beyond the limits of unpacking, or a *CorruptError.
func (l *Log) OffsetForTime(ctx context.Context, t time.Time) (At, error) {
	return l.offsetForTime(ctx, t)
}

// OffsetOfMaxTime finds the first record that has the log's largest timestamp. As in Kafka it is ErrNotFound if that
// record is not visible yet, and in a log without timestamps.
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
	dec := v.lend(record.Limits{})
	defer v.giveBack(dec, record.Limits{})
	return v.lookup(ctx, func(o Offsets, segs segments) (segment.TimePosition, error) {
		best := segment.TimePosition{Timestamp: -1}
		for _, seg := range segs {
			if err := ctx.Err(); err != nil {
				return best, err
			}
			p, err := latest(seg, o.LogStart, best.Timestamp, dec)
			if err != nil {
				return best, err
			}
			if p.Timestamp > best.Timestamp {
				best = p
			}
		}
		if best.Timestamp < 0 {
			return best, segment.ErrNotFound
		}
		return best, nil
	})
}

// latest is the first record at or above from with the largest timestamp of a segment, if that is above known. Only a
// segment that from cuts in two, with its largest timestamp below, is read as a whole.
func latest(seg *segment.Segment, from, known int64, d *record.Decoder) (segment.TimePosition, error) {
	none := segment.TimePosition{Timestamp: -1}
	largest, offset, err := seg.LargestTimestamp()
	if err != nil || offset < 0 || largest <= known {
		return none, err
	}
	p, err := seg.OffsetOfMaxTimestamp()
	if errors.Is(err, segment.ErrNotFound) {
		return none, nil
	}
	if err != nil || p.Offset >= from {
		return p, err
	}
	if largest, err = largestFrom(seg, from, d); err != nil || largest <= known {
		return none, err
	}
	return seg.FindTime(largest, from)
}

// largestFrom is the largest timestamp of the records at or above from, -1 if there is none.
func largestFrom(seg *segment.Segment, from int64, d *record.Decoder) (int64, error) {
	largest := int64(-1)
	at, err := seg.Find(from)
	if errors.Is(err, segment.ErrNotFound) {
		return largest, nil
	}
	if err != nil {
		return largest, err
	}
	for b, err := range seg.Batches(at.Pos) {
		if err != nil {
			return largest, err
		}
		if b.BaseOffset() >= from {
			largest = max(largest, b.MaxTimestamp())
			continue
		}
		for r, err := range b.Records(d) {
			if err != nil {
				return largest, err
			}
			if r.Offset >= from {
				largest = max(largest, r.Timestamp)
			}
		}
	}
	return largest, nil
}

// lookup runs find over the present segments, and again if a truncation got in its way.
func (v *view) lookup(ctx context.Context, find func(Offsets, segments) (segment.TimePosition, error)) (At, error) {
	if v.refresh != nil {
		if err := v.refresh(false); err != nil {
			return At{}, err
		}
	}
	for stale := 0; ; runtime.Gosched() {
		if v.over() {
			return At{}, ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return At{}, err
		}
		o, cuts := v.loadCuts()
		list := v.list.Load()
		p, err := find(o, *list)
		none := errors.Is(err, segment.ErrNotFound)
		if none {
			err = nil
		}
		moved, err := v.settled(list, cuts, err, &stale)
		switch {
		case errors.Is(err, record.ErrTooLarge):
			return At{}, fmt.Errorf("%s: %w", v.name, refusedRecord(err))
		case err != nil:
			return At{}, (*list).explainAt(err, o.LogStart)
		case moved:
		case none || p.Offset >= o.HighWatermark:
			return At{}, ErrNotFound
		default:
			return At{Offset: p.Offset, Timestamp: p.Timestamp, LeaderEpoch: p.LeaderEpoch}, nil
		}
	}
}
