package segment

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/timeindex"
)

// TimePosition is a record found by its timestamp.
type TimePosition struct {
	Timestamp   int64 // of the record, Unix ms
	Offset      int64 // of the record
	LeaderEpoch int32 // of its batch; -1 none
}

var decoders = sync.Pool{New: func() any { return record.NewDecoder(record.Limits{}) }}

// decoder lends one with the limits asked for; only the default ones are pooled.
func (o *Options) decoder() *record.Decoder {
	if o.Limits != (record.Limits{}) {
		return record.NewDecoder(o.Limits)
	}
	return decoders.Get().(*record.Decoder)
}

func (o *Options) giveBack(d *record.Decoder) {
	if o.Limits == (record.Limits{}) {
		decoders.Put(d)
	}
}

// FindTime returns the first record, in offset order, with a timestamp at or above ts and an offset at or above from.
// ErrNotFound if this segment has none.
func (s *Segment) FindTime(ts, from int64) (TimePosition, error) {
	var t TimePosition
	err := s.reading(func(v view) (err error) {
		t, err = v.findTime(ts, from)
		return err
	})
	return t, err
}

func (v view) findTime(ts, from int64) (TimePosition, error) {
	if v.m.size == 0 {
		return TimePosition{}, ErrNotFound
	}
	t, err := v.ix.time.Lookup(ts)
	if err != nil {
		return TimePosition{}, err
	}
	if err := v.trustTime(t.Timestamp, t.Offset); err != nil {
		return TimePosition{}, err
	}
	start, err := v.find(max(t.Offset, from, v.s.base))
	if err != nil {
		return TimePosition{}, err
	}
	return v.firstRecord(start.Pos, func(b record.Batch) bool { return b.MaxTimestamp() >= ts },
		func(r record.Record) bool { return r.Timestamp >= ts && r.Offset >= from })
}

// trustTime checks a time index entry against the batch it names: that batch's largest timestamp is the entry's.
func (v view) trustTime(ts, offset int64) error {
	if ts < 0 || v.m.next >= 0 && offset >= v.m.next {
		return nil
	}
	p, err := v.find(offset)
	if err == ErrNotFound || err == nil && p.MaxTimestamp != ts {
		return errIndex
	}
	return err
}

// firstRecord reads the batches from pos on that may qualify and returns the first record that does.
func (v view) firstRecord(pos int64, may func(record.Batch) bool, want func(record.Record) bool) (TimePosition, error) {
	w := walk(v.f, pos, v.m.size)
	defer w.close()
	d := v.s.o.decoder()
	defer v.s.o.giveBack(d)
	for {
		at := w.pos
		h, err := w.next()
		if err == io.EOF {
			return TimePosition{}, ErrNotFound
		}
		if err != nil {
			return TimePosition{}, err
		}
		t, found, err := v.recordIn(at, h, d, may, want)
		if found || err != nil {
			return t, err
		}
	}
}

func (v view) recordIn(at int64, h header, d *record.Decoder, may func(record.Batch) bool, want func(record.Record) bool) (t TimePosition, found bool, err error) {
	if h.maxTs < 0 {
		return t, false, nil
	}
	r := newReader(v.f, at, at+h.size)
	defer r.close()
	b, _, err := r.next()
	if err != nil {
		if bad, ok := errors.AsType[*badBatch](err); ok {
			bad.offset = h.base
		}
		return t, false, err
	}
	if !may(b) {
		return t, false, nil
	}
	for rec, err := range b.Records(d) {
		if errors.Is(err, record.ErrTooLarge) { // for the decoder: not damage
			return t, false, fmt.Errorf("%s: batch at offset %d: %w", v.s.File(), h.base, err)
		}
		if err != nil {
			return t, false, &badBatch{pos: at, offset: h.base, reason: err.Error(), err: err}
		}
		if want(rec) {
			return TimePosition{Timestamp: rec.Timestamp, Offset: rec.Offset, LeaderEpoch: h.epoch}, true, nil
		}
	}
	return t, false, nil
}

// OffsetOfMaxTimestamp returns the first record that has the segment's largest timestamp. ErrNotFound if no record has
// a timestamp.
func (s *Segment) OffsetOfMaxTimestamp() (TimePosition, error) {
	ts, offset, err := s.maxTimestamp()
	if err != nil {
		return TimePosition{}, err
	}
	if ts < 0 {
		return TimePosition{}, ErrNotFound
	}
	var t TimePosition
	err = s.reading(func(v view) error {
		if err := v.trustTime(ts, offset); err != nil {
			return err
		}
		p, err := v.find(offset)
		if err != nil {
			return err
		}
		t, err = v.firstRecord(p.Pos, func(b record.Batch) bool { return b.MaxTimestamp() == ts },
			func(r record.Record) bool { return r.Timestamp == ts })
		return err
	})
	return t, err
}

// LargestTimestamp is the largest timestamp of the batches and the last offset of the earliest batch that has it. If
// none has one it is the modification time of the .log, with offset -1. It reads the last time index entry the first time.
func (s *Segment) LargestTimestamp() (ts, offset int64, err error) {
	ts, offset, err = s.maxTimestamp()
	if err == nil && ts < 0 {
		return s.modTime.Load(), -1, nil
	}
	return ts, offset, err
}

// maxTimestamp learns the largest timestamp, -1 if there is none.
func (s *Segment) maxTimestamp() (ts, offset int64, err error) {
	m := s.pub.load()
	if m.maxTs != unknown {
		return m.maxTs, m.maxTsOffset, nil
	}
	if m.size == 0 {
		return -1, s.base, nil
	}
	if s.o.ReadOnly {
		return s.readLargest() // the index of a live segment is behind
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.ix.Load() != nil
	if !had && s.state.get() == opened && !s.gone {
		if e, ok := s.glance(); ok {
			s.pub.learn(m.cuts, func(m *marks) { m.maxTs, m.maxTsOffset = e.Timestamp, e.Offset })
			return e.Timestamp, e.Offset, nil
		}
	}
	x, err := s.loadIndexes(s.state.get() == active)
	if err != nil {
		return 0, 0, err
	}
	ts, offset = lastTime(x, s.base)
	s.pub.learn(m.cuts, func(m *marks) { m.maxTs, m.maxTsOffset = ts, offset })
	if !had && s.state.get() == opened && !x.heap {
		err = s.dropIndexes() // a glance, not a use: retention looks at every segment
	}
	return ts, offset, err
}

// glance reads the last time index entry without opening the indexes: retention asks thousands of segments, most of which
// nobody will use. It is false where there is anything to wonder about, and then the indexes are checked, or made anew. mu
// is held.
func (s *Segment) glance() (timeindex.Entry, bool) {
	e, err := timeindex.Glance(s.name(timeSuffix), s.base, s.o.index())
	last := s.base + min(maxRelative, math.MaxInt64-s.base)
	if m := s.pub.load(); m.next >= 0 {
		last = m.next - 1
	}
	return e, err == nil && e.Timestamp > 0 && e.Offset <= last
}

func (s *Segment) readLargest() (ts, offset int64, err error) {
	err = s.reading(func(v view) (err error) {
		ts, offset, err = v.largest()
		if err == nil {
			s.pub.learn(v.m.cuts, func(m *marks) { m.maxTs, m.maxTsOffset = ts, offset })
		}
		return err
	})
	return ts, offset, err
}
