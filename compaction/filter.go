package compaction

import (
	"bytes"
	"math"

	"github.com/partlog/partlog/record"
)

// filter decides what of each batch stays, and makes the batch that holds it.
type filter struct {
	r       *run
	b       *record.Builder
	keep    []bool // by record of the batch at hand
	legacy  []byte // entries of magic 0 and 1
	now     int64
	horizon int64 // of what is stamped now; -1 = nothing is
	removal int64 // tombstones and markers at or above it stay
	never   bool  // tombstones and markers do not go at all

	// Legacy tombstones have no horizon; they go by the age of files: of the newest segment that was clean before, and of
	// the one they are in.
	legacyHorizon int64
	keepLegacy    bool

	counts counts
}

// counts of a group: they count once it is in place.
type counts struct {
	written                         Count
	superseded, tombstones, unkeyed int64
	aborted, markers, emptyBatches  int64
}

func (c *counts) addTo(out *Result) {
	out.Written.Batches += c.written.Batches
	out.Written.Records += c.written.Records
	out.Written.Bytes += c.written.Bytes
	out.Superseded += c.superseded
	out.Tombstones += c.tombstones
	out.Unkeyed += c.unkeyed
	out.Aborted += c.aborted
	out.Markers += c.markers
	out.EmptyBatches += c.emptyBatches
}

func newFilter(r *run) filter {
	f := filter{r: r, b: record.NewBuilder(record.BuilderOptions{}), now: r.in.Now.UnixMilli(), removal: math.MaxInt64}
	if r.in.Bounds.Removal != nil {
		f.removal = *r.in.Bounds.Removal
	}
	f.horizon = f.now + r.in.Config.DeleteRetention.Milliseconds()
	if r.in.Config.DeleteRetention == Forever {
		f.horizon, f.never = record.NoTimestamp, true
	}
	return f
}

// class says what becomes of a batch none of whose records stays.
type class uint8

const (
	whole      class = iota // records decide; without one it goes
	keepHeader              // records decide; without one the header stays
	gone                    // it goes, whatever is in it
)

// batch returns what of b is written, nothing perhaps, valid until the next call; verbatim says that it is b itself.
// discardable is the tracker's word.
func (f *filter) batch(b record.Batch, discardable bool) (out []byte, verbatim bool, err error) {
	drop, c := f.classify(b, discardable)
	switch {
	case c == gone:
		f.dropped(b)
		return nil, false, nil
	case b.Magic() < 2:
		return f.legacyBatch(b)
	case drop:
		f.dropped(b)
		return f.header(b)
	}
	kept, tombstone, err := f.judge(b)
	if err != nil {
		return nil, false, err
	}
	_, stamped := b.DeleteHorizon()
	stamp := f.horizon >= 0 && !stamped && (tombstone || discardable && b.Control())
	switch {
	case kept == 0 && c == keepHeader:
		return f.header(b)
	case kept == 0:
		return nil, false, nil
	case kept == b.Count() && !stamp:
		f.wrote(b.Size(), kept)
		return b.Bytes(), true, nil
	}
	out, err = f.rebuild(b, stamp)
	f.wrote(len(out), kept)
	return out, false, err
}

func (f *filter) wrote(size, records int) {
	f.counts.written.Batches++
	f.counts.written.Bytes += int64(size)
	f.counts.written.Records += int64(records)
}

// classify says whether all records go, and what becomes of the batch then.
func (f *filter) classify(b record.Batch, discardable bool) (drop bool, c class) {
	drop = discardable
	if b.Control() {
		horizon, ok := b.DeleteHorizon()
		drop = discardable && ok && horizon <= f.now && !f.never && b.LastOffset() < f.removal
	}
	switch {
	case f.lastOfProducer(b), b.NextOffset() == f.r.upTo:
		return drop, keepHeader
	case drop:
		return drop, gone
	}
	return drop, whole
}

// lastOfProducer says whether a producer that may go on needs the batch: its sequence numbers, or its epoch.
func (f *filter) lastOfProducer(b record.Batch) bool {
	id, epoch, _ := b.Producer()
	if id < 0 || f.r.in.Producers == nil {
		return false
	}
	last, ok := f.r.in.Producers[id]
	switch {
	case !ok:
		return false
	case last.Offset >= 0:
		return b.LastOffset() == last.Offset
	}
	return b.Control() && epoch == last.Epoch
}

// dropped counts the records of a batch that goes for its transaction's sake.
func (f *filter) dropped(b record.Batch) {
	f.r.out.Read.Records += int64(max(b.Count(), 0))
	if b.Control() {
		f.counts.markers += int64(b.Count())
	} else {
		f.counts.aborted += int64(b.Count())
	}
}

// judge fills keep for the records of a batch of magic 2. tombstone says that one of those that stay has no value.
func (f *filter) judge(b record.Batch) (kept int, tombstone bool, err error) {
	f.keep = f.keep[:0]
	horizon, stamped := b.DeleteHorizon()
	due := stamped && f.now >= horizon && !f.never
	var s record.Steps
	if err = s.Begin(b, f.r.d, math.MinInt64); err != nil {
		return 0, false, err
	}
	for n := window; n == window; {
		if n, err = f.gather(b, &s); err != nil {
			return 0, false, err
		}
		f.r.keys.warm(f.r.probes[:n])
		k, t := f.decide(f.r.probes[:n], due)
		kept, tombstone = kept+k, tombstone || t
	}
	f.r.out.Read.Records += int64(len(f.keep))
	return kept, tombstone, s.Err()
}

// gather takes up to a window of records.
func (f *filter) gather(b record.Batch, s *record.Steps) (n int, err error) {
	latest, control := f.r.keys.latest, b.Control()
	base, last := b.BaseOffset(), b.LastOffset()
	for n < window && s.Next() {
		rec, p := s.Record(), &f.r.probes[n]
		if rec.Offset < base || rec.Offset > last {
			return n, f.r.holds(b, rec.Offset)
		}
		p.offset, p.empty, p.kind = rec.Offset, rec.Value == nil, asks
		switch n++; {
		case control || rec.Offset > latest:
			p.kind = unasked
		case rec.Key == nil:
			p.kind = unkeyed
		default:
			f.r.keys.look(rec.Key, p)
		}
	}
	return n, nil
}

// decide is the rule of compaction. due says that tombstones of the batch are past their horizon.
func (f *filter) decide(probes []probe, due bool) (kept int, tombstone bool) {
	for i := range probes {
		p := &probes[i]
		keep := false
		switch {
		case p.kind == unasked:
			keep = true
		case p.kind == unkeyed:
			f.counts.unkeyed++
		case p.offset < f.r.keys.found(p):
			f.counts.superseded++
		case p.empty && due && p.offset < f.removal:
			f.counts.tombstones++
		default:
			keep = true
		}
		f.keep = append(f.keep, keep)
		if keep {
			kept++
			tombstone = tombstone || p.empty
		}
	}
	return kept, tombstone
}

// rebuild makes the batch anew with the records to keep.
func (f *filter) rebuild(b record.Batch, stamp bool) ([]byte, error) {
	horizon := record.NoTimestamp
	if stamp {
		horizon = f.horizon
	}
	if err := f.b.Rebuild(b, horizon); err != nil {
		return nil, err
	}
	var s record.Steps
	if err := s.Begin(b, f.r.d, math.MinInt64); err != nil {
		return nil, err
	}
	for i := 0; s.Next(); i++ {
		if f.keep[i] {
			if err := f.b.AddAt(*s.Record()); err != nil {
				return nil, err
			}
		}
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return f.finish()
}

// header makes the 61 bytes that stand for an emptied batch; b may be that already.
func (f *filter) header(b record.Batch) (out []byte, verbatim bool, err error) {
	f.counts.emptyBatches++
	if err := f.b.Rebuild(b, record.NoTimestamp); err != nil {
		return nil, false, err
	}
	out, err = f.finish()
	f.wrote(len(out), 0)
	return out, bytes.Equal(out, b.Bytes()), err
}

func (f *filter) finish() ([]byte, error) {
	out, err := f.b.Finish()
	return out.Bytes(), err
}

// source begins the segment i.
func (f *filter) source(i int) error {
	if i == 0 {
		if err := f.findLegacyHorizon(); err != nil {
			return err
		}
	}
	mod, err := f.modTime(i)
	f.keepLegacy = f.never || mod > f.legacyHorizon
	return err
}

// findLegacyHorizon looks at the last segment that was clean before this run.
func (f *filter) findLegacyHorizon() error {
	last := -1
	for i := range f.r.in.Segments {
		if f.r.base(i) < f.r.in.Bounds.FirstDirty {
			last = i
		}
	}
	if last < 0 {
		return nil
	}
	mod, err := f.modTime(last)
	f.legacyHorizon = mod - f.r.in.Config.DeleteRetention.Milliseconds()
	return err
}

func (f *filter) modTime(i int) (int64, error) {
	t, err := modTime(f.r.in.Options.FS, f.r.in.Segments[i].File())
	return t.UnixMilli(), err
}
