package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// ClientConfig of a Client; zero values are as the fields say.
type ClientConfig struct {
	// Nodes are members of the cluster and where they listen, "host:port": those that clients are to begin with.
	Nodes map[NodeID]string
	// Locate says where a node is that a refusal names as the leader and Nodes do not have: controller.LookupNode, say. nil: such a
	// node is not asked.
	Locate func(ctx context.Context, node NodeID) (addr string, err error)
	// Timeout is how long one attempt may take beside what the request itself says (MaxWait), 10 s. Then another node is asked.
	Timeout time.Duration
	Backoff time.Duration // retry.backoff.ms, 100 ms: pause before the next attempt, doubled up to ten times as much
	// MaxFrame and Idle are TCPConfig's, and should be what the nodes have.
	MaxFrame int
	Idle     time.Duration
}

// Client is for programs that are no member of the cluster: it finds the leader of a partition, asks it over TCP, and asks the
// next one when the leadership moves or a node cannot be reached, until ctx ends. The nodes must have a TCP for a Transport. It
// listens nowhere, and neither encrypts nor authenticates. What it keeps is bounded: a connection to each node it has asked, the
// leaders of a few thousand partitions, and what is being asked.
//
// Errors: *RefusedError for what no later attempt mends (OffsetOutOfRange, MessageTooLarge, CorruptMessage and the like), and
// UnknownTopicOrPartition when all nodes have said so; a leader epoch that the caller named and that is fenced; *log.ConfigError.
// If ctx ends the error is ctx's, and what the last attempt said (errors.As). ErrNodeClosed: the client was closed, or is nil.
// It is safe for concurrent use.
type Client struct {
	conf  ClientConfig
	node  *Node // that has no replicas
	wire  *TCP
	nodes []NodeID // of Nodes, ascending

	mu      sync.Mutex // guards leaders; nothing is called under it
	leaders map[log.TopicPartition]NodeID
}

// maxLeaders bounds how many leaders a client remembers.
const maxLeaders = 4096

// NewClient makes a client; connections are made when something is asked. *NodeConfigError.
func NewClient(c ClientConfig) (*Client, error) {
	if len(c.Nodes) == 0 {
		return nil, &NodeConfigError{"Nodes", "must be given"}
	}
	for node := range c.Nodes {
		if node < 0 {
			return nil, &NodeConfigError{"Nodes", fmt.Sprintf("must not be negative, as %d is", node)}
		}
	}
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Backoff <= 0 {
		c.Backoff = 100 * time.Millisecond
	}
	c.Nodes = maps.Clone(c.Nodes)
	wire := dialTCP(TCPConfig{Peers: c.Nodes, MaxFrame: c.MaxFrame, Idle: c.Idle})
	n := &Node{conf: NodeConfig{Config: Config{Self: NoNode, FetchLimit: c.Timeout, Backoff: c.Backoff}, Transport: wire},
		awaited: make(map[uint64]awaited), lastAsk: uint64(rand.Uint32()) << 32, served: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	serve := wire.begin(n.deliver)
	n.all.Go(func() { defer close(n.served); n.serving = serve(n.ctx) })
	return &Client{conf: c, node: n, wire: wire, nodes: slices.Sorted(maps.Keys(c.Nodes)), leaders: make(map[log.TopicPartition]NodeID)}, nil
}

// Close ends all that is being asked. A second Close returns ErrNodeClosed.
func (c *Client) Close() error {
	if c == nil || c.node == nil || c.node.ctx.Err() != nil {
		return ErrNodeClosed
	}
	c.node.cancel()
	c.node.all.Wait()
	if err := c.wire.Close(); !errors.Is(err, ErrTransportClosed) {
		return err
	}
	return ErrNodeClosed // another Close was faster
}

// Append is Produce without options.
func (c *Client) Append(ctx context.Context, tp log.TopicPartition, raw []byte, acks int8) (log.Appended, error) {
	return c.Produce(ctx, tp, raw, acks, ProduceOptions{})
}

// Produce is Handle.Produce at the leader; raw is not changed. A refused batch is not in the log, and is sent again. One of which
// that is not known is sent again only if it has an idempotent producer (record.Producer), which the log knows again; else the error
// is an *UncertainError, or *log.UnconfirmedError if it is in a leader's log. NotEnoughReplicas is tried again until ctx ends.
func (c *Client) Produce(ctx context.Context, tp log.TopicPartition, raw []byte, acks int8, o ProduceOptions) (log.Appended, error) {
	got := nothing
	b, err := record.View(raw)
	if err != nil {
		return nothing, notABatch(tp, err)
	}
	if acks == 0 { // nobody says that it does not lead
		if _, err := c.ListOffsets(ctx, tp, OffsetQuery{At: Earliest}); err != nil {
			return nothing, err
		}
	}
	id, _, _ := b.Producer()
	err = c.ask(ctx, tp, o.LeaderEpoch, id >= 0, func(ctx context.Context, r *Remote) (err error) {
		if id >= 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.conf.Timeout)
			defer cancel()
		}
		got, err = r.Produce(ctx, raw, acks, o)
		return err
	})
	return got, err
}

// Fetch is Handle.Fetch at the leader.
func (c *Client) Fetch(ctx context.Context, tp log.TopicPartition, offset int64, o FetchOptions) (*Fetched, error) {
	var got *Fetched
	err := c.ask(ctx, tp, o.LeaderEpoch, true, func(ctx context.Context, r *Remote) (err error) {
		if got, err = r.Fetch(ctx, offset, o); errors.Is(err, OffsetOutOfRange) { // of a follower that is behind, maybe
			if _, e := r.ListOffsets(ctx, OffsetQuery{At: Earliest}); errors.Is(e, NotLeaderOrFollower) {
				return e
			}
		}
		return err
	})
	return got, err
}

// Records yields what is committed from offset on, fetch by fetch, and waits at the end for more; o as for Fetch, its MaxWait is
// 500 ms if it is 0. It holds one fetch at a time. A record is a view, valid until the next step. The error, ctx's at the latest,
// comes once and last.
func (c *Client) Records(ctx context.Context, tp log.TopicPartition, offset int64, o FetchOptions) iter.Seq2[record.Record, error] {
	if o.MaxWait == 0 {
		o.MaxWait = 500 * time.Millisecond
	}
	o.MinBytes = max(o.MinBytes, 1)
	return func(yield func(record.Record, error) bool) {
		for {
			f, err := c.Fetch(ctx, tp, offset, o)
			if err != nil {
				yield(record.Record{}, err)
				return
			}
			for r, err := range f.Records() {
				if !yield(r, err) || err != nil {
					return
				}
			}
			offset = f.NextOffset
		}
	}
}

// ListOffsets is Handle.ListOffsets at the leader.
func (c *Client) ListOffsets(ctx context.Context, tp log.TopicPartition, q OffsetQuery) (OffsetFound, error) {
	got := notFound
	err := c.ask(ctx, tp, q.LeaderEpoch, true, func(ctx context.Context, r *Remote) (err error) {
		got, err = r.ListOffsets(ctx, q)
		return err
	})
	return got, err
}

// ask finds the leader. epoch is the one the caller named; again says that a request may be made twice.
func (c *Client) ask(ctx context.Context, tp log.TopicPartition, epoch *int32, again bool, ask func(context.Context, *Remote) error) error {
	if c == nil || c.node == nil {
		return ErrNodeClosed
	}
	strangers := 0 // nodes in a row that know no such partition
	for try := 0; ; try++ {
		at := c.leader(tp, try)
		err := ask(ctx, &Remote{node: c.node, at: at, tp: tp, once: true})
		refused, unsure := (*RefusedError)(nil), (*log.UnconfirmedError)(nil)
		switch {
		case err == nil:
			c.leads(tp, at)
			return nil
		case c.node.ctx.Err() != nil:
			return ErrNodeClosed
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return err
		case errors.As(err, &refused):
			if strangers++; refused.Code != UnknownTopicOrPartition {
				strangers = 0
			}
			if !mends(refused.Code) || refused.Code == FencedLeaderEpoch && epoch != nil || strangers >= 2*len(c.nodes) {
				return err
			}
		case errors.As(err, &unsure), errors.As(err, new(*UncertainError)):
			if !again {
				return err
			}
		case !errors.Is(err, NetworkException) && !errors.Is(err, RequestTimedOut):
			return err
		}
		known := refused != nil && refused.Leader >= 0 && refused.Leader != at && c.locate(ctx, refused.Leader)
		if known {
			c.leads(tp, refused.Leader)
		} else if refused == nil || refused.Code != NotEnoughReplicas {
			c.leads(tp, NoNode)
		}
		pause := min(c.conf.Backoff<<min(try, 8), 10*c.conf.Backoff)
		if known && try == 0 {
			pause = 0
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-c.node.ctx.Done():
			timer.Stop()
			return ErrNodeClosed
		}
	}
}

// mends says that a refusal may be over when it is asked again: of the leader, or a moment later.
func mends(code ErrorCode) bool {
	switch code {
	case NotLeaderOrFollower, LeaderNotAvailable, FencedLeaderEpoch, UnknownLeaderEpoch, UnknownTopicOrPartition, KafkaStorageError,
		NotEnoughReplicas, OffsetNotAvailable, RequestTimedOut, NetworkException:
		return true
	}
	return false
}

// leader is whom to ask: who led last, else each of the nodes in turn.
func (c *Client) leader(tp log.TopicPartition, try int) NodeID {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.leaders[tp]; ok {
		return at
	}
	return c.nodes[try%len(c.nodes)]
}

// leads remembers a leader; NoNode forgets it.
func (c *Client) leads(tp log.TopicPartition, node NodeID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if node == NoNode {
		delete(c.leaders, tp)
		return
	}
	if _, ok := c.leaders[tp]; !ok && len(c.leaders) >= maxLeaders {
		for other := range c.leaders { // any
			delete(c.leaders, other)
			break
		}
	}
	c.leaders[tp] = node
}

// locate makes sure that a node can be reached.
func (c *Client) locate(ctx context.Context, node NodeID) bool {
	if c.conf.Nodes[node] != "" {
		return true
	}
	if c.conf.Locate == nil {
		return false
	}
	addr, err := c.conf.Locate(ctx, node)
	if err != nil || addr == "" {
		return false
	}
	c.wire.SetPeer(node, addr)
	return true
}
