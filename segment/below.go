package segment

import "github.com/partlog/partlog/index"

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
func (v view) below(offset int64) (Position, error) {
	if v.m.size == 0 {
		return Position{}, ErrNotFound
	}
	e := index.Entry{Offset: v.s.base}
	if offset-1 > v.s.base {
		var err error
		if e, err = v.ix.offset.Lookup(offset - 1); err != nil {
			return Position{}, err
		}
	}
	_, p, err := v.walkFrom(e, offset, true)
	switch {
	case err != nil && err != ErrNotFound:
		return Position{}, err
	case p.Size == 0:
		return Position{}, ErrNotFound
	}
	return p, nil
}
