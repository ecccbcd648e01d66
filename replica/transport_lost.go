package replica

import (
	"net"
	"time"
)

// lose has the node told that messages to or from another may be lost, and why, if that is known. It never blocks.
func (t *TCP) lose(node NodeID, why error) {
	t.mu.Lock()
	if t.lost[node] == nil {
		t.lost[node] = why
	}
	t.mu.Unlock()
	select {
	case t.losses <- struct{}{}:
	default:
	}
}

// tellLosses is a goroutine of its own: who loses a message may be one to whom messages are handed.
func (t *TCP) tellLosses() {
	for {
		select {
		case <-t.losses:
		case <-t.ctx.Done():
			return
		}
		if !t.await() {
			return
		}
		t.mu.Lock()
		lost := t.lost
		t.lost = make(map[NodeID]error)
		t.mu.Unlock()
		for node, why := range lost {
			t.hand(Envelope{From: node, Message: Lost{why}})
		}
	}
}

// redials is how often a peer is called that is to learn of a loss; one that is away for longer is not the one that waits.
const redials = 100

// owe notes that messages to a peer were lost, answers it waits for among them, and says when to call it for that alone.
func (t *TCP) owe(p *tcpPeer, tries *int, why error) <-chan time.Time {
	p.owes.Store(true)
	t.lose(p.to, why)
	if *tries++; *tries > redials {
		return nil
	}
	return time.After(t.conf.Backoff)
}

// confess tells a peer that it may wait in vain, if so.
func (t *TCP) confess(c net.Conn, p *tcpPeer) error {
	if !p.owes.Swap(false) {
		return nil
	}
	err := t.write(c, outgoing{m: ping{lost: true}})
	if err != nil {
		p.owes.Store(true)
	}
	return err
}
