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
	var made time.Time
	var gone chan error // the peer has ended c
	failures, told := 0, ""
	failed := func(err error) {
		if s := err.Error(); s != told {
			told = s
			_ = t.trouble(p.to, fmt.Errorf("replica: node %d cannot be reached: %w", p.to, err))
		}
	}
	brief, alerted := 0, "" // connections in a row that the peer ended soon, and what it said
	ended := func(err error) (on bool) {
		if time.Since(made) >= t.conf.Dial {
			brief, alerted = 0, ""
		} else if brief++; brief > 1 && !t.pause(t.conf.Backoff<<min(brief-2, 5)) { // it may not want to have this one
			return false
		}
		if s := err.Error(); alert(err) && s != alerted {
			alerted = s
			failed(err)
		}
		return true
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
		case err := <-gone:
			t.drop(c)
			c, gone = nil, nil
			again = t.owe(p, &tries, err)
			if !ended(err) {
				return
			}
			continue
		case <-t.ctx.Done():
			return
		}
		if c == nil {
			var err error
			if c, err = t.dial(p); err != nil {
				failed(err)
				t.giveUp(p, o, err)
				again = t.owe(p, &tries, err)
				if !t.pause(t.conf.Backoff << min(failures, 5)) {
					return
				}
				failures++
				continue
			}
			made, gone = time.Now(), t.watch(c, p.to)
		}
		err := t.confess(c, p)
		if err == nil {
			err = t.write(c, o)
		}
		if err != nil {
			t.drop(c)
			if why := <-gone; alert(why) { // it came before this end noticed
				err = why
			} else {
				failed(err)
			}
			c, gone = nil, nil
			again = t.owe(p, &tries, err)
			if !ended(err) {
				return
			}
			continue
		}
		again, tries = nil, 0
		failures, told = 0, ""
	}
}

// dial connects and introduces itself.
func (t *TCP) dial(p *tcpPeer) (net.Conn, error) {
	c, err := t.connect(p)
	if err != nil {
		return nil, err
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
func (t *TCP) watch(c net.Conn, to NodeID) chan error {
	gone := make(chan error, 1)
	t.all.Go(func() {
		if t.conf.Self == NoNode {
			gone <- t.listen(c, bufio.NewReader(c), to, true)
			return
		}
		var b [1]byte
		_, err := c.Read(b[:])
		if err == nil {
			err = fmt.Errorf("%w: node %d answers where nothing is asked", ErrFrame, to)
		}
		gone <- err
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
