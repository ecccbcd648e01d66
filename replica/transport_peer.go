package replica

import (
	"bufio"
	"fmt"
	"net"
	"time"
)

// send is the goroutine of one peer: it connects when there is something to say, and says it.
func (t *TCP) send(p *tcpPeer) {
	var c net.Conn
	var gone chan struct{} // closed when the peer has ended c
	failures, told := 0, ""
	failed := func(err error) {
		if s := err.Error(); s != told {
			told = s
			_ = t.trouble(p.to, fmt.Errorf("replica: node %d cannot be reached: %w", p.to, err))
		}
	}
	defer func() {
		if c != nil {
			t.drop(c)
		}
	}()
	var again <-chan time.Time // to connect, so that the peer learns that it may wait in vain
	tries := 0
	every := max(t.conf.Idle/3, time.Millisecond)
	quiet := time.NewTimer(every)
	defer quiet.Stop()
	for {
		o := outgoing{m: ping{}}
		select {
		case o = <-p.queue:
			p.bytes.Add(-recordsOf(o.m))
		case <-quiet.C:
			quiet.Reset(every)
			if c == nil {
				continue
			}
		case <-again:
		case <-gone:
			t.drop(c)
			c, gone = nil, nil
			again = t.owe(p, &tries)
			continue
		case <-t.ctx.Done():
			return
		}
		if c == nil {
			var err error
			if c, err = t.dial(p); err != nil {
				failed(err)
				if !t.pause(t.conf.Backoff << min(failures, 5)) {
					return
				}
				failures++
				again = t.owe(p, &tries)
				continue // o is lost
			}
			gone = t.watch(c, p.to)
		}
		err := t.confess(c, p)
		if err == nil {
			err = t.write(c, o)
		}
		if err != nil {
			failed(err)
			t.drop(c)
			c, gone = nil, nil
			again = t.owe(p, &tries)
			continue
		}
		again, tries = nil, 0
		failures, told = 0, ""
	}
}

// dial connects and introduces itself.
func (t *TCP) dial(p *tcpPeer) (net.Conn, error) {
	p.mu.Lock()
	addr := p.addr
	p.mu.Unlock()
	d := net.Dialer{Timeout: t.conf.Dial}
	c, err := d.DialContext(t.ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if !t.track(c, true) {
		_ = c.Close()
		return nil, ErrTransportClosed
	}
	if err = c.SetWriteDeadline(time.Now().Add(t.conf.Write)); err == nil {
		_, err = c.Write(appendHello(nil, t.conf.Self, p.to))
	}
	if err != nil {
		t.drop(c)
		return nil, err
	}
	return c, nil
}

// watch sees to it that the end of a connection is noticed before something is written into the void: nothing ever comes on
// one that this side made, unless it is a client's.
func (t *TCP) watch(c net.Conn, to NodeID) chan struct{} {
	gone := make(chan struct{})
	t.all.Go(func() {
		defer close(gone)
		if t.conf.Self == NoNode {
			_ = t.listen(c, bufio.NewReader(c), to, true)
			return
		}
		var b [1]byte
		_, _ = c.Read(b[:])
	})
	return gone
}

// write sends one message; its records go out without a copy.
func (t *TCP) write(c net.Conn, o outgoing) error {
	if kindOf(o.m) == 0 {
		return nil // Lost, say, which is never sent: the other side would cut the connection
	}
	head, raw := appendFrame(make([]byte, 0, 512), o.tp, t.conf.fit(o.m))
	if len(head)+len(raw) > t.conf.MaxFrame { // the other side would cut the connection, and ask the same again
		small := tooLarge(o.m)
		if small == nil {
			return nil
		}
		head, raw = appendFrame(head[:0], o.tp, small)
	}
	if err := c.SetWriteDeadline(time.Now().Add(t.conf.Write)); err != nil {
		return err
	}
	if len(raw) == 0 {
		_, err := c.Write(head)
		return err
	}
	buffers := net.Buffers{head, raw}
	_, err := buffers.WriteTo(c)
	return err
}

// tooLarge says that an answer is; nil for what is none.
func tooLarge(m Message) Message {
	switch m := m.(type) {
	case FetchResponse:
		return FetchResponse{From: m.From, Tag: m.Tag, Result: refusal(MessageTooLarge)}
	case Answer:
		return Answer{From: m.From, Tag: m.Tag, Result: refusal(MessageTooLarge)}
	}
	return nil
}
