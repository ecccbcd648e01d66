package log

import (
	"context"
	"errors"
	"io/fs"
	"iter"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// Batches yields the stored batches from the one that holds offset up to the bound at the time ranging begins, CRC
// checked, still compressed. The first may begin below offset; a batch that reaches past the bound is left out whole. A
// batch is a view, valid until the next step. The error, if any, comes once and last: *OffsetRangeError, ErrClosed,
// ctx's, or a *CorruptError. Ranging again starts again.
func (l *Log) Batches(ctx context.Context, offset int64, options ...ReadOption) iter.Seq2[record.Batch, error] {
	return l.batches(ctx, offset, collect(options), false)
}

// cursor walks one view from batch to batch. It holds nothing between steps but the segment iterator's reference.
type cursor struct {
	v      *view
	o      readOptions
	next   int64 // offset wanted
	need   int64 // the bound must reach this first: the end of a batch that it cuts in two
	follow bool
}

func (v *view) batches(ctx context.Context, offset int64, o readOptions, follow bool) iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		c := cursor{v: v, o: o, next: offset, follow: follow}
		limit, err := c.begin(ctx)
		for err == nil && c.next < c.o.end {
			if limit < max(c.next+1, c.need) {
				if !follow {
					return
				}
				limit, err = c.more(ctx)
				continue
			}
			var done bool
			done, err = c.segment(ctx, limit, yield)
			if done {
				return
			}
		}
		if err != nil {
			yield(record.Batch{}, err)
		}
	}
}

// begin checks the start offset and gives the present bound.
func (c *cursor) begin(ctx context.Context) (limit int64, err error) {
	if c.v.refresh != nil {
		if err := c.v.refresh(); err != nil {
			return 0, err
		}
	}
	return c.reach()
}

// reach is the present bound, after moving next back into the log where the reset policy allows.
func (c *cursor) reach() (limit int64, err error) {
	if c.v.closed.Load() {
		return 0, ErrClosed
	}
	o := c.v.load()
	limit = o.bound(c.o.isolation)
	if c.next < o.LogStart || c.next > o.LogEnd {
		switch c.o.reset {
		case Earliest:
			c.next = o.LogStart
		case Latest:
			c.next = limit
		default:
			return 0, &OffsetRangeError{Offset: c.next, LogStart: o.LogStart, LogEnd: o.LogEnd}
		}
	}
	return min(limit, c.o.end), nil
}

// more waits until there is something at next.
func (c *cursor) more(ctx context.Context) (limit int64, err error) {
	defer func() { c.need = 0 }()
	c.v.followers.Add(1)
	defer c.v.followers.Add(-1)
	if err := c.v.await(ctx, func(o Offsets) bool {
		return o.bound(c.o.isolation) >= max(c.next+1, c.need) || o.LogEnd < max(c.next, c.need)
	}); err != nil {
		return 0, err
	}
	return c.reach()
}

// segment yields the batches of the segment that holds next. done says that the caller of the iterator broke off.
func (c *cursor) segment(ctx context.Context, limit int64, yield func(record.Batch, error) bool) (done bool, err error) {
	_, cuts := c.v.loadCuts()
	list := c.v.list.Load()
	segs := *list
	i := segs.floor(c.next)
	if i < 0 {
		_, err = c.reach()
		return false, err
	}
	at, err := segs[i].Find(c.next)
	switch {
	case errors.Is(err, segment.ErrNotFound):
		c.next = limit // a gap up to the next segment or the bound
		if i+1 < len(segs) {
			c.next = min(limit, segs[i+1].Base())
		}
		return false, nil
	case err != nil:
		return false, c.explain(segs, list, cuts, err)
	}
	for b, err := range segs[i].Batches(at.Pos) {
		if err != nil {
			return false, c.explain(segs, list, cuts, err)
		}
		if b.LastOffset() < c.next {
			continue
		}
		if b.LastOffset() >= limit {
			return c.beyond(b, limit)
		}
		if c.v.closed.Load() {
			return false, ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		c.next = b.LastOffset() + 1
		if !yield(b, nil) {
			return true, nil
		}
	}
	return false, nil
}

// beyond handles a batch that reaches past the bound: an iteration ends there, a follower waits for all of it.
func (c *cursor) beyond(b record.Batch, limit int64) (done bool, err error) {
	if !c.follow || c.o.end <= b.LastOffset() {
		return true, nil
	}
	c.next, c.need = max(c.next, min(b.BaseOffset(), limit)), b.LastOffset()+1
	return false, nil
}

// explain decides what a segment's error means: a truncation or a swap under the reader is no error (the caller looks
// again), anything else is.
func (c *cursor) explain(segs segments, list *segments, cuts uint64, err error) error {
	if c.v.closed.Load() {
		return ErrClosed
	}
	_, now := c.v.loadCuts()
	moved := now != cuts || c.v.list.Load() != list
	switch {
	case errors.Is(err, segment.ErrChanged) && moved, errors.Is(err, fs.ErrClosed) && moved, errors.Is(err, segment.ErrCorrupt) && moved:
		_, err = c.reach()
		return err
	}
	return segs.explain(err)
}
