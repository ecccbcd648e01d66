package compaction

import (
	"errors"
	"math"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// fill reads [FirstDirty, upTo) into the map. Afterwards the map's latest offset is the last one that it speaks for:
// upTo - 1, also where that lies in a gap, unless the map is full. Then it is the end of a batch, or the last record that
// found room: that may be inside a batch.
//
// What does not parse is an *UncleanableError, and the place of its segment among all.
func (r *run) fill(upTo int64) (bad int, err error) {
	dirty := r.in.Bounds.FirstDirty
	first := max(r.floor(dirty), 0)
	r.keys.latest = dirty - 1
	t := newTracker(func(segment.AbortedTxn) {})
	for i := first; i < len(r.in.Segments) && r.base(i) < upTo; i++ {
		r.t.p.Offset = r.base(i)
		end := min(r.endOf(i), upTo)
		from := r.base(i)
		find := r.fate.beginning
		if i == first {
			from, find = dirty, r.fate.of
		}
		txns, err := find(i, from, end)
		if err != nil {
			return i, err
		}
		t.add(txns)
		if err := r.fillFrom(i, from, t); err != nil {
			return i, r.blame(i, err)
		}
		if r.out.MapFull {
			return 0, nil
		}
		r.keys.latest = end - 1
	}
	return 0, nil
}

// fillFrom takes one segment from an offset on.
func (r *run) fillFrom(i int, from int64, t *tracker) error {
	for b, err := range r.batches(i, from) {
		if errors.Is(err, segment.ErrNotFound) {
			return nil
		}
		if err == nil {
			err = r.t.read(b.Size())
		}
		if err != nil {
			return err
		}
		count(&r.out.Mapped, b)
		discardable, err := t.take(b, r.d)
		if err != nil {
			return at(b, err)
		}
		if !b.Control() && !discardable {
			full, err := r.fillBatch(b)
			if err != nil {
				return at(b, err)
			}
			if full {
				r.out.MapFull = true
				return nil
			}
		}
		r.keys.latest = max(r.keys.latest, b.LastOffset())
	}
	return nil
}

// fillBatch puts the records of one batch into the map as long as there is room.
func (r *run) fillBatch(b record.Batch) (full bool, err error) {
	dirty := r.in.Bounds.FirstDirty
	if b.Magic() < 2 {
		for rec, err := range b.Records(r.d) {
			if err != nil {
				return false, err
			}
			r.out.Mapped.Records++
			if err := r.holds(b, rec.Offset); err != nil {
				return false, err
			}
			if rec.Key != nil && rec.Offset >= dirty && !r.keys.put(rec.Key, rec.Offset) {
				return true, nil
			}
		}
		return false, nil
	}
	var s record.Steps
	if err := s.Begin(b, r.d, math.MinInt64); err != nil {
		return false, err
	}
	if r.keys.exact != nil {
		return r.fillExact(b, &s)
	}
	before, base, last := r.out.Mapped.Records, b.BaseOffset(), b.LastOffset()
	for read, more := 0, true; more; {
		n := 0
		for n < window {
			if more = s.Next(); !more {
				break
			}
			rec := s.Record()
			if read++; rec.Offset < base || rec.Offset > last {
				return false, r.holds(b, rec.Offset)
			}
			if rec.Key != nil && rec.Offset >= dirty {
				p := &r.probes[n]
				p.offset, p.place, p.kind = rec.Offset, read, asks
				r.keys.look(rec.Key, p)
				n++
			}
		}
		r.keys.warm(r.probes[:n])
		for i := range r.probes[:n] {
			if p := &r.probes[i]; !r.keys.enter(p) {
				r.out.Mapped.Records = before + int64(p.place)
				return true, nil
			}
		}
		r.out.Mapped.Records = before + int64(read)
	}
	return false, s.Err()
}

// fillExact is the rest of fillBatch for keys that have to be compared.
func (r *run) fillExact(b record.Batch, s *record.Steps) (full bool, err error) {
	for s.Next() {
		rec := s.Record()
		r.out.Mapped.Records++
		if err := r.holds(b, rec.Offset); err != nil {
			return false, err
		}
		if rec.Key != nil && rec.Offset >= r.in.Bounds.FirstDirty && !r.keys.put(rec.Key, rec.Offset) {
			return true, nil
		}
	}
	return false, s.Err()
}

// count adds a batch, without its records.
func count(c *Count, b record.Batch) {
	c.Batches++
	c.Bytes += int64(b.Size())
}
