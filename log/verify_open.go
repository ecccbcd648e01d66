package log

import (
	"errors"

	"github.com/partlog/partlog/vfs"
)

// tryout is what opening a partition for writing would make of it, tried on a view in memory. What damage means depends
// on it: an open refuses what it knows to have been durable, cuts what may be a torn tail, and does not look further
// back than it must.
type tryout struct {
	known   bool // it could be tried
	refused bool // the log does not open
	cuts    []Finding
}

// open tries, once for a partition and only if somebody asks.
func (c *folderCheck) open() *tryout {
	if c.tried != nil {
		return c.tried
	}
	c.tried = &tryout{}
	if c.live != nil || c.name != c.tp.String() {
		return c.tried
	}
	d, err := OpenDir(c.name, DirConfig{FS: vfs.Overlay(c.fs), NoEvict: true})
	if err != nil {
		return c.tried
	}
	defer d.Close() // it changes the view alone, and nothing can go wrong there that matters
	l, err := d.Open(c.ctx, c.tp, Config{})
	if err != nil {
		c.tried.refused = errors.Is(err, ErrCorrupt)
		c.tried.known = c.tried.refused
		return c.tried
	}
	c.tried.known = true
	for _, f := range l.Recovery().Findings {
		if f.Kind == FindingTail {
			c.tried.cuts = append(c.tried.cuts, f)
		}
	}
	return c.tried
}

// cuts says whether an open takes a byte of a file away.
func (t *tryout) cutsAt(file string, position int64) bool {
	for _, f := range t.cuts {
		if f.File == file && f.Position <= position {
			return true
		}
	}
	return false
}

// outlook is what bytes without a valid batch mean for the log, as the end of a sentence. behind says that whole
// batches follow.
func (s *segmentCheck) outlook(pos int64, behind bool) string {
	what := "the records in them are lost"
	if behind {
		what = "whole batches stand behind"
	}
	open, below := s.open(), ""
	if s.next < s.trusted {
		below = "; below the recovery point this is damage"
	}
	switch {
	case open.refused:
		return what + below + ", and the log does not open until it is repaired"
	case open.cutsAt(s.file, pos):
		return what + "; an open cuts the log here and saves the whole batches it takes away"
	case open.known:
		return what + below + ", which an open does not look for; reading stops there"
	}
	return what + below
}
