package replicatest

import (
	"slices"
	"time"

	"github.com/partlog/partlog/replica"
)

// neighbour is what a node has heard of another one last.
type neighbour struct {
	replica.Peer
	revision int64
}

// readStore takes in all there is, once the controller knows of this registration: what it decided before may be about
// an earlier life of the node.
func (n *node) readStore() {
	s := n.s
	if s.truth.registered[n.id] != n.broker && !s.mutant.anyLife {
		return
	}
	first := n.since == 0
	n.ready, n.since = true, s.truth.revision
	for _, at := range n.seats {
		at.newest = s.truth.revision
	}
	for _, t := range s.topics {
		n.learn(t, t.inForce, s.truth.revision)
	}
	for id, p := range s.truth.peers {
		if p.Node > 0 {
			n.peers[id] = neighbour{p, s.truth.revision}
			n.tellAll(p)
		}
	}
	for _, at := range n.seats {
		if first && !s.mutant.keepOld && at.stray() {
			at.setStray()
		}
		if p := at.part(); p.known && !p.gone {
			at.assign(p, p.assign)
		} else {
			at.dismiss()
		}
	}
}

// tellAll gives all replicas an event.
func (n *node) tellAll(e replica.Event) {
	for _, at := range n.seats {
		if at.rep != nil {
			at.rep.step(e)
		}
	}
}

// hear takes news of the store, of a revision: of a partition, or if p is nil of a node or a topic's settings.
func (n *node) hear(revision int64, p *part, e any) {
	if !n.up {
		return
	}
	if n.cutOff() {
		n.later(10*time.Millisecond, func() { n.hear(revision, p, e) })
		return
	}
	if !n.ready || revision <= n.since {
		return
	}
	switch e := e.(type) {
	case replica.Peer:
		if p := &n.peers[e.Node]; revision > p.revision {
			*p = neighbour{e, revision}
			n.tellAll(e)
		}
	case minNews:
		n.learn(e.topic, e.min, revision)
	case goneNews:
		if at := p.seat(n.id); revision > at.newest && !n.s.mutant.keepOld {
			at.newest = revision
			at.dismiss()
		}
	case replica.Assign:
		switch at := p.seat(n.id); {
		case revision > at.newest:
			at.newest = revision
			at.assign(p, e)
		case p.rep(n.id) != nil && slices.Contains(e.Replicas, n.id):
			at.rep.step(e) // old news; the core knows
		case p.rep(n.id) != nil && e.PartitionEpoch > 0: // the first version ends no replica, and a Stop of 0 would count whatever came since
			at.rep.step(goneIn(p, e))
		case at.rep == nil && n.s.mutant.revive:
			at.assign(p, e)
		}
	}
}
