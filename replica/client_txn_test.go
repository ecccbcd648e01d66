package replica

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// fakeNode is node 1 as a client sees it: do says what it answers, if anything.
func fakeNode(t *testing.T, do func(m Message) (Result, bool)) (at map[NodeID]string) {
	wire, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 1})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = wire.Serve(t.Context(), func(e Envelope) {
			var tag uint64
			switch m := e.Message.(type) {
			case OffsetRequest:
				tag = m.Tag
			case EndTxn:
				tag = m.Tag
			case AppendRequest:
				tag = m.Tag
			case StatusRequest:
				tag = m.Tag
			}
			if res, ok := do(e.Message); ok {
				wire.Send(e.From, e.Partition, Answer{From: 1, Tag: tag, Result: res})
			}
		})
	}()
	t.Cleanup(func() {
		_ = wire.Close()
		<-done
	})
	return map[NodeID]string{1: wire.Addr().String()}
}

func at(base int64) Result {
	r := refusal(None)
	r.Base, r.Last = base, base
	return r
}

func leadsIn(epoch int32) Result {
	r := at(0)
	r.LeaderEpoch = epoch
	return r
}

// Transactions of a program that is no member end while leaders change and die: each is there whole or not at all.
func TestAClientEndsTransactionsOverFailOver(t *testing.T) {
	g, nodes := listening(t, 1, 2, 3)
	c := newClient(t, ClientConfig{Nodes: nodes})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	p := record.Producer{ID: 7, Transactional: true}
	var want []string
	for i := range 8 {
		build := record.NewBuilder(record.BuilderOptions{Producer: &p})
		require.NoError(t, build.Add(record.Record{Timestamp: 1, Value: []byte(fmt.Sprint("v", i))}))
		b, err := build.Finish()
		require.NoError(t, err)
		_, err = c.Append(ctx, ordersZero, b.Bytes(), -1)
		require.NoError(t, err)
		p.BaseSequence++
		switch i {
		case 2:
			g.elect(2)
		case 4:
			g.kill(2)
			time.AfterFunc(50*time.Millisecond, func() { g.elect(3, 2) })
		}
		commit := i%3 != 1
		got, err := c.EndTxn(ctx, ordersZero, p, commit, log.EndTxnOptions{})
		require.NoError(t, err)
		require.GreaterOrEqual(t, got.Base, int64(2*i+1))
		if commit {
			want = append(want, fmt.Sprint("v", i))
		}
	}
	end, err := c.ListOffsets(ctx, ordersZero, OffsetQuery{At: Latest, Isolation: log.ReadCommitted})
	require.NoError(t, err)
	all, err := c.ListOffsets(ctx, ordersZero, OffsetQuery{At: Latest})
	require.NoError(t, err)
	require.Equal(t, all.Offset, end.Offset, "the last one is over")
	require.GreaterOrEqual(t, end.Offset, int64(16), "more where a marker was asked for again, because the answer took too long")
	var seen []string
	for r, err := range c.Records(ctx, ordersZero, 0, FetchOptions{Isolation: log.ReadCommitted}) {
		require.NoError(t, err)
		if seen = append(seen, string(r.Value)); len(seen) == len(want) {
			break
		}
	}
	require.Equal(t, want, seen)

	_, err = c.EndTxn(ctx, ordersZero, record.Producer{ID: 9, Epoch: 3}, true, log.EndTxnOptions{CoordinatorEpoch: 4})
	require.NoError(t, err)
	_, err = c.EndTxn(ctx, ordersZero, record.Producer{ID: 9, Epoch: 3}, true, log.EndTxnOptions{CoordinatorEpoch: 2})
	require.ErrorIs(t, err, TransactionCoordinatorFenced)
	_, err = c.EndTxn(ctx, ordersZero, record.Producer{ID: 9, Epoch: 1}, true, log.EndTxnOptions{CoordinatorEpoch: 4})
	require.ErrorIs(t, err, InvalidProducerEpoch)
	require.ErrorIs(t, err, log.ErrFenced)
	old := int32(0)
	_, err = c.EndTxn(ctx, ordersZero, record.Producer{ID: 9, Epoch: 3}, true, log.EndTxnOptions{CoordinatorEpoch: 4, LeaderEpoch: &old})
	require.ErrorIs(t, err, FencedLeaderEpoch)
	require.NotErrorAs(t, err, new(*UncertainError))
	_, err = c.EndTxn(ctx, ordersZero, p, true, log.EndTxnOptions{TransactionVersion: 3})
	require.ErrorAs(t, err, new(*log.ConfigError))
}

// The first attempt hangs somewhere. What it is when it comes at last must not end the transaction that began when the second
// was answered: it comes on another connection, or when another leader has led meanwhile.
func TestALateAttemptOfAClientDoesNotEndTheNextTransaction(t *testing.T) {
	var hung *EndTxn
	attempts := make(chan EndTxn, 8)
	c := newClient(t, ClientConfig{Nodes: fakeNode(t, func(m Message) (Result, bool) {
		e, ok := m.(EndTxn)
		if !ok {
			return leadsIn(0), true
		}
		attempts <- e
		if hung == nil {
			hung = &e
			return Result{}, false
		}
		return at(5), true
	})})
	got, err := c.EndTxn(t.Context(), ordersZero, record.Producer{ID: 1}, true, log.EndTxnOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 5, got.Base)
	first, second := <-attempts, <-attempts
	require.Greater(t, second.Tag, first.Tag)
	require.EqualValues(t, 0, first.LeaderEpoch)
	require.Empty(t, attempts)

	inTurn := func(epoch int32, between func(g *group)) {
		g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
		p := record.Producer{ID: 1}
		g.inTxn(p, "first")
		second.LeaderEpoch, second.BrokerEpoch = epoch, -1
		deliver := func(from NodeID, e EndTxn) {
			g.nodes[1].deliver(Envelope{From: from, Partition: ordersZero, Message: e})
			_, err := g.handle(1).EndOfEpoch(t.Context(), 0, nil) // behind it
			require.NoError(t, err)
		}
		deliver(firstClient, second)
		require.Eventually(t, func() bool { return slices.Equal(readAll(t, g.handle(1), log.ReadCommitted), []string{"first"}) }, 5*time.Second, time.Millisecond)
		between(g)
		p.BaseSequence = 1
		g.inTxn(p, "second")
		end := g.handle(1).Log().Offsets().LogEnd
		first.LeaderEpoch, first.BrokerEpoch = 0, -1
		deliver(firstClient-1, first)
		time.Sleep(5 * time.Millisecond)
		require.Equal(t, end, g.handle(1).Log().Offsets().LogEnd)
		require.Equal(t, []string{"first"}, readAll(t, g.handle(1), log.ReadCommitted), "the second transaction is open")
	}
	inTurn(0, func(*group) {})
	inTurn(0, func(g *group) { // and when node 1 has forgotten all it knew
		g.elect(2)
		g.elect(1)
		g.eventually("it leads", func() bool { s := g.handle(1).Status(); return s.LeaderEpoch == 2 && s.Active })
		g.handle(1).r.ends = ends{}
	})
}

// An error says nothing was done only if nothing may have been.
func TestAClientSaysWhenItDoesNotKnow(t *testing.T) {
	var n atomic.Int64
	refuse := func(m Message) (Result, bool) {
		if _, ok := m.(OffsetRequest); ok {
			return leadsIn(0), true
		}
		if n.Add(1) == 1 {
			return Result{}, false
		}
		return refusal(InvalidProducerEpoch), true
	}
	c := newClient(t, ClientConfig{Nodes: fakeNode(t, refuse)})
	unsure := (*UncertainError)(nil)
	_, err := c.EndTxn(t.Context(), ordersZero, record.Producer{ID: 1}, true, log.EndTxnOptions{})
	require.ErrorAs(t, err, &unsure)
	require.ErrorIs(t, err, InvalidProducerEpoch)
	require.Equal(t, []any{ordersZero, NodeID(1), "end of a transaction in"}, []any{unsure.Partition, unsure.Node, unsure.Request})
	n.Store(0)
	_, err = c.Append(t.Context(), ordersZero, encoded(t, record.BuilderOptions{Producer: &record.Producer{ID: 9}}, 1), -1)
	require.ErrorAs(t, err, &unsure)
	require.ErrorIs(t, err, InvalidProducerEpoch)
	n.Store(1)
	_, err = c.EndTxn(t.Context(), ordersZero, record.Producer{ID: 1}, true, log.EndTxnOptions{})
	require.ErrorIs(t, err, InvalidProducerEpoch)
	require.NotErrorAs(t, err, &unsure)
	refused := (*RefusedError)(nil)
	require.ErrorAs(t, err, &refused)
	require.Equal(t, NodeID(1), refused.Node)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c = newClient(t, ClientConfig{Nodes: fakeNode(t, func(m Message) (Result, bool) { // no answer at all
		_, asks := m.(OffsetRequest)
		if !asks { // it has been sent
			cancel()
		}
		return leadsIn(0), asks
	})})
	_, err = c.EndTxn(ctx, ordersZero, record.Producer{ID: 1}, true, log.EndTxnOptions{})
	require.ErrorAs(t, err, &unsure)
	require.ErrorIs(t, err, context.Canceled)
}

func TestEndsRememberTheLatestProducers(t *testing.T) {
	var s ends
	for id := range int64(10 * maxEnds) {
		if s.late(&EndTxn{From: firstClient, Tag: 7<<32 + uint64(id), ProducerID: id, BrokerEpoch: -1}) || len(s.young)+len(s.old) > maxEnds {
			t.Fatalf("producer %d: %d are remembered", id, len(s.young)+len(s.old))
		}
	}
	for id := int64(10*maxEnds - maxEnds/2); id < 10*maxEnds; id++ {
		require.True(t, s.late(&EndTxn{From: firstClient - 5, Tag: 7<<32 + uint64(id), ProducerID: id, BrokerEpoch: -1}))
	}
	last := int64(10*maxEnds - 1)
	require.False(t, s.late(&EndTxn{From: firstClient, Tag: 8<<32 + 1, ProducerID: last, BrokerEpoch: -1}), "another client")
	require.False(t, s.late(&EndTxn{From: 3, Tag: 7 << 32, ProducerID: last, BrokerEpoch: 5}), "a node")
	require.True(t, s.late(&EndTxn{From: 3, Tag: 9 << 32, ProducerID: last, BrokerEpoch: 4}), "its earlier life")
	require.False(t, s.late(&EndTxn{From: 3, Tag: 6 << 32, ProducerID: last, BrokerEpoch: 6}), "its next")
}
