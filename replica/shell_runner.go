package replica

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/log"
)

const (
	runEvents   = 64       // how many events a partition takes before others have their turn
	remoteLimit = 1024     // messages of other nodes, of each sort, that may wait for one partition; more are lost
	remoteBytes = 64 << 20 // of records that may come with them
	warmBytes   = 4 << 20
)

// mail is what waits for a runner: one of its fields.
type mail struct {
	event     Event
	lease     *lease       // of its records
	call      *call        // of a Handle
	question  *question    // of a Handle
	withdrawn bool         // nobody waits for the question any more
	opened    *opened      // the log is there, or is not
	settled   func() Event // ends work that the slow pool did
	renewed   int64        // a new broker epoch
	remote    bool         // event came from another node
	settings  bool         // the partition has other settings
	heeded    chan<- error // of capacity 1: who waits for them
	from      NodeID       // which
	last      bool         // the node closes
	removed   bool         // the log is gone
	heard     bool         // event waited for the log
}

// asker is who gets the Reply to a request.
type asker struct {
	call     *call     // a producer here, or
	question *question // somebody else here, or
	node     NodeID    // another node
	tag      uint64    // that calls the request this
	client   bool      // and is no follower
	size     int64     // bytes of records that wait with it
}

// runner owns a replica: its mailbox, its core, its log and its timer. It runs in the node's fast pool when there is mail,
// on one goroutine at a time; only what says so is touched by others.
type runner struct {
	node  *Node
	tp    log.TopicPartition
	slots chan struct{} // a token for each produce request that is not answered

	mailMu  sync.Mutex // guards the mailbox; nothing is called under it
	box     []mail
	remotes [sorts]load // what came from other nodes
	awake   bool        // it runs, or will
	closed  bool        // mail is dropped

	coreMu sync.Mutex // held by each Step and by Status; nothing else is called under it
	core   *Partition // nil until the log is open
	err    error      // why it is not; guarded by coreMu

	log     atomic.Pointer[log.Log] // nil until it is open
	armed   atomic.Int64            // when the clock will give a Tick, as Node.steady tells time; 0: not at all
	fetchAt atomic.Int32            // where the last fetch was sent

	// Of the running goroutine.
	by         *worker // nil: a goroutine of somebody else's
	conf       Config
	opening    bool
	held       []mail      // came before the log was open
	heldFar    [sorts]load // of it, from other nodes
	spare      []mail
	asked      map[uint64]asker
	far        far  // requests of other nodes that are not answered
	ends       ends // what other nodes asked to end
	copies     copies
	fetchTag   uint64 // of the last fetch
	lastTag    uint64
	actions    []Action
	pending    []Event
	events     events
	shared     shared
	lent       []*lease // buffers that this step has read or copied into
	led        bool     // it led after the last turn
	logStart   int64    // as the core knows it
	warm       int64    // reads from here on need no disk, likely
	warmNext   int64
	warmFill   int64
	unpin      func()
	topicID    [16]byte
	life       int       // counts the cores
	leads      int32     // the newest leader epoch a core was given to lead; -1 none
	spent      int32     // the newest of an earlier core
	yields     *Assign   // it cannot lead, its log cannot be opened: what it asks others to lead
	yieldAt    time.Time // when it asks again; zero: not at all
	mend       mending
	startAsked int64 // log start that is being raised to
	going      removal
	slowJobs   []func() Event
	heeders    []chan<- error // who waits for settings that are asked for
	gone       chan struct{}  // closed when it is shut
}

func newRunner(n *Node, tp log.TopicPartition) *runner {
	return &runner{node: n, tp: tp, slots: make(chan struct{}, n.conf.InFlight), gone: make(chan struct{}), asked: make(map[uint64]asker), leads: -1, spent: -1}
}

// Sorts of mail from other nodes. Each has its own limit: however much clients ask for, replication goes on.
const (
	ofClients  = iota
	ofReplicas // a follower's fetches, a leader's answers
	sorts
)

type load struct {
	messages int
	bytes    int64 // of records
}

// take is false if there is no room for one more.
func (l *load) take(size int64) bool {
	if l.messages >= remoteLimit || l.bytes > 0 && l.bytes+size > remoteBytes {
		return false
	}
	l.messages++
	l.bytes += size
	return true
}

// size is the bytes of records that come with it.
func (m *mail) size() int64 {
	if e, ok := m.event.(Message); ok {
		return recordsOf(e)
	}
	return 0
}

func (m *mail) sort() int {
	switch e := m.event.(type) {
	case FetchRequest:
		if e.From != NoNode {
			return ofReplicas
		}
	case FetchResponse:
		return ofReplicas
	}
	return ofClients
}

// post never blocks. It is false if nobody will look at the mail.
func (r *runner) post(m mail) bool { return r.postBy(m, nil) }

// postBy has by take the runner up, if it can.
func (r *runner) postBy(m mail, by *worker) bool {
	r.mailMu.Lock()
	if r.closed || m.remote && !r.remotes[m.sort()].take(m.size()) {
		r.mailMu.Unlock()
		return false
	}
	r.box = append(r.box, m)
	wake := !r.awake
	r.awake = true
	r.mailMu.Unlock()
	if wake && !by.takeUp(r) {
		r.node.fast.submit(r)
	}
	return true
}

// serve is post for a call whose caller waits for the answer. Where nothing else is to be done its goroutine does it: nobody
// else need be woken, and what may hold it up there is what would hold up the answer anyway.
func (r *runner) serve(c *call) bool {
	r.mailMu.Lock()
	if r.closed || r.awake {
		r.mailMu.Unlock()
		return r.post(mail{call: c})
	}
	r.awake = true
	r.mailMu.Unlock()
	if !r.node.fast.lend() {
		r.mailMu.Lock()
		r.box = append(r.box, mail{call: c})
		r.mailMu.Unlock()
		r.node.fast.submit(r)
		return true
	}
	r.lookAtLog()
	r.take(mail{call: c})
	r.arm()
	r.lookAtRole()
	r.mailMu.Lock()
	more := len(r.box) > 0
	r.awake = more
	r.mailMu.Unlock()
	r.node.fast.giveBack(r, more)
	return true
}

// run is one turn in the pool.
func (r *runner) run(by *worker) (more bool) {
	r.by = by
	for done := 0; done < runEvents; {
		r.mailMu.Lock()
		if len(r.box) == 0 {
			r.by, r.awake = nil, false
			r.mailMu.Unlock()
			return false
		}
		batch := r.box
		r.box, r.spare = r.spare[:0], nil
		r.remotes = [sorts]load{}
		r.mailMu.Unlock()
		r.lookAtLog()
		for i := range batch {
			r.by.letGo()
			r.take(batch[i])
			batch[i] = mail{}
		}
		r.arm()
		r.lookAtRole()
		if r.going.over && !r.closed {
			r.leave()
		}
		done += len(batch)
		r.spare = batch[:0]
	}
	r.by = nil
	return true
}

// take goes on with one piece of mail.
func (r *runner) take(m mail) {
	if r.closed { // which only who runs changes
		r.refuse(m, refusal(NotLeaderOrFollower))
		return
	}
	if r.goingAway(m) {
		return
	}
	if a, ok := m.event.(Assign); ok && a.Leader == r.node.conf.Self && a.LeaderEpoch <= r.spent {
		return // records of that epoch may be lost here, and must not be written anew in it
	}
	r.heed(m.event)
	switch {
	case m.opened != nil:
		r.start(m.opened)
	case m.last:
		r.shut()
	case m.removed:
		r.going.over = true
	case m.settled != nil:
		r.slowDone(m.settled)
	case r.core == nil:
		r.before(m)
	case m.call != nil:
		r.produce(m.call)
	case m.question != nil:
		r.pose(m.question, m.withdrawn)
	case m.renewed != 0:
		r.conf.BrokerEpoch = m.renewed
		r.step(Reconfigure{r.conf})
	case m.settings:
		r.reconfigure(m.heeded)
	default:
		switch e := m.event.(type) {
		case FetchRequest:
			if e.From >= 0 {
				r.node.window.leave(e.From, r) // what was sent has come, or is lost
			}
			e.MaxWait = min(e.MaxWait, remotePatience)
			if tag, ok := r.remote(m.from, e.Tag, e.From == NoNode); ok {
				e.Tag = tag
				r.events.fetch = e
				r.step(&r.events.fetch)
			}
			return
		case EpochRequest:
			if tag, ok := r.remote(m.from, e.Tag, true); ok {
				e.Tag = tag
				r.step(e)
			}
			return
		case OffsetRequest:
			if tag, ok := r.remote(m.from, e.Tag, true); ok {
				e.Tag = tag
				r.lookUp(e)
			}
			return
		case AppendRequest:
			r.appendFor(e)
			return
		case Lost:
			if NodeID(r.fetchAt.Load()) == m.from && r.fetchTag != 0 {
				r.step(FetchResponse{From: m.from, Tag: r.fetchTag, Result: refusal(NetworkException)})
			}
			return
		case EndTxn:
			if r.ends.late(&e) {
				return
			}
			tag, ok := r.remote(m.from, e.Tag, true)
			if !ok {
				return
			}
			e.Tag, e.Timeout = tag, min(e.Timeout, remotePatience)
			c := newCall(nil, -1)
			c.marker = &e
			e.Extra = c
			r.step(e)
			return
		case FetchResponse:
			awaited := r.core.awaits(&e)
			r.step(m.event)
			if awaited && r.core.work.kind == 0 { // else they may be looked at again. One that is not awaited may come to be
				m.lease.free()
			}
			return
		case Assign:
			if r.remake(e) {
				return
			}
			if e.Leader == r.node.conf.Self {
				r.leads = max(r.leads, e.LeaderEpoch)
			}
		}
		r.step(m.event)
	}
}

// remote notes who asks, and gives the request a tag of this node. False if too many wait already: it is lost, and asked again.
func (r *runner) remote(from NodeID, tag uint64, client bool) (uint64, bool) {
	return r.remoteOf(asker{node: from, tag: tag, client: client})
}

func (r *runner) remoteOf(to asker) (uint64, bool) {
	if !r.far.add(to) {
		return 0, false
	}
	r.lastTag++
	r.asked[r.lastTag] = to
	return r.lastTag, true
}

// step takes one event, carries out what follows, and takes the answers that are there at once.
func (r *runner) step(e Event) {
	r.pending = append(r.pending[:0], e)
	for i := 0; i < len(r.pending); i++ {
		e := r.pending[i]
		r.pending[i] = nil
		r.coreMu.Lock()
		r.actions = r.core.Step(time.Now(), e, r.actions[:0])
		r.coreMu.Unlock()
		for j := range r.actions {
			if answer := r.do(&r.actions[j]); answer != nil {
				r.pending = append(r.pending, answer)
			}
		}
		clear(r.actions)
	}
	r.unshare()
	r.endLending()
	r.events.clear()
}

// events are those of a step that come all the time: pointers to them are Events that need not be allocated.
type events struct {
	produce  Produce
	fetch    FetchRequest
	appended Appended
	reads    []Read
}

// read makes e an event. Those from before stay what they are.
func (s *events) read(e Read) *Read {
	s.reads = append(s.reads, e)
	return &s.reads[len(s.reads)-1]
}

// clear keeps no records alive.
func (s *events) clear() {
	s.produce = Produce{}
	clear(s.reads)
	s.reads = s.reads[:0]
}

// lookAtLog notices what happened to the log by itself: retention, or the host, raised its start.
func (r *runner) lookAtLog() {
	if r.core == nil {
		return
	}
	l := r.log.Load()
	if start := l.Offsets().LogStart; start > r.logStart {
		r.step(r.changed(l))
	}
}

// lookAtRole notices that a leadership is over: followers ask elsewhere.
func (r *runner) lookAtRole() {
	leads := r.core != nil && r.core.role == Leader
	if r.led && !leads {
		r.node.window.forget(r)
	}
	r.led = leads
}

// arm sees to it that the core gets its Tick.
func (r *runner) arm() {
	var at time.Time
	if r.core != nil {
		at = r.core.NextTick() // only a step changes it, and steps are here
	}
	soonest := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if r.going.stuck {
		soonest(r.going.again)
	}
	if !r.opening {
		soonest(r.mend.at)
		soonest(r.yieldAt)
	}
	if armed := r.armed.Load(); at.IsZero() || armed != 0 && r.node.steady(at) >= armed {
		return
	}
	r.armed.Store(r.node.steady(at))
	r.node.clock.add(at, r)
}

// tick is called by the clock. A time that is no more the one awaited means nothing.
func (r *runner) tick(at time.Time) {
	if r.armed.CompareAndSwap(r.node.steady(at), 0) {
		r.post(mail{event: Tick{}})
	}
}

// shut ends the runner: it looks at no mail any more.
func (r *runner) shut() {
	r.mailMu.Lock()
	r.closed = true
	rest := append(r.held, r.box...)
	r.held, r.heldFar, r.box = nil, [sorts]load{}, nil
	r.mailMu.Unlock()
	for _, m := range rest {
		r.refuse(m, refusal(NotLeaderOrFollower))
	}
	r.refuseHeeders(fmt.Errorf("%s: %w", r.tp, ErrNoReplica))
	for tag, a := range r.asked { // a core that was stopped has answered all but what its log is still at
		delete(r.asked, tag)
		r.far.remove(a)
		r.tell(a, refusal(NotLeaderOrFollower))
	}
	r.node.window.forget(r)
	if r.unpin != nil {
		r.unpin()
		r.unpin = nil
	}
	close(r.gone)
}
