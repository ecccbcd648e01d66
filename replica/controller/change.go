package controller

import (
	"slices"

	"github.com/partlog/partlog/replica"
)

// Election is the rule by which a leader is looked for.
type Election uint8

const (
	Online    Election = iota // keep the leader if it may lead, else the first that may, in the order of the assignment
	ToLeader                  // the first of the assignment if it may lead, else as Online: a preferred election
	Uncleanly                 // as Online, and if nobody in sync may lead any live replica: records may be lost
)

// String is Kafka's word for the election.
func (e Election) String() string {
	switch e {
	case Online:
		return "online"
	case ToLeader:
		return "preferred"
	case Uncleanly:
		return "unclean"
	}
	return "unknown"
}

// Rules are the settings and the state of the cluster that a change depends on.
type Rules struct {
	Election   Election
	Acceptable func(replica.NodeID) bool // registered, not fenced, not shutting down: may lead if in sync. nil: nobody
	MinISR     int                       // min.insync.replicas of the topic; counts up to the number of replicas
	ELR        bool                      // eligible leader replicas are kept (eligible.leader.replicas.version 1)
	// Unclean are nodes that came back after an unclean stop: what they had is not what they have.
	Unclean []replica.NodeID
}

func (r Rules) acceptable(id replica.NodeID) bool { return r.Acceptable != nil && r.Acceptable(id) }

// Target is what a change is to bring about, besides the election that every change includes. The zero value changes nothing.
type Target struct {
	ISR              []replica.NodeID // nil: as it is; empty: nobody
	Replicas         []replica.NodeID // nil: as they are, and Adding and Removing too
	Adding, Removing []replica.NodeID
	Recovered        bool // the leader says that it has recovered
}

// Change is the one place where a partition changes: it completes a reassignment that can be completed, settles who is
// eligible, elects a leader where one is needed, and counts the epochs. It answers the partition after that and whether
// anything changed; if not, nothing is to be written (Kafka: KRaft's controller, 4.3.1).
func (p Partition) Change(r Rules, t Target) (Partition, bool) {
	q := p
	if t.Replicas != nil {
		q.Replicas, q.Adding, q.Removing = t.Replicas, t.Adding, t.Removing
	}
	if t.ISR != nil {
		q.ISR = t.ISR
	}
	if t.Recovered {
		q.Recovering = false
	}
	q = q.complete()
	q = q.eligible(p, r)
	q = q.elect(p, r)

	if len(q.ISR) == 0 && !r.ELR {
		q.ISR = p.ISR // the last member stays recorded
	}
	if removed(p, q) && q.LeaderEpoch == p.LeaderEpoch {
		q.LeaderEpoch++ // whoever was taken away must not be followed any more
	}
	q = q.remember(p, r)
	if p.equal(q) {
		return p, false
	}
	q.PartitionEpoch++
	return q, true
}

// complete ends a reassignment once all added replicas are in sync. Where it takes away more than it adds, all that stay must be,
// too: else few would be left that have everything.
func (p Partition) complete() Partition {
	if !p.Reassigning() {
		return p
	}
	target, isr := without(p.Replicas, p.Removing), without(p.ISR, p.Removing)
	if len(target) == 0 || len(isr) == 0 || !containsAll(isr, p.Adding) || len(p.Adding) < len(p.Removing) && !containsAll(isr, target) {
		return p
	}
	p.Replicas, p.ISR, p.Adding, p.Removing = target, isr, nil, nil
	return p
}

// removed says whether a replica is no longer part of the assignment.
func removed(before, after Partition) bool { return !containsAll(after.Replicas, before.Replicas) }

// eligible settles the ELR of a partition that was before.
func (p Partition) eligible(before Partition, r Rules) Partition {
	if !r.ELR || len(p.ISR) >= min(r.MinISR, len(p.Replicas)) {
		p.ELR = nil
		return p
	}
	p.ELR = without(without(union(before.ELR, before.ISR), p.ISR), r.Unclean)
	p.ELR = slices.DeleteFunc(p.ELR, func(id replica.NodeID) bool { return !slices.Contains(p.Replicas, id) })
	slices.Sort(p.ELR)
	return p
}

// remember keeps the last leader of a partition that has none, until it has one again.
func (p Partition) remember(before Partition, r Rules) Partition {
	switch elected := p.LeaderEpoch != before.LeaderEpoch; {
	case !r.ELR || !elected:
	case p.Leader != replica.NoNode:
		p.LastKnownELR = nil
	case before.Leader != replica.NoNode && len(p.LastKnownELR) == 0:
		p.LastKnownELR = []replica.NodeID{before.Leader}
	}
	return p
}
