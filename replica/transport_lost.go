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

// unsent is what a TCP says of a request that has certainly not gone out, because nobody could be reached.
type unsent struct {
	tag uint64
	why error
}

func (unsent) event()   {}
func (unsent) message() {}

// giveUp drops a message, and all that wait behind it, when a peer cannot be reached: who asks is told, and asks again, or elsewhere.
func (t *TCP) giveUp(p *tcpPeer, o outgoing, why error) {
	for more := true; more; {
		if tag, is := tagOfClients(o.m); is {
			t.hand(Envelope{From: p.to, Partition: o.tp, Message: unsent{tag, why}})
		}
		select {
		case o = <-p.queue:
			p.bytes.Add(-recordsOf(o.m))
		default:
			more = false
		}
	}
}

// tagOfClients is the tag of what Remotes and clients ask.
func tagOfClients(m Message) (tag uint64, is bool) {
	switch m := m.(type) {
	case FetchRequest:
		return m.Tag, m.From == NoNode
	case EpochRequest:
		return m.Tag, true
	case OffsetRequest:
		return m.Tag, true
	case StatusRequest:
		return m.Tag, true
	case AppendRequest:
		return m.Tag, true
	case EndTxn:
		return m.Tag, true
	}
	return 0, false
}
