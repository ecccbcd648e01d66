package member

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/replica/internal/patience"
)

// Config of a Member. Self, Dir, Transport and Store must be given.
type Config struct {
	// NodeConfig of the replicas. BrokerEpoch, Propose and Judge are the member's own. What a topic's settings in the store say
	// counts over what Partitions and the Dir's defaults do, and over MinISR.
	replica.NodeConfig
	Store replica.Store

	// Rack is broker.rack. Host and Port are where others find this node; if they are left out and the Transport has an Addr, as
	// replica.TCP does, they are taken from that. A Transport with SetPeer is told where the others are.
	Rack string
	Host string
	Port int

	// Strays sets aside, before the member first serves, what the Dir has of partitions that are no longer this node's: deleted,
	// made anew under another topic id, or given to others while it was down. Their folders get the suffix -stray and keep what
	// they hold; see log.Dir.SetStray. false: they stay as they are, as logs in the Dir that are not replicated must.
	Strays bool

	SessionTTL time.Duration // zookeeper.session.timeout.ms, 18 s: how long a member that died counts as alive
	Retry      time.Duration // pause before something that failed is tried again, 1 s

	// Controller makes the member stand for election; Node and, unless they are given, SessionTTL and Retry are the member's own.
	// nil: it does not. Some member must.
	Controller *controller.Options

	// Trouble is told what went wrong with the store, with replicas in the background (NodeConfig.Trouble is told that, too), or that
	// the Transport is served no more. It is called by the member's goroutines, which wait for it.
	Trouble func(error)
}

// Member is a running member. All methods are safe for concurrent use. One that is nil, or that Start has not made, is closed
// (replica.ErrNodeClosed).
type Member struct {
	conf     Config
	store    replica.Store
	node     *replica.Node
	ctrl     *controller.Controller // nil: does not stand for election
	board    board
	judge    ruling
	places   places
	identity identity

	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup
	rules  atomic.Bool
	closed atomic.Bool
	epoch  atomic.Int64 // of the last registration; 0: there was none
	own    lives        // of the goroutine that keeps the registration

	mu     sync.Mutex // guards the rest; nothing is called under it
	status Status
	turned chan struct{} // closed at the next change of status
}

// Status is how a member stands.
type Status struct {
	BrokerEpoch int64 // of the present registration; 0: it has none at the moment
	InService   bool  // the controller lets it lead and be in sync
	Rules       bool  // its controller rules
	LastError   error // the last trouble with the store or the transport; it may be over
}

// errNoHost: others would not find this node.
var errNoHost = errors.New("must be given: the Transport listens on every address, and others need one of them")

// Start makes a member and returns at once; InService waits for more. *replica.NodeConfigError.
func Start(c Config) (*Member, error) {
	if c.Store == nil {
		return nil, &replica.NodeConfigError{Field: "Store", Reason: "must be given"}
	}
	if c.SessionTTL <= 0 {
		c.SessionTTL = 18 * time.Second
	}
	if c.Retry <= 0 {
		c.Retry = time.Second
	}
	if err := c.locate(); err != nil {
		return nil, &replica.NodeConfigError{Field: "Host", Reason: err.Error()}
	}
	m := &Member{conf: c, store: patience.Store(c.Store, c.ask()), turned: make(chan struct{})}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.board.init(c.Self)
	m.judge.init()
	m.identity.asking = make(chan struct{}, 1)
	m.places.known = make(map[replica.NodeID]int64)
	m.places.wire, _ = c.Transport.(interface {
		SetPeer(node replica.NodeID, addr string)
	})
	m.own.known = make(map[int64]bool)
	if c.Dir != nil {
		if epoch, clean := c.Dir.CleanShutdown(); clean && epoch > 0 {
			m.own.known[epoch] = true
		}
	}
	if c.Controller != nil {
		m.ctrl = controller.NewController(c.Store, m.candidate(*c.Controller))
	}
	nc := c.NodeConfig
	nc.BrokerEpoch, nc.Propose, nc.Judge, nc.Partitions, nc.Trouble = 0, m.propose, m.answer, m.partitions, m.troubleOf
	var err error
	if m.node, err = replica.NewNode(nc); err != nil {
		m.cancel()
		return nil, err
	}
	for _, run := range []func(){m.keep, m.hand, m.listen, m.followPartitions, m.followNodes, m.followSettings, m.followRuler} {
		m.all.Go(run)
	}
	if m.ctrl != nil {
		m.all.Go(func() { _ = m.ctrl.Run(m.ctx) })
	}
	return m, nil
}

// locate finds where the node is for others.
func (c *Config) locate() error {
	at, ok := c.Transport.(interface{ Addr() net.Addr })
	if !ok || c.Host != "" && c.Port != 0 {
		return nil
	}
	addr := at.Addr()
	if addr == nil {
		return nil // a TCP that ListenTCP has not made, which NewNode refuses
	}
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return err
	}
	if c.Port == 0 {
		if c.Port, err = strconv.Atoi(port); err != nil {
			return err
		}
	}
	if c.Host == "" {
		if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
			return errNoHost
		}
		c.Host = host
	}
	return nil
}

// candidate is how the controller of this member is run.
func (m *Member) candidate(o controller.Options) controller.Options {
	o.Node = m.conf.Self
	if o.SessionTTL <= 0 {
		o.SessionTTL = m.conf.SessionTTL
	}
	if o.Retry <= 0 {
		o.Retry = m.conf.Retry
	}
	host := o.Rule
	o.Rule = func(epoch int32, rules bool, why error) {
		m.rules.Store(rules)
		m.change(func(*Status) {})
		if host != nil {
			host(epoch, rules, why)
		}
	}
	return o
}

// Node is where clients find the replicas.
func (m *Member) Node() *replica.Node {
	if m.none() {
		return nil
	}
	return m.node
}

// none says that no Start has made it.
func (m *Member) none() bool { return m == nil || m.ctx == nil }

// Controller is this member's, which rules or waits for a vacancy; nil: it does not stand for election. Requests to one that
// does not rule are refused with replica.NotController.
func (m *Member) Controller() *controller.Controller {
	if m.none() {
		return nil
	}
	return m.ctrl
}

// Status is a copy.
func (m *Member) Status() Status {
	if m.none() {
		return Status{LastError: replica.ErrNodeClosed}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.status
	s.Rules = m.rules.Load()
	return s
}

// Await waits until the status is as wanted. ctx's error, with the last trouble; replica.ErrNodeClosed.
func (m *Member) Await(ctx context.Context, wanted func(Status) bool) error {
	if m.none() {
		return replica.ErrNodeClosed
	}
	for {
		m.mu.Lock()
		s, turned := m.status, m.turned
		m.mu.Unlock()
		s.Rules = m.rules.Load()
		if wanted(s) {
			return nil
		}
		select {
		case <-turned:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), s.LastError)
		case <-m.ctx.Done():
			return replica.ErrNodeClosed
		}
	}
}

// InService waits until the member is in service. Errors as Await, and if ctx ends a word on what it waits for.
func (m *Member) InService(ctx context.Context) error {
	if m.none() {
		return replica.ErrNodeClosed
	}
	err := m.Await(ctx, func(s Status) bool { return s.InService })
	if err == nil || ctx.Err() == nil {
		return err
	}
	return fmt.Errorf("member: node %d is not in service, %s: %w", m.conf.Self, m.lacks(), err)
}

// lacks is what a member that is not in service waits for.
func (m *Member) lacks() string {
	epoch := m.Status().BrokerEpoch
	if epoch == 0 {
		return "it is not registered with the store"
	}
	ruler, _ := m.judge.now()
	now, _ := m.board.standing(epoch)
	switch {
	case ruler == replica.NoNode:
		return "no controller rules (a member without Config.Controller does not stand for election)"
	case !now.noticed:
		return fmt.Sprintf("the controller of node %d has not noticed its registration", ruler)
	}
	return fmt.Sprintf("the controller of node %d has not let it", ruler)
}

// listen notices when the transport is served no more.
func (m *Member) listen() {
	select {
	case <-m.node.Done():
		if err := m.node.Err(); err != nil {
			m.trouble(fmt.Errorf("member: messages for node %d are not taken any more: %w", m.conf.Self, err))
		}
	case <-m.ctx.Done():
	}
}

// change changes the status and wakes who waits for that.
func (m *Member) change(set func(*Status)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	set(&m.status)
	close(m.turned)
	m.turned = make(chan struct{})
}

// trouble notes an error, unless it is the end of the member.
func (m *Member) trouble(err error) {
	if err == nil || m.ctx.Err() != nil {
		return
	}
	m.change(func(s *Status) { s.LastError = err })
	if m.conf.Trouble != nil {
		m.conf.Trouble(err)
	}
}

// pause waits; false if the member ends.
func (m *Member) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-m.ctx.Done():
		return false
	}
}

// Shutdown is a controlled shutdown, then Close: the controller gives the leaderships of this member to others and takes it out
// of the in-sync sets before it stops, so that no partition is without a leader. If ctx ends before a controller has done so,
// the member stops all the same, and the error says so.
func (m *Member) Shutdown(ctx context.Context) error {
	if m.none() {
		return replica.ErrNodeClosed
	}
	err := m.farewell(ctx)
	return errors.Join(err, m.Close())
}

func (m *Member) farewell(ctx context.Context) error {
	var last error
	for !m.closed.Load() {
		q := replica.ControlRequest{BrokerEpoch: m.Status().BrokerEpoch, Stopping: true}
		asked, cancel := context.WithTimeout(ctx, m.conf.ask())
		a := m.consult(asked, log.TopicPartition{}, q)
		cancel()
		if a.Err == replica.None {
			m.board.awaitNothingLed(ctx, m.conf.Retry)
			return nil
		}
		last = a.Err
		timer := time.NewTimer(m.conf.Retry / 4)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("no controller gave the leaderships of node %d to others: %w: %w", m.conf.Self, ctx.Err(), last)
		}
	}
	return nil // Close says so
}

// ask is how long one question to the controller may take.
func (c *Config) ask() time.Duration {
	if c.ProposeTimeout > 0 {
		return c.ProposeTimeout
	}
	return 10 * time.Second
}

// Close stops the member: who waits for a replica is answered, the replicas end, then the session. The Dir, whose Close marks
// the logs as cleanly stopped, the Transport and the Store stay open. A second Close returns replica.ErrNodeClosed.
func (m *Member) Close() error {
	if m.none() {
		return replica.ErrNodeClosed
	}
	if !m.closed.CompareAndSwap(false, true) {
		return replica.ErrNodeClosed
	}
	m.cancel()
	err := m.node.Close()
	m.all.Wait()
	if m.own.session != nil {
		err = errors.Join(err, m.own.session.Close())
	}
	m.change(func(s *Status) { *s = Status{LastError: s.LastError} })
	return err
}
