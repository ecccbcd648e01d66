package controller

import (
	"slices"

	"github.com/partlog/partlog/replica"
)

// Partition is all the controller knows of one partition. It is a value that is replaced, never changed: its slices are
// shared between copies and belong to nobody.
type Partition struct {
	Leader         replica.NodeID // replica.NoNode: nobody may lead
	LeaderEpoch    int32          // grows with every change of leader, and when a reassignment takes a replica away
	PartitionEpoch int32          // grows with every change
	Recovering     bool           // the leader was elected uncleanly and its in-sync set has not changed since

	Replicas []replica.NodeID // the assignment, in the order of preference
	ISR      []replica.NodeID // in sync; a set
	// ELR are the eligible leader replicas (KIP-966): they left the in-sync set while it was smaller than min.insync.replicas,
	// so nothing was committed without them. Ascending, disjoint from ISR.
	ELR []replica.NodeID
	// LastKnownELR is the leader the partition had before it had none; at most one.
	LastKnownELR []replica.NodeID
	// MinISR is min.insync.replicas as it was changed last; 0: it never was, what the topic's settings say counts. Negative:
	// the topic does not say any more, and what counts is the controller's default, which this is but for the sign, or a
	// member's own if that is larger. It stands here so that it is of a version: a leader that does not know it yet cannot have
	// its in-sync set changed. With KRaft the order of the metadata log sees to that.
	MinISR int
	// Adding and Removing are the replicas that a reassignment under way brings and takes away; both are part of Replicas.
	Adding, Removing []replica.NodeID
}

// Reassigning says whether a reassignment is under way.
func (p Partition) Reassigning() bool { return len(p.Adding)+len(p.Removing) > 0 }

// Preferred is the replica that leads when all is well; replica.NoNode if there is none.
func (p Partition) Preferred() replica.NodeID {
	if len(p.Replicas) == 0 {
		return replica.NoNode
	}
	return p.Replicas[0]
}

// Assign is the partition as a replica of it is told.
func (p Partition) Assign(topicID [16]byte) replica.Assign {
	return replica.Assign{
		TopicID: topicID, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch,
		Replicas: p.Replicas, ISR: p.ISR, Adding: p.Adding, Removing: p.Removing, Recovering: p.Recovering,
		MinISR: p.MinISR,
	}
}

// equal compares what a change can change: sets as sets, but for the ELR, which Kafka writes anew when only its order was off.
func (p Partition) equal(q Partition) bool {
	return p.Leader == q.Leader && p.LeaderEpoch == q.LeaderEpoch && p.Recovering == q.Recovering && p.MinISR == q.MinISR &&
		slices.Equal(p.Replicas, q.Replicas) && sameSet(p.ISR, q.ISR) && slices.Equal(p.ELR, q.ELR) &&
		slices.Equal(p.LastKnownELR, q.LastKnownELR) && sameSet(p.Adding, q.Adding) && sameSet(p.Removing, q.Removing)
}

func sameSet(a, b []replica.NodeID) bool {
	return len(a) == len(b) && containsAll(a, b) && containsAll(b, a)
}

func containsAll(set, members []replica.NodeID) bool {
	return !slices.ContainsFunc(members, func(id replica.NodeID) bool { return !slices.Contains(set, id) })
}

// without is list less what is in out, in the order of list; a slice of its own.
func without(list, out []replica.NodeID) []replica.NodeID {
	kept := make([]replica.NodeID, 0, len(list))
	for _, id := range list {
		if !slices.Contains(out, id) {
			kept = append(kept, id)
		}
	}
	return kept
}

// union is a followed by what only b has.
func union(a, b []replica.NodeID) []replica.NodeID {
	return append(slices.Clone(a), without(b, a)...)
}

func distinct(list []replica.NodeID) bool {
	for i, id := range list {
		if slices.Contains(list[:i], id) {
			return false
		}
	}
	return true
}
