package segment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// splitChunk is how many bytes of batches are gathered for one append.
const splitChunk = 1 << 20

// Split copies a segment whose offsets are not representable from its base (Scan and Recover say *OverflowError) into
// parts that are, each based at its first batch, with the suffix ".cleaned", sealed, synced, and with the modification time
// of s. s is not changed; the caller swaps the parts in and deletes it. On error no part is left behind. A segment that
// does not overflow is an error.
func Split(ctx context.Context, s *Segment) (parts []*Segment, err error) {
	p := splitter{s: s, o: s.o}
	p.o.Suffix = ".cleaned"
	p.o.Preallocate = false
	defer func() {
		if err != nil {
			for _, part := range p.parts {
				err = errors.Join(err, part.Delete(), part.Close())
			}
			parts = nil
		}
	}()
	overflows := false
	for b, err := range s.Batches(0) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			overflows = overflows || b.LastOffset()-s.base > maxRelative
			err = p.add(b.BaseOffset(), b.LastOffset(), b.Bytes())
		}
		if err != nil {
			return nil, err
		}
	}
	if !overflows {
		return nil, fmt.Errorf("%s: all offsets are representable, there is nothing to split", s.File())
	}
	if err := p.end(ctx); err != nil {
		return nil, err
	}
	if p.bytes != s.pub.load().size {
		return nil, fmt.Errorf("%s: split copied %d bytes of %d", s.File(), p.bytes, s.pub.load().size)
	}
	return p.parts, p.aborted()
}

// aborted hands each entry of the transaction index to the part that holds its marker. A damaged index is derived from the
// log like any other: it is left behind.
func (p *splitter) aborted() error {
	all, _, err := p.s.Aborted(0, math.MaxInt64)
	if err != nil && !errors.Is(err, ErrCorrupt) {
		return err
	}
	for i, part := range p.parts {
		for ; len(all) > 0 && (i+1 == len(p.parts) || all[0].LastOffset < p.parts[i+1].base); all = all[1:] {
			if err := part.AppendAborted(all[0]); err != nil {
				return err
			}
		}
		if err := part.txn.sync(part); err != nil {
			return err
		}
	}
	return nil
}

type splitter struct {
	s     *Segment
	o     Options
	parts []*Segment
	chunk []byte
	bytes int64
}

func (p *splitter) add(base, last int64, raw []byte) error {
	if n := len(p.parts); n == 0 || last-p.parts[n-1].base > maxRelative {
		if err := p.end(context.Background()); err != nil {
			return err
		}
		part, err := Create(p.s.dir, base, p.o)
		if err != nil {
			return err
		}
		p.parts = append(p.parts, part)
		if last-base > maxRelative {
			return &OverflowError{File: part.File(), Base: base, Offset: last}
		}
	}
	p.chunk = append(p.chunk, raw...)
	p.bytes += int64(len(raw))
	if len(p.chunk) < splitChunk {
		return nil
	}
	return p.flush()
}

func (p *splitter) flush() error {
	if len(p.parts) == 0 {
		return nil
	}
	_, err := p.parts[len(p.parts)-1].Append(p.chunk)
	p.chunk = p.chunk[:0]
	return err
}

// end finishes the last part.
func (p *splitter) end(ctx context.Context) error {
	if len(p.parts) == 0 {
		return nil
	}
	part := p.parts[len(p.parts)-1]
	if err := errors.Join(p.flush(), part.Seal(ctx), part.Sync()); err != nil {
		return err
	}
	return part.setModTime(time.UnixMilli(p.s.modTime.Load()))
}

// setModTime gives the files the age of the data they were made from.
func (s *Segment) setModTime(t time.Time) error {
	for _, kind := range []string{logSuffix, idxSuffix, timeSuffix} {
		if err := s.o.FS.Chtimes(s.name(kind), t); err != nil {
			return err
		}
	}
	s.modTime.Store(t.UnixMilli())
	return nil
}
