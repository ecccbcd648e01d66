package replica

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"net"
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
	// Locate says where a node is that a refusal names as the leader: what controller.LookupNode found, say. It is asked each time a
	// leader changes, and may block until ctx ends. Without an answer, or if it is nil, the node is where Nodes has it; one that
	// they do not have is not asked.
	Locate func(ctx context.Context, node NodeID) (addr string, err error)
	// Timeout is how long one attempt may take beside what the request itself says (MaxWait), 10 s: request.timeout.ms. Then another
	// node is asked.
	Timeout time.Duration
	Backoff time.Duration // retry.backoff.ms, 100 ms: pause before the next attempt, doubled up to ten times as much
	// MaxFrame and Idle are TCPConfig's, and should be what the nodes have.
	MaxFrame int
	Idle     time.Duration
	// TLS, Admit and DialContext are TCPConfig's, for the nodes that are connected to. Certificates in TLS are what the client proves
	// itself with, where the nodes want that.
	TLS         *tls.Config
	Admit       func(node NodeID, c net.Conn) error
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client is for programs that are no member of the cluster: it finds the leader of a partition, asks it over TCP, and asks the
// next one when the leadership moves or a node cannot be reached, until ctx ends; every call blocks until then at most. The nodes must
// have a TCP for a Transport. It listens nowhere, and encrypts and proves itself as ClientConfig.TLS says. What it keeps is bounded: a
// connection to each node it has asked, the leaders of a few thousand partitions, and what is being asked.
//
// Errors: *RefusedError for what no later attempt mends (OffsetOutOfRange, MessageTooLarge, CorruptMessage and the like), and
// UnknownTopicOrPartition when all nodes have said so; a leader epoch that the caller named and that is fenced; *log.ConfigError.
// If ctx ends the error is ctx's, and what the last attempt said (errors.As: *RefusedError, *UnansweredError). ErrNodeClosed: the
// client was closed, or is nil. Produce and EndTxn have an *UncertainError, or a *log.UnconfirmedError, too, when any of their attempts
// may have been carried out: only an error that is neither says that nothing was done.
// It is safe for concurrent use.
type Client struct {
	conf  ClientConfig
	node  *Node // that has no replicas
	wire  *TCP
	nodes []NodeID // of Nodes, ascending

	mu      sync.Mutex // guards leaders; nothing is called under it
	leaders map[log.TopicPartition]ledBy
}

// ledBy is a leader, and the leader epoch in which it has said that it is; -1: it has not said.
type ledBy struct {
	node  NodeID
	epoch int32
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
	wire := dialTCP(TCPConfig{Peers: c.Nodes, MaxFrame: c.MaxFrame, Idle: c.Idle, TLS: c.TLS, Admit: c.Admit, DialContext: c.DialContext})
	n := &Node{conf: NodeConfig{Config: Config{Self: NoNode, FetchLimit: c.Timeout, Backoff: c.Backoff}, Transport: wire},
		awaited: make(map[uint64]awaited), lastAsk: uint64(rand.Uint32()) << 32, served: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	serve := wire.begin(n.deliver)
	n.all.Go(func() { defer close(n.served); n.serving = serve(n.ctx) })
	return &Client{conf: c, node: n, wire: wire, nodes: slices.Sorted(maps.Keys(c.Nodes)), leaders: make(map[log.TopicPartition]ledBy)}, nil
}

// Close ends all that is being asked, with ErrNodeClosed, and all connections, and waits for that. A second Close returns ErrNodeClosed.
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

// Produce is Handle.Produce at the leader: raw is one encoded batch (record.Builder) with base offset 0, acks 0, 1 or -1 (all). raw is
// not changed, and the caller's again when Produce returns. A refused batch is not in the log, and is sent again. One of which that is
// not known is sent again only if it has an idempotent producer (record.Producer), which the log knows again: then the answer says
// Duplicate, and where it is. Else the error is an *UncertainError, or *log.UnconfirmedError if it is in a leader's log.
// NotEnoughReplicas is tried again until ctx ends. With acks 0 nobody says what became of it: Base and Last are -1.
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
	err = c.ask(ctx, tp, wanted{request: appendTo, epoch: o.LeaderEpoch, again: id >= 0}, func(ctx context.Context, r *Remote) (err error) {
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

// EndTxn is Handle.EndTxn at the leader: it returns when the marker is committed. p and o are those of log.Log.EndTxn,
// o.Durability is not looked at. It asks again, over changes of leaders, until there is an answer or ctx ends: a second marker does
// no harm, and no attempt that comes late can end the producer's next transaction. Each is made under the leader epoch that the
// leader has just said it is in, so that later leaders refuse it (FencedLeaderEpoch); the leader of this epoch refuses what comes after
// a later attempt of this client. o.LeaderEpoch, if given, is the only one under which it asks: then a change of leaders ends it.
//
// That holds for one Client. Another one, of the program's next run, say, must ask with a higher CoordinatorEpoch, or for a higher
// producer epoch, as KIP-98 has coordinators and producers do; with TransactionVersion 2 (KIP-890) markers fence themselves.
//
// After an *UncertainError the producer must not begin another transaction until a later EndTxn for it has been answered. Two at a
// time for one producer have no order.
func (c *Client) EndTxn(ctx context.Context, tp log.TopicPartition, p record.Producer, commit bool, o log.EndTxnOptions) (log.Appended, error) {
	if err := o.Validate(); err != nil {
		return nothing, err
	}
	got, named := nothing, o.LeaderEpoch
	err := c.ask(ctx, tp, wanted{request: endTxnIn, epoch: named, again: true}, func(ctx context.Context, r *Remote) error {
		if named == nil {
			found, err := r.ListOffsets(ctx, OffsetQuery{At: Latest})
			if err != nil {
				return err
			}
			o.LeaderEpoch = &found.LeaderEpoch
		}
		ctx, cancel := context.WithTimeout(ctx, c.conf.Timeout)
		defer cancel()
		var err error
		got, err = r.EndTxn(ctx, p, commit, o)
		return err
	})
	return got, err
}

// EndOfEpoch is Handle.EndOfEpoch at the leader.
func (c *Client) EndOfEpoch(ctx context.Context, tp log.TopicPartition, epoch int32, leaderEpoch *int32) (log.EpochEnd, error) {
	got := log.EpochEnd{Epoch: -1, End: -1}
	err := c.ask(ctx, tp, wanted{request: epochIn, epoch: leaderEpoch}, func(ctx context.Context, r *Remote) (err error) {
		got, err = r.EndOfEpoch(ctx, epoch, leaderEpoch)
		return err
	})
	return got, err
}

// Status is Handle.Status of the leader: in-sync replicas, what each follower lacks, high watermark, log start and end, epochs. It
// waits until there is a leader. A node that does not lead is asked by Remote.Status, of a member.
func (c *Client) Status(ctx context.Context, tp log.TopicPartition) (Status, error) {
	got := noStatus
	err := c.ask(ctx, tp, wanted{request: statusOf}, func(ctx context.Context, r *Remote) error {
		s, err := r.Status(ctx)
		switch {
		case err != nil:
			return err
		case s.Role != Leader:
			res := refusal(NotLeaderOrFollower)
			res.Leader, res.LeaderEpoch = s.Leader, s.LeaderEpoch
			return by(r.at, refused(tp, statusOf, res))
		}
		got = s
		return nil
	})
	return got, err
}

// Fetch is Handle.Fetch at the leader, also where a follower would answer: all that was acknowledged before is there. It may be
// answered by one that is cut off and was the leader a moment ago, and show what that knows to be committed.
func (c *Client) Fetch(ctx context.Context, tp log.TopicPartition, offset int64, o FetchOptions) (*Fetched, error) {
	var got *Fetched
	err := c.ask(ctx, tp, wanted{request: fetchFrom, epoch: o.LeaderEpoch}, func(ctx context.Context, r *Remote) (err error) {
		got, err = c.fetch(ctx, r, offset, o)
		if o.LeaderEpoch == nil && errors.Is(err, FencedLeaderEpoch) { // there is a newer one, maybe of the same leader
			got, err = c.fetch(ctx, r, offset, o)
		}
		return err
	})
	return got, err
}

// fetch asks under the leader epoch in which the node has said that it leads. Followers answer consumers, too, with what they know to
// be committed, and only the epoch tells the two apart: it fences when there is another.
func (c *Client) fetch(ctx context.Context, r *Remote, offset int64, o FetchOptions) (*Fetched, error) {
	epoch := c.ledIn(r.tp, r.at)
	if epoch < 0 || o.LeaderEpoch != nil && *o.LeaderEpoch != epoch {
		found, err := r.ListOffsets(ctx, OffsetQuery{At: Latest, LeaderEpoch: o.LeaderEpoch}) // which none but a leader answers
		if err != nil {
			return nil, err
		}
		epoch = found.LeaderEpoch
		c.leads(r.tp, ledBy{r.at, epoch})
	}
	o.LeaderEpoch = &epoch
	got, err := r.Fetch(ctx, offset, o)
	if errors.Is(err, FencedLeaderEpoch) || errors.Is(err, UnknownLeaderEpoch) {
		c.leads(r.tp, ledBy{r.at, -1})
	}
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
	err := c.ask(ctx, tp, wanted{request: offsetIn, epoch: q.LeaderEpoch}, func(ctx context.Context, r *Remote) (err error) {
		got, err = r.ListOffsets(ctx, q)
		return err
	})
	return got, err
}

// wanted is what a client asks for.
type wanted struct {
	request string // as in RefusedError
	epoch   *int32 // that the caller named
	again   bool   // it may be done twice
}

// ask finds the leader, and asks it.
func (c *Client) ask(ctx context.Context, tp log.TopicPartition, what wanted, ask func(context.Context, *Remote) error) error {
	if c == nil || c.node == nil {
		return ErrNodeClosed
	}
	if err := tp.Validate(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx) // for Locate, too
	defer cancel(nil)
	defer context.AfterFunc(c.node.ctx, func() { cancel(ErrNodeClosed) })()
	doubt := NoNode     // one that may have done what was asked, or may do so yet
	strangers := 0      // nodes in a row that know no such partition
	var last error      // of the attempt before
	newest := int32(-1) // leader epoch that a refusal has named
	for try := 0; ; try++ {
		at := c.leader(tp, try)
		err := ask(ctx, &Remote{node: c.node, at: at, tp: tp, once: true})
		if err == nil {
			c.leads(tp, ledBy{at, c.ledIn(tp, at)})
			return nil
		}
		refused, unsure := (*RefusedError)(nil), errors.As(err, new(*UncertainError)) || errors.As(err, new(*log.UnconfirmedError))
		if unsure {
			doubt = at
		}
		final := func(err error) error {
			if doubt != NoNode && !unsure {
				err = &UncertainError{Partition: tp, Node: doubt, Request: what.request, Err: err}
			}
			return err
		}
		switch {
		case ctx.Err() != nil && errors.Is(err, ctx.Err()), ctx.Err() != nil && errors.Is(err, ErrNodeClosed):
			if last != nil {
				err = fmt.Errorf("%w; before: %w", err, last)
			}
			return final(c.over(ctx, err))
		case errors.As(err, &refused):
			if strangers++; refused.Code != UnknownTopicOrPartition {
				strangers = 0
			}
			if !mends(refused.Code) || refused.Code == FencedLeaderEpoch && what.epoch != nil || strangers >= 2*len(c.nodes) {
				return final(err)
			}
		case unsure:
			if !what.again {
				return err
			}
		case !errors.Is(err, NetworkException) && !errors.Is(err, RequestTimedOut):
			return final(err)
		}
		known := refused != nil && refused.Leader >= 0 && refused.Leader != at && c.locate(ctx, refused.Leader)
		switch {
		case known:
			c.leads(tp, ledBy{refused.Leader, -1})
		case refused == nil || !leads(refused.Code) || try%4 == 3: // one that is cut off does not know that it leads no more
			c.leads(tp, ledBy{NoNode, -1})
		}
		pause := min(c.conf.Backoff<<min(try, 8), 10*c.conf.Backoff)
		if known && (try == 0 || refused.LeaderEpoch > newest) {
			pause = 0 // each leader is asked once as soon as it is heard of
		}
		if refused != nil {
			newest = max(newest, refused.LeaderEpoch)
		}
		last = err
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return final(c.over(ctx, err))
		}
	}
}

// over is the error when nobody waits any more, with what was said last.
func (c *Client) over(ctx context.Context, last error) error {
	end := ctx.Err()
	if c.node.ctx.Err() != nil {
		end = ErrNodeClosed
	}
	if errors.Is(last, end) {
		return last
	}
	return fmt.Errorf("%w: %w", end, last)
}

// leads says that it is the leader who refuses.
func leads(code ErrorCode) bool {
	return code == NotEnoughReplicas || code == OffsetNotAvailable
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
		return at.node
	}
	return c.nodes[try%len(c.nodes)]
}

// ledIn is the leader epoch in which a node has said that it leads; -1: it has not, or not since another was asked.
func (c *Client) ledIn(tp log.TopicPartition, node NodeID) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.leaders[tp]; ok && at.node == node {
		return at.epoch
	}
	return -1
}

// leads remembers a leader; NoNode forgets it.
func (c *Client) leads(tp log.TopicPartition, by ledBy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if by.node == NoNode {
		delete(c.leaders, tp)
		return
	}
	if _, ok := c.leaders[tp]; !ok && len(c.leaders) >= maxLeaders {
		for other := range c.leaders { // any
			delete(c.leaders, other)
			break
		}
	}
	c.leaders[tp] = by
}

// locate makes sure that a node can be reached, as far as is known. It may be elsewhere than it was.
func (c *Client) locate(ctx context.Context, node NodeID) bool {
	if c.conf.Locate != nil {
		if addr, err := c.conf.Locate(ctx, node); err == nil && addr != "" {
			c.wire.SetPeer(node, addr)
			return true
		}
	}
	return c.conf.Nodes[node] != ""
}
