package compaction

import (
	"context"
	"errors"
	"math"
	"sort"
	"time"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// Input of one run.
type Input struct {
	// Dir is the partition's folder below the root of Options.FS.
	Dir string
	// Options are those of the log's segments; new ones are made with them. MaxBytes and IndexMaxBytes limit the groups.
	Options segment.Options
	// Segments are all segments of the log, oldest first, also those that are not cleaned: their transaction indexes
	// are asked for the fate of what is. The caller holds a reference to each until Run returns, and sees to it that none
	// below Bounds.Uncleanable is truncated or deleted meanwhile. Appends, rolls and readers need not care.
	Segments []*segment.Segment
	Bounds   Bounds
	Config   Config
	// Producers are the log's producers at some time after Bounds were chosen. nil = there are none.
	Producers map[int64]LastBatch
	// Now is the time that horizons are judged by and set from.
	Now time.Time
	// Progress is called now and then from within Run; nil = not at all.
	Progress func(Progress)
	// Keep puts a finished group in the place of its old segments, most likely with SwapNamed; it is called for one group after
	// the other, from the lowest offset up. After an error Run removes the new files, unless it is ErrUnsettled, and ends
	// with that error. nil = Run swaps itself and deletes the old files at once, for folders nobody else has open.
	Keep func(ctx context.Context, g Group) error
	// StandBack lets others go first: it is called after every tenth of a millisecond of work or so, and the run goes on when it
	// returns, which it does soon once ctx has ended. It says whether anybody was there to go first; if so, what is written is
	// synced in small pieces, so that their syncs do not wait behind all of it. nil = never.
	StandBack func(ctx context.Context) (others bool)
	// DryRun reads and counts as if, and writes nothing. Keep is not called.
	DryRun bool
}

// LastBatch is what compaction must know of a producer that may still write.
type LastBatch struct {
	Offset int64 // last offset of its last data batch; -1 if it has none
	Epoch  int16 // its current epoch
}

// Group is a run of neighbouring segments and what takes their place.
type Group struct {
	Old []*segment.Segment
	// New are the bases of the new segments, ascending: complete, synced with their names, under the suffix .cleaned. Nearly
	// always it is one, with the base of Old[0]; more if an offset or a size would not have been representable in one. They
	// may be without a batch.
	New []int64
	// NewBytes is the size of all new .log files.
	NewBytes int64
}

// Result of a run.
type Result struct {
	// FirstDirty is the next checkpoint value: everything below it is clean. It has not moved if the run failed before
	// its last group.
	FirstDirty int64
	// MapFull: there were more keys than the map holds; FirstDirty is where it got to. Run again.
	MapFull bool
	Keys    int // distinct keys in the map

	Mapped  Count // read to fill the map
	Read    Count // read to be rewritten
	Written Count // into new segments

	Superseded   int64 // records dropped because a later one has the key
	Tombstones   int64 // dropped, past their horizon
	Unkeyed      int64 // records without a key, dropped
	Aborted      int64 // records of aborted transactions, dropped
	Markers      int64 // end markers and other control records dropped
	EmptyBatches int64 // batches that are in the new segments without a record

	Groups    int   // groups swapped in (with DryRun: that would be)
	Unchanged int   // segments of which everything stays, left as they are
	Before    int64 // bytes of the segments below the end of the map, before and after
	After     int64
}

// Count of what went through.
type Count struct {
	Batches, Records, Bytes int64
}

// Phase of a run.
type Phase uint8

const (
	Mapping   Phase = iota // filling the map
	Rewriting              // writing new segments
)

func (p Phase) String() string { return [...]string{"mapping", "rewriting"}[min(p, Rewriting)] }

// Progress of a run, in bytes of the present phase.
type Progress struct {
	Phase       Phase
	Done, Total int64
	Offset      int64 // base of the segment at work
}

// Run cleans a log once within in.Bounds: it fills the key map from FirstDirty on and rewrites group by group all segments
// below the end of the map. It blocks until done; ctx ends it between two batches, or while it waits for its rate, with
// the context's error and without anything half done left behind. Groups kept before an error stay kept.
//
// No segment is held in memory: beside the map there are buffers of a few MiB, or a few times the largest batch if that is
// more.
//
// Errors are *UncleanableError (an unreadable batch), ErrMapTooSmall, I/O errors, and what Keep returned. An unreadable
// batch in the dirty part ends the cleaning at its segment: what is in front is cleaned, the Result says so, and the error
// comes all the same.
func Run(ctx context.Context, in Input) (Result, error) {
	in.Config = in.Config.withDefaults()
	in.Options.Suffix, in.Options.Preallocate, in.Options.ReadOnly = "", false, false
	r := &run{in: &in, out: Result{FirstDirty: in.Bounds.FirstDirty}, fate: newFates(in.Segments), d: record.NewDecoder(in.Config.Limits)}
	r.t = newThrottle(ctx, &in)
	if len(in.Segments) == 0 {
		return r.out, ctx.Err()
	}
	in.Bounds.FirstDirty = max(in.Bounds.FirstDirty, r.base(0)) // nothing lies below
	r.out.FirstDirty = in.Bounds.FirstDirty
	in.Bounds.Uncleanable = r.base(max(r.floor(in.Bounds.Uncleanable), 0))
	if in.Bounds.FirstDirty >= in.Bounds.Uncleanable {
		return r.out, ctx.Err()
	}
	stop, err := r.mapKeys()
	if err != nil || r.upTo == 0 {
		return r.out, errors.Join(err, stop)
	}
	if err := r.rewrite(); err != nil {
		return r.out, err
	}
	r.out.FirstDirty = r.keys.latest + 1
	return r.out, stop
}

// run is one run at work.
type run struct {
	in   *Input
	out  Result
	t    *throttle
	d    *record.Decoder
	fate *fates
	keys *keyMap
	buf  []byte // of the output, from group to group

	probes [window]probe
	after  int64 // last offset of the batch before the one at hand
	upTo   int64 // Bounds.Uncleanable, or the base of a segment below that cannot be read
}

// mapKeys fills the map. A segment that cannot be read ends the range: what was read of it does not count, since its records
// may be lost to whoever repairs it. The reason is stop; without a segment before it upTo stays 0.
func (r *run) mapKeys() (stop, err error) {
	r.keys = newKeyMap(r.in.Config)
	upTo := r.in.Bounds.Uncleanable
	for {
		var total int64
		for i, s := range r.in.Segments {
			if r.endOf(i) > r.in.Bounds.FirstDirty && s.Base() < upTo {
				total += s.Size()
			}
		}
		r.t.phase(Mapping, total)
		bad, err := r.fill(upTo)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrUncleanable) {
			return nil, err
		}
		if stop == nil {
			stop = err
		}
		if upTo = r.base(bad); upTo <= r.in.Bounds.FirstDirty {
			return stop, nil
		}
		r.keys.reset()
		r.out.Mapped, r.out.MapFull = Count{}, false
	}
	r.out.Keys = r.keys.n
	if r.keys.latest < r.in.Bounds.FirstDirty {
		return stop, ErrMapTooSmall
	}
	r.upTo = upTo
	return stop, nil
}

// rewrite goes through the groups below the end of the map.
func (r *run) rewrite() error {
	end := r.keys.latest + 1
	facts, err := Config{}.Measure(r.in.Segments[:r.floor(end-1)+1], true)
	if err != nil {
		return err
	}
	var total int64
	for _, f := range facts {
		total += f.Bytes
	}
	r.out.Before = total
	r.t.phase(Rewriting, total)
	w := newRewriter(r)
	for _, g := range groups(facts, end, r.upTo, GroupLimits{SegmentBytes: r.in.Options.MaxBytes, IndexBytes: r.in.Options.IndexMaxBytes}) {
		if err := w.group(g); err != nil {
			return err
		}
	}
	r.t.say()
	return nil
}

func (r *run) base(i int) int64 { return r.in.Segments[i].Base() }

// endOf is the offset below which all batches of segment i lie.
func (r *run) endOf(i int) int64 {
	if i+1 < len(r.in.Segments) {
		return r.base(i + 1)
	}
	return math.MaxInt64
}

// floor is the place of the segment that an offset lies in; -1 if it is below all.
func (r *run) floor(offset int64) int {
	return sort.Search(len(r.in.Segments), func(i int) bool { return r.base(i) > offset }) - 1
}

// atError is a batch that does not do, before anyone knows where it is.
type atError struct {
	offset int64
	err    error
}

func (e *atError) Error() string { return e.err.Error() }
func (e *atError) Unwrap() error { return e.err }

func at(b record.Batch, err error) error { return &atError{offset: b.BaseOffset(), err: err} }

// blame turns what is wrong with the bytes of segment i into an *UncleanableError; other errors pass.
func (r *run) blame(i int, err error) error {
	seg := r.in.Segments[i]
	if c, ok := errors.AsType[*segment.CorruptError](err); ok {
		return &UncleanableError{File: c.File, Position: c.Position, Offset: c.Offset, Reason: c.Reason, Err: err}
	}
	if m, ok := errors.AsType[*misplacedError](err); ok {
		position, offset := m.where(seg)
		return &UncleanableError{File: seg.File(), Position: position, Offset: offset, Reason: m.Error(), Err: segment.ErrCorrupt}
	}
	bad, ok := errors.AsType[*atError](err)
	if !ok {
		return err
	}
	u := &UncleanableError{File: seg.File(), Position: -1, Offset: bad.offset, Reason: bad.err.Error(), Err: bad.err}
	if c, ok := errors.AsType[*record.CorruptError](err); ok {
		u.Reason = c.Field + ": " + c.Reason
	}
	if p, err := seg.Find(bad.offset); err == nil && p.Base == bad.offset {
		u.Position = p.Pos
	}
	return u
}
