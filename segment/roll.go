package segment

import (
	"time"
)

// Incoming is what the roll decision must know of the bytes about to be appended.
type Incoming struct {
	Bytes        int64
	LastOffset   int64
	MaxTimestamp int64 // Unix ms; -1 none
}

// RollReason says why a segment must be rolled before an append.
type RollReason uint8

// Reasons, in the order they are looked at.
const (
	NoRoll     RollReason = iota
	RollSize              // segment.bytes would be exceeded
	RollTime              // segment.ms has passed, by the batches' own time if the first batch has one
	RollIndex             // an index takes no more entries
	RollOffset            // the last offset is not representable from the base
)

func (r RollReason) String() string {
	return [...]string{"none", "size", "time", "index full", "offset range"}[min(r, RollOffset)]
}

// rollLimits are Options.MaxBytes and MaxAge as they are now.
type rollLimits struct {
	bytes int64
	age   time.Duration
}

// SetRoll replaces Options.MaxBytes and MaxAge for NeedsRoll. What jitter was drawn stays.
func (s *Segment) SetRoll(maxBytes int64, maxAge time.Duration) {
	o := Options{MaxBytes: maxBytes, MaxAge: maxAge}.withDefaults()
	s.roll.Store(&rollLimits{o.MaxBytes, o.MaxAge})
}

// NeedsRoll decides, by Kafka's rules, whether a new segment must be started before next is appended. An empty segment
// is rolled only when the offset does not fit (a segment must hold something, however large). It may open the indexes; an
// error in doing so shows in the append.
func (s *Segment) NeedsRoll(next Incoming, now time.Time) (bool, RollReason) {
	m := s.pub.load()
	if r := s.rollReason(next, now, m); r != NoRoll {
		return true, r
	}
	return false, NoRoll
}

func (s *Segment) rollReason(next Incoming, now time.Time, m marks) RollReason {
	if d := next.LastOffset - s.base; d < 0 || d > maxRelative {
		return RollOffset
	}
	if m.size == 0 {
		return NoRoll
	}
	limits := s.roll.Load()
	if m.size > limits.bytes-next.Bytes {
		return RollSize
	}
	if limit := limits.age; limit >= 0 && s.waited(next, now, m) > limit.Milliseconds()-s.jitter {
		return RollTime
	}
	if s.indexFull() {
		return RollIndex
	}
	return NoRoll
}

// waited is the age of the segment in milliseconds: message time if its first batch has a timestamp, else wall clock.
func (s *Segment) waited(next Incoming, now time.Time, m marks) int64 {
	if first, err := s.firstTimestampOf(m); err == nil && first >= 0 {
		return next.MaxTimestamp - first
	}
	created := s.created.Load()
	if now.UnixMilli() < created && s.created.CompareAndSwap(created, now.UnixMilli()) { // the clock was put back: its age begins anew
		return 0
	}
	return now.UnixMilli() - created
}

func (s *Segment) indexFull() bool {
	x := s.ix.Load()
	if x == nil || !x.writable {
		s.mu.Lock()
		y, err := s.activate()
		s.mu.Unlock()
		if err != nil {
			return false
		}
		x = y
	}
	return x.offset.Full() || x.time.Full()
}

// FirstTimestamp is the largest timestamp of the first batch (Unix ms), from which the age of a segment counts; -1 if it
// has none or the segment is empty. It reads one header the first time.
func (s *Segment) FirstTimestamp() (int64, error) { return s.firstTimestampOf(s.pub.load()) }

func (s *Segment) firstTimestampOf(m marks) (int64, error) {
	if m.size == 0 {
		return -1, nil
	}
	if m.firstTs != unknown {
		return m.firstTs, nil
	}
	p, err := s.First()
	if err == ErrNotFound {
		return -1, nil
	}
	return p.MaxTimestamp, err
}
