package compaction

import (
	"errors"
	"fmt"
	"iter"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// A batch's base offset is not under its checksum. Within a segment damage of it shows by what stands in front of the batch
// and behind it, which package segment sees to; the first and the last batch of a segment have a neighbour on one side only,
// and are held against the bases of segments:
//
//	| 0..73 | 74..99 |   | 100..141 |      as written
//	| 0..73 | 974..999 | | 100..141 |      moved up: reaches into the segments behind it
//	| 0..73 | 74..99 |   | 68..109 |       moved down: begins in the segment before it
//
// Such a batch must not be rewritten: it would be sound in a place that is not its own, and what it hides would be gone. The
// first batch of the log may begin below its segment, where the log start lies inside a batch.

// misplacedError is a batch that lies where its segment is not.
type misplacedError struct {
	first, last int64
	reason      string
}

func (e *misplacedError) Error() string {
	return fmt.Sprintf("a batch of offsets %d to %d, but %s: its base offset is damaged", e.first, e.last, e.reason)
}

// inPlace holds a batch of segment i against the segments around it.
func (r *run) inPlace(i int, b record.Batch) error {
	first, last := b.BaseOffset(), b.LastOffset()
	switch {
	case last >= r.endOf(i):
		return &misplacedError{first, last, fmt.Sprintf("all offsets here lie below %d", r.endOf(i))}
	case first < r.base(i) && (i > 0 || last < r.base(i)):
		return &misplacedError{first, last, fmt.Sprintf("no offset here lies below %d", r.base(i))}
	}
	return nil
}

// batches are those of segment i that are in their place; the first that is not is a *misplacedError. They begin with the
// first one that ends at or above an offset, or with the very first where the index cannot lead there.
func (r *run) batches(i int, from int64) iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		r.after = -1
		if i > 0 {
			r.after = r.base(i) - 1
		}
		for b, err := range r.batchesFrom(i, from) {
			if err == nil {
				err = r.inPlace(i, b)
			}
			if !yield(b, err) || err != nil {
				return
			}
			r.after = b.LastOffset()
		}
	}
}

// batchesFrom are the batches of segment i that end at or above an offset, or all from the first where the index cannot lead
// there.
func (r *run) batchesFrom(i int, from int64) iter.Seq2[record.Batch, error] {
	seg := r.in.Segments[i]
	if from <= seg.Base() {
		return seg.Batches(0)
	}
	return func(yield func(record.Batch, error) bool) {
		overflows := false
		for b, err := range seg.BatchesFrom(from) {
			if overflows = errors.Is(err, segment.ErrOverflow); overflows {
				break
			}
			if !yield(b, err) || err != nil {
				return
			}
			from = b.NextOffset()
		}
		if !overflows {
			return
		}
		for b, err := range seg.Batches(0) {
			if err == nil && b.LastOffset() < from {
				continue
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// where finds a misplaced batch again: its first byte, and the offset that should be there.
func (e *misplacedError) where(seg *segment.Segment) (position, offset int64) {
	offset = seg.Base()
	for b, err := range seg.Batches(0) {
		if err != nil {
			break
		}
		if b.BaseOffset() == e.first && b.LastOffset() == e.last {
			return position, offset
		}
		position += int64(b.Size())
		offset = b.NextOffset()
	}
	return -1, -1
}

// holds checks that a record lies within its batch, for a wrapper of legacy entries behind the batch before it.
func (r *run) holds(b record.Batch, offset int64) error {
	first, last := b.BaseOffset(), b.LastOffset()
	if b.Magic() < 2 {
		first = r.after + 1
	}
	if first <= offset && offset <= last {
		return nil
	}
	return &record.CorruptError{Field: "offset", Reason: fmt.Sprintf("record %d where offsets %d to %d belong", offset, first, last)}
}
