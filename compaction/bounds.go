package compaction

import (
	"math"
	"time"
)

// Fact is what the choice of bounds and groups must know about one segment; Measure collects them.
type Fact struct {
	Base             int64
	Bytes            int64 // of the .log
	IndexBytes       int64 // of the offset index
	TimeIndexBytes   int64 // of the time index
	LargestTimestamp int64 // of its batches, or the .log's modification time if none has one (Unix ms)
	FirstTimestamp   int64 // largest timestamp of its first batch (Unix ms); -1 if none or empty
}

// State is what the choice of bounds must know about a log.
type State struct {
	// Checkpoint is the log's entry in cleaner-offset-checkpoint, the offset that Result.FirstDirty gave; nil = none.
	Checkpoint *int64
	LogStart   int64
	LogEnd     int64
	// LastStable is the last stable offset, which is never above the high watermark: nothing at or above either is
	// cleaned.
	LastStable int64
	// Removal is the offset of the slowest replica, or whoever else must see every tombstone and end marker: those at or
	// above it stay, whatever their horizon. nil = nobody is waited for.
	Removal *int64
	// Segments are all of them, oldest first; the last one is active.
	Segments []Fact
}

// Bounds of one run.
type Bounds struct {
	// FirstDirty is where the dirty part begins: offsets below it were in an earlier run's map.
	FirstDirty int64
	// Uncleanable is the base of a segment: it and those behind it are not touched. Run takes another offset for the base
	// of the segment it lies in; the last segment is never touched.
	Uncleanable int64
	// Removal is State.Removal.
	Removal *int64
}

// Reset says why a checkpoint was not taken as it is.
type Reset uint8

const (
	NotReset   Reset = iota
	BelowStart       // it was below the log start offset: records were deleted. Worth a warning unless the log is compact,delete
	BeyondEnd        // it was above the log end offset: the log was truncated, or is another one
)

func (r Reset) String() string {
	return [...]string{"none", "below log start", "beyond log end"}[min(r, BeyondEnd)]
}

// Hold says what Uncleanable is held by.
type Hold uint8

const (
	ByActive     Hold = iota // the active segment
	ByLastStable             // the last stable offset: an open transaction, or the high watermark
	ByMinLag                 // records younger than MinLag
)

func (h Hold) String() string {
	return [...]string{"active segment", "last stable offset", "min.compaction.lag.ms"}[min(h, ByMinLag)]
}

// Plan is what a run would do, and whether it is due: the dry run of a choice.
type Plan struct {
	Bounds
	Reset Reset // the checkpoint must be rewritten as FirstDirty
	Hold  Hold

	CleanBytes     int64   // of segments below FirstDirty; the one it lies in counts here
	CleanableBytes int64   // of segments from FirstDirty to Uncleanable; the one FirstDirty lies in counts here, too
	DirtyRatio     float64 // cleanable / (clean + cleanable); 0 if there are none
	OldestDirty    int64   // smallest FirstTimestamp of dirty segments that are not active; -1 if none has one
	Overdue        bool    // OldestDirty is more than MaxLag ago
	Due            bool    // the log should be cleaned now; of several the one with the largest DirtyRatio comes first

	// Groups are the segments that would be rewritten, if all keys fit into the map; each becomes one.
	Groups []Range
}

// Range is a run of neighbouring segments.
type Range struct {
	First, Last int   // places in State.Segments, both included
	Base        int64 // of the first
	Bytes       int64
}

// Plan decides by Kafka's rules. limits are the log's segment.bytes and segment.index.bytes. It is pure: the same state
// and clock give the same plan. A state without segments gives the zero Plan.
func (c Config) Plan(s State, limits GroupLimits, now time.Time) Plan {
	c = c.withDefaults()
	if len(s.Segments) == 0 {
		return Plan{}
	}
	p := Plan{OldestDirty: -1}
	p.Removal = s.Removal
	p.FirstDirty, p.Reset = s.firstDirty()
	p.Uncleanable, p.Hold = c.uncleanable(s, p.FirstDirty, now)
	for i, f := range s.Segments {
		end := s.endOf(i)
		if f.Base < p.FirstDirty {
			p.CleanBytes += f.Bytes
		}
		if end > min(p.FirstDirty, p.Uncleanable) && f.Base < p.Uncleanable {
			p.CleanableBytes += f.Bytes
		}
		if i+1 < len(s.Segments) && end > p.FirstDirty && f.FirstTimestamp > 0 && (p.OldestDirty < 0 || f.FirstTimestamp < p.OldestDirty) {
			p.OldestDirty = f.FirstTimestamp
		}
	}
	if total := p.CleanBytes + p.CleanableBytes; total > 0 {
		p.DirtyRatio = float64(p.CleanableBytes) / float64(total)
		p.Overdue = c.MaxLag >= 0 && p.OldestDirty >= 0 && p.OldestDirty < now.UnixMilli()-c.MaxLag.Milliseconds()
		p.Due = p.Overdue && p.CleanableBytes > 0 || p.DirtyRatio > c.MinDirtyRatio
	}
	if p.CleanableBytes > 0 {
		p.Groups = groups(s.Segments, p.Uncleanable, p.Uncleanable, limits)
	}
	return p
}

func (s *State) firstDirty() (int64, Reset) {
	switch d := s.Checkpoint; {
	case d == nil:
		return s.LogStart, NotReset
	case *d < s.LogStart:
		return s.LogStart, BelowStart
	case *d > s.LogEnd:
		return s.LogStart, BeyondEnd
	default:
		return *d, NotReset
	}
}

// uncleanable is the base of the first segment that is not touched: the one that holds the smallest of the bounds.
func (c Config) uncleanable(s State, dirty int64, now time.Time) (int64, Hold) {
	active := s.Segments[len(s.Segments)-1].Base
	u, hold := active, ByActive
	if s.LastStable < u {
		u, hold = s.LastStable, ByLastStable
	}
	if c.MinLag > 0 {
		young := now.UnixMilli() - c.MinLag.Milliseconds()
		for i, f := range s.Segments[:len(s.Segments)-1] {
			if s.endOf(i) > dirty && f.LargestTimestamp > young {
				if f.Base < u {
					u, hold = f.Base, ByMinLag
				}
				break
			}
		}
	}
	u = max(u, dirty)
	for i, f := range s.Segments {
		if s.endOf(i) > u {
			return f.Base, hold
		}
	}
	return active, hold
}

func (s *State) endOf(i int) int64 {
	if i+1 < len(s.Segments) {
		return s.Segments[i+1].Base
	}
	return math.MaxInt64
}
