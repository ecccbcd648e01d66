package replicatest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/partlog/partlog/replica"
)

// Outcome is what became of a run.
type Outcome struct {
	Options Options // with the plan and all that was drawn for the named fields
	Steps   int     // events that happened
	Failure string  // what must not be and was; empty: all is well
	At      time.Duration
	Counts  Counts
	History []string // with Options.History
	Digest  uint64   // of the whole run: equal runs have equal ones
}

// Failed says whether something was found.
func (o Outcome) Failed() bool { return o.Failure != "" }

// sim is a run.
type sim struct {
	profile
	rng    *rand.Rand
	thrift thrift
	now    time.Duration
	queue  queue
	seq    uint64
	steps  int
	ctx    context.Context

	net    network
	nodes  []*node
	rulers []*ruler
	store  *store
	truly  *replica.MemStore // the store, for who is not subject to its faults
	truth  truth
	topics []*topic
	parts  []*part  // by slot, what has the name now
	past   []*part  // what had it before
	book   []origin // of records, by id
	mutant mutant

	producers []*producer
	consumers []*consumer
	asked     map[uint64]func(result) // requests of clients, by tag
	lastTag   uint64
	calm      bool
	dying     int // nodes that stopped inside an access of their disk, in this event

	counts  Counts
	history []string
	said    string // what its last line says
	again   int    // how often
	marked  bool   // the last line of it is one of high watermarks
	failure string
	digest  uint64
}

// result is what a client is told.
type result struct {
	replica.Result
	records []seenRecord
	next    int64
	from    replica.NodeID
	stamp   uint64 // of the model's losses when it was read
}

var began = time.UnixMilli(1_700_000_000_000)

// clientTags are above all that replicas give out.
const clientTags = 1 << 62

// Run plays one cluster.
func Run(o Options) Outcome {
	if err := o.Check(); err != nil {
		return Outcome{Options: o, Failure: err.Error(), Counts: Counts{}}
	}
	s := newSim(o)
	if err := s.Options.Check(); err != nil { // now that the number of nodes is drawn
		s.failure = err.Error()
	} else {
		s.play()
	}
	for _, n := range s.nodes {
		n.discard()
	}
	o.Plan, o.Nodes, o.Partitions, o.Replicas, o.MinISR, o.Storm = s.Plan, s.Nodes, s.Partitions, s.Replicas, s.MinISR, s.Storm
	s.counts.add("runs", 1)
	return Outcome{Options: o, Steps: s.steps, Failure: s.failure, At: s.now, Counts: s.counts, History: s.history, Digest: s.digest}
}

func newSim(o Options) *sim {
	s := &sim{
		rng: rand.New(rand.NewPCG(o.Seed, 0x9e3779b97f4a7c15)), thrift: thriftOf(o.Seed), ctx: context.Background(),
		truly: replica.NewMemStore(), asked: map[uint64]func(result){}, lastTag: clientTags, counts: Counts{},
	}
	s.store = &store{MemStore: s.truly, s: s}
	s.profile = o.profile(rand.New(rand.NewPCG(o.Seed, 1)))
	if s.Plan == nil {
		s.Plan = s.profile.plan(rand.New(rand.NewPCG(o.Seed, 2)))
	}
	s.book = make([]origin, 1)
	for i := range s.Nodes {
		s.nodes = append(s.nodes, newNode(s, replica.NodeID(i+1)))
	}
	s.newTopic("t", s.Partitions, s.compacted)
	if s.second {
		s.newTopic("u", 1, s.secondCompacted)
	}
	for i := range s.profile.rulers {
		s.rulers = append(s.rulers, &ruler{s: s, id: i, at: place(firstRuler + i)})
	}
	return s
}

func (s *sim) play() {
	for _, n := range s.nodes {
		n.start()
	}
	for _, r := range s.rulers {
		r.tick()
	}
	for _, t := range s.topics {
		t.tend()
	}
	s.startClients()
	steps := s.Steps
	s.Steps = 0 // it bounds the storm
	s.settle()
	s.mutant = mutantByName(s.Mutant)
	begin := s.now
	for _, f := range s.Plan {
		s.at(begin+f.At, func() { s.strike(f) })
	}
	if steps > 0 {
		s.Steps = s.steps + steps
	}
	s.until(begin + s.Storm)
	s.Steps = 0
	if s.failure == "" {
		s.calmDown()
	}
}

// settle lets the cluster begin: its topic is made, everybody is in sync everywhere.
func (s *sim) settle() {
	for s.failure == "" && s.now < 2*time.Second {
		s.until(s.now + 20*time.Millisecond)
		if !slices.ContainsFunc(s.parts, func(p *part) bool { return len(p.state.ISR) < s.Replicas || p.leading() == nil }) {
			return
		}
	}
	s.fail("the cluster did not come up: %v", s.parts[0].state)
}

// until lets everything happen up to a moment.
func (s *sim) until(end time.Duration) {
	for s.failure == "" && len(s.queue) > 0 && s.queue[0].at <= end {
		if s.Steps > 0 && s.steps >= s.Steps {
			return
		}
		e := s.queue.pop()
		s.now = max(s.now, e.at)
		if n := e.node; n != nil {
			if e.life != anyLife && e.life != n.life {
				continue
			}
			if n.paused > s.now {
				e.at = n.paused
				s.queue.push(e)
				continue
			}
		}
		s.steps++
		s.digest = (s.digest ^ uint64(e.at) ^ e.seq<<32) * 0x100000001b3
		e.run()
		for i := 0; s.dying > 0; i++ {
			if s.nodes[i].dying != nil {
				s.nodes[i].die()
			}
		}
	}
	if s.failure == "" {
		s.now = max(s.now, end)
	}
}

// at lets something happen.
func (s *sim) at(when time.Duration, run func()) { s.schedule(when, nil, anyLife, run) }

func (s *sim) after(d time.Duration, run func()) { s.schedule(s.now+d, nil, anyLife, run) }

func (s *sim) schedule(when time.Duration, n *node, life int, run func()) {
	s.seq++
	s.queue.push(event{at: max(when, s.now), seq: s.seq, node: n, life: life, run: run})
}

func (s *sim) node(id replica.NodeID) *node {
	if id < 1 || int(id) > len(s.nodes) {
		return nil
	}
	return s.nodes[id-1]
}

// fail ends the run: the first thing that is wrong counts.
func (s *sim) fail(format string, args ...any) {
	if s.failure == "" {
		s.failure = fmt.Sprintf(format, args...)
		s.note("WRONG: %s", s.failure)
	}
}

// note writes history, what is said again at once on one line; its arguments must be cheap.
func (s *sim) note(format string, args ...any) {
	if s.Options.History {
		s.marked = false
		at, what := float64(s.now.Microseconds())/1000, fmt.Sprintf(format, args...)
		if s.again++; what == s.said {
			last := &s.history[len(s.history)-1]
			*last = fmt.Sprintf("%s%s (%d times, the last one at %.3f)", (*last)[:11], what, s.again, at)
			return
		}
		s.said, s.again = what, 1
		s.history = append(s.history, fmt.Sprintf("%9.3f  ", at)+what)
	}
}

// noteMark notes high watermarks, those with nothing between them on one line.
func (s *sim) noteMark(p *part, id replica.NodeID, mark int64) {
	if !s.Options.History {
		return
	}
	where := fmt.Sprintf("%d:%d", id, mark)
	if len(s.parts) > 1 {
		where = fmt.Sprintf("%v at %s", p.tp, where)
	}
	if last := len(s.history) - 1; s.marked && last >= 0 && len(s.history[last]) < 150 {
		s.history[last] += ", " + where
		return
	}
	s.note("high watermarks %s", where)
	s.marked = true
}

func (s *sim) between(low, high time.Duration) time.Duration {
	return low + time.Duration(s.rng.Int64N(int64(high-low)+1))
}

func (s *sim) chance(p float64) bool { return p > 0 && s.rng.Float64() < p }

func (s *sim) tag() uint64 {
	s.lastTag++
	return s.lastTag
}
