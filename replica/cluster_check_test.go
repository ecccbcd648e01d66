package replica

import (
	"fmt"
	"slices"
	"time"
)

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
