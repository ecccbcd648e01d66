package member

import (
	"context"
	"net"
	"strconv"
	"sync"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// again runs a watch until the member ends; one that ended by itself is begun anew after a pause.
func (m *Member) again(watch func()) {
	for m.ctx.Err() == nil {
		watch()
		if !m.pause(m.conf.Retry) {
			return
		}
	}
}

// followPartitions keeps the board.
func (m *Member) followPartitions() {
	m.again(func() {
		m.board.begin()
		for n, err := range controller.Follow(m.ctx, m.store) {
			if err != nil {
				m.trouble(err) // the store's ends the loop, what cannot be read does not
				continue
			}
			m.board.tell(n)
			if n.Current && !m.lookForMissing() {
				return
			}
		}
	})
}

// lookForMissing reads what a watch begun anew did not show any more: it was deleted, if it really is not there.
func (m *Member) lookForMissing() bool {
	for _, tp := range m.board.missing() {
		if _, err := m.lookUp(m.ctx, tp); err != nil {
			m.trouble(err)
			return false
		}
	}
	m.board.settle()
	return true
}

// places are where the other nodes are, as the transport has been told.
type places struct {
	wire interface {
		SetPeer(node replica.NodeID, addr string)
	} // nil: the transport knows by itself

	mu    sync.Mutex               // guards the rest; not held while the transport is told
	known map[replica.NodeID]int64 // broker epochs
}

// note tells the transport where a node is.
func (p *places) note(n controller.Present, self replica.NodeID) {
	if n.BrokerEpoch == 0 || n.Node == self || n.Host == "" {
		return
	}
	p.mu.Lock()
	older := n.BrokerEpoch < p.known[n.Node]
	if !older {
		p.known[n.Node] = n.BrokerEpoch
	}
	p.mu.Unlock()
	if !older {
		p.wire.SetPeer(n.Node, net.JoinHostPort(n.Host, strconv.Itoa(n.Port)))
	}
}

// followNodes tells the transport where the others are.
func (m *Member) followNodes() {
	if m.places.wire == nil {
		return
	}
	m.again(func() {
		for p, err := range controller.FollowNodes(m.ctx, m.store) {
			if err != nil {
				m.trouble(err)
				continue
			}
			m.places.note(p, m.conf.Self)
		}
	})
}

// find makes sure that the transport knows where a leader is before it is asked: a fetch that goes nowhere is not repeated soon.
func (m *Member) find(leader replica.NodeID) error {
	p := &m.places
	if p.wire == nil || leader == m.conf.Self || leader == replica.NoNode {
		return nil
	}
	life := m.board.life(leader)
	p.mu.Lock()
	known, ok := p.known[leader]
	p.mu.Unlock()
	if ok && known >= life {
		return nil
	}
	ctx, cancel := context.WithTimeout(m.ctx, m.conf.ask())
	defer cancel()
	at, err := controller.LookupNode(ctx, m.store, leader)
	if err != nil {
		return err
	}
	p.note(at, m.conf.Self)
	return nil
}
