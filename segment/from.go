package segment

import (
	"errors"
	"iter"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/record"
)

// BatchesFrom is Batches from the batch that Find(offset) returns. The error is ErrNotFound, before any batch, if no batch
// here ends at or above offset; else as there. One batch out of many large ones costs one read of its size.
func (s *Segment) BatchesFrom(offset int64) iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		if !s.Retain() {
			yield(record.Batch{}, ErrClosed)
			return
		}
		defer s.Release()
		if err := s.eachFrom(offset, yield); err != nil {
			yield(record.Batch{}, err)
		}
	}
}

// start is where reading begins.
type start struct {
	pos     int64
	ahead   int64 // size of the first read
	guessed bool  // pos is the index's word only: the batch there must hold offset
	offset  int64
	last    int64 // as the index names the batch
}

// errGuess: the batch that the index seemed to speak of is not the one wanted. Internal: it is looked for properly.
var errGuess = errors.New("segment: not the batch looked for")

func (s *Segment) eachFrom(offset int64, yield func(record.Batch, error) bool) error {
	var at start
	err := s.reading(func(v view) (err error) {
		at, err = v.start(offset)
		return err
	})
	if err == nil {
		err = s.each(at, yield)
	}
	if err != errGuess {
		return err
	}
	p, err := s.Find(offset)
	if err != nil {
		return err
	}
	return s.each(start{pos: p.Pos, ahead: p.Size}, yield)
}

// start looks for the batch that holds offset. Where entries are far apart each batch has one, named after its last
// offset, so the one behind the entry that a search finds is it: no header in between has to be read.
//
//	entries      (o1, p1)              (o2, p2)
//	batches      |..............o1|    |..............o2|
//	                                        ^ offset
func (v view) start(offset int64) (start, error) {
	if v.m.next >= 0 && offset >= v.m.next || v.m.size == 0 {
		return start{}, ErrNotFound
	}
	if offset <= v.s.base {
		return start{ahead: firstRead}, nil
	}
	near, n, err := v.ix.offset.Near(offset)
	if err != nil {
		return start{}, err
	}
	e, at := near[0], 0
	holds := e
	if e.Offset < offset {
		at = 1
		if holds, err = v.behind(e, near[at:n]); err != nil {
			return start{}, err
		}
	}
	if holds.Position > 0 && (holds == e || holds.Position-e.Position >= walkWindow) {
		next, err := v.behind(holds, near[min(at+1, n):n])
		if err != nil {
			return start{}, err
		}
		size := holds.Position - e.Position // that of the batch before
		if next.Position > 0 {
			size = next.Position - holds.Position
		} else if holds == e {
			size = firstRead
		}
		return start{pos: holds.Position, ahead: size, guessed: true, offset: offset, last: holds.Offset}, nil
	}
	p, err := v.findFrom(e, offset)
	return start{pos: p.Pos, ahead: max(p.Size, firstRead)}, err
}

// behind is the entry that follows e, the first of those known to do so if there are any; its position is 0 if there is
// none within the log.
func (v view) behind(e index.Entry, known []index.Entry) (next index.Entry, err error) {
	ok := len(known) > 0
	if ok {
		next = known[0]
	} else if next, ok, err = v.ix.offset.UpperBound(e.Position + 1); err != nil {
		return index.Entry{}, err
	}
	if !ok || next.Position >= v.m.size {
		return index.Entry{}, nil
	}
	return next, nil
}

// fits says whether b is the batch that the guess was about.
func (at start) fits(b record.Batch) bool {
	return !at.guessed || b.BaseOffset() <= at.offset && at.offset <= b.LastOffset() && b.LastOffset() == at.last
}
