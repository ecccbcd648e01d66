package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// FetchOptions of one Fetch.
type FetchOptions struct {
	Isolation Isolation // isolation.level; replicas read to the LogEnd
	// MaxBytes is max.partition.fetch.bytes: it bounds the answer, except that the first batch always comes whole. 0: 1 MiB.
	MaxBytes int64
	// WholeBatches ends the answer behind its last whole batch, for who sends Len ahead of the bytes to a peer that wants
	// no piece of a batch. Otherwise MaxBytes may cut the last one in two, as in a broker's answer.
	WholeBatches bool
	// MinBytes > 0 (fetch.min.bytes) waits until that much is there, at most MaxWait (fetch.max.wait.ms); 0 answers at once.
	MinBytes int64
	MaxWait  time.Duration
	// LastFetchedEpoch is the leader epoch of the record before offset in the reader's own copy. Given, a reader that
	// has diverged gets Diverging instead of data (KIP-320, KIP-595).
	LastFetchedEpoch *int32
	// Limits of unpacking, for Fetched.Records; the zero value is the Reader's, or the defaults.
	Limits record.Limits
}

// validate refuses what has no meaning.
func (o *FetchOptions) validate() error {
	bad := func(field string, value any, reason string) error {
		return &ConfigError{Field: "FetchOptions." + field, Value: fmt.Sprint(value), Reason: reason}
	}
	switch {
	case o.Isolation > LogEnd:
		return bad("Isolation", o.Isolation, "not one of the constants")
	case o.MaxBytes < 0:
		return bad("MaxBytes", o.MaxBytes, "negative")
	case o.MinBytes < 0:
		return bad("MinBytes", o.MinBytes, "negative")
	case o.MaxWait < 0:
		return bad("MaxWait", o.MaxWait, "negative")
	}
	return nil
}

const defaultFetchBytes = 1 << 20

// Fetch returns the next batches from offset on: a region of one segment that starts with the batch holding offset, or
// with the next one where a gap is. At the bound it is empty, without error. The result pins a segment until Close, and
// holds it for as long as it takes to send: set a write deadline. Without MinBytes it does not block.
//
// Errors: *OffsetRangeError (below the log start, above the log end, or LastFetchedEpoch is unknown), ErrClosed, ctx's, a
// *CorruptError if the way to the offset is damaged. The CRCs of what is returned are checked by its iterators, not here.
func (l *Log) Fetch(ctx context.Context, offset int64, o FetchOptions) (*Fetched, error) {
	f := fetch{v: &l.view, offset: offset, o: o}
	if o.LastFetchedEpoch != nil {
		last := *o.LastFetchedEpoch
		f.diverging = func(at Offsets) (*EpochEnd, error) { return l.diverging(offset, last, at) }
	}
	return f.run(ctx)
}

// diverging says where a reader must truncate whose last epoch ended elsewhere than its offset says; nil if it has not
// diverged (Kafka's order of answers: unknown epoch, offset below the start, divergence).
func (l *Log) diverging(offset int64, last int32, at Offsets) (*EpochEnd, error) {
	epoch, end := l.epochs.EndOffset(last, at.LogEnd)
	gone := &OffsetRangeError{Offset: offset, LogStart: at.LogStart, LogEnd: at.LogEnd}
	switch {
	case epoch < 0 || end < 0:
		return nil, fmt.Errorf("leader epoch %d is unknown: %w", last, gone)
	case offset < at.LogStart:
		return nil, gone
	case epoch < last || end < offset:
		return &EpochEnd{Epoch: epoch, End: end}, nil
	}
	return nil, nil
}

// fetch is one call of Fetch.
type fetch struct {
	v         *view
	offset    int64
	o         FetchOptions
	diverging func(at Offsets) (*EpochEnd, error) // nil: not asked
	stale     int
}

func (f *fetch) run(ctx context.Context) (*Fetched, error) {
	if err := f.o.validate(); err != nil {
		return nil, err
	}
	if f.o.MaxBytes == 0 {
		f.o.MaxBytes = defaultFetchBytes
	}
	if f.o.MinBytes <= 0 || f.o.MaxWait <= 0 {
		return f.now(ctx)
	}
	wait, cancel := context.WithTimeout(ctx, f.o.MaxWait)
	defer cancel()
	return f.enough(ctx, wait)
}

// enough answers once there are MinBytes, or no more will come (the bound is in a later segment, the reader diverged), or
// the time is up.
func (f *fetch) enough(ctx, wait context.Context) (*Fetched, error) {
	f.v.followers.Add(1)
	defer f.v.followers.Add(-1)
	for {
		got, err := f.now(ctx)
		if err != nil || got.Len() >= min(f.o.MinBytes, f.o.MaxBytes) || got.last || got.diverging != nil {
			return got, err
		}
		seen := got.offsets
		err = f.v.await(wait, func(now Offsets) bool {
			return now.bound(f.o.Isolation) != seen.bound(f.o.Isolation) || now.LogEnd < f.offset || now.LogStart > f.offset
		})
		switch {
		case err == nil:
			err = got.Close()
		case ctx.Err() == nil && (wait.Err() != nil || errors.Is(err, ErrFailed)):
			return got, nil // what there is when the time is up, or no more can come
		default:
			err = errors.Join(err, got.Close())
		}
		if err != nil {
			return nil, err
		}
	}
}

// now resolves the offset against the segments as they are. The marks are read before the data, so that an answer never
// claims less than it holds.
func (f *fetch) now(ctx context.Context) (*Fetched, error) {
	for {
		if f.v.over() {
			return nil, ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		at, cuts := f.v.loadCuts()
		got := &Fetched{v: f.v, from: f.offset, offsets: at, limits: f.o.Limits}
		if f.diverging != nil {
			if end, err := f.diverging(at); end != nil || err != nil {
				got.diverging = end
				return got, err
			}
		}
		if f.offset < at.LogStart || f.offset > at.LogEnd {
			return nil, &OffsetRangeError{Offset: f.offset, LogStart: at.LogStart, LogEnd: at.LogEnd}
		}
		bound := at.bound(f.o.Isolation)
		if f.offset >= bound {
			return got, nil
		}
		list := f.v.list.Load()
		err := got.resolve(*list, f.offset, bound, f.o)
		if err == nil && got.open && f.o.Isolation == ReadCommitted {
			got.committed = true
			var upTo int64
			if upTo, err = got.upTo(*list, bound); err == nil {
				got.aborted, err = f.v.aborted(*list, f.offset, upTo)
			}
		}
		moved, err := f.v.settled(list, cuts, err, &f.stale)
		if err == nil && !moved {
			return got, nil
		}
		got.Close()
		if err != nil {
			return nil, (*list).explainAt(err, f.offset)
		}
		runtime.Gosched()
	}
}

// settled judges what was found in list when cuts was the count: moved says that the log changed meanwhile and the caller
// must look again; otherwise err comes back if it is a real one. stale counts the times in a row that a Reader's file
// changed without anything to see.
func (v *view) settled(list *segments, cuts uint64, err error, stale *int) (moved bool, _ error) {
	if v.closed.Load() {
		return false, ErrClosed
	}
	if err != nil && !passing(err) {
		return false, err
	}
	if err != nil && v.refresh != nil {
		if *stale++; *stale > maxStale {
			return false, err
		}
		if err := v.refresh(true); err != nil {
			return false, err
		}
		if !errors.Is(err, segment.ErrCorrupt) {
			return true, nil
		}
	}
	_, now := v.loadCuts()
	if now != cuts || errors.Is(err, segment.ErrChanged) || err != nil && v.list.Load() != list {
		return true, nil
	}
	return false, err
}

// resolve finds the region that starts with the batch holding offset, or with the next one if a gap is there.
func (f *Fetched) resolve(segs segments, offset, bound int64, o FetchOptions) error {
	for i := max(0, segs.floor(offset)); i < len(segs) && segs[i].Base() < bound; i++ {
		region, err := segs[i].Region(max(offset, segs[i].Base()), o.MaxBytes, bound, true)
		if errors.Is(err, segment.ErrNotFound) {
			continue
		}
		if err == nil {
			err = f.fits(segs, i, &region, o.WholeBatches)
		}
		if err != nil {
			return errors.Join(err, region.Close())
		}
		if region.Len() == 0 { // the next batch reaches up to the bound
			f.none = min(region.First().Base, bound)
		}
		f.region, f.open, f.last = region, true, i+1 < len(segs) && segs[i+1].Base() <= bound
		f.v.pinned.Add(1)
		f.watch()
		return nil
	}
	f.none = bound
	return nil
}

// fits checks that the region begins with a batch of segment i, and trims it if asked.
func (f *Fetched) fits(segs segments, i int, region *segment.Region, whole bool) error {
	f.segs, f.at, f.end = segs, i, f.v.endOf(segs, i)
	first := region.First()
	if err := segs.misplaced(i, first.Base, first.LastOffset, f.end); err != nil {
		return err
	}
	if whole {
		return region.Trim()
	}
	return nil
}

// Fetched is a region of one segment. It pins the segment, and its disk space, until Close, also after the log was closed
// or has dropped the segment; Stats.Pinned counts those that were forgotten. ReadAt and WriteTo may run concurrently,
// nothing else may.
type Fetched struct {
	v         *view
	from      int64
	offsets   Offsets
	diverging *EpochEnd
	committed bool
	aborted   []segment.AbortedTxn
	region    segment.Region
	segs      segments
	at        int   // its segment's place in segs
	end       int64 // all offsets of the segment are below
	limits    record.Limits
	open      bool
	closed    bool
	leak      *leak
	last      bool  // the bound is in a later segment: this region will never be longer
	none      int64 // no batch holds an offset from from on that is below
}

// Len is the region's size in bytes.
func (f *Fetched) Len() int64 {
	if !f.open {
		return 0
	}
	return f.region.Len()
}

// Offsets are the log's marks as they stood before the read, as a broker's fetch answer shows them.
func (f *Fetched) Offsets() Offsets { return f.offsets }

// Diverging is set instead of data when the reader's last epoch ended elsewhere: it must truncate to that epoch's end.
func (f *Fetched) Diverging() (EpochEnd, bool) {
	if f.diverging == nil {
		return EpochEnd{Epoch: -1, End: -1}, false
	}
	return *f.diverging, true
}

// Aborted lists, for ReadCommitted, the aborted transactions that a reader of the region must know, as a broker's fetch answer
// does: those that end at or above the offset asked for and begin below the end of the region's last whole batch. (A broker
// may list more, because it looks no closer than its index.) Records leaves their records out already, Batches and WriteTo do not.
func (f *Fetched) Aborted() []AbortedTxn {
	return slices.Clone(f.aborted)
}

// upTo is the offset behind the region's last whole batch; if damage hides that, one behind all of it can be.
func (f *Fetched) upTo(segs segments, bound int64) (int64, error) {
	i := segs.floor(f.region.First().Base)
	if i < 0 {
		return bound, nil
	}
	if i+1 < len(segs) {
		bound = min(bound, segs[i+1].Base())
	}
	next, err := f.region.Next()
	switch {
	case errors.Is(err, segment.ErrCorrupt):
		return bound, nil
	case err != nil:
		return 0, err
	}
	return min(bound, next), nil
}

// WriteTo sends the region's bytes, by sendfile where writer and file system allow. It may start below the offset
// asked for and, when MaxBytes cut it, end inside a batch, as a broker's answer does, unless WholeBatches was asked for.
// ErrClosed after Close. ErrTruncated: the log was truncated
// in this segment since the fetch; what was sent before may be of either history, so fetch again.
func (f *Fetched) WriteTo(w io.Writer) (int64, error) {
	switch {
	case f.closed:
		return 0, ErrClosed
	case !f.open:
		return 0, nil
	}
	n, err := f.region.WriteTo(w)
	return n, f.explain(err)
}

// ReadAt reads the region's bytes; offset 0 is its first. io.EOF at its end, ErrClosed after Close; ErrTruncated as WriteTo.
func (f *Fetched) ReadAt(p []byte, off int64) (int, error) {
	switch {
	case f.closed:
		return 0, ErrClosed
	case !f.open:
		return 0, io.EOF
	}
	n, err := f.region.ReadAt(p, off)
	return n, f.explain(err)
}

// explain gives a segment's error this package's name.
func (f *Fetched) explain(err error) error {
	switch {
	case err == nil || err == io.EOF:
		return err
	case errors.Is(err, segment.ErrChanged):
		return fmt.Errorf("%w: %w", ErrTruncated, err)
	case errors.Is(err, segment.ErrClosed):
		return ErrClosed
	}
	return (*f.v.list.Load()).explainAt(err, f.from)
}

// Close gives the segment back. It may be called more than once.
func (f *Fetched) Close() error {
	f.closed = true
	if !f.open {
		return nil
	}
	f.open = false
	f.unwatch()
	f.v.pinned.Add(-1)
	return f.region.Close()
}

// Batches yields the whole batches of the region, CRC checked. Views, valid until the next step. The error, if any, comes
// once and last: a *CorruptError, ErrTruncated as WriteTo, or ErrClosed after Close.
func (f *Fetched) Batches() iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		if f.closed {
			yield(record.Batch{}, ErrClosed)
			return
		}
		if !f.open {
			return
		}
		for b, err := range f.region.Batches() {
			if err == nil {
				err = f.segs.misplaced(f.at, b.BaseOffset(), b.LastOffset(), f.end)
			}
			if err != nil {
				yield(record.Batch{}, f.explain(err))
				return
			}
			if !yield(b, nil) {
				return
			}
		}
	}
}

// Records yields the records at or above the offset asked for, control records left out. Views, valid until the next
// step. Errors as Batches, and ErrClosed if the log is closed while it runs.
func (f *Fetched) Records() iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		if !f.open && !f.closed { // it holds none
			return
		}
		dec := f.v.lend(f.limits)
		defer f.v.giveBack(dec, f.limits)
		for b, err := range f.Batches() {
			if err != nil {
				yield(record.Record{}, err)
				return
			}
			if b.Control() || f.committed && b.Transactional() && hidden(f.aborted, b) {
				continue
			}
			if !f.v.unpack(b, dec, f.from, math.MaxInt64, yield) {
				return
			}
		}
	}
}

// NextOffset is where the next fetch goes on: behind the last whole batch. Without one it is behind the gap, if compaction has left
// one: below it, and at or above the offset asked for, the log has no record. At the bound that is the offset asked for.
func (f *Fetched) NextOffset() (int64, error) {
	next := max(f.from, f.none)
	for b, err := range f.Batches() {
		if err != nil {
			return next, err
		}
		next = max(next, b.LastOffset()+1)
	}
	return next, nil
}
