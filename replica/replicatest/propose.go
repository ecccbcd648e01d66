package replicatest

import (
	"errors"
	"slices"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// propose brings a leader's proposal to a controller. Exactly one answer comes back, if only from impatience.
func (r *rep) propose(a replica.Action) {
	n, p, s, tag := r.n, r.part, r.n.s, a.Tag
	at := p.seat(n.id)
	prop := a.Proposal
	s.counts.add("proposals", 1)
	switch m := s.mutant; {
	case m.anyLife:
		prop.BrokerEpochs = nil
	case m.expandEarly:
		prop.ISR, prop.BrokerEpochs = slices.Clone(p.state.Replicas), nil
	case m.ownShrink && len(prop.ISR) < len(p.state.ISR):
		n.later(0, func() {
			r.step(replica.ISRAnswer{Tag: tag, ISR: prop.ISR, LeaderEpoch: prop.LeaderEpoch, PartitionEpoch: prop.PartitionEpoch})
		})
		return
	}
	at.asks[tag] = true
	life, broker := n.life, n.broker
	answer := func(e replica.ISRAnswer) {
		if n.life == life && at.asks[tag] {
			delete(at.asks, tag)
			if e.Err != replica.None {
				p.note("node %d proposed %v as in sync: %v", n.id, prop.ISR, e.Err)
			}
			r.step(e)
		}
	}
	n.later(askLimit, func() { answer(replica.ISRAnswer{Tag: tag, Err: replica.RequestTimedOut}) })
	to := s.ruling()
	s.send(n.place(), to.at, func() {
		q := controller.AlterPartition{Node: n.id, BrokerEpoch: broker, TopicID: p.id, Partition: p.tp, Proposal: prop}
		to.ask(q, func(reply controller.Reply) {
			e := replica.ISRAnswer{Tag: tag, ISR: reply.Partition.ISR, LeaderEpoch: reply.Partition.LeaderEpoch, PartitionEpoch: reply.Partition.PartitionEpoch}
			if reply.Err != nil && !errors.As(reply.Err, &e.Err) {
				e.Err = replica.Unknown
			}
			s.send(to.at, n.place(), func() { answer(e) })
		})
	})
}
