package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/timeindex"
	"github.com/partlog/partlog/vfs"
)

// entryFile reads the entries of an index file in order, in small pieces.
type entryFile struct {
	f     vfs.File
	name  string
	kind  string // of its findings
	size  int64  // of the file
	width int64  // of an entry
	slot  int64  // of the entry that next returns
	buf   []byte
	ended bool
	err   error

	bad    *faults // first fault, and how many more
	hidden bool    // the file is missing or unreadable: nothing more to say
}

// openEntries opens an index file of the segment. A missing one is reported at once; but a broker makes those of its last segment
// when it first looks into them, and may be killed before.
func openEntries(s *segmentCheck, ext, kind string, width int64) *entryFile {
	e := &entryFile{name: s.path(segment.FileName(s.base, ext)), kind: kind, width: width, ended: true}
	if !s.has(segment.FileName(s.base, ext)) {
		e.hidden = true
		if s.last && s.rebuildable() {
			return e
		}
		if kind == FindingTimeIndex {
			s.find(kind, e.name, -1, s.base, "the file is missing; look-ups by time read the segment from its start until it is rebuilt")
		} else {
			s.find(kind, e.name, -1, s.base, "the file is missing; it is rebuilt from the log when the log is opened")
		}
		return e
	}
	f, err := s.fs.OpenFile(e.name, os.O_RDONLY, 0)
	if err == nil {
		e.f = f
		e.size, err = f.Size()
	}
	if err != nil {
		e.hidden = true
		if s.live == nil || !errors.Is(err, fs.ErrNotExist) { // else retention took it, as the .log a moment later
			s.fail(err)
		}
		return e
	}
	e.ended = false
	return e
}

// next is the next whole entry; ok is false at the end.
func (e *entryFile) next() (raw []byte, ok bool) {
	if e.ended {
		return nil, false
	}
	if len(e.buf) == 0 {
		e.buf = make([]byte, min(e.width*512, max(0, e.size-e.slot*e.width)/e.width*e.width))
		n, err := readUpTo(e.f, e.buf, e.slot*e.width)
		e.buf, e.err = e.buf[:int64(n)/e.width*e.width], err
	}
	if len(e.buf) == 0 {
		e.ended = true
		return nil, false
	}
	raw, e.buf = e.buf[:e.width], e.buf[e.width:]
	e.slot++
	return raw, true
}

// restZero says whether the entries not yet read, and odd bytes behind them, are all zero; it uses them up.
func (e *entryFile) restZero() bool {
	for {
		raw, ok := e.next()
		if !ok {
			return true
		}
		for _, b := range raw {
			if b != 0 {
				e.ended = true
				return false
			}
		}
	}
}

// fault notes what is wrong with the entry before slot.
func (e *entryFile) fault(offset int64, format string, args ...any) {
	if e.bad != nil {
		e.bad.more++
		return
	}
	e.bad = &faults{kind: e.kind, file: e.name, position: (e.slot - 1) * e.width, offset: offset, detail: fmt.Sprintf(format, args...)}
}

func (e *entryFile) close(s *segmentCheck) {
	if e.f == nil {
		return
	}
	if odd := e.size % e.width; odd != 0 {
		s.find(e.kind, e.name, e.size-odd, -1, "%s behind the last whole entry of %d: the file was cut or overwritten", counted(odd, "byte"), e.width)
	}
	if e.bad != nil {
		e.bad.report(s.verifier, "entry")
	}
	if e.err != nil {
		s.fail(&fs.PathError{Op: "read", Path: e.name, Err: e.err})
	}
	s.fail(e.f.Close())
}

// rebuildable says that an open would write the segment's indexes anew before it trusts them: zero slots behind the
// entries, and entries that never reached the file, are legal then.
func (s *segmentCheck) rebuildable() bool { return s.base >= s.rebuilt }

// padding handles a slot that looks like zero padding.
func (e *entryFile) padding(s *segmentCheck) {
	slot := e.slot - 1
	zero := e.restZero()
	switch {
	case !zero:
		e.fault(s.base, "a zero slot with entries behind it: the file was overwritten")
	case !s.rebuildable():
		e.fault(s.base, "slots %d to %d are zeros: the file was not trimmed, or zeroed; look-ups take them for entries", slot, e.size/e.width-1)
	}
}

// offsetCheck holds the entries of an offset index against the batches as they come.
type offsetCheck struct {
	s      *segmentCheck
	e      *entryFile
	off    int64 // entry under work
	pos    int64
	have   bool
	later  bool  // the entry names the first of several batches by the offset of the last: old releases
	before int64 // offset of the entry before
	good   int64 // entries that fit

	indexed  int64 // position of the last entry that fits
	closest  int64 // smallest distance between entries that fit, and to the first one; 0: there is none
	tail     int64 // position of the last batch
	since    int64 // bytes of the batches before the last one, from the last entry or place where the writer may have been restarted on
	most     int64 // the most of them there were behind the last entry
	epoch    int32 // of the last batch that had one
	restarts int64 // behind the last entry: places where the writer may have been restarted
	raised   int   // behind the last entry: batches with a larger timestamp than all before
	timed    int   // behind the last entry: batches that the time index names
	broken   bool  // the next batch stands behind one
}

func newOffsetCheck(s *segmentCheck) *offsetCheck {
	c := &offsetCheck{s: s, e: openEntries(s, ".index", FindingIndex, index.EntrySize), before: math.MinInt64, epoch: -1}
	c.advance()
	return c
}

// advance takes the next entry that can be right.
func (c *offsetCheck) advance() {
	c.have, c.later = false, false
	for {
		raw, ok := c.e.next()
		if !ok {
			return
		}
		rel, pos := int32(binary.BigEndian.Uint32(raw)), int32(binary.BigEndian.Uint32(raw[4:]))
		c.off, c.pos = c.s.base+int64(rel), int64(pos)
		if rel == 0 && (c.e.slot > 1 || pos == 0) && !c.single(rel, pos) {
			c.e.padding(c.s)
			return
		}
		switch {
		case rel < 0 || pos < 0:
			c.e.fault(-1, "entry (%d, %d) has a negative field", rel, pos)
		case c.off <= c.before:
			c.e.fault(c.off, "entry for offset %d behind one for %d: entries must ascend", c.off, c.before)
		case c.pos >= c.s.r.size:
			if !c.s.rebuildable() || c.s.live == nil {
				c.e.fault(c.off, "entry for offset %d names byte %d, but the log has %s", c.off, c.pos, counted(c.s.r.size, "byte"))
			}
			c.before = c.off
		default:
			c.before, c.have = c.off, true
			return
		}
	}
}

// single: the only entry of a file whose first batch is one record at the base, as old releases could write it.
func (c *offsetCheck) single(rel, pos int32) bool {
	if c.e.slot != 1 || rel != 0 || pos != 0 || c.e.size != c.e.width {
		return false
	}
	b, reason, err := c.s.r.batch(c.s.ctx, 0)
	return err == nil && reason == "" && b.LastOffset() == c.s.base
}

// batch is called for every valid batch, in order.
func (c *offsetCheck) batch(pos, base, last int64, epoch int32) {
	c.since += pos - c.tail
	if epoch >= 0 && epoch != c.epoch {
		if c.epoch >= 0 {
			c.restart()
		}
		c.epoch = epoch
	}
	if c.broken {
		c.since, c.broken = 0, false
	}
	c.most = max(c.most, c.since)
	c.tail = pos
	for c.have && c.pos <= pos {
		switch {
		case c.pos < pos && !c.later:
			c.e.fault(c.off, "entry for offset %d names byte %d, where no batch begins", c.off, c.pos)
		case c.off > last:
			c.later = true
			return
		case c.off < last && c.off >= base && c.later, c.off < last:
			c.e.fault(c.off, "entry for offset %d names byte %d, where a batch ends at offset %d", c.off, c.pos, last)
		default:
			c.good++
			c.s.gap(c.pos - c.indexed)
			if c.closest == 0 || c.pos-c.indexed < c.closest {
				c.closest = c.pos - c.indexed
			}
			c.indexed, c.restarts, c.since, c.most, c.raised, c.timed = c.pos, 0, 0, 0, 0, 0
		}
		c.advance()
	}
}

// restart says that the writer may have been restarted before the next batch, and began to count anew.
func (c *offsetCheck) restart() {
	c.restarts++
	c.broken = true
}

// times is called before batch with what there is to say of its timestamp.
func (c *offsetCheck) times(raised, named bool) {
	if raised {
		c.raised++
	}
	if named {
		c.timed++
	}
}

// idle says that nothing was to be indexed behind the last entry: entries come in pairs, and the time index, which is whole, has only
// the last one there, that of the roll or the stop, though timestamps grew. So it is with followers of old releases: they add one
// pair at most for all that comes with a fetch, before they write it.
func (c *offsetCheck) idle() bool {
	t := c.s.times
	return c.raised > 1 && c.timed < 2 && !t.e.hidden && t.e.bad == nil && !t.have && t.before >= t.largest
}

func (c *offsetCheck) finish() {
	for c.have {
		c.e.fault(c.off, "entry for offset %d names byte %d, but no batch ends there", c.off, c.pos)
		c.advance()
	}
	active := c.s.live != nil && c.s.rebuildable()
	if !c.e.hidden && c.e.bad == nil && !active && !c.idle() {
		c.s.sparse = append(c.s.sparse, sparseIndex{file: c.e.name, offset: c.s.base, position: c.e.size, entries: c.good, bytes: c.tail - c.indexed, most: c.most, closest: c.closest, restarts: c.restarts})
	}
	c.e.close(c.s)
}

// sparseIndex is what lies between the last entry of an index and the end of its segment.
type sparseIndex struct {
	file             string
	offset, position int64
	entries          int64
	bytes            int64 // up to the last batch
	most             int64 // of them without a place where the writer may have been restarted
	closest          int64 // smallest distance between entries
	restarts         int64
}

// gap notes the distance between two neighbouring entries.
func (c *folderCheck) gap(bytes int64) {
	if c.narrowest == 0 || bytes < c.narrowest {
		c.narrowest = bytes
	}
}

// judgeSparse reports indexes that lack entries at their end. Nothing in an index says how long it should be. A writer adds
// an entry when more than index.interval.bytes went by without one, but begins to count anew when it is restarted. That
// leaves a time index entry or a new leader epoch, or nothing if no timestamp grew. More bytes than the interval from one
// place where all that could have been to the last batch before the next, and for each such place, prove that entries are
// missing. The interval is at most the smallest distance between entries of the log, or, as the setting may be changed and an
// index built anew under another one, of this index; the default of 4096 is believed in unless entries speak against it, and
// what the caller says in any case. An index without any entry may belong to a segment that ended before the first one was due
// under the widest interval that others show.
func (c *folderCheck) judgeSparse() {
	const maxRestarts = 1000 // in the life of one segment
	interval, given := c.o.IndexInterval, c.o.IndexInterval > 0
	if !given {
		interval = defaults.IndexIntervalBytes
	}
	widest := int64(0)
	for _, s := range c.sparse {
		widest = max(widest, s.closest)
	}
	for _, s := range c.sparse {
		least := interval
		if c.narrowest > 0 && (!given && s.restarts >= 5 || c.narrowest > interval) {
			least = c.narrowest
		}
		switch {
		case given:
		case s.entries == 0:
			least = max(least, widest)
		default:
			least = max(least, s.closest)
		}
		if s.most > least && s.bytes > least*(1+min(s.restarts, maxRestarts)) {
			c.find(FindingIndex, s.file, s.position, s.offset, "%s, none for the last %s of the log: the file was cut short; look-ups there are slow", counted(s.entries, "entry"), counted(s.bytes, "byte"))
		}
	}
}

// timeCheck holds the entries of a time index against the batches as they come.
type timeCheck struct {
	s      *segmentCheck
	e      *entryFile
	ts     int64 // entry under work
	off    int64
	have   bool
	before int64 // timestamp of the entry before

	good    int64
	largest int64 // timestamp of the batches, emptied ones left out
}

func newTimeCheck(s *segmentCheck) *timeCheck {
	c := &timeCheck{s: s, e: openEntries(s, ".timeindex", FindingTimeIndex, timeindex.EntrySize), before: math.MinInt64, largest: -1}
	c.advance()
	return c
}

func (c *timeCheck) advance() {
	c.have = false
	for {
		raw, ok := c.e.next()
		if !ok {
			return
		}
		rel := int32(binary.BigEndian.Uint32(raw[8:]))
		c.ts, c.off = int64(binary.BigEndian.Uint64(raw)), c.s.base+int64(rel)
		if c.ts == 0 && rel == 0 && (c.e.slot > 1 || !c.epochZero()) {
			c.e.padding(c.s)
			return
		}
		switch {
		case rel < 0 || c.ts < 0:
			c.e.fault(-1, "entry (%d, %d) has a negative field", c.ts, rel)
		case c.ts <= c.before:
			c.e.fault(c.off, "entry for timestamp %d behind one for %d: entries must ascend", c.ts, c.before)
		default:
			c.before, c.have = c.ts, true
			return
		}
	}
}

// epochZero: the first batch really ends at the base and is from the first millisecond of 1970.
func (c *timeCheck) epochZero() bool {
	b, reason, err := c.s.r.batch(c.s.ctx, 0)
	return err == nil && reason == "" && b.LastOffset() == c.s.base && b.MaxTimestamp() == 0
}

// batch is called for every valid batch, in order, and says whether an entry names it. An emptied batch keeps its
// timestamp in the header only. newestAt is the offset of its first record with the largest timestamp: leaders of old releases
// (3.6, for one) name that and not the end of the batch.
func (c *timeCheck) batch(last, newestAt, header, newest int64, count int) (named bool) {
	if count > 0 {
		c.largest = max(c.largest, header)
	}
	for c.have && c.off <= last {
		switch {
		case c.off < last && (c.off != newestAt || c.ts != newest):
			c.e.fault(c.off, "entry for timestamp %d names offset %d, where no batch ends", c.ts, c.off)
		case c.ts != header && c.ts != newest:
			c.e.fault(c.off, "entry says timestamp %d, the batch that ends at offset %d has %d", c.ts, last, header)
		default:
			c.good++
			named = true
		}
		c.advance()
	}
	return named
}

func (c *timeCheck) finish() {
	for c.have {
		if !c.s.rebuildable() || c.s.live == nil {
			c.e.fault(c.off, "entry for timestamp %d names offset %d, behind the last batch", c.ts, c.off)
		}
		c.advance()
	}
	if !c.e.hidden && c.e.bad == nil && !c.s.rebuildable() && c.largest > max(c.before, -1) && c.s.r.size <= math.MaxInt32 {
		c.s.find(FindingTimeIndex, c.e.name, c.e.size, c.s.base, "%s, up to timestamp %d, but the segment has %d: the file was cut short, and look-ups for younger times are slow",
			counted(c.good, "entry"), max(c.before, -1), c.largest)
	}
	c.e.close(c.s)
}
