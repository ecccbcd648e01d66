package retention

import (
	"math"
	"time"
)

// Limits that a number alone cannot say. A field's zero means no limit, so that the zero Policy deletes nothing but what
// lies below the log start.
const (
	Unlimited   int64         = -1 // Policy.Bytes: no limit, Kafka's -1
	KeepNothing int64         = -2 // Policy.Bytes: Kafka's 0, every segment may go
	Forever     time.Duration = -1 // Policy.Time: no limit, Kafka's -1
	Immediately time.Duration = -2 // Policy.Time: Kafka's 0, whatever is older than the present millisecond may go
)

// Policy is what the settings of a log say about deleting. The zero value deletes by start offset only, as a log does whose
// cleanup.policy is compact or empty.
type Policy struct {
	Delete bool          // cleanup.policy contains delete; without it the other two do not count
	Bytes  int64         // retention.bytes, for all .log files together; 0 or Unlimited: no limit; KeepNothing
	Time   time.Duration // retention.ms, in whole milliseconds; 0 or Forever: no limit; Immediately
}

// Fact is what a decision needs to know of one segment.
type Fact struct {
	Base, End        int64 // offsets [Base, End): End is the base of the next segment, or the log end of the last one
	Bytes            int64 // size of the .log; 0: it holds no batch
	LargestTimestamp int64 // of its batches, Unix ms; negative: none has one, or it cannot be read
	ModTime          int64 // of the .log file, Unix ms: what counts where there is no timestamp
}

// time is what the age is counted from.
func (f *Fact) time() int64 {
	if f.LargestTimestamp >= 0 {
		return f.LargestTimestamp
	}
	return f.ModTime
}

// Reason says why a segment goes.
type Reason uint8

const (
	StartOffset Reason = iota + 1 // it lies below the log start
	Size                          // the log is larger than Policy.Bytes
	Age                           // it is older than Policy.Time
)

// String is "start offset", "size" or "age".
func (r Reason) String() string {
	switch r {
	case StartOffset:
		return "start offset"
	case Size:
		return "size"
	case Age:
		return "age"
	default:
		return "unknown reason"
	}
}

// Hold says why the oldest segment that stays does not go.
type Hold uint8

const (
	NotDue          Hold = iota // no limit asks for it yet, or there is none
	HighWatermark               // a limit asks for it, but it reaches above the high watermark
	FutureTimestamp             // its largest timestamp, or without one its modification time, lies ahead of the clock
	EmptyActive                 // it is the active segment and holds nothing
	NoDelete                    // cleanup.policy does not contain delete
)

// String is a few words: "not due", "high watermark", "future timestamp", "empty active segment", "cleanup policy".
func (h Hold) String() string {
	switch h {
	case NotDue:
		return "not due"
	case HighWatermark:
		return "high watermark"
	case FutureTimestamp:
		return "future timestamp"
	case EmptyActive:
		return "empty active segment"
	case NoDelete:
		return "cleanup policy"
	default:
		return "unknown hold"
	}
}

// Drop is one segment that goes.
type Drop struct {
	Base, End int64 // as in Fact
	Bytes     int64
	Reason    Reason
}

// Plan is what a policy asks for at one moment. It holds no reference to what it was made from.
type Plan struct {
	Drop      []Drop // oldest first, without a gap: always a prefix of the log; nil if nothing goes
	NewStart  int64  // the log start offset afterwards
	Freed     int64  // bytes of .log files that go
	RollFirst bool   // the active segment goes too, so a new one has to be begun before
	HeldBy    Hold   // why the next segment stays; NotDue also where none is left
	// NextDue is when the next segment will be old enough, in Unix ms, if nothing is appended to it until then and nothing
	// else holds it; -1 if age will not ask for it.
	NextDue int64
}

// Decide says what of a log may go now. segs are all its segments, oldest first, each ending where the next begins; the last
// one is the active one. It allocates Plan.Drop and nothing else.
func (p Policy) Decide(now time.Time, logStart, highWatermark int64, segs []Fact) Plan {
	d := decision{policy: p, now: now.UnixMilli(), logStart: logStart, highWatermark: highWatermark, segs: segs}
	byStart := d.pass(0, d.belowStart)
	bySize, byAge := byStart, byStart
	if p.Delete {
		d.excess = d.bytesFrom(byStart) - p.bytes()
		bySize = d.pass(byStart, d.tooLarge)
		byAge = d.pass(bySize, d.tooOld)
	}
	return d.plan(byStart, bySize, byAge)
}

// Expired says whether the age rule alone lets the segment go. Whoever gathers facts needs no timestamp behind the first
// segment, after those that go for another reason, for which it is false.
func (p Policy) Expired(now time.Time, f Fact) bool {
	d := decision{policy: p, now: now.UnixMilli()}
	return p.Delete && d.tooOld(&f, false)
}

// bytes is the limit of the size rule; MaxInt64 for none.
func (p Policy) bytes() int64 {
	switch {
	case p.Bytes == KeepNothing:
		return 0
	case p.Bytes <= 0:
		return math.MaxInt64
	}
	return p.Bytes
}

// millis is the limit of the age rule; negative for none.
func (p Policy) millis() int64 {
	switch {
	case p.Time == Immediately:
		return 0
	case p.Time <= 0:
		return -1
	}
	return p.Time.Milliseconds()
}

// decision is one call of Decide.
type decision struct {
	policy                       Policy
	now, logStart, highWatermark int64
	segs                         []Fact
	excess                       int64 // bytes above the limit that the size rule still has to take away
}

// pass goes on from segment i as long as the rule lets them go, and gives the first one that stays.
func (d *decision) pass(i int, rule func(f *Fact, last bool) bool) int {
	for ; i < len(d.segs); i++ {
		f, last := &d.segs[i], i == len(d.segs)-1
		if last && f.Bytes == 0 || f.End > d.highWatermark || !rule(f, last) {
			break
		}
	}
	return i
}

// belowStart never takes the active segment.
func (d *decision) belowStart(f *Fact, last bool) bool { return !last && f.End <= d.logStart }

// tooLarge takes a segment only if what is left is still as large as the limit.
func (d *decision) tooLarge(f *Fact, _ bool) bool {
	if d.excess < 0 || d.excess < f.Bytes {
		return false
	}
	d.excess -= f.Bytes
	return true
}

// tooOld is strict: what is as old as the limit stays.
func (d *decision) tooOld(f *Fact, _ bool) bool {
	limit, since := d.policy.millis(), f.time()
	return limit >= 0 && d.now > since && uint64(d.now)-uint64(since) > uint64(limit)
}

// bytesFrom is the size of the segments from i on.
func (d *decision) bytesFrom(i int) (n int64) {
	for ; i < len(d.segs); i++ {
		n += d.segs[i].Bytes
	}
	return n
}

// plan puts down what three passes found: each of the indexes is the first segment that its rule left.
func (d *decision) plan(byStart, bySize, byAge int) Plan {
	p := Plan{NewStart: d.logStart, NextDue: -1}
	if byAge > 0 {
		p.Drop = make([]Drop, byAge)
		p.NewStart = max(d.logStart, d.segs[byAge-1].End)
		p.RollFirst = byAge == len(d.segs)
	}
	for i := range p.Drop {
		f, reason := &d.segs[i], Age
		switch {
		case i < byStart:
			reason = StartOffset
		case i < bySize:
			reason = Size
		}
		p.Drop[i] = Drop{Base: f.Base, End: f.End, Bytes: f.Bytes, Reason: reason}
		p.Freed += f.Bytes
	}
	if byAge < len(d.segs) {
		d.excess = d.bytesFrom(byAge) - d.policy.bytes()
		p.HeldBy, p.NextDue = d.hold(&d.segs[byAge], byAge == len(d.segs)-1)
	}
	return p
}

// hold says why a segment stays, and when its age will let it go.
func (d *decision) hold(f *Fact, last bool) (why Hold, due int64) {
	switch {
	case last && f.Bytes == 0:
		return EmptyActive, -1
	case f.End > d.highWatermark && (d.belowStart(f, last) || d.policy.Delete && (d.tooLarge(f, last) || d.tooOld(f, last))):
		return HighWatermark, d.due(f)
	case !d.policy.Delete:
		return NoDelete, -1
	case d.policy.millis() >= 0 && f.time() > d.now:
		return FutureTimestamp, d.due(f)
	}
	return NotDue, d.due(f)
}

// due is the first millisecond at which a segment is too old.
func (d *decision) due(f *Fact) int64 {
	limit, since := d.policy.millis(), f.time()
	if !d.policy.Delete || limit < 0 || since > math.MaxInt64-1-limit {
		return -1
	}
	return since + limit + 1
}
