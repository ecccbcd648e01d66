package log

import (
	"context"
	"iter"

	"github.com/partlog/partlog/record"
)

// Records yields the records from offset up to the bound at the time ranging begins; Follow waits for more until ctx
// ends. In a log with gaps (compaction, follower) it begins with the first record at or above offset. A record is a
// view, valid until the next step: Clone keeps it. Control records are left out. The error, if any, comes once and
// last: *OffsetRangeError, ErrClosed, ctx's, or a *CorruptError. Ranging again starts again.
//
// Nothing is locked while the loop's body runs: it may append, truncate or close.
func (l *Log) Records(ctx context.Context, offset int64, options ...ReadOption) iter.Seq2[record.Record, error] {
	return l.records(ctx, offset, collect(options), false)
}

// Follow is Records without an end: at the bound it waits for more. It ends with ctx's error, ErrClosed, or what ends
// Records; a truncation below the offset it waits at is *OffsetRangeError unless WithReset says otherwise.
func (l *Log) Follow(ctx context.Context, offset int64, options ...ReadOption) iter.Seq2[record.Record, error] {
	return l.records(ctx, offset, collect(options), true)
}

func (v *view) records(ctx context.Context, offset int64, o readOptions, follow bool) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		dec := decoders.Get().(*record.Decoder)
		defer decoders.Put(dec)
		from := offset
		for b, err := range v.batches(ctx, offset, o, follow) {
			if err != nil {
				yield(record.Record{}, err)
				return
			}
			if b.Control() {
				continue
			}
			var more bool
			if more, from = v.unpack(b, dec, from, o.end, yield); !more {
				return
			}
		}
	}
}

// unpack yields the records of one batch within [from, end).
func (v *view) unpack(b record.Batch, dec *record.Decoder, from, end int64, yield func(record.Record, error) bool) (more bool, next int64) {
	for r, err := range b.Records(dec) {
		switch {
		case err != nil:
			yield(record.Record{}, v.undecodable(b, err))
			return false, from
		case r.Offset < from:
			continue
		case r.Offset >= end:
			return false, from
		case v.closed.Load():
			yield(record.Record{}, ErrClosed)
			return false, from
		}
		if !yield(r, nil) {
			return false, from
		}
	}
	return true, b.LastOffset() + 1
}

// undecodable names the batch whose CRC is right and whose records are not.
func (v *view) undecodable(b record.Batch, err error) error {
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
