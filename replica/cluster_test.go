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

func without(list []NodeID, node NodeID) []NodeID {
	return slices.DeleteFunc(slices.Clone(list), func(n NodeID) bool { return n == node })
}

// fence is the controller's view of a node it does not hear of, whether that is dead or not.
func (c *cluster) fence(m *machine) {
	if !c.alive[m.id] {
		return
	}
	c.alive[m.id] = false
	c.note("%d is fenced", m.id)
	c.setISR(without(c.isr, m.id))
	if c.leader == m.id {
		c.elect()
	}
	c.announce()
	c.tell(Peer{Node: m.id, BrokerEpoch: m.broker})
}

// unfence is for one that was alive all along.
func (c *cluster) unfence(m *machine) {
	if c.alive[m.id] || !m.up {
		return
	}
	c.alive[m.id] = true
	c.note("%d is unfenced", m.id)
	c.tell(Peer{Node: m.id, BrokerEpoch: m.broker, Alive: true})
	if c.leader == NoNode {
		c.elect()
		c.announce()
	}
}

// setISR keeps those who leave it below the minimum eligible: they have everything that was committed.
func (c *cluster) setISR(isr []NodeID) {
	for _, id := range c.isr {
		if len(isr) < c.conf.MinISR && !slices.Contains(isr, id) && !slices.Contains(c.elr, id) {
			c.elr = append(slices.Clone(c.elr), id)
		}
	}
	for _, id := range isr {
		c.elr = without(c.elr, id)
	}
	if len(isr) >= c.conf.MinISR {
		c.elr = nil
	}
	c.isr = isr
	c.partitionEpoch++
}

func (c *cluster) elect() {
	c.leaderEpoch++
	c.partitionEpoch++
	c.leader = NoNode
	for _, from := range [][]NodeID{c.isr, c.elr} {
		for _, m := range c.nodes {
			if c.leader == NoNode && c.alive[m.id] && slices.Contains(from, m.id) {
				c.leader = m.id
			}
		}
		if len(c.isr) > 0 {
			break
		}
	}
	if c.leader != NoNode && len(c.isr) == 0 {
		c.setISR([]NodeID{c.leader})
	}
	c.note("%d is elected in epoch %d", c.leader, c.leaderEpoch)
	c.announce()
}

// announce tells all what is so; sooner or later it arrives.
func (c *cluster) announce() {
	a := Assign{Leader: c.leader, LeaderEpoch: c.leaderEpoch, PartitionEpoch: c.partitionEpoch, ISR: c.isr}
	for _, m := range c.nodes {
		a.Replicas = append(a.Replicas, m.id)
	}
	c.tell(a)
}

func (c *cluster) tell(e Event) {
	for _, m := range c.nodes {
		if a, ok := e.(Assign); ok {
			a.BrokerEpoch = m.broker
			e = a
		}
		c.net = append(c.net, message{to: m.id, event: e})
	}
}

// propose is the controller's judgement of a change.
func (c *cluster) propose(m message) {
	p := m.proposal.Proposal
	answer := ISRAnswer{Tag: m.proposal.Tag}
	switch {
	case p.LeaderEpoch != c.leaderEpoch || m.from != c.leader:
		answer.Err = FencedLeaderEpoch
	case p.PartitionEpoch != c.partitionEpoch:
		answer.Err = InvalidUpdateVersion
	case slices.ContainsFunc(p.ISR, func(id NodeID) bool {
		i := slices.Index(p.ISR, id)
		return !c.alive[id] || p.BrokerEpochs[i] >= 0 && p.BrokerEpochs[i] != c.node(id).broker
	}):
		answer.Err = IneligibleReplica
	default:
		c.setISR(slices.Clone(p.ISR))
		answer.ISR, answer.LeaderEpoch, answer.PartitionEpoch = c.isr, c.leaderEpoch, c.partitionEpoch
		c.announce()
	}
	c.note("the controller answers %v to %v of %d", answer.Err, p.ISR, m.from)
	c.net = append(c.net, message{to: m.from, event: answer})
}

func (c *cluster) pass(d time.Duration) {
	c.now = c.now.Add(d)
	for _, m := range c.nodes {
		c.step(m, Tick{})
	}
}

func (c *cluster) breaks(format string, args ...any) {
	if c.broken == "" {
		c.broken = fmt.Sprintf(format, args...)
	}
}

// check looks for what must never be. It returns the first thing found, ever.
func (c *cluster) check() string {
	for _, m := range c.nodes {
		for i, r := range m.log.records {
			key := [2]int64{int64(r.epoch), m.log.start + int64(i)}
			if id, known := c.everything[key]; known && id != r.id {
				c.breaks("epoch %d, offset %d is %d at node %d, and was %d", r.epoch, key[1], r.id, m.id, id)
			}
			c.everything[key] = r.id
		}
		if m.lost && m.up && !m.p.unclean && m.p.role != Idle {
			m.lost = false
		}
	}
	for _, m := range c.nodes {
		if !m.up || m.p.role != Leader || !m.p.lead.active {
			continue
		}
		hw, key := m.p.hw, [2]int64{int64(m.id), int64(m.p.leaderEpoch)}
		if hw < c.marks[key] {
			c.breaks("the high watermark of %d fell from %d to %d in epoch %d", m.id, c.marks[key], hw, m.p.leaderEpoch)
		}
		c.marks[key] = hw
		if !c.lossy {
			c.checkCommitted(m, hw)
		}
	}
	return c.broken
}

func (c *cluster) checkCommitted(m *machine, hw int64) {
	for o := int64(0); o < hw; o++ {
		r, ok := m.log.at(o)
		if !ok {
			c.breaks("%d has a high watermark of %d and no offset %d", m.id, hw, o)
			return
		}
		if o < int64(len(c.committed)) {
			if r != c.committed[o] {
				c.breaks("offset %d was committed as %v, and is %v at leader %d", o, c.committed[o], r, m.id)
			}
		} else {
			c.committed = append(c.committed, r)
		}
	}
	if m.p.leaderEpoch != c.leaderEpoch {
		return
	}
	for o, r := range c.committed {
		if got, ok := m.log.at(int64(o)); !ok || got != r {
			c.breaks("offset %d was committed as %v, and leader %d of epoch %d has %v", o, r, m.id, m.p.leaderEpoch, got)
		}
	}
	for _, id := range m.p.lead.isr {
		if o := c.node(id); !o.lost && o.log.end() < hw && !c.patient {
			c.breaks("%d is in sync with %d and ends at %d, below %d", id, m.id, o.log.end(), hw)
		}
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

// heal lets everything work for a while: then all replicas are equal, in sync, and everything is committed.
func (c *cluster) heal() string {
	for _, m := range c.nodes {
		c.restart(m)
		c.unfence(m)
	}
	for range 60 {
		c.announce()
		for _, m := range c.nodes {
			c.tell(Peer{Node: m.id, BrokerEpoch: m.broker, Alive: true})
		}
		for len(c.net) > 0 || slices.ContainsFunc(c.nodes, func(m *machine) bool { return len(m.disk) > 0 }) {
			if len(c.net) > 0 {
				c.deliver(0)
			}
			for _, m := range c.nodes {
				c.work(m)
			}
			if broken := c.check(); broken != "" {
				return broken
			}
		}
		c.pass(time.Second)
	}
	if c.leader == NoNode {
		return "nobody leads"
	}
	lead := c.node(c.leader)
	for _, m := range c.nodes {
		if !slices.Equal(m.log.records, lead.log.records) || !slices.Equal(m.log.written(), lead.log.written()) {
			c.breaks("%d has %v, the leader %v", m.id, m.log, lead.log)
		}
		if m.p.unclean {
			c.breaks("%d has not caught up", m.id)
		}
	}
	if len(c.isr) != len(c.nodes) || lead.p.hw != lead.log.end() {
		c.breaks("in sync are %v, the high watermark is %d of %d: %s", c.isr, lead.p.hw, lead.log.end(), c)
	}
	return c.broken
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
