package replica

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/partlog/partlog/log"
)

// machine is a node of a cluster: a replica, its log, and what the log still has to do, in order.
type machine struct {
	id     NodeID
	p      *Partition
	log    *fakeLog
	up     bool
	broker int64
	disk   []Action
	clean  bool // stopped so
	lost   bool // its tail, and has not caught up since
}

// message is on its way. To the controller it goes with to 0.
type message struct {
	to       NodeID
	event    Event
	proposal Action
	from     NodeID
}

// cluster is three machines and a controller that never fails. Its methods are what can happen; after each of them check
// must find nothing.
type cluster struct {
	conf  Config
	now   time.Time
	nodes []*machine
	net   []message
	tag   uint64
	id    uint64
	said  []string // what happened, for whoever reads a failure

	leader         NodeID
	leaderEpoch    int32
	partitionEpoch int32
	isr, elr       []NodeID
	alive          map[NodeID]bool

	produced   map[uint64]int8 // acks of requests that are not answered
	committed  []fakeRecord    // by offset, as any leader's high watermark passed them
	everything map[[2]int64]uint64
	marks      map[[2]int64]int64 // high watermark of a node as leader of an epoch
	broken     string
	acked      int
	patient    bool // records that are in danger are not reported, only those that are lost
	lossy      bool // several tails may have been lost: committed records may be gone
}

func newCluster(conf Config, replicas int) *cluster {
	c := &cluster{
		conf: conf, now: epochOfTests, leaderEpoch: -1, partitionEpoch: -1, leader: NoNode,
		alive: map[NodeID]bool{}, produced: map[uint64]int8{}, everything: map[[2]int64]uint64{}, marks: map[[2]int64]int64{},
	}
	for i := range replicas {
		m := &machine{id: NodeID(i + 1), log: &fakeLog{}, broker: 1}
		c.nodes = append(c.nodes, m)
		c.isr = append(c.isr, m.id)
		c.start(m, false)
	}
	c.elect()
	return c
}

func (c *cluster) node(id NodeID) *machine { return c.nodes[id-1] }

func (c *cluster) start(m *machine, unclean bool) {
	conf := c.conf
	conf.Self, conf.BrokerEpoch = m.id, m.broker
	s := m.log.state()
	s.HighWatermark = m.log.saved
	m.p, m.up, m.disk = New(log.TopicPartition{Topic: "t"}, conf, s, unclean), true, nil
	m.log.hw = m.p.hw
	c.alive[m.id] = true
}

func (c *cluster) note(format string, args ...any) {
	c.said = append(c.said, fmt.Sprintf(format, args...))
}

// step gives a machine an event, if it is up.
func (c *cluster) step(m *machine, e Event) {
	if !m.up {
		return
	}
	for _, a := range m.p.Step(c.now, e, nil) {
		switch a.Kind {
		case SendFetch:
			c.net = append(c.net, message{to: a.To, event: a.Fetch})
		case ProposeISR:
			c.net = append(c.net, message{to: 0, proposal: a, from: m.id})
		case Reply:
			if a.To > 0 {
				c.net = append(c.net, message{to: a.To, event: FetchResponse{From: m.id, Tag: a.Tag, Result: a.Result}})
			} else {
				c.answered(m, a)
			}
		case SetRemoval:
		case Fail:
			c.breaks("node %d failed: %v", m.id, a.Err)
		default:
			m.disk = append(m.disk, a)
		}
	}
}

// work carries out the oldest thing a machine's log was asked for.
func (c *cluster) work(m *machine) {
	if len(m.disk) == 0 {
		return
	}
	a := m.disk[0]
	m.disk = m.disk[1:]
	c.note("%d does %s %d", m.id, a.Kind, a.Offset)
	if e := m.log.perform(a); e != nil {
		c.step(m, e)
	}
}

func (c *cluster) produce(m *machine, acks int8) {
	if !m.up {
		return
	}
	c.tag++
	c.id++
	c.note("%d is given record %d, acks %d", m.id, c.id, acks)
	c.produced[c.tag] = acks
	c.step(m, Produce{Tag: c.tag, Raw: records(c.id), Acks: acks, Timeout: 20 * time.Second})
}

// answered checks what a producer is told: with acks=all every counted replica has the record.
func (c *cluster) answered(m *machine, a Action) {
	acks := c.produced[a.Tag]
	delete(c.produced, a.Tag)
	if a.Result.Err != None || acks != -1 {
		return
	}
	c.acked++
	for _, id := range m.p.Status().MaximalISR {
		o := c.node(id)
		if o.lost {
			continue
		}
		if got, ok := o.log.at(a.Result.Base); !ok || got != m.log.mustAt(a.Result.Base) {
			c.breaks("%d confirmed offset %d, which %d does not have", m.id, a.Result.Base, id)
		}
	}
}

func (l *fakeLog) at(offset int64) (fakeRecord, bool) {
	if offset < l.start || offset >= l.end() {
		return fakeRecord{}, false
	}
	return l.records[offset-l.start], true
}

// written are the epochs that have records.
func (l *fakeLog) written() []log.EpochEntry {
	return slices.DeleteFunc(slices.Clone(l.epochs), func(e log.EpochEntry) bool { return e.Start >= l.end() })
}

func (l *fakeLog) mustAt(offset int64) fakeRecord {
	r, _ := l.at(offset)
	return r
}

// deliver hands over message i; the others may be handed over before it.
func (c *cluster) deliver(i int) {
	m := c.net[i]
	c.net = slices.Delete(slices.Clone(c.net), i, i+1)
	if m.to == 0 {
		c.propose(m)
		return
	}
	c.note("%d gets %T", m.to, m.event)
	c.step(c.node(m.to), m.event)
}

// drop loses message i. For a proposal somebody notices.
func (c *cluster) drop(i int) {
	m := c.net[i]
	c.net = slices.Delete(slices.Clone(c.net), i, i+1)
	if m.to == 0 {
		c.step(c.node(m.from), ISRAnswer{Tag: m.proposal.Tag, Err: NetworkException})
	} else if e, ok := m.event.(ISRAnswer); ok {
		c.step(c.node(m.to), ISRAnswer{Tag: e.Tag, Err: NetworkException})
	}
	c.note("lost: %T for %d", m.event, m.to)
}

// repeat puts message i on the way once more.
func (c *cluster) repeat(i int) {
	if c.net[i].to != 0 {
		c.net = append(c.net, c.net[i])
	}
}

// crash ends a process. Its log stays as it is, but for what it was asked and had not done; lose takes that many records
// of its tail, too.
func (c *cluster) crash(m *machine, lose int) {
	if !m.up {
		return
	}
	m.up, m.clean, m.disk = false, false, nil
	for len(m.log.records) > 0 && lose > 0 {
		m.log.truncate(m.log.end() - 1)
		m.lost = true
		lose--
	}
	c.note("%d crashes, its log ends at %d", m.id, m.log.end())
}

// stop ends a process as it should.
func (c *cluster) stop(m *machine) {
	if !m.up {
		return
	}
	c.step(m, Stop{LeaderEpoch: -1})
	for len(m.disk) > 0 {
		c.work(m)
	}
	m.up, m.clean = false, !m.p.unclean
	c.note("%d stops", m.id)
}

// restart starts a process that crashed. The controller hears whether the stop may have cost something.
func (c *cluster) restart(m *machine) {
	if m.up {
		return
	}
	c.fence(m)
	m.broker++
	if m.lost {
		c.isr = without(c.isr, m.id)
		c.elr = without(c.elr, m.id)
	}
	c.note("%d starts", m.id)
	c.start(m, !m.clean)
	c.tell(Peer{Node: m.id, BrokerEpoch: m.broker, Alive: true})
	if c.leader == NoNode {
		c.elect()
	}
	c.announce()
}

func (c *cluster) pass(d time.Duration) {
	c.now = c.now.Add(d)
	for _, m := range c.nodes {
		c.step(m, Tick{})
	}
}

// flow lets things go well for a while.
func (c *cluster) flow(n int) {
	for range n {
		if len(c.net) > 0 {
			c.deliver(0)
		}
		for _, m := range c.nodes {
			c.work(m)
		}
	}
}

func (c *cluster) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "leader %d, epoch %d, version %d, in sync %v, eligible %v\n", c.leader, c.leaderEpoch, c.partitionEpoch, c.isr, c.elr)
	for _, m := range c.nodes {
		s := m.p.Status()
		fmt.Fprintf(&b, "%d: up %v %v %s epoch %d, isr %v pending %q, hw %d saved %d, unclean %v, log %v, disk %d\n", m.id, m.up, s.Role, s.Phase, s.LeaderEpoch,
			s.ISR, s.Pending, s.HighWatermark, m.log.saved, s.UncleanStop, m.log.records, len(m.disk))
	}
	return b.String()
}
