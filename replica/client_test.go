package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// listening is a group over TCP, and where its nodes are.
func listening(t *testing.T, ids ...NodeID) (*group, map[NodeID]string) {
	g, wires := wired(t, log.Config{Durability: log.Buffered}, TCPConfig{Backoff: 5 * time.Millisecond}, quick, ids...)
	at := map[NodeID]string{}
	for id, w := range wires {
		at[id] = w.Addr().String()
	}
	return g, at
}

func newClient(t *testing.T, c ClientConfig) *Client {
	t.Helper()
	c.Timeout, c.Backoff = 300*time.Millisecond, 5*time.Millisecond
	client, err := NewClient(c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A program that is no member produces and consumes while leaders change and one dies, and nobody connects to it.
func TestAClientFollowsTheLeader(t *testing.T) {
	g, at := listening(t, 1, 2, 3)
	c := newClient(t, ClientConfig{Nodes: at})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for i := range int64(9) {
		b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: 7, BaseSequence: int32(i)}})
		require.NoError(t, b.Add(record.Record{Timestamp: 1, Value: []byte(fmt.Sprint("v", i))}))
		batch, err := b.Finish()
		require.NoError(t, err)
		got, err := c.Append(ctx, ordersZero, batch.Bytes(), -1)
		require.NoError(t, err)
		require.Equal(t, i, got.Base)
		switch i {
		case 2:
			g.elect(2)
		case 5:
			g.kill(2)
			time.AfterFunc(50*time.Millisecond, func() { g.elect(3, 2) })
		}
	}
	found, err := c.ListOffsets(ctx, ordersZero, OffsetQuery{At: Latest})
	require.NoError(t, err)
	require.Equal(t, OffsetFound{9, -1, 2}, found)
	for _, isolation := range []log.Isolation{log.ReadUncommitted, log.ReadCommitted} {
		next := int64(0)
		for r, err := range c.Records(ctx, ordersZero, 0, FetchOptions{Isolation: isolation, MaxBytes: 100}) {
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint("v", next), string(r.Value))
			if next++; next == 9 {
				break
			}
		}
	}
	_, err = c.Append(ctx, ordersZero, rawBatch(t, "nobody listens"), 0)
	require.NoError(t, err)
	g.eventually("acks 0", func() bool { return g.handle(3).Log().Offsets().LogEnd == 10 })
}

// Followers answer consumers, with what they know to be committed. A client that took one for the leader would not see what was
// acknowledged, and would ask it for everything else.
func TestAClientFetchesAtTheLeaderAndNotAtAFollower(t *testing.T) {
	g, at := listening(t, 1, 2, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	reader, writer := newClient(t, ClientConfig{Nodes: at}), newClient(t, ClientConfig{Nodes: at})
	for i, leader := range []NodeID{1, 2, 3, 3, 2} {
		if i > 0 {
			g.elect(leader)
		}
		_, err := writer.Append(ctx, ordersZero, rawBatch(t, "a"), -1)
		require.NoError(t, err)
		f, err := reader.Fetch(ctx, ordersZero, int64(i), FetchOptions{})
		require.NoError(t, err)
		require.Equal(t, int64(i+1), f.NextOffset, "what was acknowledged is there")
		require.Equal(t, leader, reader.leader(ordersZero, 0))
		fresh := newClient(t, ClientConfig{Nodes: at})
		f, err = fresh.Fetch(ctx, ordersZero, 0, FetchOptions{})
		require.NoError(t, err)
		require.Equal(t, int64(i+1), f.HighWatermark)
		require.Equal(t, leader, fresh.leader(ordersZero, 0))
	}
	_, err := reader.Fetch(ctx, ordersZero, 0, FetchOptions{LeaderEpoch: new(int32)})
	require.ErrorIs(t, err, FencedLeaderEpoch)
}

// One who does not lead any more names the next, which does not either and names another: nobody has to wait for that.
func TestAClientAsksALeaderOfANewerEpochAtOnce(t *testing.T) {
	g, at := listening(t, 1, 2, 3)
	g.elect(2)
	g.eventually("all know it", func() bool { return g.handle(1).Status().LeaderEpoch == 1 })
	g.mu.Lock()
	a := g.state
	g.mu.Unlock()
	a.Leader, a.LeaderEpoch, a.PartitionEpoch = 3, a.LeaderEpoch+1, a.PartitionEpoch+1
	for _, id := range []NodeID{2, 3} { // node 1 does not hear of it
		require.NoError(t, g.nodes[id].Assign(ordersZero, a))
	}
	g.eventually("it leads", func() bool { return g.handle(3).Status().Active && g.handle(2).Status().Leader == 3 })
	c, err := NewClient(ClientConfig{Nodes: at, Backoff: time.Hour})
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = c.Append(ctx, ordersZero, rawBatch(t, "a"), 1)
	require.NoError(t, err)
}

func TestAClientSaysWhyNot(t *testing.T) {
	g, at := listening(t, 1)
	at[2] = "127.0.0.1:1" // nobody
	c := newClient(t, ClientConfig{Nodes: at})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := c.Append(ctx, ordersZero, rawBatch(t, "a"), -1)
	require.NoError(t, err)
	_, err = c.Append(ctx, ordersZero, []byte("no batch"), -1)
	require.ErrorIs(t, err, CorruptMessage)
	_, err = c.Fetch(ctx, ordersZero, 5, FetchOptions{})
	require.ErrorIs(t, err, OffsetOutOfRange)
	require.ErrorAs(t, err, new(*log.OffsetRangeError))
	_, err = c.Fetch(ctx, ordersZero, 0, FetchOptions{MaxBytes: -1})
	require.ErrorAs(t, err, new(*log.ConfigError))
	old, next := int32(0), int32(9)
	g.elect(1)
	g.eventually("the next epoch", func() bool { return g.handle(1).Status().LeaderEpoch == 1 })
	_, err = c.ListOffsets(ctx, ordersZero, OffsetQuery{At: Latest, LeaderEpoch: &old})
	require.ErrorIs(t, err, FencedLeaderEpoch)
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = c.ListOffsets(short, ordersZero, OffsetQuery{At: Latest, LeaderEpoch: &next})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	one := newClient(t, ClientConfig{Nodes: map[NodeID]string{1: at[1]}})
	_, err = one.Fetch(ctx, log.TopicPartition{Topic: "unknown"}, 0, FetchOptions{})
	require.ErrorIs(t, err, UnknownTopicOrPartition)

	require.NoError(t, c.Close())
	require.ErrorIs(t, c.Close(), ErrNodeClosed)
	for _, closed := range []*Client{c, nil, {}} {
		_, err = closed.Append(ctx, ordersZero, rawBatch(t, "a"), -1)
		require.ErrorIs(t, err, ErrNodeClosed)
		for _, err := range closed.Records(ctx, ordersZero, 0, FetchOptions{}) {
			require.ErrorIs(t, err, ErrNodeClosed)
		}
	}
	_, err = NewClient(ClientConfig{})
	require.ErrorIs(t, err, ErrNodeConfig)
}

// A batch of which it is not known whether it is in the log is sent again only if the log would know it again.
func TestAClientSendsABatchThatIsInDoubtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1<<10)) // it takes it, and dies
			_ = conn.Close()
		}
	}()
	c := newClient(t, ClientConfig{Nodes: map[NodeID]string{1: l.Addr().String()}})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = c.Append(ctx, ordersZero, rawBatch(t, "a"), -1)
	require.ErrorAs(t, err, new(*UncertainError))
	require.ErrorIs(t, err, NetworkException)
	require.NoError(t, ctx.Err())
}

// The leader is a node that the client was not told of.
func TestAClientLooksUpWhereALeaderIs(t *testing.T) {
	_, at := listening(t, 1, 2)
	for _, nodes := range []map[NodeID]string{{2: at[2]}, {1: "127.0.0.1:1", 2: at[2]}} { // or it was elsewhere
		looksUp(t, nodes, at)
	}
}

func looksUp(t *testing.T, nodes, at map[NodeID]string) {
	c := newClient(t, ClientConfig{Nodes: nodes, Locate: func(_ context.Context, node NodeID) (string, error) {
		if node != 1 {
			return "", errors.New("unknown")
		}
		return at[1], nil
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := c.Append(ctx, ordersZero, rawBatch(t, "a"), -1)
	require.NoError(t, err)
}

// Clients come and go without a trace, and one that says what is not a client's to say is cut off.
func TestANodeKeepsNothingOfClientsThatHaveGone(t *testing.T) {
	g, at := listening(t, 1)
	wire := g.nodes[1].conf.Transport.(*TCP)
	g.eventually("it leads", func() bool { return g.handle(1).Status().Active })
	before := runtime.NumGoroutine()
	for range 20 {
		c := newClient(t, ClientConfig{Nodes: at})
		_, err := c.ListOffsets(t.Context(), ordersZero, OffsetQuery{At: Latest})
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	for _, m := range []Message{FetchRequest{From: 7, Tag: 1}, FetchResponse{}, ControlRequest{}, ControlAnswer{}} {
		conn, err := net.Dial("tcp", at[1])
		require.NoError(t, err)
		head, _ := appendFrame(appendHello(nil, NoNode, 1), ordersZero, m)
		_, err = conn.Write(head)
		require.NoError(t, err)
		ended(t, conn)
		_ = conn.Close()
	}
	g.eventually("all are gone", func() bool {
		wire.mu.Lock()
		defer wire.mu.Unlock()
		return len(wire.peers) == 0 && wire.callers == 0 && runtime.NumGoroutine() <= before+2
	})
}

// A client is closed, by several at once, while many ask; and some of those it asks never answer.
func TestAClientThatIsClosedAnswersAllWhoAsk(t *testing.T) {
	_, at := listening(t, 1, 2)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	at[3] = silent.Addr().String()
	before := runtime.NumGoroutine()
	for range 10 {
		c := newClient(t, ClientConfig{Nodes: at})
		var asking sync.WaitGroup
		for i := range 20 {
			tp := log.TopicPartition{Topic: "orders", Partition: int32(i % 2)}
			raw := rawBatch(t, "v")
			asking.Go(func() {
				for {
					var err error
					if i%3 == 0 {
						_, err = c.Fetch(t.Context(), tp, 0, FetchOptions{MaxWait: time.Minute, MinBytes: 1 << 20})
					} else {
						_, err = c.Append(t.Context(), tp, raw, int8(i%3-1))
					}
					if errors.Is(err, ErrNodeClosed) {
						return
					}
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		var first atomic.Int32
		var closing sync.WaitGroup
		for range 4 {
			closing.Go(func() {
				if err := c.Close(); err == nil {
					first.Add(1)
				} else if err != ErrNodeClosed {
					t.Error(err)
				}
			})
		}
		closing.Wait()
		require.Equal(t, int32(1), first.Load())
		asking.Wait()
	}
	const rest = 20 // goroutines of the nodes' pools may
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+rest }, 5*time.Second, 5*time.Millisecond)
	_, err = NewClient(ClientConfig{Nodes: map[NodeID]string{NoNode: at[1]}})
	require.ErrorIs(t, err, ErrNodeConfig)
}
