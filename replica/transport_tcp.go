package replica

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/log"
)

// TCPConfig of a TCP; zero values are as the fields say.
type TCPConfig struct {
	Self  NodeID
	Peers map[NodeID]string // "host:port" of the other nodes; SetPeer adds and changes
	// MaxFrame is the largest message that is sent and taken, 64 MiB, at most 2 GiB - 1; a sender of more is cut off before anything
	// is allocated. Fetches ask for no more than fits; a batch that does not fit alone is answered with MessageTooLarge. All messages
	// that are coming in at a time may take four times as much.
	MaxFrame int
	// MaxQueue is how many messages may wait for one peer, 1024, with no more than four times MaxFrame of records; more are lost.
	MaxQueue int
	Dial     time.Duration // limit of one attempt to connect, 5 s
	Write    time.Duration // limit of sending one message, 30 s
	// Idle is how long nothing may come on a connection before it is closed, 15 s. Where there is nothing to say a node says
	// that it is there, three times as often; so it should be the same at all nodes.
	Idle    time.Duration
	Backoff time.Duration // pause after a failure before the next attempt, doubled up to 32 times, 50 ms
	// MaxConns is how many connections of others are open at a time, 1024; then those go first that have not said which node they
	// are, those of a Client among them, and then those of nodes that SetPeer and Peers do not name. Of one node it is a few: the
	// oldest goes.
	MaxConns int
	// Trouble is told why a node cannot be reached, when it begins and when the reason is another, of nodes that take this one for
	// another, and, every ten seconds at most, of who was not let in (NoNode if it has not said which node it is). It is called by the
	// goroutines of the connections, which wait for it. What is lost is asked again all the same.
	Trouble func(node NodeID, err error)

	// TLS, if given, is used both ways: as a server's with those who connect, so it needs Certificates, and as a client's with those
	// that are connected to, whose host is the ServerName unless that is set. For nodes and clients that prove who they are it has
	// ClientAuth RequireAndVerifyClientCert, ClientCAs and RootCAs. The handshake must be over within Dial. nil: plain TCP, unless the
	// listener (NewTCP) and DialContext bring TLS of their own.
	TLS *tls.Config
	// Admit says whether who is at the other end may be that node, or with NoNode a client; an error ends the connection. It is asked
	// for each connection, those this node makes too, before anything is said or believed, and may block for no longer than Dial. With
	// TLS the handshake is over, and c a *tls.Conn, whose ConnectionState has the certificates. nil: a certificate that TLS has verified
	// is good for any node, and without TLS everybody is believed.
	Admit func(node NodeID, c net.Conn) error
	// DialContext makes the connections, in place of a net.Dialer: from an address of one's own, through a proxy. network is "tcp",
	// addr that of the peer. ctx ends after Dial, or with Close, which waits for it.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
}

func (c TCPConfig) withDefaults() TCPConfig {
	for _, f := range []struct {
		field *int
		or    int
	}{{&c.MaxFrame, 64 << 20}, {&c.MaxQueue, 1024}, {&c.MaxConns, 1024}} {
		if *f.field <= 0 {
			*f.field = f.or
		}
	}
	for _, f := range []struct {
		field *time.Duration
		or    time.Duration
	}{{&c.Dial, 5 * time.Second}, {&c.Write, 30 * time.Second}, {&c.Idle, 15 * time.Second}, {&c.Backoff, 50 * time.Millisecond}} {
		if *f.field <= 0 {
			*f.field = f.or
		}
	}
	c.MaxFrame = int(min(max(int64(c.MaxFrame), minFrame), math.MaxInt32))
	c.MaxQueue = min(c.MaxQueue, 1<<20)
	c.Backoff = min(c.Backoff, time.Hour)
	return c
}

// minFrame holds every message without records.
const minFrame = 4 << 10

// fetchLimit is how many bytes a fetch may ask for so that the answer fits.
func (c *TCPConfig) fetchLimit(m *FetchRequest) int64 {
	if m.From == NoNode && m.Isolation == log.ReadCommitted {
		return int64(c.MaxFrame / 2) // the aborted transactions come with it
	}
	return int64(c.MaxFrame - minFrame/2)
}

// fit makes a fetch ask for no more than an answer can bring.
func (c *TCPConfig) fit(m Message) Message {
	if f, ok := m.(FetchRequest); ok {
		if f.MaxBytes <= 0 {
			f.MaxBytes = defaultFetchBytes
		}
		if limit := c.fetchLimit(&f); f.MaxBytes > limit {
			f.MaxBytes = limit
			return f
		}
	}
	return m
}

// TCP is a Transport over TCP: one connection each way between two nodes, made when there is something to send, and made again
// with a growing pause. Without TCPConfig.TLS it neither encrypts nor authenticates, and without Admit it believes the number a peer
// gives: whoever reaches it can be a follower, or the controller. That is for networks where it will do. All methods are safe for
// concurrent use. One that is nil, or that neither ListenTCP nor NewTCP has made, is closed (ErrTransportClosed).
type TCP struct {
	conf     TCPConfig
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	all      sync.WaitGroup

	mu         sync.Mutex // guards the rest; not held while anything is sent or delivered
	peers      map[NodeID]*tcpPeer
	conns      map[net.Conn]*caller
	callers    int            // of conns that others made
	lastClient NodeID         // number of the last client's connection
	deliver    func(Envelope) // nil: nobody serves
	served     chan struct{}  // closed when somebody does
	closed     bool

	refused time.Time // when Trouble was last told of one who was not let in

	losses chan struct{} // of capacity 1: someone is in lost
	lost   map[NodeID]error

	coming atomic.Int64 // bytes of messages that have not come whole

	delivering sync.RWMutex // read-locked by deliveries, so that none goes on when Serve has returned
}

// tcpPeer is the way to one node.
type tcpPeer struct {
	to    NodeID
	queue chan outgoing
	bytes atomic.Int64 // of records in queue
	owes  atomic.Bool  // messages to it were lost, which it has not been told
	mu    sync.Mutex
	addr  string
}

type outgoing struct {
	tp log.TopicPartition
	m  Message
}

// ListenTCP begins to listen on addr ("host:port"; port 0 takes a free one). *NodeConfigError, or net.Listen's error.
func ListenTCP(addr string, c TCPConfig) (*TCP, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("replica: listen for other nodes: %w", err)
	}
	return NewTCP(l, c)
}

// NewTCP is ListenTCP on a listener that the caller has made, one of package tls or one that looks at addresses, say. Close closes
// it. *NodeConfigError, and then l is still the caller's.
func NewTCP(l net.Listener, c TCPConfig) (*TCP, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if l == nil {
		return nil, &NodeConfigError{"TCP", "needs a listener"}
	}
	t := newTCP(l, c)
	t.all.Go(t.accept)
	return t, nil
}

func (c *TCPConfig) validate() error {
	if c.Self < 0 {
		return &NodeConfigError{"TCPConfig.Self", fmt.Sprintf("must not be negative, as %d is", c.Self)}
	}
	if s := c.TLS; s != nil && len(s.Certificates) == 0 && s.GetCertificate == nil && s.GetConfigForClient == nil {
		return &NodeConfigError{"TCPConfig.TLS", "has no certificate for those who connect"}
	}
	return nil
}

// Addr is where it listens.
func (t *TCP) Addr() net.Addr {
	if t.none() || t.listener == nil {
		return nil
	}
	return t.listener.Addr()
}

// none says that no ListenTCP has made it.
func (t *TCP) none() bool { return t == nil || t.ctx == nil }

// Self is whose transport it is.
func (t *TCP) Self() NodeID {
	if t.none() {
		return NoNode
	}
	return t.conf.Self
}

// SetPeer says where a node is. A connection that there is stays until it fails.
func (t *TCP) SetPeer(node NodeID, addr string) {
	if t.none() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	if p := t.peers[node]; p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.addr = addr
		return
	}
	p := &tcpPeer{to: node, addr: addr, queue: make(chan outgoing, t.conf.MaxQueue)}
	t.peers[node] = p
	t.all.Go(func() { t.send(p) })
}

// Send is Transport.Send. A message to a node that is not known is lost, which is noticed at once.
func (t *TCP) Send(to NodeID, tp log.TopicPartition, m Message) {
	if t.none() {
		return
	}
	t.mu.Lock()
	p := t.peers[to]
	t.mu.Unlock()
	if p == nil {
		t.lose(to, errPeer)
		return
	}
	size := recordsOf(m)
	if n := p.bytes.Add(size); n > size && n > 4*int64(t.conf.MaxFrame) {
		p.bytes.Add(-size)
		p.owes.Store(true)
		t.lose(to, errBehind)
		return
	}
	select {
	case p.queue <- outgoing{tp, m}:
	default: // it is behind, and will be asked again
		p.bytes.Add(-size)
		p.owes.Store(true)
		t.lose(to, errBehind)
	}
}

var (
	errPeer   = errors.New("nobody has said where it is")
	errBehind = errors.New("too much waits to be sent")
)

// recordsOf is how many bytes of records a message has.
func recordsOf(m Message) int64 {
	switch m := m.(type) {
	case FetchResponse:
		return int64(len(m.Result.Raw))
	case Answer:
		return int64(len(m.Result.Raw))
	case AppendRequest:
		return int64(len(m.Raw))
	}
	return 0
}

// Serve is Transport.Serve. What arrives while nobody serves waits in its connection.
func (t *TCP) Serve(ctx context.Context, deliver func(Envelope)) error { return t.begin(deliver)(ctx) }

// begin is the part of Serve that takes no time.
func (t *TCP) begin(deliver func(Envelope)) (serve func(context.Context) error) {
	if t.none() {
		return func(context.Context) error { return ErrTransportClosed }
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return func(context.Context) error { return ErrTransportClosed }
	case t.deliver != nil:
		return func(context.Context) error { return ErrTransportBusy }
	}
	t.deliver = deliver
	close(t.served)
	return t.serve
}

func (t *TCP) serve(ctx context.Context) error {
	err := ErrTransportClosed
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case <-t.ctx.Done():
	}
	t.mu.Lock()
	t.deliver, t.served = nil, make(chan struct{})
	t.mu.Unlock()
	t.delivering.Lock() // the last delivery is over
	defer t.delivering.Unlock()
	return err
}

// await waits until somebody serves; false if the transport was closed.
func (t *TCP) await() bool {
	t.mu.Lock()
	served := t.served
	t.mu.Unlock()
	select {
	case <-served:
		return true
	case <-t.ctx.Done():
		return false
	}
}

// Close ends all connections and waits for what was under way. A second Close returns ErrTransportClosed.
func (t *TCP) Close() error {
	if t.none() {
		return ErrTransportClosed
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return ErrTransportClosed
	}
	t.closed = true
	for c := range t.conns {
		_ = sever(c)
	}
	t.mu.Unlock()
	t.cancel()
	err := error(nil)
	if t.listener != nil {
		err = t.listener.Close()
	}
	t.all.Wait()
	return err
}

// pause waits; false if the transport was closed.
func (t *TCP) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.ctx.Done():
		return false
	}
}

// accept takes connections.
func (t *TCP) accept() {
	for {
		c, err := t.listener.Accept()
		switch {
		case t.ctx.Err() != nil:
			if err == nil {
				_ = sever(c)
			}
			return
		case err != nil: // out of file descriptors, say: it may pass
			if errors.Is(err, net.ErrClosed) || !t.pause(t.conf.Backoff) {
				return
			}
		case !t.track(c, false):
			_ = sever(c)
		default:
			t.all.Go(func() {
				defer t.drop(c)
				_ = t.receive(c)
			})
		}
	}
}

// receive delivers what comes on a connection until it ends or what comes is no message.
func (t *TCP) receive(c net.Conn) error {
	c, err := t.accepted(c)
	if err != nil {
		return err
	}
	r := bufio.NewReaderSize(c, 64<<10)
	var hello [helloSize]byte
	if _, err := io.ReadFull(r, hello[:]); err != nil {
		return err
	}
	from, to, err := decodeHello(hello[:])
	if err != nil {
		return err
	}
	if to != t.conf.Self {
		return t.trouble(from, fmt.Errorf("replica: node %d, at %s, takes node %d for node %d", from, c.RemoteAddr(), t.conf.Self, to))
	}
	if err := t.admit(from, c); err != nil {
		return t.turnedAway(from, c, err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return err
	}
	if from == NoNode {
		number, end := t.client(c)
		defer end()
		return t.listen(c, r, number, true)
	}
	t.introduce(c, from)
	defer t.lose(from, nil)
	return t.listen(c, r, from, false)
}

// trouble tells who wants to know.
func (t *TCP) trouble(node NodeID, err error) error {
	if t.conf.Trouble != nil && t.ctx.Err() == nil {
		t.conf.Trouble(node, err)
	}
	return err
}

func (t *TCP) hand(e Envelope) {
	t.delivering.RLock()
	defer t.delivering.RUnlock()
	t.mu.Lock()
	deliver := t.deliver
	t.mu.Unlock()
	if deliver != nil {
		deliver(e)
	}
}
