package log

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"runtime"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// Batches yields the stored batches from the one that holds offset up to the bound at the time ranging begins, CRC checked,
// still compressed, control batches included; ReadCommitted leaves out these and aborted ones. The first may begin below
// offset; a batch that reaches past the bound or WithMaxOffset is left out whole. A batch is a view, valid until the next
// step. Nothing is locked while the loop's body runs: it may append, truncate or close. The error, if any, comes once and
// last: *OffsetRangeError (the offset is not in the log, or no longer: truncated or deleted meanwhile), ErrClosed, ctx's,
// or a *CorruptError. Ranging again starts again.
func (l *Log) Batches(ctx context.Context, offset int64, options ...ReadOption) iter.Seq2[record.Batch, error] {
	options = append([]ReadOption(nil), options...)
	return func(yield func(record.Batch, error) bool) { l.eachBatch(ctx, offset, collect(options), yield) }
}

func (v *view) batches(ctx context.Context, offset int64, o readOptions) iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) { v.eachBatch(ctx, offset, o, yield) }
}

func (v *view) eachBatch(ctx context.Context, offset int64, o readOptions, yield func(record.Batch, error) bool) {
	c := cursor{v: v, o: o, next: offset}
	aborts := aborts{v: v}
	c.run(ctx, func(b record.Batch, _ int64, err error) bool {
		if err == nil && o.isolation == ReadCommitted {
			var hides bool
			if hides, err = aborts.hides(b, c.segs); hides {
				return true
			}
			if err != nil {
				yield(record.Batch{}, err)
				return false
			}
		}
		return yield(b, err)
	})
}

// cursor walks one view from batch to batch. It holds nothing between steps but the segment iterator's reference.
type cursor struct {
	v      *view
	o      readOptions
	next   int64    // offset wanted
	need   int64    // the bound must reach this first: the end of a batch that it cuts in two
	cuts   uint64   // truncations that next has survived
	follow bool     // wait at the bound
	split  bool     // a batch that WithMaxOffset cuts in two is yielded all the same
	stale  int      // errors of a changing file in a row
	segs   segments // that it reads
}

// maxStale is how often a Reader looks again at a file that changes under it without a step forward.
const maxStale = 16

// run yields batches, each with the first offset in it that is wanted, then the error if there is one.
func (c *cursor) run(ctx context.Context, yield func(b record.Batch, from int64, err error) bool) {
	limit, err := c.begin()
	for err == nil && c.next < c.o.end {
		if limit < max(c.next+1, c.need) {
			if !c.follow {
				return
			}
			limit, err = c.more(ctx)
			continue
		}
		var done bool
		if limit, done, err = c.segment(ctx, limit, yield); done {
			return
		}
	}
	if err != nil {
		yield(record.Batch{}, c.next, err)
	}
}

// begin checks the start offset and gives the present bound.
func (c *cursor) begin() (limit int64, err error) {
	if err := c.o.validate(); err != nil {
		return 0, err
	}
	if c.v.refresh != nil {
		if err := c.v.refresh(false); err != nil {
			return 0, err
		}
	}
	_, c.cuts = c.v.loadCuts()
	return c.reach()
}

// reach is the present bound, after moving next back into the log where the reset policy allows.
func (c *cursor) reach() (limit int64, err error) {
	if c.v.over() {
		return 0, ErrClosed
	}
	o, now, gone := c.v.since(c.cuts, c.next)
	c.cuts = now
	limit = o.bound(c.o.isolation)
	if !gone && c.next >= o.LogStart && c.next <= o.LogEnd {
		return limit, nil
	}
	c.need = 0
	switch c.o.reset {
	case Earliest:
		c.next = o.LogStart
	case Latest:
		c.next = limit
	default:
		return 0, &OffsetRangeError{Offset: c.next, LogStart: o.LogStart, LogEnd: o.LogEnd}
	}
	return limit, nil
}

// since is one reading of the offsets and the truncation count. gone says that what a reader at offset read last, when
// cuts was the count, may have been truncated since, even if the log has grown past it again.
func (m *marks) since(cuts uint64, offset int64) (o Offsets, now uint64, gone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.o, m.cuts, m.lostLocked(cuts, offset)
}

// more waits until there is something at next.
func (c *cursor) more(ctx context.Context) (limit int64, err error) {
	defer func() { c.need = 0 }()
	c.v.followers.Add(1)
	defer c.v.followers.Add(-1)
	if err := c.v.await(ctx, func(o Offsets) bool {
		return o.bound(c.o.isolation) >= max(c.next+1, c.need) || o.LogEnd < max(c.next, c.need) || o.LogStart > c.next
	}); err != nil {
		return 0, err
	}
	return c.reach()
}

// segment yields the batches of the segment that holds next. done says that the iteration is over.
func (c *cursor) segment(ctx context.Context, limit int64, yield func(record.Batch, int64, error) bool) (_ int64, done bool, err error) {
	list := c.v.list.Load()
	segs := *list
	c.segs = segs
	i := segs.floor(c.next)
	if i < 0 {
		return c.again(limit)
	}
	c.v.pinned.Add(1)
	defer c.v.pinned.Add(-1)
	end := c.v.endOf(segs, i)
	for b, err := range segs[i].BatchesFrom(c.next) {
		if err == nil {
			err = segs.misplaced(i, b.BaseOffset(), b.LastOffset(), end)
		}
		switch {
		case errors.Is(err, segment.ErrNotFound):
			return c.gap(limit, list, i)
		case err != nil:
			return c.explain(limit, list, err)
		case b.LastOffset() < c.next:
			continue
		case b.BaseOffset() >= c.o.end, !c.split && b.LastOffset() >= c.o.end:
			return limit, true, nil
		case b.LastOffset() >= limit:
			return limit, !c.beyond(b, limit), nil
		case c.v.closed.Load():
			return limit, false, ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return limit, false, err
		}
		if o, cuts := c.v.loadCuts(); cuts != c.cuts || o.LogStart > c.next {
			return c.again(limit)
		}
		from := c.next
		c.next, c.stale = b.LastOffset()+1, 0
		if !yield(b, from, nil) {
			return limit, true, nil
		}
	}
	return limit, false, nil
}

// gap passes over offsets that no batch holds: up to the next segment, or to the bound.
func (c *cursor) gap(limit int64, list *segments, i int) (int64, bool, error) {
	last := i+1 == len(*list)
	if last && c.v.refresh != nil {
		if err := c.v.refresh(false); err != nil {
			return 0, false, err
		}
	}
	if c.moved(list) {
		return c.again(limit)
	}
	c.next = limit
	if !last {
		c.next = min(limit, (*list)[i+1].Base())
	}
	return limit, false, nil
}

// beyond handles a batch that reaches past the bound: an iteration ends there, a follower waits for all of it.
func (c *cursor) beyond(b record.Batch, limit int64) (wait bool) {
	c.next, c.need = max(c.next, min(b.BaseOffset(), limit)), b.LastOffset()+1
	return c.follow
}

// again resolves next anew after the log changed under the reader. An iteration keeps the bound it began with.
func (c *cursor) again(limit int64) (int64, bool, error) {
	runtime.Gosched() // whoever changes the log may not be done
	now, err := c.reach()
	if !c.follow {
		now = min(now, limit)
	}
	return now, false, err
}

// moved says whether the log was truncated, rolled or swapped since list was loaded.
func (c *cursor) moved(list *segments) bool {
	_, now := c.v.loadCuts()
	return now != c.cuts || c.v.list.Load() != list
}

// explain decides what a segment's error means: a truncation or a swap under the reader is no error, the offset is
// resolved again; anything else is.
func (c *cursor) explain(limit int64, list *segments, err error) (int64, bool, error) {
	if c.v.closed.Load() {
		return limit, false, ErrClosed
	}
	if !passing(err) {
		return limit, false, (*list).explainAt(err, c.next)
	}
	if c.v.refresh != nil {
		if c.stale++; c.stale > maxStale {
			return limit, false, (*list).explainAt(err, c.next)
		}
		if err := c.v.refresh(true); err != nil {
			return limit, false, err
		}
		if !errors.Is(err, segment.ErrCorrupt) {
			return c.again(limit)
		}
	}
	if c.moved(list) || errors.Is(err, segment.ErrChanged) { // a truncation begins, or ends, in the segment
		return c.again(limit)
	}
	return limit, false, (*list).explainAt(err, c.next)
}

// passing are the errors that a change of the log can put in a reader's way.
func passing(err error) bool {
	return errors.Is(err, segment.ErrChanged) || errors.Is(err, segment.ErrCorrupt) ||
		errors.Is(err, fs.ErrClosed) || errors.Is(err, fs.ErrNotExist)
}
