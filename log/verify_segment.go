package log

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sort"
	"strings"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

const noRebuild = math.MaxInt64

// segmentCheck walks one .log once, batch by batch, and holds the entries of both indexes against what it meets.
type segmentCheck struct {
	*folderCheck
	base    int64
	last    bool // of the log
	file    string
	r       *batchFile
	decoder *record.Decoder
	offsets *offsetCheck
	times   *timeCheck
	txns    *txnCheck

	jump    jump
	pos     int64 // of the next batch
	next    int64 // offset that must follow
	found   map[string]*faults
	order   []*faults
	started bool
	largest int64 // timestamp of the batches so far
	tick    int64
}

// faults keeps the first finding of a kind in a file and counts the rest, so that garbage gives a line and not a million.
type faults struct {
	kind, file       string
	position, offset int64
	detail           string
	more             int
}

func (t *faults) report(v *verifier, what string) {
	detail := t.detail
	if t.more > 0 {
		detail += fmt.Sprintf(" (and %s of this file)", strings.Replace(counted(t.more, what), " ", " more ", 1))
	}
	v.find(t.kind, t.file, t.position, t.offset, "%s", detail)
}

func (s *segmentCheck) note(kind, rule string, position, offset int64, format string, args ...any) {
	if t := s.found[rule]; t != nil {
		t.more++
		return
	}
	t := &faults{kind: kind, file: s.file, position: position, offset: offset, detail: fmt.Sprintf(format, args...)}
	s.found[rule] = t
	s.order = append(s.order, t)
}

// segment checks the .log at base, and its indexes.
func (c *folderCheck) segment(base int64, last bool) {
	s := &segmentCheck{folderCheck: c, base: base, last: last, file: c.path(segment.FileName(base, ".log")), found: map[string]*faults{},
		decoder: record.NewDecoder(record.Limits{}), next: base, largest: record.NoTimestamp}
	r, err := openBatchFile(c.fs, s.file, base)
	if c.live != nil {
		size, ours := c.live.sizes[base]
		if !ours || errors.Is(err, fs.ErrNotExist) {
			return // rolled or removed since
		}
		if err == nil {
			r.limit(min(size, r.size))
		}
	}
	if err != nil {
		c.fail(err)
		c.complete = false
		return
	}
	s.r = r
	defer func() { c.fail(r.close()) }()
	if r.size > math.MaxInt32 {
		s.note(FindingUnreadable, "size", -1, base, "%d bytes are more than a segment can hold: no reader opens it", r.size)
	}
	if base < c.end {
		s.note(FindingOrder, "overlap", 0, base, "overlaps the segment before it, which ends at offset %d: a stale history that came back, or a wrong name", c.end)
	}
	s.offsets, s.times, s.txns = newOffsetCheck(s), newTimeCheck(s), newTxnCheck(s)
	s.walk()
	for s.grew() && s.going() { // index entries may be as young
		s.walk()
	}
	for _, t := range s.order {
		t.report(c.verifier, "batch")
	}
	s.offsets.finish()
	s.times.finish()
	s.txns.finish()
	c.end = max(c.end, s.next)
}

// walk reads on from where it was to the end of the file.
func (s *segmentCheck) walk() {
	for s.pos < s.r.size && s.going() {
		pos := s.pos
		b, reason, err := s.r.batch(s.ctx, pos)
		if err != nil {
			s.broken(err)
			return
		}
		if reason != "" && s.grew() {
			continue // another process is appending: look again
		}
		if reason != "" {
			to, zero, err := s.r.resync(s.ctx, pos)
			if err != nil {
				s.broken(err)
				return
			}
			s.hole(pos, to, zero, reason, s.r.torn(pos))
			s.pos = to
			continue
		}
		s.pos += int64(b.Size())
		s.batch(b, pos)
		if s.o.Progress != nil && (s.pos-s.tick >= 4<<20 || s.pos == s.r.size) {
			s.tick = s.pos
			s.o.Progress(VerifyProgress{File: s.file, Done: s.pos, Total: s.r.size})
		}
	}
}

// grew takes notice of what another process appended to the last segment since it was opened.
func (s *segmentCheck) grew() bool {
	if s.live != nil || !s.last {
		return false
	}
	size, err := s.r.f.Size()
	if err != nil || size <= s.r.size {
		return false
	}
	s.r.limit(size)
	s.r.n = 0 // what was read may be half of a write
	return true
}

func (s *segmentCheck) broken(err error) {
	s.complete = false
	if s.going() {
		s.fail(fmt.Errorf("verify %s: %w", s.file, err))
	}
}

// hole reports bytes that hold no batch. torn says that they are the beginning of one that was not written whole.
func (s *segmentCheck) hole(pos, to int64, zero bool, reason string, torn bool) {
	s.complete = false
	what := fmt.Sprintf("%s without a valid batch (%s)", counted(to-pos, "byte"), reason)
	if zero {
		what = counted(to-pos, "byte") + " of zeros where a batch should begin"
	}
	kind, meaning := FindingBatch, ""
	switch {
	case to < s.r.size || !s.last || s.next < s.trusted:
		meaning = s.outlook(pos, to < s.r.size)
	case s.marks.clean:
		kind, meaning = FindingTail, "bytes behind a clean stop; a broker appends behind them, or does not start"
	default:
		switch open := s.open(); {
		case open.refused: // the durable hints tell more than the checkpoint
			meaning = s.outlook(pos, false)
		case open.cutsAt(s.file, pos) && zero:
			kind, meaning = FindingTail, "room that preallocate reserved, or an append that a kill broke off: an open cuts it off"
		case open.cutsAt(s.file, pos) && torn:
			kind, meaning = FindingTail, "an append that a kill broke off: an open cuts it off"
		default:
			kind, meaning = FindingTail, "a torn tail, which an open cuts"
		}
	}
	s.find(kind, s.file, pos, s.next, "%s; %s", what, meaning)
}

// batch checks one valid batch against its place and its records against it.
func (s *segmentCheck) batch(b record.Batch, pos int64) {
	base, last := b.BaseOffset(), b.LastOffset()
	s.blameJump(base)
	astray := s.reachesNext(base, last)
	// The very first batch may begin below the segment's base, as an old follower could leave it.
	switch {
	case astray:
		s.note(FindingOrder, "offset", pos, base, "%s, behind offset %d, reach into the next segment, which begins at %d: the base offset, which no checksum covers, is damaged, and readers stop here",
			spanOf(base, last), s.next-1, s.nextBase())
		s.complete = false
		base, last = s.next, s.next+last-base // where it must have been, so that what follows is not blamed
	case last < s.next || s.started && base < s.next:
		s.note(FindingOrder, "offset", pos, base, "offset %d where %d or more must follow: readers stop here", base, s.next)
		s.complete = false
	}
	s.started = true
	if last-s.base > math.MaxInt32 {
		s.note(FindingOrder, "overflow", pos, last, "offset %d is not representable from base %d: indexes cannot name it, the segment must be split", last, s.base)
	}
	e := b.LeaderEpoch()
	if e >= 0 && e < s.epoch {
		s.note(FindingOrder, "epoch", pos, base, "leader epoch %d behind a batch of epoch %d: a stale history", e, s.epoch)
	}
	if e <= s.epochs.at(base) { // a larger one is reported as a contradiction to the epoch file, and tells nothing of what follows
		s.epoch = max(s.epoch, e)
	}
	s.jump = jump{position: pos, base: base, last: last, before: s.next}
	s.next = max(s.next, last+1)
	newest, newestAt, count := s.records(b, pos)
	if !astray {
		s.epochs.batch(s.folderCheck, b)
		s.producers.batch(s, b)
	}
	raised, named := b.MaxTimestamp() > s.largest, s.times.batch(last, newestAt, b.MaxTimestamp(), newest, count)
	s.offsets.times(raised, named)
	s.offsets.batch(pos, base, last, e)
	if named || !raised {
		s.offsets.restart()
	}
	s.largest = max(s.largest, b.MaxTimestamp())
}

// jump is the batch before the one under work, and the offset that had to follow before it.
type jump struct{ position, base, last, before int64 }

// blameJump is called with the base offset of the next batch. If that goes back, but only behind a batch that left a
// gap, and would fit if that one had left none, then that one's offset is wrong.
func (s *segmentCheck) blameJump(base int64) {
	j := s.jump
	if !s.started || base >= s.next || j.base <= j.before || base < j.before+j.last-j.base+1 {
		return
	}
	s.note(FindingOrder, "offset", j.position, j.base, "%s, between offset %d and offset %d: the base offset, which no checksum covers, is damaged, and readers stop here",
		spanOf(j.base, j.last), j.before-1, base)
	s.complete = false
	s.next = j.before + j.last - j.base + 1
}

// reachesNext says that a batch leaves a gap and reaches into the next segment, but would fit without the gap.
func (s *segmentCheck) reachesNext(base, last int64) bool {
	next := s.nextBase()
	return base > s.next && last >= next && s.next+last-base < next
}

// nextBase is where the next segment begins; MaxInt64 behind the last one.
func (s *segmentCheck) nextBase() int64 {
	if next := s.baseBehind(s.base); next >= 0 {
		return next
	}
	return math.MaxInt64
}

// baseBehind is the first base above one; -1 if there is none.
func (c *folderCheck) baseBehind(base int64) int64 {
	if i := sort.Search(len(c.bases), func(i int) bool { return c.bases[i] > base }); i < len(c.bases) {
		return c.bases[i]
	}
	return -1
}

func spanOf(first, last int64) string {
	if first == last {
		return fmt.Sprintf("offset %d", first)
	}
	return fmt.Sprintf("offsets %d to %d", first, last)
}

// records iterates every record of the batch. newest is their largest timestamp, -1 if none has one, newestAt the offset of the
// first record that has it, -1 if there is none; count is how many.
func (s *segmentCheck) records(b record.Batch, pos int64) (newest, newestAt int64, count int) {
	newest, newestAt = record.NoTimestamp, -1
	base, last, before := b.BaseOffset(), b.LastOffset(), int64(-1)
	v2 := b.Magic() >= 2
	for rec, err := range b.Records(s.decoder) {
		if errors.Is(err, record.ErrTooLarge) { // to be looked at, which is no damage
			return b.MaxTimestamp(), -1, b.Count()
		}
		if err != nil {
			s.note(FindingRecords, "parse", pos, base, "the CRC is right, but the records of offsets %d to %d cannot be read: %s", base, last, reasonOf(err))
			return newest, newestAt, count
		}
		count++
		if rec.Timestamp > newest {
			newest, newestAt = rec.Timestamp, rec.Offset
		}
		switch {
		case rec.Offset <= before:
			s.note(FindingRecords, "ascend", pos, rec.Offset, "record offset %d behind %d in one batch", rec.Offset, before)
		case v2 && (rec.Offset < base || rec.Offset > last), !v2 && rec.Offset > last:
			s.note(FindingRecords, "range", pos, rec.Offset, "record offset %d outside of its batch, which spans %d to %d", rec.Offset, base, last)
		}
		before = rec.Offset
		if b.Control() {
			s.control(b, rec, pos)
		}
	}
	if want := b.MaxTimestamp(); v2 && count > 0 && newest != want {
		s.note(FindingRecords, "newest", pos, base, "the header says largest timestamp %d, the records say %d: look-ups by time go wrong", want, newest)
	}
	return newest, newestAt, count
}

func (s *segmentCheck) control(b record.Batch, rec record.Record, pos int64) {
	t, err := record.ParseControl(rec.Key)
	if err == nil && (t == record.Abort || t == record.Commit) {
		_, err = record.ParseMarker(rec)
	}
	if err != nil {
		s.note(FindingRecords, "control", pos, rec.Offset, "a control record that cannot be read: %v", err)
	}
}
