package replica

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// server is a replica as its clients see it, here or at another node.
type server interface {
	Fetch(ctx context.Context, offset int64, o FetchOptions) (*Fetched, error)
	EndOfEpoch(ctx context.Context, epoch int32, leaderEpoch *int32) (log.EpochEnd, error)
	EndTxn(ctx context.Context, p record.Producer, commit bool, o log.EndTxnOptions) (log.Appended, error)
}

// overTCP is a group whose nodes speak TCP.
func overTCP(t *testing.T, ids ...NodeID) *group {
	g := &group{t: t, network: NewNetwork(), ids: ids, nodes: map[NodeID]*member{}}
	g.state = Assign{TopicID: [16]byte{1}, Leader: ids[0], Replicas: ids, ISR: slices.Clone(ids)}
	wires := map[NodeID]*TCP{}
	for _, id := range ids {
		tcp, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: id, Backoff: 5 * time.Millisecond})
		require.NoError(t, err)
		for other, w := range wires {
			tcp.SetPeer(other, w.Addr().String())
			w.SetPeer(id, tcp.Addr().String())
		}
		wires[id] = tcp
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
	return g
}

// everywhere runs a test against the leader, node 1 of three: from inside its process, and from node 2 over both transports.
func everywhere(t *testing.T, test func(t *testing.T, g *group, s server)) {
	for name, remote := range map[string]bool{"here": false, "at another node": true} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2, 3)
			if remote {
				test(t, g, g.nodes[2].Remote(1, ordersZero))
			} else {
				test(t, g, g.handle(1))
			}
		})
	}
	t.Run("at another node over TCP", func(t *testing.T) {
		g := overTCP(t, 1, 2, 3)
		test(t, g, g.nodes[2].Remote(1, ordersZero))
	})
}

func (g *group) inTxn(p record.Producer, value string) {
	p.Transactional = true
	b := record.NewBuilder(record.BuilderOptions{Producer: &p})
	require.NoError(g.t, b.Add(record.Record{Timestamp: 1, Value: []byte(value)}))
	batch, err := b.Finish()
	require.NoError(g.t, err)
	_, err = g.handle(1).Append(g.t.Context(), slices.Clone(batch.Bytes()), -1)
	require.NoError(g.t, err)
}

func readAll(t *testing.T, s server, i log.Isolation) (list []string) {
	for offset := int64(0); ; {
		f, err := s.Fetch(t.Context(), offset, FetchOptions{Isolation: i, MaxBytes: 1})
		require.NoError(t, err)
		for r, err := range f.Records() {
			require.NoError(t, err)
			list = append(list, string(r.Value))
		}
		if f.NextOffset == offset {
			return list
		}
		offset = f.NextOffset
	}
}

func TestConsumersSeeTransactionsAsTheirIsolationSays(t *testing.T) {
	everywhere(t, func(t *testing.T, g *group, s server) {
		g.produce("plain")
		kept, dropped := record.Producer{ID: 1}, record.Producer{ID: 2}
		g.inTxn(kept, "kept")
		g.inTxn(dropped, "dropped")
		g.produce("behind")
		require.Equal(t, []string{"plain"}, readAll(t, s, log.ReadCommitted), "to the last stable offset")
		require.Equal(t, []string{"plain", "kept", "dropped", "behind"}, readAll(t, s, log.ReadUncommitted))

		ctx := t.Context()
		got, err := s.EndTxn(ctx, record.Producer{ID: 1, Epoch: 1}, true, log.EndTxnOptions{TransactionVersion: 2})
		require.NoError(t, err)
		require.EqualValues(t, 4, got.Base)
		got, err = s.EndTxn(ctx, dropped, false, log.EndTxnOptions{CoordinatorEpoch: 3})
		require.NoError(t, err)
		require.EqualValues(t, 5, got.Last)
		require.EqualValues(t, 6, g.handle(1).Log().Offsets().HighWatermark, "it waits until the marker is committed")
		require.Equal(t, []string{"plain", "kept", "behind"}, readAll(t, s, log.ReadCommitted))
		require.Equal(t, []string{"plain", "kept", "dropped", "behind"}, readAll(t, s, log.ReadUncommitted))

		g.caughtUp(1, 2, 3)
		require.Equal(t, []string{"plain", "kept", "behind"}, readAll(t, g.handle(3), log.ReadCommitted), "a follower serves consumers")

		_, err = s.EndTxn(ctx, dropped, false, log.EndTxnOptions{CoordinatorEpoch: 2})
		require.ErrorIs(t, err, TransactionCoordinatorFenced)
		_, err = s.EndTxn(ctx, record.Producer{ID: 1}, false, log.EndTxnOptions{CoordinatorEpoch: 3})
		require.ErrorIs(t, err, InvalidProducerEpoch)
		_, err = s.EndTxn(ctx, record.Producer{ID: -1}, false, log.EndTxnOptions{})
		require.ErrorIs(t, err, InvalidRecord)
	})
}

func TestRequestsUnderAnotherLeaderEpochAreFenced(t *testing.T) {
	everywhere(t, func(t *testing.T, g *group, s server) {
		g.produce("a")
		g.elect(2)
		g.elect(1)
		g.produce("b")
		ctx := t.Context()
		for epoch, want := range map[int32]ErrorCode{1: FencedLeaderEpoch, 2: None, 3: UnknownLeaderEpoch} {
			_, fetch := s.Fetch(ctx, 0, FetchOptions{LeaderEpoch: &epoch})
			_, end := s.EndOfEpoch(ctx, 0, &epoch)
			_, txn := s.EndTxn(ctx, record.Producer{ID: 1}, true, log.EndTxnOptions{LeaderEpoch: &epoch})
			for what, err := range map[string]error{"fetch": fetch, "end of epoch": end, "end of transaction": txn} {
				if want == None {
					require.NoError(t, err, what)
					continue
				}
				refused := (*RefusedError)(nil)
				require.ErrorAs(t, err, &refused, what)
				require.Equal(t, RefusedError{Partition: ordersZero, Request: refused.Request, Code: want, Leader: 1, LeaderEpoch: 2, Node: 1}, *refused, what)
			}
		}
		end, err := s.EndOfEpoch(ctx, 0, nil)
		require.NoError(t, err)
		require.Equal(t, log.EpochEnd{Epoch: 0, End: 1}, end)
		end, err = s.EndOfEpoch(ctx, 7, nil)
		require.NoError(t, err)
		require.Equal(t, log.EpochEnd{Epoch: -1, End: -1}, end)

		last := int32(1)
		f, err := s.Fetch(ctx, 2, FetchOptions{LastFetchedEpoch: &last})
		require.NoError(t, err)
		require.Equal(t, &log.EpochEnd{Epoch: 0, End: 1}, f.Diverging)
		require.EqualValues(t, 2, f.NextOffset)
		_, err = s.Fetch(ctx, 100, FetchOptions{})
		require.ErrorIs(t, err, OffsetOutOfRange)
		_, err = s.Fetch(ctx, -1, FetchOptions{})
		require.EqualError(t, err, "fetch from orders-0 refused: OFFSET_OUT_OF_RANGE")
	})
}

func TestAFollowerNamesTheLeader(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2, 3)
	g.produce("a")
	g.caughtUp(1, 2, 3)
	ctx := t.Context()
	for _, s := range []server{g.handle(3), g.nodes[1].Remote(3, ordersZero)} {
		_, err := s.EndTxn(ctx, record.Producer{ID: 1}, true, log.EndTxnOptions{})
		require.EqualError(t, err, "end of a transaction in orders-0 refused by node 3: NOT_LEADER_OR_FOLLOWER (node 1 leads epoch 0)")
		_, err = s.EndOfEpoch(ctx, 0, nil)
		require.EqualError(t, err, "end of an epoch in orders-0 refused by node 3: NOT_LEADER_OR_FOLLOWER (node 1 leads epoch 0)")
	}
	nobody := g.nodes[1].Remote(2, log.TopicPartition{Topic: "none"})
	_, err := nobody.Fetch(ctx, 0, FetchOptions{})
	require.ErrorIs(t, err, UnknownTopicOrPartition)
	_, err = nobody.EndOfEpoch(ctx, 0, nil)
	require.ErrorIs(t, err, UnknownTopicOrPartition)
	_, err = nobody.EndTxn(ctx, record.Producer{ID: 1}, true, log.EndTxnOptions{})
	require.ErrorIs(t, err, UnknownTopicOrPartition)
}

func TestUnknownValuesOfRequestsAreRefusedBeforeTheyAreSent(t *testing.T) {
	everywhere(t, func(t *testing.T, g *group, s server) {
		ctx := t.Context()
		bad := (*log.ConfigError)(nil)
		for _, i := range []log.Isolation{log.LogEnd, 9} {
			_, err := s.Fetch(ctx, 0, FetchOptions{Isolation: i})
			require.ErrorAs(t, err, &bad)
		}
		for _, o := range []FetchOptions{{MaxBytes: -1}, {MinBytes: -1}, {MaxWait: -1}} {
			_, err := s.Fetch(ctx, 0, o)
			require.ErrorAs(t, err, &bad)
		}
		_, err := s.EndTxn(ctx, record.Producer{ID: 1}, true, log.EndTxnOptions{TransactionVersion: 7})
		require.ErrorAs(t, err, &bad)
		require.Equal(t, "EndTxnOptions.TransactionVersion", bad.Field)
	})
}

// The core does not know yet, but the log has seen a newer leader: not even then a marker is written.
func TestTheLogItselfFencesAMarker(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1)
	g.produce("a")
	require.NoError(t, g.handle(1).Log().AssignEpoch(9))
	_, err := g.handle(1).EndTxn(t.Context(), record.Producer{ID: 1}, true, log.EndTxnOptions{})
	require.ErrorIs(t, err, NotLeaderOrFollower)
	require.ErrorIs(t, err, log.ErrFenced)
	require.EqualValues(t, 1, g.handle(1).Log().Offsets().LogEnd)
}

func TestAFetchWaitsForRecordsAndIsForgottenWhenNobodyDoes(t *testing.T) {
	everywhere(t, func(t *testing.T, g *group, s server) {
		g.produce("a")
		got := make(chan []string, 1)
		go func() {
			f, err := s.Fetch(t.Context(), 1, FetchOptions{MinBytes: 1, MaxWait: 10 * time.Second})
			if err != nil {
				got <- []string{err.Error()}
				return
			}
			var list []string
			for r := range f.Records() {
				list = append(list, string(r.Value))
			}
			got <- list
		}()
		consumers := func() int { return g.handle(1).Status().Fetches - 2 }
		require.Eventually(t, func() bool { return consumers() == 1 }, 5*time.Second, time.Millisecond)
		g.produce("b")
		require.Equal(t, []string{"b"}, <-got)
		begun := time.Now()
		f, err := s.Fetch(t.Context(), 2, FetchOptions{MinBytes: 1, MaxWait: 20 * time.Millisecond})
		require.NoError(t, err)
		require.Empty(t, f.Raw)
		require.EqualValues(t, 2, f.NextOffset)
		require.GreaterOrEqual(t, time.Since(begun), 20*time.Millisecond)

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		_, err = s.Fetch(ctx, 2, FetchOptions{MinBytes: 1, MaxWait: 300 * time.Millisecond})
		require.ErrorIs(t, err, context.Canceled)
		require.Eventually(t, func() bool { return consumers() <= 0 }, 5*time.Second, time.Millisecond)
	})
}

// A request that is lost is made again; copies of one that was answered long ago change nothing.
func TestACopyOfAnEndOfATransactionDoesNotEndTheNextOne(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2, 3)
	g.network.Fault(2, 1, Faults{Loss: 0.3, Duplicate: 0.5, Delay: 5 * time.Millisecond})
	p := record.Producer{ID: 1}
	ctx := t.Context()
	s := g.nodes[2].Remote(1, ordersZero)
	g.inTxn(p, "first")
	_, err := s.EndTxn(ctx, p, true, log.EndTxnOptions{})
	require.NoError(t, err)
	g.network.Fault(2, 1, Faults{})
	g.nodes[2].asking.Lock()
	last := g.nodes[2].lastAsk
	g.nodes[2].asking.Unlock()

	p.BaseSequence = 1
	g.inTxn(p, "second")
	for tag := last; tag>>32 == last>>32 && last-tag < 3; tag-- {
		g.nodes[1].deliver(Envelope{From: 2, Partition: ordersZero, Message: EndTxn{Tag: tag, ProducerID: 1, LeaderEpoch: -1, BrokerEpoch: 2}})
	}
	g.nodes[1].deliver(Envelope{From: 2, Partition: ordersZero, Message: EndTxn{Tag: 1 << 62, ProducerID: 1, LeaderEpoch: -1, BrokerEpoch: 1}}) // of an earlier life
	_, err = g.handle(1).EndOfEpoch(ctx, 0, nil)                                                                                                // behind them
	require.NoError(t, err)
	require.Equal(t, []string{"first"}, readAll(t, s, log.ReadCommitted), "the second transaction is open")
	_, err = s.EndTxn(ctx, p, true, log.EndTxnOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"first", "second"}, readAll(t, s, log.ReadCommitted))
}

// wire is a transport whose other end is the test.
type wire struct {
	sent    chan Message
	deliver chan func(Envelope)
}

func (w wire) Send(_ NodeID, _ log.TopicPartition, m Message) { w.sent <- m }

func (w wire) Serve(ctx context.Context, deliver func(Envelope)) error {
	w.deliver <- deliver
	<-ctx.Done()
	return ctx.Err()
}

// The first request is slow, the second one is still on its way when the answer to the first comes: that does not count, since the
// second could still end the producer's next transaction.
func TestAnEndOfATransactionIsDoneWhenNoCopyOfItIsLeft(t *testing.T) {
	d, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem()})
	require.NoError(t, err)
	w := wire{make(chan Message, 16), make(chan func(Envelope), 1)}
	n, err := NewNode(NodeConfig{Config: Config{Self: 1, FetchLimit: 10 * time.Millisecond}, Dir: d, Transport: w})
	require.NoError(t, err)
	deliver := <-w.deliver
	done := make(chan int64, 1)
	go func() {
		got, err := n.Remote(2, ordersZero).EndTxn(context.Background(), record.Producer{ID: 1}, true, log.EndTxnOptions{})
		require.NoError(t, err)
		done <- got.Base
	}()
	answer := func(tag uint64, base int64) {
		r := refusal(None)
		r.Base, r.Last = base, base
		deliver(Envelope{From: 2, Partition: ordersZero, Message: Answer{From: 2, Tag: tag, Result: r}})
	}
	first := (<-w.sent).(EndTxn)
	second := (<-w.sent).(EndTxn)
	require.Greater(t, second.Tag, first.Tag)
	answer(first.Tag, 10)
	for asking := true; asking; {
		select {
		case m := <-w.sent:
			answer(m.(EndTxn).Tag, 12)
		case base := <-done:
			require.Equal(t, int64(12), base)
			asking = false
		}
	}
	require.NoError(t, n.Close())
	require.NoError(t, d.Close())
}

func TestWhoAsksIsToldThatTheNodeIsGone(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
	g.produce("a")
	h, far := g.handle(1), g.nodes[1].Remote(9, ordersZero)
	errs := make(chan error, 3)
	wait := FetchOptions{MinBytes: 1, MaxWait: time.Hour}
	go func() { _, err := h.Fetch(t.Context(), 1, wait); errs <- err }()
	go func() { _, err := far.Fetch(t.Context(), 1, wait); errs <- err }()
	go func() { _, err := far.EndOfEpoch(t.Context(), 0, nil); errs <- err }()
	require.Eventually(t, func() bool {
		g.nodes[1].asking.Lock()
		defer g.nodes[1].asking.Unlock()
		return len(g.nodes[1].awaited) == 2 && h.Status().Fetches >= 1
	}, 5*time.Second, time.Millisecond)
	g.kill(1)
	for range 3 {
		err := <-errs
		require.True(t, errors.Is(err, ErrNodeClosed) || errors.Is(err, NotLeaderOrFollower), err)
	}
	require.Empty(t, g.nodes[1].awaited)
	_, err := h.Fetch(t.Context(), 1, wait)
	require.ErrorIs(t, err, ErrNodeClosed)
}
