package replica

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// connect makes a connection to a peer, through TLS if there is any, and makes sure of who is at the other end.
func (t *TCP) connect(p *tcpPeer) (net.Conn, error) {
	p.mu.Lock()
	addr := p.addr
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.ctx, t.conf.Dial)
	defer cancel()
	dial := t.conf.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	c, err := dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if !t.track(c, true) {
		_ = sever(c)
		return nil, ErrTransportClosed
	}
	if conf := t.conf.TLS; conf != nil {
		if conf.ServerName == "" {
			host, _, err := net.SplitHostPort(addr)
			if err != nil {
				t.drop(c)
				return nil, err
			}
			conf = conf.Clone()
			conf.ServerName = host
		}
		c = tls.Client(c, conf)
	}
	if err = shake(ctx, c); err == nil {
		err = t.admit(p.to, c)
	}
	if err != nil {
		t.drop(c)
		return nil, err
	}
	return c, nil
}

// accepted is the other end of it: who has connected must say who it is within Dial, after TLS if there is any.
func (t *TCP) accepted(c net.Conn) (net.Conn, error) {
	if err := c.SetDeadline(time.Now().Add(t.conf.Dial)); err != nil {
		return c, err
	}
	if t.conf.TLS != nil {
		c = tls.Server(c, t.conf.TLS)
	}
	if err := shake(t.ctx, c); err != nil {
		err = t.turnedAway(NoNode, c, err)
		farewell(base(c))
		return c, err
	}
	return c, nil
}

// farewell lets the other side read why it is not let in: where something is left unread, the end of a connection takes back what was
// sent. It takes no longer than the handshake might.
func farewell(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c, 64<<10)
	}
}

// shake is the handshake of TLS: it is over before anything else is said, so that Admit finds the certificates.
func shake(ctx context.Context, c net.Conn) error {
	if s, ok := c.(interface{ HandshakeContext(context.Context) error }); ok {
		return s.HandshakeContext(ctx)
	}
	return nil
}

func (t *TCP) admit(node NodeID, c net.Conn) error {
	if t.conf.Admit == nil {
		return nil
	}
	return t.conf.Admit(node, c)
}

// refusalsEvery is how often Trouble may be told of those who are not let in: anybody can knock.
const refusalsEvery = 10 * time.Second

// turnedAway tells of one who was not let in; not of one who went by himself.
func (t *TCP) turnedAway(node NodeID, c net.Conn, err error) error {
	if errors.Is(err, io.EOF) {
		return err
	}
	t.mu.Lock()
	told := time.Since(t.refused) < refusalsEvery
	if !told {
		t.refused = time.Now()
	}
	t.mu.Unlock()
	err = fmt.Errorf("replica: %s is not let in: %w", c.RemoteAddr(), err)
	if told {
		return err
	}
	return t.trouble(node, err)
}

// base is the connection below TLS.
func base(c net.Conn) net.Conn {
	if s, ok := c.(*tls.Conn); ok {
		return s.NetConn()
	}
	return c
}

// sever ends a connection without a word: TLS would wait for the other side to take its farewell.
func sever(c net.Conn) error { return base(c).Close() }

// alert says that the other side has said why it ends a connection, as TLS does with a certificate it does not like. That may come
// when this side takes the handshake for done.
func alert(err error) bool {
	op := (*net.OpError)(nil)
	return errors.As(err, &op) && op.Op == "remote error"
}
