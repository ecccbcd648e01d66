package replica

import "slices"

// What the controller of a cluster does: it notices who comes and goes, elects, judges proposals, and tells everybody.

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

func without(list []NodeID, node NodeID) []NodeID {
	return slices.DeleteFunc(slices.Clone(list), func(n NodeID) bool { return n == node })
}
