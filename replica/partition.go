package replica

import (
	"encoding/binary"
	"hash/fnv"
	"time"

	"github.com/partlog/partlog/log"
)

// Partition is one replica of one partition. It is not safe for concurrent use, does no I/O, and Step is deterministic.
type Partition struct {
	tp   log.TopicPartition
	conf Config

	// What the controller said last.
	role           Role
	topicID        [16]byte
	leader         NodeID
	leaderEpoch    int32
	partitionEpoch int32
	replicas       []NodeID
	adding         []NodeID
	removing       []NodeID
	recovering     bool
	told           int // Assign.MinISR
	peers          []peer

	// The log, as its answers tell.
	state     LogState
	hw        int64
	persisted int64     // high watermark last given out for the checkpoint
	persistAt time.Time // when a newer one may be
	grown     int64     // bytes appended here
	hwGrown   int64     // grown when the high watermark was at the log end last
	work      work      // under way
	syncTag   uint64    // of the DoSync under way
	deleting  bool

	unclean bool  // may lack what it had synced
	catchUp int64 // end to be reached for that to be over; -1 unknown
	halted  bool  // waits for a newer leader epoch
	trouble error // the last one
	removal int64
	lead    leading
	follow  following
	queue   queue
	waits   waits
	fetches fetches
	counts  Counts
	lastTag uint64
	due     time.Time // no later than the first thing to do
	now     time.Time // of this step
	out     []Action  // of this step
}

// New makes a replica over a log that is open and as start says, high watermark from the checkpoint. It has no role until
// the first Assign. uncleanStop says that the log's directory was not closed cleanly (log.Dir.CleanShutdown), so that
// what was synced may be gone: until it has caught up with a leader the replica says so, and is put out of sync. A log that
// was made just now has lost nothing, however the directory was closed before.
func New(tp log.TopicPartition, c Config, start LogState, uncleanStop bool) *Partition {
	p := &Partition{
		tp: tp, conf: c.withDefaults(), state: start, unclean: uncleanStop,
		leader: NoNode, leaderEpoch: -1, partitionEpoch: -1, catchUp: -1, removal: -1,
	}
	p.hw = min(max(start.HighWatermark, start.LogStart), start.LogEnd)
	p.persisted = start.HighWatermark
	if p.hw < start.LogEnd {
		p.hwGrown = -1 << 40 // how much lies between is not known
	}
	p.lead.epochStart = -1
	p.lastTag = uint64(max(p.conf.BrokerEpoch, 0)) << 32 // answers to an earlier life do not fit
	return p
}

// Step takes one event at a time that does not go back, and appends what is to be done to out.
func (p *Partition) Step(now time.Time, in Event, out []Action) []Action {
	p.now, p.out = now, out
	switch e := in.(type) {
	case Tick:
		p.tick()
	case FetchRequest:
		p.fetch(e)
	case *FetchRequest:
		p.fetch(*e)
	case Read:
		p.read(e)
	case *Read:
		p.read(*e)
	case Produce:
		p.produce(e)
	case *Produce:
		p.produce(*e)
	case EndTxn:
		p.endTxn(e)
	case Withdraw:
		p.withdraw(e)
	case Appended:
		p.appended(e)
	case *Appended:
		p.appended(*e)
	case FetchResponse:
		p.fetched(e)
	case Truncated:
		p.truncated(e)
	case Assigned:
		p.assigned(e)
	case Synced:
		p.synced(e)
	case LogChanged:
		p.logChanged(e.State)
	case Assign:
		p.assign(e)
	case Peer:
		p.peer(e)
	case ISRAnswer:
		p.isrAnswer(e)
	case EpochRequest:
		p.epochRequest(e)
	case Stop:
		p.stop(e)
	case Reconfigure:
		p.reconfigure(e.Config)
	}
	out, p.out = p.out, nil
	return out
}

// NextTick is when the next Tick has something to do; zero if there is nothing to wait for. Earlier ticks cost nothing.
func (p *Partition) NextTick() time.Time { return p.due }

// TopicPartition names the partition.
func (p *Partition) TopicPartition() log.TopicPartition { return p.tp }

func (p *Partition) do(a Action) { p.out = append(p.out, a) }

// tag is one that no action had before; never 0.
func (p *Partition) tag() uint64 {
	p.lastTag++
	return p.lastTag
}

// ownTags sets the tags of a new replica apart from those of one that was here before, in the same life of the node: of a topic
// that had the name, or of this one until it moved away. Answers to that one may still be on their way, and do not name the
// topic they are of.
func (p *Partition) ownTags(a Assign) {
	h := fnv.New64a()
	h.Write(a.TopicID[:])
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(a.PartitionEpoch)))
	p.lastTag = (p.lastTag + h.Sum64()) & (1<<62 - 1)
}

// arm sees to it that a Tick at t is not passed over.
func (p *Partition) arm(t time.Time) {
	if p.due.IsZero() || t.Before(p.due) {
		p.due = t
	}
}

// tick lets everything act whose time has come; what still waits arms again.
func (p *Partition) tick() {
	if p.due.IsZero() || p.now.Before(p.due) {
		return
	}
	p.due = time.Time{}
	p.persistIfDue()
	p.expireFetches()
	switch p.role {
	case Leader:
		p.expireProduces()
		p.checkISR()
	case Failed:
		p.abdicate()
	case Follower:
		p.expireFollow()
	}
}

func (p *Partition) reconfigure(c Config) {
	c.Self = p.conf.Self
	p.conf = c.withDefaults()
}

// fail gives the replica up: its log cannot be trusted to do what it is asked. A leader asks for another one.
func (p *Partition) fail(err error) {
	if p.role == Failed || p.role == Deleted {
		return
	}
	led := p.role == Leader && !p.halted
	p.role, p.trouble = Failed, err
	p.do(Action{Kind: Fail, Err: err})
	p.refuseProduces(KafkaStorageError)
	p.recheckFetches()
	if led {
		p.lead.failed, p.lead.retryAt = true, time.Time{}
		p.abdicate()
	}
}
