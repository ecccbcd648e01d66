package replicatest

import (
	"errors"
	"strconv"
	"time"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// beat is a node's word to the store: a session, a registration, and news.
func (n *node) beat() {
	s := n.s
	if !n.cutOff() {
		n.heard = s.now
		if n.session == nil {
			n.register()
		} else if over(n.session) {
			n.session = nil
			n.register()
		}
		if n.broker > 0 && !n.ready {
			n.readStore()
		}
	}
	if n.session == nil {
		n.later(s.between(time.Millisecond, 5*time.Millisecond), n.beat)
	} else {
		n.later(15*time.Millisecond, n.beat)
	}
}

func over(session replica.Session) bool {
	select {
	case <-session.Done():
		return true
	default:
		return false
	}
}

// cutOff says whether the store cannot be reached.
func (n *node) cutOff() bool {
	b := &n.s.net.blocked
	return b[n.place()][atStore] > 0 || b[atStore][n.place()] > 0
}

// register makes the node known to the controller, for the first time in this life or because its session was lost.
func (n *node) register() {
	s := n.s
	session, err := s.store.Session(s.ctx, sessionTime)
	if err != nil {
		return // beat tries again
	}
	previous := int64(-1)
	if n.broker > 0 {
		previous = n.broker // it lived on
	} else if n.clean {
		previous, _ = n.dir.CleanShutdown()
	} else if s.mutant.trustUnclean {
		previous = n.last
	}
	r, err := controller.Register(s.ctx, s.store, session, controller.Registration{Node: n.id, PreviousEpoch: previous})
	if err != nil {
		key := controller.IDsPrefix + strconv.Itoa(int(n.id))
		s.published(key) // it may have been written
		s.store.drop(session, func() { s.published(key) })
		if !errors.Is(err, controller.ErrNodeInUse) && !errors.Is(err, errNoAnswer) {
			s.fail("node %d: %v", n.id, err)
		}
		return
	}
	s.note("node %d registers as %d, before it was %d", n.id, r.Epoch(), previous)
	s.counts.add("registrations", 1)
	n.session, n.broker, n.last, n.ready = session, r.Epoch(), r.Epoch(), false
	n.dir.SetBrokerEpoch(n.broker)
	for _, at := range n.seats {
		switch r := at.rep; {
		case r == nil:
		case r.p == nil:
			r.begin(!n.clean && !s.mutant.trustUnclean)
		default:
			r.step(replica.Reconfigure{Config: r.config()})
		}
	}
	s.published(controller.IDsPrefix + strconv.Itoa(int(n.id)))
}

// expire ends a session whose holder was not heard of.
func (s *sim) expire(session replica.Session, id replica.NodeID) {
	if over(session) {
		return
	}
	s.store.Expire(session)
	s.note("the session of node %d is over", id)
	s.counts.add("sessions lost", 1)
	s.published(controller.IDsPrefix + strconv.Itoa(int(id)))
}

// watchOver ends the sessions of those who cannot reach the store for too long.
func (s *sim) watchOver() {
	for _, n := range s.nodes {
		if n.up && n.session != nil && s.now-n.heard > sessionTime {
			s.expire(n.session, n.id)
		}
	}
	s.after(20*time.Millisecond, s.watchOver)
}
