package controller

import (
	"errors"
	"slices"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// electByHand holds the elections somebody asked for.
func (c *Core) electByHand(e Elect) Reply {
	if e.Election != ToLeader && e.Election != Uncleanly {
		return failed(refuse(replica.InvalidRequest, "an election by hand is preferred or unclean, not %v", e.Election))
	}
	var r Reply
	if len(e.Partitions) == 0 {
		c.each(func(t *topic, n int, _ Partition) {
			if err := c.electOne(t, n, e.Election); !errors.Is(err, replica.ElectionNotNeeded) {
				r.Elections = append(r.Elections, ElectionResult{t.at(n), err})
			}
		})
		return r
	}
	for _, tp := range e.Partitions {
		result := ElectionResult{Partition: tp}
		if t, err := c.find(tp); err != nil {
			result.Err = err
		} else {
			result.Err = c.electOne(t, int(tp.Partition), e.Election)
		}
		r.Elections = append(r.Elections, result)
	}
	return r
}

func (c *Core) electOne(t *topic, n int, e Election) error {
	p := t.partitions[n]
	if e == ToLeader && p.Leader == p.Preferred() || e == Uncleanly && p.Leader != replica.NoNode {
		return refuse(replica.ElectionNotNeeded, "%v needs no %v election", t.at(n), e)
	}
	if c.change(t, n, c.rules(t, e), Target{}) {
		return nil
	}
	if e == ToLeader {
		return refuse(replica.PreferredLeaderNotAvailable, "the preferred leader of %v is not available", t.at(n))
	}
	return refuse(replica.EligibleLeadersNotAvailable, "no replica of %v is available", t.at(n))
}

// balance gives leaderships back to the nodes that ought to have them, for each node from which too many are away: the
// classic rule. (KRaft's controller gives back each one and does not look at the percentage.)
func (c *Core) balance() {
	away, all := make(map[replica.NodeID]int), make(map[replica.NodeID]int)
	c.each(func(_ *topic, _ int, p Partition) {
		all[p.Preferred()]++
		if p.Leader != p.Preferred() {
			away[p.Preferred()]++
		}
	})
	c.each(func(t *topic, n int, p Partition) {
		id := p.Preferred()
		if p.Leader != id && !p.Reassigning() && away[id]*100 > c.config.ImbalancePercent*all[id] && p.mayLead(id, c.rules(t, ToLeader)) {
			c.change(t, n, c.rules(t, ToLeader), Target{})
		}
	})
}

// reassign begins a move, or cancels the one under way.
func (c *Core) reassign(e Reassign) Reply {
	t, err := c.find(e.Partition)
	if err != nil {
		return failed(err)
	}
	n := int(e.Partition.Partition)
	p := t.partitions[n].Partition
	if len(e.To) == 0 {
		return c.cancel(t, n)
	}
	if err := c.checkReplicas(e.To, 0); err != nil {
		return failed(err)
	}
	removing := without(p.Replicas, e.To)
	slices.Sort(removing)
	r := c.rules(t, Online)
	r.Election = Online // a move by itself is no reason to lose records, also where that is allowed
	c.change(t, n, r, Target{
		Replicas: union(e.To, removing),
		Adding:   without(e.To, p.Replicas),
		Removing: removing,
	})
	return Reply{}
}

// cancel takes back who was being added. The order of the others stays the one the move had given them.
func (c *Core) cancel(t *topic, n int) Reply {
	p := t.partitions[n].Partition
	if !p.Reassigning() {
		return failed(refuse(replica.NoReassignmentInProgress, "%v is not being reassigned", t.at(n)))
	}
	replicas, isr := without(p.Replicas, p.Adding), without(p.ISR, p.Adding)
	r := c.rules(t, Online)
	if len(isr) == 0 {
		if r.Election != Uncleanly {
			return failed(refuse(replica.InvalidReplicaAssignment, "no replica of %v but added ones is in sync: cancelling might take an unclean election", t.at(n)))
		}
		isr = slices.Clone(replicas[:min(1, len(replicas))]) // an added one must not stay recorded
	}
	c.change(t, n, r, Target{ISR: isr, Replicas: replicas})
	return Reply{}
}

// moves are all reassignments under way.
func (c *Core) moves() (out []Reassignment) {
	c.each(func(t *topic, n int, p Partition) {
		if p.Reassigning() {
			out = append(out, Reassignment{log.TopicPartition{Topic: t.name, Partition: int32(n)}, p.Replicas, p.Adding, p.Removing})
		}
	})
	return out
}
