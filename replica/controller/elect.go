package controller

import (
	"slices"

	"github.com/partlog/partlog/replica"
)

// choice is who is to lead, and why it may.
type choice struct {
	leader  replica.NodeID
	unclean bool // it need not have all committed records
}

// elect finds the leader of a partition that was before, and what follows from its election.
func (p Partition) elect(before Partition, r Rules) Partition {
	c := p.choose(r)
	switch {
	case c.leader == before.Leader:
		return p
	case c.leader == replica.NoNode:
	case c.unclean:
		p.ISR, p.ELR = []replica.NodeID{c.leader}, nil
		p.Recovering = true
	case len(p.ISR) == 0:
		p.ISR = []replica.NodeID{c.leader}
		p.ELR = without(p.ELR, p.ISR)
	}
	p.Leader = c.leader
	p.LeaderEpoch++
	return p
}

func (p Partition) choose(r Rules) choice {
	if r.Election == ToLeader && p.mayLead(p.Preferred(), r) {
		return choice{leader: p.Preferred()}
	}
	if p.mayLead(p.Leader, r) {
		return choice{leader: p.Leader}
	}
	for _, id := range p.Replicas {
		if p.mayLead(id, r) {
			return choice{leader: id}
		}
	}
	if r.ELR && len(p.ISR)+len(p.ELR) == 0 && len(p.LastKnownELR) == 1 {
		if last := p.LastKnownELR[0]; slices.Contains(p.Replicas, last) && r.acceptable(last) {
			return choice{leader: last, unclean: true}
		}
	}
	if r.Election == Uncleanly {
		if i := slices.IndexFunc(p.Replicas, r.acceptable); i >= 0 {
			return choice{leader: p.Replicas[i], unclean: true}
		}
	}
	return choice{leader: replica.NoNode}
}

// mayLead says whether a node has all committed records and is there.
func (p Partition) mayLead(id replica.NodeID, r Rules) bool {
	if id == replica.NoNode || !r.acceptable(id) {
		return false
	}
	return slices.Contains(p.ISR, id) || r.ELR && len(p.ISR) == 0 && slices.Contains(p.ELR, id)
}
