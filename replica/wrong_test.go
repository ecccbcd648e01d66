package replica

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// alone is a node whose transport is the test. What it sends is in sent.
func alone(t *testing.T) (n *Node, sent chan Message) {
	t.Helper()
	d, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem(), Defaults: log.Config{Durability: log.Buffered}})
	require.NoError(t, err)
	w := wire{make(chan Message, 1024), make(chan func(Envelope), 1)}
	n, err = NewNode(NodeConfig{Config: Config{Self: 1}, Dir: d, Transport: w})
	require.NoError(t, err)
	<-w.deliver
	t.Cleanup(func() {
		_ = n.Close()
		require.NoError(t, d.Close())
	})
	return n, w.sent
}

// Who waits for ever, or until a day that is far away, asks once and waits: the limit of a request is added to what the other side may
// take, and must not come out as nothing.
func TestWhoWaitsForVeryLongAsksOnce(t *testing.T) {
	year, err := time.Parse(time.DateOnly, "9999-12-31")
	require.NoError(t, err)
	for name, ask := range map[string]func(ctx context.Context, r *Remote) error{
		"fetch": func(ctx context.Context, r *Remote) error {
			_, err := r.Fetch(ctx, 0, FetchOptions{MinBytes: 1, MaxWait: math.MaxInt64})
			return err
		},
		"append": func(ctx context.Context, r *Remote) error {
			_, err := r.Append(ctx, rawBatch(t, "v"), 1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, sent := alone(t)
				ctx, cancel := context.WithDeadline(t.Context(), year)
				ended := make(chan error, 1)
				go func() { ended <- ask(ctx, n.Remote(2, ordersZero)) }()
				time.Sleep(time.Hour)
				require.Len(t, sent, 1)
				require.Empty(t, ended)
				cancel()
				require.ErrorIs(t, <-ended, context.Canceled)
			})
		})
	}
}

// asks is everything that is asked of another node.
var asks = map[string]func(ctx context.Context, n *Node) error{
	"fetch": func(ctx context.Context, n *Node) error {
		_, err := n.Remote(2, ordersZero).Fetch(ctx, 0, FetchOptions{})
		return err
	},
	"append": func(ctx context.Context, n *Node) error {
		_, err := n.Remote(2, ordersZero).Append(ctx, mustBatch("v"), 1)
		return err
	},
	"append without acks": func(ctx context.Context, n *Node) error {
		_, err := n.Remote(2, ordersZero).Append(ctx, mustBatch("v"), 0)
		return err
	},
	"end of epoch": func(ctx context.Context, n *Node) error {
		_, err := n.Remote(2, ordersZero).EndOfEpoch(ctx, 0, nil)
		return err
	},
	"offset": func(ctx context.Context, n *Node) error {
		_, err := n.Remote(2, ordersZero).ListOffsets(ctx, OffsetQuery{At: Latest})
		return err
	},
	"end of a transaction": func(ctx context.Context, n *Node) error {
		_, err := n.Remote(2, ordersZero).EndTxn(ctx, record.Producer{ID: 1}, true, log.EndTxnOptions{})
		return err
	},
	"controller": func(ctx context.Context, n *Node) error {
		_, err := n.AskController(ctx, 2, ordersZero, ControlRequest{})
		return err
	},
}

func mustBatch(value string) []byte {
	b := record.NewBuilder(record.BuilderOptions{})
	if err := b.Add(record.Record{Value: []byte(value)}); err != nil {
		panic(err)
	}
	batch, err := b.Finish()
	if err != nil {
		panic(err)
	}
	return append([]byte(nil), batch.Bytes()...)
}

// A caller that has given up before it asked, or whose node is closed, has asked for nothing: no marker ends a transaction then, and
// nothing is appended.
func TestNothingIsAskedForByWhoHasGivenUp(t *testing.T) {
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			n, sent := alone(t)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.ErrorIs(t, ask(ctx, n), context.Canceled)
			require.Empty(t, sent)
			require.NoError(t, n.Close())
			require.ErrorIs(t, ask(t.Context(), n), ErrNodeClosed)
			require.Empty(t, sent)
		})
	}
}

// What no other side would take for a message is not sent: it would end the connection, and with it what others wait for.
func TestTheControllerIsNotAskedAboutWhatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		tp log.TopicPartition
		q  ControlRequest
	}{
		"no topic's name":    {log.TopicPartition{Topic: "a/b"}, ControlRequest{}},
		"a long name":        {log.TopicPartition{Topic: string(make([]byte, 1<<17))}, ControlRequest{}},
		"a negative number":  {log.TopicPartition{Topic: "orders", Partition: -1}, ControlRequest{}},
		"too many in sync":   {ordersZero, ControlRequest{Proposal: Proposal{ISR: make([]NodeID, 1<<17)}}},
		"a number, no topic": {log.TopicPartition{Partition: 3}, ControlRequest{}},
	} {
		t.Run(name, func(t *testing.T) {
			n, sent := alone(t)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			_, err := n.AskController(ctx, 2, c.tp, c.q)
			require.Error(t, err)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.Empty(t, sent)
		})
	}
}

// A node that is named twice would count twice as in sync, and a replica that is named twice would never be heard of in one of its
// places, which would hold the high watermark back for ever.
func TestAnAssignmentThatCannotBeIsRefused(t *testing.T) {
	for name, a := range map[string]Assign{
		"a replica twice":           {Leader: 1, Replicas: []NodeID{1, 2, 2}, ISR: []NodeID{1, 2}},
		"one in sync twice":         {Leader: 1, Replicas: []NodeID{1, 2}, ISR: []NodeID{1, 1}},
		"in sync, no replica":       {Leader: 1, Replicas: []NodeID{1, 2}, ISR: []NodeID{1, 3}},
		"no number of a node":       {Leader: 1, Replicas: []NodeID{1, -4}, ISR: []NodeID{1}},
		"a leader not in sync":      {Leader: 1, Replicas: []NodeID{1, 2}, ISR: []NodeID{2}},
		"nobody in sync":            {Leader: 1, Replicas: []NodeID{1, 2}},
		"a leader, no replica":      {Leader: 3, Replicas: []NodeID{1, 2}, ISR: []NodeID{1}},
		"another leads, no replica": {Leader: 3, Replicas: []NodeID{1, 2}, ISR: []NodeID{2}},
		"a negative leader":         {Leader: -7, Replicas: []NodeID{1, 2}, ISR: []NodeID{1}},
		"a negative epoch":          {Leader: 1, LeaderEpoch: -1, Replicas: []NodeID{1, 2}, ISR: []NodeID{1}},
		"a negative version":        {Leader: 1, PartitionEpoch: -1, Replicas: []NodeID{1, 2}, ISR: []NodeID{1}},
	} {
		t.Run(name, func(t *testing.T) {
			n, _ := alone(t)
			require.ErrorIs(t, n.Assign(ordersZero, a), InvalidReplicaAssignment)
			_, err := n.Partition(ordersZero)
			require.ErrorIs(t, err, ErrNoReplica)
		})
	}
}

// Whoever drives a Partition himself, or answers its proposals, may name a node twice: it counts once.
func TestANodeThatIsNamedTwiceCountsOnce(t *testing.T) {
	l := newLab(t, Config{MinISR: 2}, filled(0))
	l.step(Assign{Leader: 1, Replicas: []NodeID{1, 2, 2, 3, 3}, ISR: []NodeID{1, 1}})
	require.Equal(t, NotEnoughReplicas, reply(t, l.produce(1, -1, 1), 1).Err)
	p := only(t, l.fetchFrom(2, 0), ProposeISR)
	l.step(ISRAnswer{Tag: p.Tag, ISR: []NodeID{1, 2, 2, 1}, PartitionEpoch: 1})
	require.Equal(t, []NodeID{1, 2}, l.p.Status().ISR)
	noReply(t, l.produce(2, -1, 1))
	require.Equal(t, None, reply(t, l.fetchFrom(2, 1), 2).Err)
}

// A store and a network that nobody has made are empty ones; so is a store that was restored from no snapshot.
func TestZeroStoresAndNetworksAreEmptyOnes(t *testing.T) {
	restored := NewMemStore()
	restored.Restore(MemSnapshot{})
	for name, m := range map[string]*MemStore{"zero": {}, "restored": restored} {
		s, err := m.Session(t.Context(), time.Second)
		require.NoError(t, err, name)
		_, err = s.Commit(t.Context(), Transaction{Writes: []Write{{Key: "/a", Value: []byte("1"), Ephemeral: true}}})
		require.NoError(t, err, name)
		for v, err := range m.Watch(t.Context(), "/") {
			require.NoError(t, err, name)
			require.Equal(t, "/a", v.Key)
			break
		}
		m.Expire(nil)
	}
	n := new(Network)
	n.Fault(1, 2, Faults{Cut: true})
	n.Isolate(3, false, 1, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, n.Transport(1).Serve(ctx, func(Envelope) {}), context.Canceled)
}

// What is no message does not end the connection to a node, and with it what others wait for.
func TestWhatIsNoMessageIsNotSent(t *testing.T) {
	a, b := listen(t, 1), listen(t, 2)
	a.SetPeer(2, b.Addr().String())
	got := make(chan Envelope, 10)
	go func() { _ = b.Serve(t.Context(), func(e Envelope) { got <- e }) }()
	for tag := range uint64(3) {
		a.Send(2, ordersZero, nil)
		a.Send(2, ordersZero, Lost{})
		a.Send(2, ordersZero, EpochRequest{From: NoNode, Tag: tag})
		require.Equal(t, tag, (<-got).Message.(EpochRequest).Tag)
	}
}
