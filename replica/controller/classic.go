package controller

import (
	"slices"

	"github.com/partlog/partlog/replica"
)

// Classic are the elections of Kafka's ZooKeeper time (3.9): one list of replicas, one set in sync, one set alive, and no
// memory beyond them. They are here to compare with and to explain; this package's controller elects by Partition.Change.
// Each answers replica.NoNode if nobody can lead.
type Classic struct {
	Assignment []replica.NodeID // in the order of preference
	ISR        []replica.NodeID
	Live       []replica.NodeID // whoever is shutting down is still alive
}

func (c Classic) live(id replica.NodeID) bool   { return slices.Contains(c.Live, id) }
func (c Classic) inSync(id replica.NodeID) bool { return c.live(id) && slices.Contains(c.ISR, id) }

func first(list []replica.NodeID, ok func(replica.NodeID) bool) replica.NodeID {
	if i := slices.IndexFunc(list, ok); i >= 0 {
		return list[i]
	}
	return replica.NoNode
}

// Offline elects for a partition whose leader is gone: the first that is alive and in sync, else, if unclean, the first
// that is alive.
func (c Classic) Offline(unclean bool) replica.NodeID {
	leader := first(c.Assignment, c.inSync)
	if leader == replica.NoNode && unclean {
		leader = first(c.Assignment, c.live)
	}
	return leader
}

// Preferred elects the first of the assignment or nobody.
func (c Classic) Preferred() replica.NodeID {
	if len(c.Assignment) > 0 && c.inSync(c.Assignment[0]) {
		return c.Assignment[0]
	}
	return replica.NoNode
}

// Reassigned elects the first of the new assignment that is alive and in sync.
func (c Classic) Reassigned(to []replica.NodeID) replica.NodeID { return first(to, c.inSync) }

// ControlledShutdown elects the first that is alive, in sync and not stopping.
func (c Classic) ControlledShutdown(stopping []replica.NodeID) replica.NodeID {
	return first(c.Assignment, func(id replica.NodeID) bool { return c.inSync(id) && !slices.Contains(stopping, id) })
}
