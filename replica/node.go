package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/log"
)

// Errors of a Node.
var (
	// ErrNodeClosed: the node was closed.
	ErrNodeClosed = errors.New("replica: node closed")
	// ErrNoReplica: the node has no replica of that partition.
	ErrNoReplica = errors.New("replica: no replica of this partition here")
	// ErrNodeConfig is what a *NodeConfigError is.
	ErrNodeConfig = errors.New("replica: node cannot be made")
)

// NodeConfigError says which field of a NodeConfig cannot be used.
type NodeConfigError struct{ Field, Reason string }

// Error is one sentence.
func (e *NodeConfigError) Error() string {
	return ErrNodeConfig.Error() + ": " + e.Field + " " + e.Reason
}

// Is makes it an ErrNodeConfig.
func (e *NodeConfigError) Is(target error) bool { return target == ErrNodeConfig }

// NodeConfig of a Node. Dir and Transport must be given.
type NodeConfig struct {
	Config              // of its replicas; see Partitions
	Dir       *log.Dir  // holds the logs; stays open when the node is closed
	Transport Transport // to the other nodes; stays open, too

	// Propose brings a leader's change of the in-sync set before the controller and returns its answer (Tag does not matter).
	// It blocks until then, or until ctx ends after ProposeTimeout. nil: nobody judges, proposals end with RequestTimedOut.
	Propose        func(ctx context.Context, tp log.TopicPartition, topicID [16]byte, p Proposal) ISRAnswer
	ProposeTimeout time.Duration // 10 s
	// Judge answers another node that takes this one for the ruling controller's (AskController). It blocks until then, or until
	// ctx ends after ProposeTimeout. nil: NotController.
	Judge func(ctx context.Context, from NodeID, tp log.TopicPartition, q ControlRequest) ISRAnswer

	// Partitions tells what a partition has of its own: the configuration of the log, if it is not open yet, and of the
	// replica. nil: Dir's defaults, and Config. Visibility is always External. Where Durability is Durable (package log's default,
	// but not Kafka's) the replica counts what is synced only. Reconfigure has it asked again.
	Partitions func(tp log.TopicPartition) (log.Config, Config)
	// Trouble is told what went wrong in the background with a partition that goes on all the same: settings that its log
	// refuses, a log that could not be removed and will be tried again; and of each failure of a log. It must not block.
	Trouble func(tp log.TopicPartition, err error)

	// Workers is how many partitions are at work at a time, 64; SlowWorkers how many wait for a disk with something that is
	// not an append or a read of what is new, 16: truncations, syncs, opening.
	Workers, SlowWorkers int
	// InFlight bounds the produce requests of one partition that are not answered yet, 256; further ones wait.
	InFlight int
	// ResponseBytes is replica.fetch.response.max.bytes, 10 MiB, and Fetchers num.replica.fetchers, 1: so many times so many bytes of
	// records may be on their way from here to one follower, whatever the number of partitions it is behind with; the rest is read
	// when the follower asks for more. An answer that is larger by itself comes all the same.
	ResponseBytes int64
	Fetchers      int
}

func (c NodeConfig) withDefaults() NodeConfig {
	for _, f := range []struct {
		field *int
		or    int
	}{{&c.Workers, 64}, {&c.SlowWorkers, 16}, {&c.InFlight, 256}, {&c.Fetchers, 1}} {
		if *f.field <= 0 {
			*f.field = f.or
		}
	}
	if c.ProposeTimeout <= 0 {
		c.ProposeTimeout = 10 * time.Second
	}
	if c.ResponseBytes <= 0 {
		c.ResponseBytes = 10 << 20
	}
	return c
}

// Node runs the replicas of one broker: it carries out what each Partition asks for over the logs of a Dir, and speaks with
// the other nodes over a Transport.
//
//	Assign, Peer, Stop ──▶ mailbox ──▶ Partition.Step ──▶ appends, reads ──▶ log.Log     (Workers)
//	Transport.Serve ─────▶   of each       │    ▲          truncations, syncs ─▶  "       (SlowWorkers)
//	Handle.Append ───────▶ partition       │    └───────── answers
//	                                       └──▶ Transport.Send, Propose
//
// A partition at rest costs no goroutine, so ten thousand are no more than a few; one that waits for its disk holds up no
// other. High watermarks go to the checkpoint with all others of the Dir, every DirConfig.HighWatermarkInterval. All methods
// are safe for concurrent use. One that is nil, or that NewNode has not made, is closed (ErrNodeClosed).
type Node struct {
	conf    NodeConfig
	began   time.Time
	unclean bool // the Dir was not stopped cleanly before
	ctx     context.Context
	cancel  context.CancelFunc
	fast    *pool        // steps, appends, reads of what is new
	slow    *pool        // whatever waits for a disk
	talk    *pool        // questions to the controller
	court   *pool        // questions of other nodes to this one's
	asked   atomic.Int64 // of those, how many are in court
	window  *window
	clock   *timeline[*runner]
	calls   sync.Pool      // of *call that were answered
	all     sync.WaitGroup // of the clock and of who serves the transport
	served  chan struct{}
	serving error // why Serve returned; after served

	asking  sync.Mutex // guards the next two; nothing is called under it
	awaited map[uint64]awaited
	lastAsk uint64 // tag; the upper half is random, so that answers to an earlier life do not fit

	mu       sync.RWMutex // guards the rest; not held while a partition works
	closed   bool
	replicas map[log.TopicPartition]*runner
	peers    map[NodeID]Peer
	epoch    int64 // broker epoch of the present registration
	graves   graves
}

// none says that no NewNode has made it.
func (n *Node) none() bool { return n == nil || n.ctx == nil }

// inUse has the Dir of every Node that is not closed, and its number: two nodes of one process that were given the same one
// would both append to its logs. Of other processes the Dir's lock takes care.
var inUse sync.Map

// NewNode begins to serve the transport. The logs are opened as partitions are assigned. After a Dir that was not stopped
// cleanly (log.Dir.CleanShutdown; a new one was not) its replicas say so until they have caught up, but for those of partitions
// that have just been made (Assign.PartitionEpoch 0). *NodeConfigError: Dir or Transport are missing, or another node's.
func NewNode(c NodeConfig) (*Node, error) {
	switch {
	case c.Dir == nil:
		return nil, &NodeConfigError{"Dir", "must be given"}
	case c.Transport == nil:
		return nil, &NodeConfigError{"Transport", "must be given"}
	case c.Self < 0:
		return nil, &NodeConfigError{"Self", fmt.Sprintf("must not be negative, as %d is", c.Self)}
	}
	if t, ok := c.Transport.(interface{ Self() NodeID }); ok && t.Self() != c.Self {
		return nil, &NodeConfigError{"Transport", fmt.Sprintf("is that of node %d, and this is node %d", t.Self(), c.Self)}
	}
	if other, taken := inUse.LoadOrStore(c.Dir, c.Self); taken {
		return nil, &NodeConfigError{"Dir", fmt.Sprintf("holds the replicas of node %d, which is not closed", other)}
	}
	c = c.withDefaults()
	_, clean := c.Dir.CleanShutdown()
	n := &Node{
		conf: c, began: time.Now(), unclean: !clean, epoch: c.BrokerEpoch,
		fast: newPool(c.Workers), slow: newPool(c.SlowWorkers), talk: newPool(64), court: newPool(64), clock: newTimeline[*runner](),
		window: newWindow(min(c.ResponseBytes, 1<<40)*int64(min(c.Fetchers, 1<<20)), c.Config.withDefaults().FetchLimit),
		served: make(chan struct{}), replicas: make(map[log.TopicPartition]*runner), peers: make(map[NodeID]Peer),
		awaited: make(map[uint64]awaited), lastAsk: uint64(rand.Uint32()) << 32,
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	if c.BrokerEpoch > 0 {
		c.Dir.SetBrokerEpoch(c.BrokerEpoch)
	}
	n.all.Go(func() { n.clock.run(n.ctx, func(at time.Time, r *runner) { r.tick(at) }) })
	serve := func(ctx context.Context) error { return c.Transport.Serve(ctx, n.deliver) }
	if t, ok := c.Transport.(interface {
		begin(deliver func(Envelope)) (serve func(context.Context) error)
	}); ok {
		serve = t.begin(n.deliver) // what comes from now on is taken
	}
	n.all.Go(func() {
		defer close(n.served)
		n.serving = serve(n.ctx)
	})
	return n, nil
}

// Assign tells a replica who leads and who replicates; its log is opened, in the background, if this is the first that is
// heard of it. A log of another topic id is set aside as stray. BrokerEpoch must be that of the registration the news are for,
// see Assign. What is older than what is known is ignored, also of a replica that is not here any more if its Stop said so.
// ErrNoReplica: this node is none of the replicas; Stop ends one that is here. InvalidReplicaAssignment: a node is named twice, the
// leader or one in sync is no replica, this node is to lead and is not in sync, or a number is negative.
func (n *Node) Assign(tp log.TopicPartition, a Assign) error {
	if n.none() {
		return ErrNodeClosed
	}
	if err := tp.Validate(); err != nil {
		return err
	}
	if !slices.Contains(a.Replicas, n.conf.Self) {
		return fmt.Errorf("%s: %w", tp, ErrNoReplica)
	}
	if err := a.validate(n.conf.Self); err != nil {
		return fmt.Errorf("%s: %w", tp, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return ErrNodeClosed
	}
	r := n.replicas[tp]
	if r == nil {
		if !n.takes(tp, &a) {
			return nil
		}
		r = n.begin(tp)
	}
	a.Replicas, a.ISR = slices.Clone(a.Replicas), slices.Clone(a.ISR)
	a.Adding, a.Removing = slices.Clone(a.Adding), slices.Clone(a.Removing)
	r.post(mail{event: a})
	return nil
}

// takes says that news of a partition without a replica here are neither for an earlier life of the node nor of the time before one
// that is gone. Under mu.
func (n *Node) takes(tp log.TopicPartition, a *Assign) bool {
	return (a.BrokerEpoch <= 0 || a.BrokerEpoch >= n.epoch) && !n.graves.bars(tp, a)
}

// begin makes a replica. Under mu.
func (n *Node) begin(tp log.TopicPartition) *runner {
	r := newRunner(n, tp)
	n.replicas[tp] = r
	return r
}

// Peer tells all replicas what the controller knows of a node.
func (n *Node) Peer(p Peer) {
	if n.none() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if old, ok := n.peers[p.Node]; n.closed || ok && old.BrokerEpoch > p.BrokerEpoch && p.BrokerEpoch >= 0 {
		return
	}
	n.peers[p.Node] = p
	for _, r := range n.replicas {
		r.post(mail{event: p})
	}
}

// Stop ends a replica here, and with Delete removes its log. If it says of which topic, or version, the node remembers that for a
// while: an Assign that comes late makes no replica, which would lead an epoch that is over, by an in-sync set that is no more, and
// confirm what nobody else will ever have. A process that begins anew knows nothing of that; then BrokerEpoch tells. ErrNoReplica.
func (n *Node) Stop(tp log.TopicPartition, s Stop) error {
	err := n.tell(tp, mail{event: s})
	if !s.Delete || !s.says() || !errors.Is(err, ErrNoReplica) {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.replicas[tp]; r != nil && !n.closed { // since it was told
		r.post(mail{event: s})
		return nil
	}
	n.graves.bury(tp, grave{s.TopicID, s.PartitionEpoch}) // what it ends may come later
	return err
}

// tell posts m to the replica here.
func (n *Node) tell(tp log.TopicPartition, m mail) error {
	if n.none() {
		return ErrNodeClosed
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	r := n.replicas[tp]
	switch {
	case n.closed:
		return ErrNodeClosed
	case r == nil:
		return fmt.Errorf("%s: %w", tp, ErrNoReplica)
	}
	r.post(m)
	return nil
}

// Registered says under which broker epoch the node is registered from now on, for a node that lost its session, but not
// its life. The Dir's marker of the next clean stop names it.
func (n *Node) Registered(brokerEpoch int64) {
	if n.none() {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || brokerEpoch <= n.epoch {
		return
	}
	n.epoch = brokerEpoch
	n.conf.Dir.SetBrokerEpoch(brokerEpoch)
	for _, r := range n.replicas {
		r.post(mail{renewed: brokerEpoch})
	}
}

// Partition is a handle for a replica of this node. ErrNoReplica.
func (n *Node) Partition(tp log.TopicPartition) (*Handle, error) {
	if n.none() {
		return nil, ErrNodeClosed
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.closed {
		return nil, ErrNodeClosed
	}
	r := n.replicas[tp]
	if r == nil {
		return nil, fmt.Errorf("%s: %w", tp, ErrNoReplica)
	}
	return &Handle{r}, nil
}

// Partitions ranges over the replicas of this node, in no order.
func (n *Node) Partitions() iter.Seq[*Handle] {
	if n.none() {
		return func(func(*Handle) bool) {}
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	list := make([]*Handle, 0, len(n.replicas))
	for _, r := range n.replicas {
		list = append(list, &Handle{r})
	}
	return slices.Values(list)
}

// steady is a time as a number that wall clocks which are set have no part in: nanoseconds since the node began; never 0.
func (n *Node) steady(t time.Time) int64 { return max(1, int64(t.Sub(n.began))) }

// UncleanStop says that the node began with logs that may have lost what was synced.
func (n *Node) UncleanStop() bool { return !n.none() && n.unclean }

// Done is closed when the transport is served no more: the node was closed, the transport was, or somebody else serves it
// (ErrTransportBusy).
func (n *Node) Done() <-chan struct{} {
	if n.none() {
		none := make(chan struct{})
		close(none)
		return none
	}
	return n.served
}

// Err is why the transport is served no more; nil while it is.
func (n *Node) Err() error {
	if n.none() {
		return ErrNodeClosed
	}
	select {
	case <-n.served:
		return n.serving
	default:
		return nil
	}
}

// Close stops all replicas: who waits for one is answered, and what is under way is waited for. The logs stay open, and end
// cleanly with the Dir. A second Close returns ErrNodeClosed.
func (n *Node) Close() error {
	if n.none() {
		return ErrNodeClosed
	}
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return ErrNodeClosed
	}
	n.closed = true
	var all []*runner
	for _, r := range n.replicas {
		all = append(all, r)
	}
	n.mu.Unlock()
	for _, r := range all {
		r.post(mail{event: Stop{LeaderEpoch: -1}})
		r.post(mail{last: true})
	}
	n.cancel()
	n.all.Wait()
	for _, r := range all {
		<-r.gone // who has just woken it, or serves itself, need not be counted in the pool yet
	}
	n.fast.wait() // the last that each replica does
	n.slow.wait() // what these bring about is dropped, and a drop starts nothing
	n.fast.wait()
	n.talk.wait()
	n.court.wait()
	for _, p := range []*pool{n.fast, n.slow, n.talk, n.court} {
		p.close()
	}
	inUse.Delete(n.conf.Dir)
	return nil
}
