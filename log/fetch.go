package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"sync"
	"time"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// FetchOptions of one Fetch.
type FetchOptions struct {
	Isolation Isolation
	// MaxBytes bounds the answer, except that the first batch always comes whole. 0: 1 MiB.
	MaxBytes int64
	// MinBytes > 0 waits until that much is there, at most MaxWait; 0 answers at once.
	MinBytes int64
	MaxWait  time.Duration
	// LastFetchedEpoch is the leader epoch of the record before offset in the reader's own copy. Given, a reader that
	// has diverged gets Diverging instead of data (KIP-320, KIP-595).
	LastFetchedEpoch *int32
}

const defaultFetchBytes = 1 << 20

// Fetch returns the next batches from offset on: a region of one segment that starts with the batch holding offset. At
// the bound it is empty, without error. The result pins a segment until Close, and holds it for as long as it takes to
// send: set a write deadline. Errors: *OffsetRangeError (below the log start or above the log end), ErrClosed, ctx's.
func (l *Log) Fetch(ctx context.Context, offset int64, o FetchOptions) (*Fetched, error) {
	at := l.load()
	if o.LastFetchedEpoch != nil {
		if f, err := l.diverging(offset, *o.LastFetchedEpoch, at); f != nil || err != nil {
			return f, err
		}
	}
	return l.fetch(ctx, offset, o, at)
}

// diverging answers a reader whose last epoch ended elsewhere than its offset says.
func (l *Log) diverging(offset int64, last int32, at Offsets) (*Fetched, error) {
	if offset < at.LogStart {
		return nil, &OffsetRangeError{Offset: offset, LogStart: at.LogStart, LogEnd: at.LogEnd}
	}
	end := l.EndOfEpoch(last)
	switch {
	case end.Epoch < 0 || end.End < 0:
		return nil, fmt.Errorf("leader epoch %d is unknown: %w", last, &OffsetRangeError{Offset: offset, LogStart: at.LogStart, LogEnd: at.LogEnd})
	case end.Epoch < last || end.End < offset:
		return &Fetched{v: &l.view, from: offset, offsets: at, diverging: &end}, nil
	}
	return nil, nil
}

func (v *view) fetch(ctx context.Context, offset int64, o FetchOptions, at Offsets) (*Fetched, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultFetchBytes
	}
	if o.MinBytes > 0 && o.MaxWait > 0 {
		wait, cancel := context.WithTimeout(ctx, o.MaxWait)
		defer cancel()
		return v.fetchEnough(ctx, wait, offset, o, at)
	}
	return v.fetchNow(ctx, offset, o, at)
}

// fetchEnough answers once there are MinBytes, or no more will come (a later segment has begun), or the time is up.
func (v *view) fetchEnough(ctx, wait context.Context, offset int64, o FetchOptions, at Offsets) (*Fetched, error) {
	v.followers.Add(1)
	defer v.followers.Add(-1)
	for {
		f, err := v.fetchNow(ctx, offset, o, at)
		if err != nil || f.Len() >= min(o.MinBytes, o.MaxBytes) || f.last {
			return f, err
		}
		seen := v.load().bound(o.Isolation)
		if err := v.await(wait, func(now Offsets) bool {
			return now.bound(o.Isolation) > max(seen, offset) || now.LogEnd < offset || now.bound(o.Isolation) < seen
		}); err != nil {
			if ctx.Err() == nil && wait.Err() != nil {
				return f, nil // what there is when the time is up
			}
			return nil, errors.Join(err, f.Close())
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// fetchNow resolves offset against the segments as they are now.
func (v *view) fetchNow(ctx context.Context, offset int64, o FetchOptions, at Offsets) (*Fetched, error) {
	for {
		if v.closed.Load() {
			return nil, ErrClosed
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		now, cuts := v.loadCuts()
		if offset < now.LogStart || offset > now.LogEnd {
			return nil, &OffsetRangeError{Offset: offset, LogStart: now.LogStart, LogEnd: now.LogEnd}
		}
		f := &Fetched{v: v, from: offset, offsets: at}
		bound := now.bound(o.Isolation)
		if offset >= bound {
			return f, nil
		}
		list := v.list.Load()
		err := f.resolve(*list, offset, bound, o.MaxBytes)
		if err == nil {
			return f, nil
		}
		if _, later := v.loadCuts(); later == cuts && v.list.Load() == list {
			return nil, (*list).explain(err)
		}
	}
}

// resolve finds the region that starts with the batch holding offset, or with the next one if a gap is there.
func (f *Fetched) resolve(segs segments, offset, bound, maxBytes int64) error {
	for i := max(0, segs.floor(offset)); i < len(segs); i++ {
		region, err := segs[i].Region(max(offset, segs[i].Base()), maxBytes, bound, true)
		if errors.Is(err, segment.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		f.region, f.open, f.last = region, true, i+1 < len(segs)
		return nil
	}
	return nil
}

// Fetched is a region of one segment. It pins the segment until Close; Stats.Pinned counts those that were forgotten.
// Not safe for concurrent use.
type Fetched struct {
	v         *view
	from      int64
	offsets   Offsets
	diverging *EpochEnd
	region    segment.Region
	open      bool
	last      bool // a later segment exists: this region will never be longer
	closing   sync.Once
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

// WriteTo sends the region's bytes, by sendfile where writer and file system allow. It may start below the offset
// asked for and, when MaxBytes cut it, end inside a batch, as a broker's answer does.
func (f *Fetched) WriteTo(w io.Writer) (int64, error) {
	if !f.open {
		return 0, nil
	}
	return f.region.WriteTo(w)
}

// ReadAt reads the region's bytes; offset 0 is its first.
func (f *Fetched) ReadAt(p []byte, off int64) (int, error) {
	if !f.open {
		return 0, io.EOF
	}
	return f.region.ReadAt(p, off)
}

// Close gives the segment back. It may be called more than once.
func (f *Fetched) Close() (err error) {
	f.closing.Do(func() {
		if f.open {
			f.open = false
			err = f.region.Close()
		}
	})
	return err
}

// Batches yields the whole batches of the region, CRC checked. Views, valid until the next step.
func (f *Fetched) Batches() iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		if !f.open {
			return
		}
		for b, err := range f.region.Batches() {
			if err != nil {
				if errors.Is(err, fs.ErrClosed) {
					err = ErrClosed
				}
				yield(record.Batch{}, (*f.v.list.Load()).explain(err))
				return
			}
			if !yield(b, nil) {
				return
			}
		}
	}
}

// Records yields the records at or above the offset asked for, control records left out. Views, valid until the next
// step.
func (f *Fetched) Records() iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		dec := decoders.Get().(*record.Decoder)
		defer decoders.Put(dec)
		from := f.from
		for b, err := range f.Batches() {
			if err != nil {
				yield(record.Record{}, err)
				return
			}
			if b.Control() {
				continue
			}
			var more bool
			if more, from = f.v.unpack(b, dec, from, b.LastOffset()+1, yield); !more {
				return
			}
		}
	}
}

// NextOffset is where the next fetch goes on: behind the last whole batch, or the offset asked for if there is none.
func (f *Fetched) NextOffset() (int64, error) {
	next := f.from
	for b, err := range f.Batches() {
		if err != nil {
			return next, err
		}
		next = max(next, b.LastOffset()+1)
	}
	return next, nil
}
