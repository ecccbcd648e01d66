package log

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/partlog/partlog/record"
)

// Records yields the records from offset up to the bound at the time ranging begins (the high watermark, unless
// WithIsolation says otherwise); Follow goes on from there. In a log with gaps (compaction, follower) it begins with
// the first record at or above offset. A record is a view, valid until the next step: Clone keeps it. Control records
// are left out.
//
// Nothing is locked while the loop's body runs: it may append, truncate or close. The error, if any, comes once and
// last: *OffsetRangeError (the offset is not in the log, or no longer: truncated or deleted meanwhile), ErrClosed, ctx's,
// ErrTooLarge for a batch that unpacks to more than WithLimits allows, or a *CorruptError, before which every good record
// has been yielded. Ranging again starts again.
func (l *Log) Records(ctx context.Context, offset int64, options ...ReadOption) iter.Seq2[record.Record, error] {
	// This much the compiler inlines, and then the loop's body and what it uses stay on the caller's stack.
	options = append([]ReadOption(nil), options...)
	return func(yield func(record.Record, error) bool) { l.eachRecord(ctx, offset, collect(options), false, yield) }
}

// Follow is Records without an end: at the bound it waits for more, without polling. It ends with ctx's error, ErrClosed,
// ErrFailed once a failed log has no more, or what ends Records; a truncation below the offset it has come to is
// *OffsetRangeError unless WithReset says otherwise, also when other records have taken the place meanwhile.
func (l *Log) Follow(ctx context.Context, offset int64, options ...ReadOption) iter.Seq2[record.Record, error] {
	options = append([]ReadOption(nil), options...)
	return func(yield func(record.Record, error) bool) { l.eachRecord(ctx, offset, collect(options), true, yield) }
}

func (v *view) records(ctx context.Context, offset int64, o readOptions, follow bool) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) { v.eachRecord(ctx, offset, o, follow, yield) }
}

func (v *view) eachRecord(ctx context.Context, offset int64, o readOptions, follow bool, yield func(record.Record, error) bool) {
	dec := v.lend(o.limits)
	defer v.giveBack(dec, o.limits)
	c := cursor{v: v, o: o, next: offset, follow: follow, split: true}
	aborts := aborts{v: v}
	c.run(ctx, func(b record.Batch, from int64, err error) bool {
		switch {
		case err != nil:
			return yield(record.Record{}, err)
		case b.Control():
			return true
		case o.isolation == ReadCommitted && b.Transactional():
			switch hides, err := aborts.hides(b, c.segs); {
			case err != nil:
				yield(record.Record{}, err)
				return false
			case hides:
				return true
			}
		}
		return v.unpack(b, dec, from, o.end, yield)
	})
}

// unpack yields the records of one batch within [from, end). It is false once the loop must end.
func (v *view) unpack(b record.Batch, dec *record.Decoder, from, end int64, yield func(record.Record, error) bool) (more bool) {
	if b.Magic() < 2 {
		return v.unpackLegacy(b, dec, from, end, yield)
	}
	var s record.Steps
	err := s.Begin(b, dec, from)
	for err == nil && s.Next() {
		r := s.Record()
		switch {
		case r.Offset < from:
			continue
		case r.Offset >= end:
			return false
		case v.closed.Load():
			yield(record.Record{}, ErrClosed)
			return false
		}
		if !yield(*r, nil) {
			return false
		}
	}
	if err == nil {
		err = s.Err()
	}
	if err != nil {
		yield(record.Record{}, v.undecodable(b, err))
	}
	return err == nil
}

func (v *view) unpackLegacy(b record.Batch, dec *record.Decoder, from, end int64, yield func(record.Record, error) bool) (more bool) {
	for r, err := range b.Records(dec) {
		switch {
		case err != nil:
			yield(record.Record{}, v.undecodable(b, err))
			return false
		case r.Offset < from:
			continue
		case r.Offset >= end:
			return false
		case v.closed.Load():
			yield(record.Record{}, ErrClosed)
			return false
		}
		if !yield(r, nil) {
			return false
		}
	}
	return true
}

// undecodable names the batch whose CRC is right and whose records are not. One that is beyond the reader's limits is not
// damaged.
func (v *view) undecodable(b record.Batch, err error) error {
	if errors.Is(err, record.ErrTooLarge) {
		return fmt.Errorf("%s, batch of offsets %d to %d: %w; WithLimits allows more", v.name, b.BaseOffset(), b.LastOffset(), refusedRecord(err))
	}
	segs := *v.list.Load()
	at := &CorruptError{File: v.name, Position: -1, Offset: b.BaseOffset(), Intact: [2]int64{b.BaseOffset(), b.LastOffset() + 1}, Err: err}
	if i := segs.floor(b.LastOffset()); i >= 0 {
		at.File = segs[i].File()
		if p, err := segs[i].Find(b.LastOffset()); err == nil {
			at.Position = p.Pos
		}
	}
	return at
}
