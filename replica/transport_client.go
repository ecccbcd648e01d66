package replica

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"time"
)

// A client is no node, and nobody connects to it: its hello is from NoNode, and what it asks for is answered on the connection it
// made. Here each of its connections has a number as a node has, from firstClient down.
const firstClient NodeID = -1 << 30

// client gives a connection of a client a number, and answers on it until end is called.
func (t *TCP) client(c net.Conn) (number NodeID, end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for next := true; next; next = t.peers[t.lastClient] != nil {
		if t.lastClient--; t.lastClient > firstClient { // the first one, or all numbers have been given
			t.lastClient = firstClient
		}
	}
	p := &tcpPeer{to: t.lastClient, queue: make(chan outgoing, t.conf.MaxQueue)}
	t.peers[p.to] = p
	done := make(chan struct{})
	t.all.Go(func() { t.answerOn(c, p, done) })
	return p.to, func() {
		close(done)
		t.mu.Lock()
		delete(t.peers, p.to)
		t.mu.Unlock()
	}
}

// answerOn is the goroutine that writes to a client.
func (t *TCP) answerOn(c net.Conn, p *tcpPeer, done <-chan struct{}) {
	quiet := time.NewTicker(max(t.conf.Idle/3, time.Millisecond))
	defer quiet.Stop()
	for {
		o := outgoing{m: ping{}}
		select {
		case o = <-p.queue:
			p.bytes.Add(-recordsOf(o.m))
		case <-quiet.C:
		case <-done:
			return
		case <-t.ctx.Done():
			return
		}
		err := t.confess(c, p)
		if err == nil {
			err = t.write(c, o)
		}
		if err != nil {
			_ = sever(c) // the client asks again, on another one
			return
		}
	}
}

// ofClient says what a client may ask for, and what it may be told.
func ofClient(m Message) bool {
	switch m := m.(type) {
	case FetchRequest:
		return m.From == NoNode
	case EpochRequest, OffsetRequest, StatusRequest, AppendRequest, EndTxn, Answer, ping:
		return true
	}
	return false
}

// dialTCP is the end of a client.
func dialTCP(c TCPConfig) *TCP {
	c.Self = NoNode
	return newTCP(nil, c)
}

func newTCP(l net.Listener, c TCPConfig) *TCP {
	t := &TCP{conf: c.withDefaults(), listener: l, peers: make(map[NodeID]*tcpPeer), conns: make(map[net.Conn]*caller),
		losses: make(chan struct{}, 1), lost: make(map[NodeID]error), served: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	for node, addr := range c.Peers {
		t.SetPeer(node, addr)
	}
	t.all.Go(t.tellLosses)
	return t
}

// listen delivers what comes on a connection until it ends or what comes is no message. client: one end of it is a client.
func (t *TCP) listen(c net.Conn, r *bufio.Reader, from NodeID, client bool) error {
	limit := c.SetReadDeadline
	if !client { // nothing is sent on it, but for what TLS may have to say to what comes
		limit = c.SetDeadline
	}
	for t.await() {
		if err := limit(time.Now().Add(t.conf.Idle)); err != nil {
			return err
		}
		body, err := readFrame(r, t.conf.MaxFrame, &t.coming, func() error { return limit(time.Now().Add(t.conf.Write)) })
		if err != nil {
			return err
		}
		tp, m, err := decodeFrame(body)
		if err != nil {
			return err
		}
		if client && !ofClient(m) {
			return fmt.Errorf("%w: a %T of or for a client", ErrFrame, m)
		}
		if p, is := m.(ping); !is {
			t.hand(Envelope{From: from, Partition: tp, Message: t.conf.fit(m)})
		} else if p.lost && from >= 0 {
			t.lose(from, nil)
		}
	}
	return ErrTransportClosed
}
