package log

import (
	"errors"
	"sort"

	"github.com/partlog/partlog/segment"
)

// segments is an immutable list, oldest first, never empty once a log is open; the last one is active. A writer
// replaces the whole list; a reader keeps the one it loaded and retains the segment it reads.
type segments []*segment.Segment

// floor is the index of the last segment whose base is at or below offset; -1 if there is none.
func (s segments) floor(offset int64) int {
	return sort.Search(len(s), func(i int) bool { return s[i].Base() > offset }) - 1
}

func (s segments) active() *segment.Segment { return s[len(s)-1] }

// with is a copy with one more segment at its end.
func (s segments) with(next *segment.Segment) segments {
	out := make(segments, 0, len(s)+1)
	return append(append(out, s...), next)
}

// bytes is the size of all .log files.
func (s segments) bytes() (n int64) {
	for _, seg := range s {
		n += seg.Size()
	}
	return n
}

func (s segments) first() *segment.Segment { return s[0] }

// named is the index of the segment that owns a .log file; -1 if none does.
func (s segments) named(logFile string) int {
	for i, seg := range s {
		if seg.File() == logFile {
			return i
		}
	}
	return -1
}

// explain turns a segment's damage into the log's, with the intact ranges on both sides; other errors pass.
func (s segments) explain(err error) error {
	var c *segment.CorruptError
	if !errors.As(err, &c) {
		return err
	}
	intact := [2]int64{c.Offset, -1}
	if c.Behind[0] != c.Behind[1] {
		intact[1] = c.Behind[0]
	} else if i := s.named(c.File); i >= 0 && i+1 < len(s) {
		intact[1] = s[i+1].Base()
	}
	return &CorruptError{File: c.File, Position: c.Position, Offset: c.Offset, Intact: intact, Err: err}
}
