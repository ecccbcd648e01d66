package log

import (
	"fmt"
	"time"

	"github.com/partlog/partlog/segment"
)

// RecoveryReport says what the last open found, cut and rebuilt.
type RecoveryReport struct {
	Clean    bool     // a clean stop preceded; nothing was scanned
	Scanned  int64    // bytes of .log files read and checked
	Cut      int64    // bytes that were no whole batch, or stood behind some, cut off the end
	SetAside int64    // bytes of whole segments that could not follow any more
	Saved    []string // files in the root that hold what was set aside, and what was cut if it had whole batches in it
	Rebuilt  []string // derived files that were made anew
	// Unfiled are derived files that a full device has no room for. What would be in them is in memory, the log works, and deletes
	// what makes room; the next Sync, or move of the recovery point, that finds some writes them.
	Unfiled  []string
	Removed  []string // leftovers of interrupted work that were removed
	Findings []Finding
	Took     time.Duration
}

// Finding is one thing that is not as it should be.
type Finding struct {
	File     string // path below the log root
	Position int64  // byte in File; -1 if the file as a whole is meant
	Offset   int64  // record offset; -1 if unknown
	Kind     string // a short fixed word: see the Finding… constants
	Detail   string // one sentence: what is wrong and what it means
}

// String is one line: "t-0/00000000000000000000.log byte 61 (offset 1): batch: " and the sentence.
func (f Finding) String() string {
	where := f.File
	if f.Position >= 0 {
		where += fmt.Sprintf(" byte %d", f.Position)
	}
	if f.Offset >= 0 {
		where += fmt.Sprintf(" (offset %d)", f.Offset)
	}
	return fmt.Sprintf("%s: %s: %s", where, f.Kind, f.Detail)
}

// Kinds of findings, as they stand in Finding.Kind.
const (
	FindingCheckpoint = "checkpoint" // a file of the root that cannot be read
	FindingMetadata   = "metadata"   // partition.metadata
	FindingEpochs     = "epochs"     // leader-epoch-checkpoint
	FindingTail       = "tail"       // bytes behind the last whole batch
	FindingProducers  = "producers"  // batches that could not be read for the state of producers
	FindingShort      = "short"      // the log ends below what a checkpoint says
	FindingFuture     = "future"     // a folder of a move beside the partition
	FindingSplit      = "split"      // a segment held offsets that its base cannot represent
)

// SegmentInfo describes one segment.
type SegmentInfo struct {
	Base, Next       int64 // first offset by name; base of the next segment, or the log end
	Bytes            int64 // of the .log file
	IndexEntries     int
	TimeIndexEntries int
	LargestTimestamp int64 // Unix ms; the file's modification time if no batch has a timestamp
	Sealed           bool  // not the active one
	Pins             int   // readers that hold it
}

// Recovery says what the last open found.
func (l *Log) Recovery() RecoveryReport { return l.recovery }

// SegmentInfos lists the segments, oldest first.
func (l *Log) SegmentInfos() []SegmentInfo { return l.segmentInfos() }

func (v *view) segmentInfos() []SegmentInfo {
	segs, end := v.segments(), v.load().LogEnd
	out := make([]SegmentInfo, len(segs))
	for i, seg := range segs {
		out[i] = describe(seg, end)
		if i+1 < len(segs) {
			out[i].Next = segs[i+1].Base()
		}
		out[i].Sealed = i+1 < len(segs)
	}
	return out
}

// segments is the present list; nil if the log was never opened.
func (v *view) segments() segments {
	if list := v.list.Load(); list != nil {
		return *list
	}
	return nil
}

func describe(seg *segment.Segment, end int64) SegmentInfo {
	i := seg.Info()
	return SegmentInfo{
		Base: i.Base, Next: end, Bytes: i.Bytes, LargestTimestamp: i.LargestTimestamp, Pins: i.Pins,
		IndexEntries: i.IndexEntries, TimeIndexEntries: i.TimeIndexEntries,
	}
}
