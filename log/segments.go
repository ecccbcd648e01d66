package log

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/partlog/partlog/compaction"
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

// behind puts in front what of older, an earlier list of the same log, retention has taken away since, if offset lies there.
func (s segments) behind(older segments, offset int64) segments {
	if s.floor(offset) >= 0 {
		return s
	}
	n := 0
	for n < len(older) && older[n].Base() < s.first().Base() {
		n++
	}
	return slices.Concat(older[:n], s)
}

// bytes is the size of all .log files.
func (s segments) bytes() (n int64) {
	for _, seg := range s {
		n += seg.Size()
	}
	return n
}

func (s segments) first() *segment.Segment { return s[0] }

// endOf is the offset below which all batches of segment i lie: the next one's base. The last one knows its end itself.
func (s segments) endOf(i int) int64 {
	if i+1 < len(s) {
		return s[i+1].Base()
	}
	return math.MaxInt64
}

// jumped says that the last batch of a log, which was left ending at known, begins too high: without the gap in front of it
// the log would end there. It is nil if not.
func (s segments) jumped(known int64) error {
	seg := s.active()
	if end, err := seg.NextOffset(); err != nil || end <= known {
		return nil // whoever needs the end will say why there is none
	}
	last, err := seg.Last()
	if err != nil {
		return nil
	}
	fits := known - (last.LastOffset - last.Base + 1) // where it must have begun
	if last.Base <= fits || fits < seg.Base() {
		return nil
	}
	if fits > seg.Base() {
		if before, err := seg.Find(fits - 1); err != nil || before.LastOffset != fits-1 {
			return nil
		}
	}
	return &CorruptError{File: seg.File(), Position: last.Pos, Offset: fits, Intact: [2]int64{fits, -1}, Err: fmt.Errorf(
		"a batch of offsets %d to %d, but the log was left ending at offset %d: its base offset is damaged", last.Base, last.LastOffset, known)}
}

// misplaced is the damage of a batch of segment i that reaches into the next one, all offsets here lying below end, or begins
// in the one before: its base offset, which no checksum covers, is wrong. It is nil for one that is where it belongs.
func (s segments) misplaced(i int, first, last, end int64) error {
	seg := s[i]
	why := ""
	switch {
	case last >= end:
		why = fmt.Sprintf("all offsets here lie below %d", end)
	case i > 0 && first < seg.Base(): // the log's first batch may begin below its segment
		why = fmt.Sprintf("no offset here lies below %d", seg.Base())
	default:
		return nil
	}
	bad := &segment.CorruptError{File: seg.File(), Position: -1, Offset: -1,
		Reason: fmt.Sprintf("a batch of offsets %d to %d, but %s: its base offset is damaged", first, last, why)}
	if p, err := seg.Find(last); err == nil {
		bad.Position = p.Pos
	}
	return bad
}

// named is the index of the segment that owns a .log file; -1 if none does.
func (s segments) named(logFile string) int {
	for i, seg := range s {
		if seg.File() == logFile {
			return i
		}
	}
	return -1
}

// discard removes a segment's files and gives the segment up; readers that hold it go on.
func discard(seg *segment.Segment) error { return errors.Join(seg.Delete(), seg.Abandon()) }

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

// explainAt is explain for a reader that wanted offset. It also looks whether the segment itself is readable again behind
// the bad batch.
func (s segments) explainAt(err error, offset int64) error {
	c, ok := errors.AsType[*CorruptError](s.explain(err))
	if !ok {
		return err
	}
	if c.Offset < 0 {
		c.Offset, c.Intact[0] = offset, offset
	}
	if i := s.named(c.File); i >= 0 {
		if behind, ok := readableBehind(s[i], c); ok {
			c.Intact[1] = behind
		}
	}
	return c
}

// blame says where a compaction could not read, and where the log is readable again.
func (s segments) blame(bad *compaction.UncleanableError, err error) *CorruptError {
	c := &CorruptError{File: bad.File, Position: bad.Position, Offset: bad.Offset, Intact: [2]int64{bad.Offset, -1}, Err: err}
	if i := s.named(bad.File); i >= 0 {
		if i+1 < len(s) {
			c.Intact[1] = s[i+1].Base()
		}
		if behind, ok := readableBehind(s[i], c); ok {
			c.Intact[1] = behind
		}
	}
	return c
}

// readableBehind is the first batch behind a bad one, if the bad one's header still leads there.
func readableBehind(seg *segment.Segment, c *CorruptError) (offset int64, ok bool) {
	bad, err := seg.Find(c.Offset)
	if err != nil || bad.Pos != c.Position {
		return 0, false
	}
	next, err := seg.Find(bad.LastOffset + 1)
	if err != nil || next.Pos <= bad.Pos {
		return 0, false
	}
	for b, err := range seg.Batches(next.Pos) {
		if err != nil {
			break
		}
		return b.BaseOffset(), true
	}
	return 0, false
}

func (s segments) bases() []int64 {
	all := make([]int64, len(s))
	for i, seg := range s {
		all[i] = seg.Base()
	}
	return all
}

// startOf is where the segment of an offset begins: what is there anyway counts for producers, deleted or not. One whose
// records were deleted may still repeat them.
func (s segments) startOf(offset int64) int64 { return s[max(0, s.floor(offset))].Base() }
