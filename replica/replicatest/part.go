package replicatest

import (
	"slices"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// part is a partition: what the controller decided about it, and what must be so.
// A topic that is made anew has other ones, in the same slots.
type part struct {
	s         *sim
	topic     *topic
	id        [16]byte // of the topic
	index     int      // its slot
	tp        log.TopicPartition
	compacted bool
	known     bool // there is a decision
	gone      bool // it was deleted
	forgotten bool // nobody leads, nor is known who may: another min.insync.replicas has made the controller forget
	state     controller.Partition
	assign    replica.Assign
	model     model
}

func newPart(t *topic, id [16]byte, index int, tp log.TopicPartition) *part {
	p := &part{s: t.s, topic: t, id: id, index: index, tp: tp, compacted: t.compacted}
	p.model = newModel(p)
	return p
}

// seat is a node's place for the partition.
func (p *part) seat(id replica.NodeID) *seat { return p.s.node(id).seats[p.index] }

// rep is a node's replica of it; nil if there is none, or one of another life of the topic.
func (p *part) rep(id replica.NodeID) *rep {
	if r := p.seat(id).rep; r != nil && r.part == p {
		return r
	}
	return nil
}

// leading is the replica that leads by the controller's word and knows it.
func (p *part) leading() *rep {
	if p.s.node(p.state.Leader) == nil {
		return nil
	}
	if r := p.rep(p.state.Leader); r != nil && r.leads == p.state.LeaderEpoch {
		return r
	}
	return nil
}

// fail and note are the run's, and say of which partition they speak if there are several.
func (p *part) fail(format string, args ...any) { p.s.fail(p.prefix()+format, args...) }

func (p *part) note(format string, args ...any) {
	if p.s.Options.History {
		p.s.note(p.prefix()+format, args...)
	}
}

func (p *part) prefix() string {
	if len(p.s.parts) == 1 {
		return ""
	}
	return p.tp.String() + ": "
}

// decided is a change of the partition.
func (p *part) decided(news controller.News) {
	s := p.s
	before, now := p.state, news.State
	if p.known {
		switch {
		case now.PartitionEpoch <= before.PartitionEpoch:
			p.fail("partition epoch %d follows %d", now.PartitionEpoch, before.PartitionEpoch)
		case now.LeaderEpoch < before.LeaderEpoch, now.LeaderEpoch == before.LeaderEpoch && now.Leader != before.Leader:
			p.fail("leader %d of epoch %d follows %d of %d", now.Leader, now.LeaderEpoch, before.Leader, before.LeaderEpoch)
		}
		switch {
		case now.Leader != before.Leader:
			s.counts.add("elections", 1)
			if now.Leader == now.Replicas[0] && before.Leader != replica.NoNode && slices.Contains(before.ISR, before.Leader) {
				s.counts.add("leaders that went home", 1)
			}
		case len(now.ISR) < len(before.ISR):
			s.counts.add("isr shrinks", 1)
		case len(now.ISR) > len(before.ISR):
			s.counts.add("isr expands", 1)
		}
		if before.Reassigning() && !now.Reassigning() {
			s.counts.add("moves that ended", 1)
		}
		if now.Recovering && now.LeaderEpoch > before.LeaderEpoch {
			s.counts.add("unclean elections", 1)
			p.model.excuse("an unclean election")
		}
		if s.NoELR && now.Leader != replica.NoNode && now.LeaderEpoch > before.LeaderEpoch && p.model.lost[now.Leader] {
			s.counts.add("leaders that were in sync last and lost their tail", 1)
			p.model.excuse("without eligible leader replicas the last in sync leads, whatever it has lost (KIP-966)")
		}
	}
	p.note("decided: leader %d, epoch %d, version %d, in sync %v, eligible %v, replicas %v", now.Leader, now.LeaderEpoch, now.PartitionEpoch, now.ISR, now.ELR, now.Replicas)
	p.forgotten = now.Leader == replica.NoNode && len(now.ISR)+len(now.ELR)+len(now.LastKnownELR) == 0
	p.known, p.state = true, now
	p.assign = now.Assign(news.TopicID)
	for _, id := range now.ISR {
		if !slices.Contains(before.ISR, id) {
			p.model.member(id, 0)
		}
	}
}

// electByHand does what an operator must where no leader is to be had without: with Kafka, too, such a partition stays without one.
func (p *part) electByHand() {
	if p.forgotten && !p.gone {
		p.s.counts.add("elections by hand", 1)
		p.s.ruling().ask(controller.Elect{Election: controller.Uncleanly, Partitions: []log.TopicPartition{p.tp}}, func(controller.Reply) {})
	}
}
