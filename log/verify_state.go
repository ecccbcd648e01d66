package log

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/epoch"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/timeindex"
	"github.com/partlog/partlog/vfs"
)

// names judges the files of the folder by their names.
func (c *folderCheck) names(entries []fs.DirEntry) {
	for _, e := range entries {
		name := e.Name()
		digits, ext, _ := strings.Cut(name, ".")
		_, notOffset := parseOffset(digits)
		segmentFile := isSegmentFile(ext)
		switch {
		case !c.going():
			return
		case strings.HasSuffix(name, ".deleted"): // legal: who stops within file.delete.delay.ms leaves it, and an open removes it
		case leftoverMeaning(name) != "":
			if c.live == nil {
				c.find(FindingLeftover, c.path(name), -1, -1, "%s", leftoverMeaning(name))
			}
		case strings.HasSuffix(name, ".log") && ext != "log" || segmentFile && notOffset != nil:
			c.find(FindingForeign, c.path(name), -1, -1, "the name has no offset before its first dot: a broker does not start with it%s", c.misnamed(name, ext))
		case segmentFile && e.IsDir():
			c.find(FindingUnreadable, c.path(name), -1, -1, "a directory where a file of the log should be")
			if ext == "log" {
				delete(c.files, name)
			}
		case ext == "log" && name != segment.FileName(mustOffset(digits), ".log"):
			c.find(FindingForeign, c.path(name), -1, mustOffset(digits), "not how a segment is named: no reader finds it%s", c.misnamed(name, ext))
		case segmentFile && ext != "log" && ext != "snapshot" && !c.has(digits+".log"):
			if c.live == nil {
				c.find(FindingLeftover, c.path(name), -1, mustOffset(digits), "an index without its .log; an open removes it%s", c.orphaned(mustOffset(digits), ext))
			}
		}
	}
}

// misnamed says which segment a .log seems to be, by what it holds.
func (c *folderCheck) misnamed(name, ext string) string {
	if !strings.HasSuffix(name, ".log") {
		return ""
	}
	r, err := openBatchFile(c.fs, c.path(name), 0)
	if err != nil {
		return ""
	}
	defer func() { c.fail(r.close()) }()
	b, reason, err := r.batch(c.ctx, 0)
	if err != nil || reason != "" {
		return ""
	}
	right := segment.FileName(b.BaseOffset(), ".log")
	if c.has(right) {
		return fmt.Sprintf("; it begins with offset %d, as %s may", b.BaseOffset(), right)
	}
	return fmt.Sprintf("; it begins with offset %d, and there is no %s", b.BaseOffset(), right)
}

// orphaned says what went with a .log that is missing beside its index, unless it was deleted on purpose. The offset
// index speaks for both.
func (c *folderCheck) orphaned(base int64, ext string) string {
	if ext == "timeindex" && c.has(segment.FileName(base, ".index")) && c.indexed(base, ".index", index.EntrySize) >= 0 {
		return ""
	}
	last := int64(-1)
	switch ext {
	case "index":
		last = c.indexed(base, ".index", index.EntrySize)
	case "timeindex":
		last = c.indexed(base, ".timeindex", timeindex.EntrySize)
	}
	next := c.baseBehind(base)
	start, _ := c.marks.point(checkpoint.LogStarts, c.tp)
	switch {
	case last < 0 || next >= 0 && start >= next:
		return ""
	case next < 0:
		return fmt.Sprintf("; it has entries up to offset %d: the records of offsets %d to %d, and any behind, are gone with the .log", last, base, last)
	}
	return fmt.Sprintf("; it has entries up to offset %d: the records of offsets %d to %d are gone with the .log", last, base, next-1)
}

// maxOrphan bounds what is read of an index without a .log: more than a broker's default size.
const maxOrphan = 64 << 20

// indexed is the offset of an index's last entry, -1 if it has none. Both kinds of entries hold it relative to the base,
// the time index behind a timestamp.
func (c *folderCheck) indexed(base int64, ext string, width int) int64 {
	b, err := vfs.ReadFile(c.fs, c.path(segment.FileName(base, ext)), maxOrphan)
	if err != nil {
		return -1
	}
	last := int64(-1)
	for at := width - index.EntrySize; at+index.EntrySize <= len(b); at += width {
		field := b[at:]
		if ext == ".timeindex" {
			field = b[at+index.EntrySize/2:]
		}
		if rel := int32(binary.BigEndian.Uint32(field)); rel > 0 {
			last = base + int64(rel)
		}
	}
	return last
}

func mustOffset(digits string) int64 {
	offset, err := parseOffset(digits)
	if err != nil {
		return -1
	}
	return offset
}

func leftoverMeaning(name string) string {
	switch {
	case strings.HasSuffix(name, ".cleaned"):
		return "an unfinished rewrite; an open drops it, what it was made from is still there"
	case strings.HasSuffix(name, ".swap"):
		return "a finished rewrite that has not taken its place yet; an open puts it there"
	case strings.HasSuffix(name, ".tmp"):
		return "the replacement of a small file that was never finished; the file it was for still counts"
	}
	return ""
}

func (c *folderCheck) metadata() {
	name := c.path(checkpoint.Metadata)
	_, _, err := checkpoint.ReadTopicID(c.fs, name)
	if format := (*checkpoint.FormatError)(nil); errors.As(err, &format) {
		c.find(FindingMetadata, name, -1, -1, "%s; the topic id is lost, and a broker does not start with this file", lineAnd(format))
		return
	}
	if err == nil {
		err = checkpoint.CheckTopicID(c.fs, name)
	}
	if format := (*checkpoint.FormatError)(nil); errors.As(err, &format) {
		c.find(FindingMetadata, name, -1, -1, "%s; the topic id can be read", lineAnd(format))
		return
	}
	c.fail(err)
}

// epochCheck compares the leader epoch file with the batches: an entry too many is legal, a missing one is not.
type epochCheck struct {
	file   string
	list   []epoch.Entry
	ok     bool // the file could be read
	legacy bool // old formats clear the cache
	now    int  // entry of the last batch
	// The last batch that begins below the first entry, until one above it comes.
	inFront    bool
	front      int64
	frontEpoch int32
	bad        *faults
	seen       bool // a batch with an epoch
}

func (e *epochCheck) read(c *folderCheck) {
	e.file = c.path(checkpoint.LeaderEpochs)
	list, err := checkpoint.ReadEpochs(c.fs, e.file)
	if format := (*checkpoint.FormatError)(nil); errors.As(err, &format) {
		c.find(FindingEpochs, e.file, -1, -1, "%s; it is rebuilt from the batches here, and a broker takes the whole root offline", lineAnd(format))
		return
	}
	if err != nil {
		c.fail(err)
		return
	}
	for i := 1; i < len(list); i++ {
		if list[i].Epoch <= list[i-1].Epoch || list[i].StartOffset < list[i-1].StartOffset {
			c.find(FindingEpochs, e.file, -1, list[i].StartOffset, "epoch %d from offset %d behind epoch %d from %d: entries must ascend",
				list[i].Epoch, list[i].StartOffset, list[i-1].Epoch, list[i-1].StartOffset)
			return
		}
	}
	e.list, e.ok = list, true
}

func (e *epochCheck) batch(c *folderCheck, b record.Batch) {
	e.legacy = e.legacy || b.Magic() < 2
	if b.LeaderEpoch() < 0 {
		return
	}
	base := b.BaseOffset()
	e.seen = e.seen || base >= c.logStart // those of deleted records may be forgotten
	if !e.ok || len(e.list) == 0 || base < c.logStart {
		return
	}
	for e.now+1 < len(e.list) && e.list[e.now+1].StartOffset <= base {
		e.now++
	}
	first := e.list[0]
	if first.StartOffset > base {
		e.inFront, e.front, e.frontEpoch = true, base, b.LeaderEpoch()
		return
	}
	if e.inFront && e.frontEpoch != first.Epoch && c.marks.clean && c.live == nil { // else it is legal: see Log.epochsLost
		e.note(e.front, "the batch at offset %d is of epoch %d, but the file begins with epoch %d from offset %d", e.front, e.frontEpoch, first.Epoch, first.StartOffset)
	}
	e.inFront = false
	if at := e.list[e.now]; at.Epoch != b.LeaderEpoch() {
		e.note(base, "the batch at offset %d is of epoch %d, by the file it is of %d", base, b.LeaderEpoch(), at.Epoch)
	}
}

// at is the epoch of an offset by the file; MaxInt32 where it does not say.
func (e *epochCheck) at(offset int64) int32 {
	if !e.ok || len(e.list) == 0 || e.list[0].StartOffset > offset {
		return math.MaxInt32
	}
	i, found := slices.BinarySearchFunc(e.list, offset, func(x epoch.Entry, o int64) int { return cmp.Compare(x.StartOffset, o) })
	if !found {
		i--
	}
	return e.list[i].Epoch
}

func (e *epochCheck) note(offset int64, format string, args ...any) {
	if e.bad != nil {
		e.bad.more++
		return
	}
	e.bad = &faults{kind: FindingEpochs, file: e.file, position: -1, offset: offset,
		detail: fmt.Sprintf(format, args...) + "; followers would truncate to a wrong offset"}
}

func (e *epochCheck) finish(c *folderCheck) {
	switch {
	case e.legacy:
	case e.bad != nil:
		e.bad.report(c.verifier, "batch")
	case e.ok && e.seen && len(e.list) == 0:
		c.find(FindingEpochs, e.file, -1, -1, "the file is missing or empty, but the batches have leader epochs; a broker does not rebuild it after a clean stop")
	}
}

// emptyEnd is where a log without segments begins.
func (c *folderCheck) emptyEnd() int64 {
	if len(c.bases) > 0 {
		return 0
	}
	return c.logStart
}

// points compares the root's checkpoints and marker with where the log ends.
func (c *folderCheck) points() {
	end := max(c.end, c.emptyEnd())
	meaning := map[string]string{
		checkpoint.RecoveryPoints: "records that were on the device are gone",
		checkpoint.LogStarts:      "a broker starts the log over there",
		checkpoint.HighWatermarks: "committed records are gone",
		checkpoint.CleanerOffsets: "compaction starts over",
	}
	for _, name := range pointFiles {
		switch offset, ok := c.marks.point(name, c.tp); {
		case !ok:
		case offset < 0:
			c.find(FindingCheckpoint, name, -1, offset, "partition %s stands at offset %d, which no log has", c.tp, offset)
		case offset > end:
			if !c.marks.clean && (name == checkpoint.RecoveryPoints || name == checkpoint.HighWatermarks) {
				meaning[name] += ", unless a broker was killed between a truncation and its next checkpoint"
			}
			c.find(FindingShort, name, -1, end, "partition %s stands at offset %d, but the log ends at %d: %s", c.tp, offset, end, meaning[name])
		}
	}
	rp, ok := c.marks.point(checkpoint.RecoveryPoints, c.tp)
	if c.marks.clean && ok && rp >= 0 && rp < end {
		c.find(FindingMarker, checkpoint.CleanMarker, -1, rp, "the root is marked as cleanly stopped, but the recovery point of %s is %d and its log ends at %d: what lies between was written after the stop", c.tp, rp, end)
	}
}
