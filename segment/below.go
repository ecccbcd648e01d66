package segment

import (
	"io"

	"github.com/partlog/partlog/index"
)

// Below returns the last batch that begins below offset; ErrNotFound if there is none. Errors as Find.
func (s *Segment) Below(offset int64) (Position, error) {
	var p Position
	err := s.reading(func(v view) (err error) {
		p, err = v.below(offset)
		return err
	})
	return p, err
}

// below walks from the last index entry whose batch ends below offset.
func (v view) below(offset int64) (p Position, err error) {
	if v.m.size == 0 {
		return Position{}, ErrNotFound
	}
	e := index.Entry{Offset: v.s.base}
	if offset-1 > v.s.base {
		if e, err = v.ix.offset.Lookup(offset - 1); err != nil {
			return Position{}, err
		}
	}
	if e.Position < 0 || e.Position >= v.m.size {
		return Position{}, errIndex
	}
	w := walk(v.f, e.Position, v.m.size)
	defer w.close()
	o := order{base: v.s.base, end: v.m.next, next: v.s.base}
	if e.Position > 0 {
		o.next = -1
	}
	for {
		at := w.pos
		h, err := w.next()
		if err == io.EOF {
			break
		}
		if err == nil && at == e.Position && at > 0 {
			err = v.trustEntry(e, h, at)
		}
		if err == nil && at > e.Position && e.Position > 0 && o.next <= e.Offset && h.last > e.Offset {
			err = errIndex // as in findFrom
		}
		if err == nil {
			err = w.inOrder(&o, h, at, h.base >= offset)
		}
		if err != nil {
			return Position{}, v.suspect(err, e.Position)
		}
		if h.base >= offset {
			break
		}
		p = h.position(at)
	}
	if p.Size == 0 {
		return Position{}, ErrNotFound
	}
	return p, nil
}
