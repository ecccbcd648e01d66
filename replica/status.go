package replica

import (
	"slices"
	"time"

	"github.com/partlog/partlog/log"
)

// Role is what a replica is at present.
type Role uint8

const (
	Idle     Role = iota // not assigned, or stopped
	Follower             // of Status.Leader, or of nobody
	Leader               // elected; Status.Active says whether it serves already
	Failed               // its log cannot be used any more
	Deleted              // stopped for good
)

var roleNames = [...]string{"idle", "follower", "leader", "failed", "deleted"}

// String is a short word.
func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return "unknown"
}

// Status is a replica as it stands, for tools, tests and invariants. It is a copy. Where it comes from another node its times are by
// that node's clock: At says what that showed.
type Status struct {
	Node   NodeID    // whose replica it is
	At     time.Time // when it was so; of a Partition's zero
	Role   Role
	Active bool // a leader whose epoch is in its log, a follower that fetches or will
	// Phase is a follower's "fetching", "appending", "truncating" or "waiting" (back-off), a leader's "assigning" or "leading", the
	// "halted" (until newer news) of both, and "opening" while there is no log yet.
	Phase          string
	TopicID        [16]byte
	Leader         NodeID
	LeaderEpoch    int32
	PartitionEpoch int32
	EpochStart     int64 // a leader's log end when its epoch began; -1
	Recovering     bool  // leads by an unclean election

	Replicas, Adding, Removing []NodeID
	ISR                        []NodeID // committed; nil on a follower
	MaximalISR                 []NodeID // with a candidate not yet confirmed
	Pending                    string   // "", "expand", "shrink": change of the in-sync set under way
	Proposing                  bool     // its answer is outstanding

	Offsets       log.Offsets // as last told by the log, with this high watermark
	HighWatermark int64
	Persisted     int64 // high watermark last given to PersistHighWatermark
	LowWatermark  int64 // smallest log start of the live replicas; a leader's
	Removal       int64 // compaction removes tombstones and markers below this offset only; -1 none
	Epochs        []log.EpochEntry
	UncleanStop   bool // may lack what was synced; neither in sync nor electable

	Followers []FollowerStatus // a leader's, in the order of Replicas

	Queued    int // produce requests before their append
	Waiting   int // produce requests that wait for replicas
	Fetches   int // fetches that wait or read
	Counts    Counts
	LastError error // a follower's last trouble, or what made it fail
	NextTick  time.Time
	// Deleting: the log is to be removed, and is not yet; DeleteFailures counts attempts in vain, of which LastError is the last.
	Deleting       bool
	DeleteFailures int64

	// LogFailures counts the times the log failed or could not be opened since the node has the replica. Reopening is when the log of
	// a Failed one is opened again; zero: only when the controller says something newer.
	LogFailures int64
	Reopening   time.Time

	MinISR     int  // min.insync.replicas as it counts here, no more than there are replicas
	UnderMin   bool // fewer in sync than min.insync.replicas
	AtMin      bool
	Replicated bool // all replicas in sync
}

// FollowerStatus is what a leader knows of a follower.
type FollowerStatus struct {
	Node             NodeID
	LogStart, LogEnd int64     // offsets; -1: it was not heard of in this leader epoch
	BrokerEpoch      int64     // of its last fetch; -1
	LastFetch        time.Time // by the leader's clock; zero: none
	LastCaughtUp     time.Time // when it last had all that the leader had: replica.lag.time.max.ms counts from then
	FetchedLeaderEnd int64     // the leader's log end at its last fetch; -1
	InSync           bool      // in the committed set
	CaughtUp         bool      // it has all that the leader has, or had not longer than LagTimeMax ago
	Eligible         bool      // it may become in sync: it is alive, does not stop, fetches in its present life, and lost nothing
	UncleanStop      bool      // it may lack what it had synced
}

// Lag is how many offsets a follower of this leader lacks; -1 if it was not heard of.
func (s Status) Lag(f FollowerStatus) int64 {
	if f.LogEnd < 0 {
		return -1
	}
	return max(s.Offsets.LogEnd-f.LogEnd, 0)
}

// Counts of a replica since it was made.
type Counts struct {
	Shrinks, Expands   int64 // confirmed
	ISRFailures        int64 // proposals refused
	Truncations        int64 // cuts of the log, resets included
	Elections          int64 // times it became leader in a new epoch
	Fetches, Appends   int64
	FetchErrors        int64
	RecordsBelowHWCut  int64 // offsets below its high watermark that truncations took
	ProduceTimeouts    int64
	StaleEventsIgnored int64
}

// Status copies the state. It allocates; it is not for every step.
func (p *Partition) Status() Status {
	s := Status{
		Node: p.conf.Self, Role: p.role, TopicID: p.topicID, Leader: p.leader, LeaderEpoch: p.leaderEpoch, PartitionEpoch: p.partitionEpoch,
		EpochStart: -1, Recovering: p.recovering,
		Replicas: slices.Clone(p.replicas), Adding: slices.Clone(p.adding), Removing: slices.Clone(p.removing),
		Offsets: p.state.Offsets, HighWatermark: p.hw, Persisted: p.persisted, LowWatermark: p.state.LogStart, Removal: p.removal,
		Epochs: slices.Clone(p.state.Epochs), UncleanStop: p.unclean,
		Queued: p.queue.len(), Waiting: p.waits.len(), Fetches: p.fetches.open,
		MinISR: p.minISR(), Counts: p.counts, LastError: p.trouble, NextTick: p.due, Phase: p.phase(),
	}
	s.Offsets.HighWatermark = p.hw
	s.Offsets.LastStable = min(s.Offsets.LastStable, p.hw)
	switch p.role {
	case Follower:
		s.Active = p.leader != NoNode && !p.halted
	case Leader:
		p.leaderStatus(&s)
	}
	return s
}

func (p *Partition) leaderStatus(s *Status) {
	l := &p.lead
	s.Active, s.EpochStart = l.active, l.epochStart
	s.ISR = slices.Clone(l.isr)
	s.MaximalISR = slices.Clone(l.isr)
	if l.pending == expanding {
		s.MaximalISR = append(s.MaximalISR, l.candidate)
	}
	s.Pending, s.Proposing = changeNames[l.pending], l.proposal != 0
	s.UnderMin, s.AtMin = len(l.isr) < p.minISR(), len(l.isr) == p.minISR()
	s.Replicated = len(l.isr) == len(p.replicas)
	for i := range l.remotes {
		r := &l.remotes[i]
		if r.logStart >= 0 && (r.inISR || p.eligible(r)) {
			s.LowWatermark = min(s.LowWatermark, r.logStart)
		}
		s.Followers = append(s.Followers, FollowerStatus{
			Node: r.node, LogStart: r.logStart, LogEnd: r.logEnd, BrokerEpoch: r.broker,
			LastFetch: r.fetchedAt, LastCaughtUp: r.caughtUpAt, FetchedLeaderEnd: r.leaderEnd,
			InSync: r.inISR, CaughtUp: p.current(r), Eligible: p.eligible(r), UncleanStop: r.unclean,
		})
	}
}

// phase is what the replica is at.
func (p *Partition) phase() string {
	switch {
	case p.role != Leader && p.role != Follower:
		return ""
	case p.halted:
		return "halted"
	case p.role == Leader && p.lead.active:
		return "leading"
	case p.role == Leader:
		return "assigning"
	case p.work.kind == DoAppend:
		return "appending"
	case p.work.kind != 0:
		return "truncating"
	case p.follow.tag != 0:
		return "fetching"
	default:
		return "waiting"
	}
}
