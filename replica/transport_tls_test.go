package replica

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, pool: x509.NewCertPool()}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert = c
	a.cert, a.key = a.sign(c)
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) sign(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	by := a.key
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, by)
	require.NoError(a.t, err)
	signed, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return signed, key
}

// config is for one of that name, who is believed for an hour, wants to see the others' certificates, and listens on this machine.
func (a *authority) config(name string) *tls.Config {
	c, key := a.sign(&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{c.Raw}, PrivateKey: key}},
		RootCAs: a.pool, ClientCAs: a.pool, ClientAuth: tls.RequireAndVerifyClientCert}
}

// byName admits nodes whose certificates have their number, and as clients everybody who has one.
func byName(node NodeID, c net.Conn) error {
	s := c.(*tls.Conn).ConnectionState()
	if name := s.PeerCertificates[0].Subject.CommonName; node != NoNode && name != fmt.Sprint("node-", node) {
		return fmt.Errorf("%s says it is node %d", name, node)
	}
	return nil
}

// secured is a group over TLS.
func secured(t *testing.T, a *authority, trouble func(NodeID, error), ids ...NodeID) (*group, map[NodeID]string) {
	g := &group{t: t, network: NewNetwork(), ids: ids, nodes: map[NodeID]*member{}}
	g.state = Assign{TopicID: [16]byte{1}, Leader: ids[0], Replicas: ids, ISR: slices.Clone(ids)}
	wires, at := map[NodeID]*TCP{}, map[NodeID]string{}
	for _, id := range ids {
		tcp, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: id, Backoff: 5 * time.Millisecond, TLS: a.config(fmt.Sprint("node-", id)), Admit: byName, Trouble: trouble})
		require.NoError(t, err)
		for other, w := range wires {
			tcp.SetPeer(other, w.Addr().String())
			w.SetPeer(id, tcp.Addr().String())
		}
		wires[id], at[id] = tcp, tcp.Addr().String()
		g.nodes[id] = &member{fs: vfs.Mem()}
		g.startOver(id, log.Config{Durability: log.Buffered}, tcp)
	}
	t.Cleanup(func() {
		for _, id := range ids {
			require.NoError(t, g.nodes[id].Close())
			require.NoError(t, g.nodes[id].dir.Close())
			require.NoError(t, wires[id].Close())
		}
	})
	g.assign(g.state)
	return g, at
}

func TestNodesAndClientsProveWhoTheyAre(t *testing.T) {
	a := newAuthority(t)
	troubles := make(chan error, 100)
	g, at := secured(t, a, func(node NodeID, err error) {
		select {
		case troubles <- fmt.Errorf("%d: %w", node, err):
		default:
		}
	}, 1, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	g.produce("a")
	g.caughtUp(1, 2)
	c := newClient(t, ClientConfig{Nodes: at, TLS: a.config("anna")})
	big := make([]byte, 3<<20) // in many pieces
	_, err := c.Append(ctx, ordersZero, encoded(t, record.BuilderOptions{}, 1), -1)
	require.NoError(t, err)
	for i := range 3 {
		g.elect(NodeID(2 - i%2))
		_, err := c.Append(ctx, ordersZero, rawBatch(t, string(big[:900<<10])), -1)
		require.NoError(t, err)
	}
	for f := (*Fetched)(nil); f == nil || f.NextOffset < 5; { // of one that has just become a follower, maybe
		f, err = c.Fetch(ctx, ordersZero, 0, FetchOptions{MaxBytes: 4 << 20})
		require.NoError(t, err)
	}
	_, err = c.EndTxn(ctx, ordersZero, record.Producer{ID: 1}, true, log.EndTxnOptions{})
	require.NoError(t, err)
	s, err := c.Status(ctx, ordersZero)
	require.NoError(t, err)
	require.Len(t, s.ISR, 2)
	require.Empty(t, troubles)

	for name, conf := range map[string]ClientConfig{
		"tls: ": {TLS: &tls.Config{RootCAs: a.pool}}, // no certificate of its own
		"x509":  {TLS: newAuthority(t).config("mallory")},
		"":      {}, // without TLS: its connection ends, and nobody says why
	} {
		conf.Nodes = at
		require.Contains(t, refusedWith(t, newClient(t, conf), name).Error(), name)
	}
	require.NotEmpty(t, troubles)

	// A client's certificate does not make it a node.
	conf := a.config("anna")
	conf.ServerName = "127.0.0.1"
	conn, err := tls.Dial("tcp", at[1], conf)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write(appendHello(nil, 2, 1))
	require.NoError(t, err)
	ended(t, conn)

	// Nor is another node taken for the one that is meant.
	wrong := newClient(t, ClientConfig{Nodes: map[NodeID]string{2: at[1]}, TLS: a.config("anna"), Admit: byName})
	require.ErrorContains(t, refusedWith(t, wrong, "node-1 says it is node 2"), "node-1 says it is node 2")
}

// refusedWith asks for something in vain, with more and more time: the error says why only if that was known before the time was over.
func refusedWith(t *testing.T, c *Client, why string) (err error) {
	for limit := 100 * time.Millisecond; limit < 2*time.Second; limit += 50 * time.Millisecond {
		short, cancel := context.WithTimeout(t.Context(), limit)
		_, err = c.ListOffsets(short, ordersZero, OffsetQuery{At: Latest})
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		if strings.Contains(err.Error(), why) {
			break
		}
	}
	return err
}

// Those who connect and do not shake hands cost a connection each, of few, and not for long; a node gets in all the same.
func TestWhoDoesNotShakeHandsIsCutOff(t *testing.T) {
	a := newAuthority(t)
	var told atomic.Int64
	began := time.Now()
	tcp, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 1, MaxConns: 3, Dial: 300 * time.Millisecond, TLS: a.config("node-1"), Admit: byName,
		Trouble: func(NodeID, error) { told.Add(1) }})
	require.NoError(t, err)
	defer tcp.Close()
	got := make(chan Envelope, 1000)
	go func() { _ = tcp.Serve(t.Context(), func(e Envelope) { got <- e }) }()
	silent := make([]net.Conn, 0, 20)
	for range cap(silent) {
		c, err := net.Dial("tcp", tcp.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		silent = append(silent, c)
	}
	require.Eventually(t, func() bool { callers, _ := tcp.open(); return callers > 0 && callers <= 3 }, 5*time.Second, time.Millisecond)
	other, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 2, TLS: a.config("node-2"), Admit: byName, Peers: map[NodeID]string{1: tcp.Addr().String()}})
	require.NoError(t, err)
	defer other.Close()
	for heard := false; !heard; { // its own handshake may take too long, too, on a slow machine
		other.Send(1, ordersZero, EpochRequest{From: NoNode})
		select {
		case e := <-got:
			require.Equal(t, NodeID(2), e.From)
			heard = true
		case <-time.After(100 * time.Millisecond):
			require.Less(t, time.Since(began), time.Minute, "nobody could say anything")
		}
	}
	for _, c := range silent {
		ended(t, c)
	}
	for range 5 {
		c, err := net.Dial("tcp", tcp.Addr().String())
		require.NoError(t, err)
		_, err = c.Write([]byte("GET / HTTP/1.1\r\nHost: example\r\n\r\n"))
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
		for err == nil { // an alert, and the end
			_, err = c.Read(make([]byte, 100))
		}
		require.False(t, errors.Is(err, context.DeadlineExceeded), err)
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool { callers, _ := tcp.open(); return callers == 1 }, 5*time.Second, time.Millisecond)
	require.LessOrEqual(t, told.Load(), 1+int64(time.Since(began)/refusalsEvery), "anybody can knock; that is not told each time")
}

// One whose certificate is not liked is told so after its own handshake is over: that is told once, and it does not hammer.
func TestARefusedCertificateIsToldOnceAndTriedSeldom(t *testing.T) {
	a := newAuthority(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var accepted atomic.Int64
	tcp, err := NewTCP(counting{l, &accepted}, TCPConfig{Self: 1, TLS: a.config("node-1")})
	require.NoError(t, err)
	defer tcp.Close()
	told := make(chan error, 100)
	conf := newAuthority(t).config("node-2")
	conf.RootCAs = a.pool
	other, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 2, Backoff: 20 * time.Millisecond, TLS: conf, Peers: map[NodeID]string{1: l.Addr().String()},
		Trouble: func(_ NodeID, err error) { told <- err }})
	require.NoError(t, err)
	defer other.Close()
	began, certificate := time.Now(), 0
	for i := 0; i < 100 || certificate == 0 && time.Since(began) < 30*time.Second; i++ {
		other.Send(1, ordersZero, EpochRequest{From: NoNode})
		time.Sleep(5 * time.Millisecond)
		for len(told) > 0 {
			if err := <-told; alert(err) {
				require.ErrorContains(t, err, "certificate")
				certificate++
			}
		}
	}
	require.Less(t, accepted.Load(), 12+int64(time.Since(began)/(640*time.Millisecond)), "the pauses grow to 32 times 20 ms")
	require.Equal(t, 1, certificate)
}

type counting struct {
	net.Listener
	n *atomic.Int64
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	c.n.Add(1)
	return conn, err
}

// A listener and a dialer of the caller's may bring TLS themselves.
func TestAListenerAndADialerOfOnesOwn(t *testing.T) {
	a := newAuthority(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", a.config("node-1"))
	require.NoError(t, err)
	tcp, err := NewTCP(l, TCPConfig{Self: 1, Admit: byName})
	require.NoError(t, err)
	got := make(chan Envelope, 1)
	go func() { _ = tcp.Serve(t.Context(), func(e Envelope) { got <- e }) }()
	_, err = net.Dial("tcp", l.Addr().String()) // one that hangs does not hold up Close
	require.NoError(t, err)
	dialer := &tls.Dialer{Config: a.config("node-2")}
	other, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 2, Admit: byName, DialContext: dialer.DialContext, Peers: map[NodeID]string{1: l.Addr().String()}})
	require.NoError(t, err)
	other.Send(1, ordersZero, EpochRequest{From: NoNode})
	select {
	case e := <-got:
		require.Equal(t, NodeID(2), e.From)
	case <-time.After(5 * time.Second):
		t.Fatal("nothing arrives")
	}
	began := time.Now()
	require.NoError(t, tcp.Close())
	require.NoError(t, other.Close())
	require.Less(t, time.Since(began), 3*time.Second)

	_, err = ListenTCP("127.0.0.1:0", TCPConfig{Self: 1, TLS: &tls.Config{}})
	require.ErrorIs(t, err, ErrNodeConfig)
	require.ErrorContains(t, err, "TCPConfig.TLS has no certificate")
	_, err = NewTCP(nil, TCPConfig{Self: 1})
	require.ErrorIs(t, err, ErrNodeConfig)
}
