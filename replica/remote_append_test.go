package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// producer is a replica as producers see it.
type producer interface {
	server
	Append(ctx context.Context, raw []byte, acks int8) (log.Appended, error)
	Produce(ctx context.Context, raw []byte, acks int8, o ProduceOptions) (log.Appended, error)
	ListOffsets(ctx context.Context, q OffsetQuery) (OffsetFound, error)
}

// ready waits until the leader leads, and can be reached.
func ready(t *testing.T, p producer) {
	require.Eventually(t, func() bool {
		_, err := p.ListOffsets(t.Context(), OffsetQuery{At: Latest})
		return err == nil
	}, 10*time.Second, time.Millisecond)
}

func encoded(t *testing.T, o record.BuilderOptions, times ...int64) []byte {
	b := record.NewBuilder(o)
	for _, ms := range times {
		require.NoError(t, b.Add(record.Record{Timestamp: ms, Value: []byte("v")}))
	}
	batch, err := b.Finish()
	require.NoError(t, err)
	return slices.Clone(batch.Bytes())
}

func TestAppendsAreTheSameHereAndThere(t *testing.T) {
	everywhere(t, func(t *testing.T, g *group, s server) {
		p, ctx := s.(producer), t.Context()
		ready(t, p)
		now := time.Now().UnixMilli()
		for i, acks := range []int8{-1, 1, -1} {
			raw := encoded(t, record.BuilderOptions{}, now, now)
			got, err := p.Append(ctx, raw, acks)
			require.NoError(t, err)
			require.EqualValues(t, 2*i, got.Base)
			require.EqualValues(t, 2*i+1, got.Last)
		}
		got, err := p.Append(ctx, encoded(t, record.BuilderOptions{}, now), 0)
		require.NoError(t, err)
		require.EqualValues(t, -1, got.Base)
		require.Eventually(t, func() bool { return g.handle(1).Log().Offsets().HighWatermark == 7 }, 10*time.Second, time.Millisecond)

		current, old, next := g.state.LeaderEpoch, g.state.LeaderEpoch-1, g.state.LeaderEpoch+1
		for epoch, code := range map[*int32]error{&current: nil, &next: UnknownLeaderEpoch} {
			_, err = p.Produce(ctx, encoded(t, record.BuilderOptions{}, now), -1, ProduceOptions{LeaderEpoch: epoch})
			require.ErrorIs(t, err, code)
		}
		if old >= 0 {
			_, err = p.Produce(ctx, encoded(t, record.BuilderOptions{}, now), -1, ProduceOptions{LeaderEpoch: &old})
			require.ErrorIs(t, err, FencedLeaderEpoch)
		}

		// A retry of an idempotent producer is known again, a gap is refused, and what the log says of it comes through.
		idempotent := func(seq int32) record.BuilderOptions {
			return record.BuilderOptions{Producer: &record.Producer{ID: 9, BaseSequence: seq}}
		}
		first, err := p.Append(ctx, encoded(t, idempotent(0), now), -1)
		require.NoError(t, err)
		again, err := p.Append(ctx, encoded(t, idempotent(0), now), -1)
		require.NoError(t, err)
		require.True(t, again.Duplicate)
		require.Equal(t, first.Base, again.Base)
		_, err = p.Append(ctx, encoded(t, idempotent(5), now), -1)
		refused := (*RefusedError)(nil)
		require.ErrorAs(t, err, &refused)
		require.Equal(t, OutOfOrderSequence, refused.Code)
		require.ErrorIs(t, err, OutOfOrderSequence)
		require.ErrorIs(t, err, log.ErrOutOfOrder)
		require.NotErrorIs(t, err, log.ErrTooLarge)

		_, err = p.Append(ctx, encoded(t, record.BuilderOptions{}, now+10*3600*1000), -1)
		require.ErrorIs(t, err, InvalidTimestamp)
		require.ErrorIs(t, err, log.ErrInvalidTimestamp)
		require.ErrorContains(t, err, "message.timestamp.after.max.ms")
		_, err = p.Append(ctx, []byte("no batch"), -1)
		require.ErrorIs(t, err, CorruptMessage)
		_, err = p.Append(ctx, encoded(t, record.BuilderOptions{}, now), 7)
		require.ErrorIs(t, err, InvalidRequiredAcks)
	})
}

func TestOffsetsAreLookedUpTheSameHereAndThere(t *testing.T) {
	everywhere(t, func(t *testing.T, g *group, s server) {
		p, ctx := s.(producer), t.Context()
		ready(t, p)
		found := func(at int64, i log.Isolation) OffsetFound {
			t.Helper()
			f, err := p.ListOffsets(ctx, OffsetQuery{At: at, Isolation: i})
			require.NoError(t, err)
			return f
		}
		epoch := g.state.LeaderEpoch
		require.Equal(t, OffsetFound{0, -1, epoch}, found(Latest, log.ReadUncommitted))
		require.Equal(t, notFound, found(MaxTime, log.ReadUncommitted))
		for _, ms := range []int64{1000, 5000, 3000} {
			_, err := p.Append(ctx, encoded(t, record.BuilderOptions{}, ms), -1)
			require.NoError(t, err)
		}
		_, err := p.Append(ctx, encoded(t, record.BuilderOptions{Producer: &record.Producer{ID: 3, Transactional: true}}, 9000), -1)
		require.NoError(t, err)
		require.Equal(t, OffsetFound{4, -1, epoch}, found(Latest, log.ReadUncommitted))
		require.Equal(t, OffsetFound{3, -1, epoch}, found(Latest, log.ReadCommitted))
		require.Equal(t, int64(0), found(Earliest, log.ReadCommitted).Offset)
		require.Equal(t, OffsetFound{3, 9000, epoch}, found(MaxTime, log.ReadUncommitted))
		require.Equal(t, notFound, found(MaxTime, log.ReadCommitted), "above the last stable offset")
		require.Equal(t, OffsetFound{1, 5000, epoch}, found(2000, log.ReadCommitted))
		require.Equal(t, notFound, found(9001, log.ReadUncommitted))
		next := epoch + 1
		_, err = p.ListOffsets(ctx, OffsetQuery{At: Latest, LeaderEpoch: &next})
		require.ErrorIs(t, err, UnknownLeaderEpoch)
		_, err = p.ListOffsets(ctx, OffsetQuery{At: -9})
		require.ErrorIs(t, err, InvalidRequest)
		_, err = p.ListOffsets(ctx, OffsetQuery{Isolation: log.LogEnd})
		require.ErrorAs(t, err, new(*log.ConfigError))
		for _, follower := range []producer{g.handle(3), g.nodes[2].Remote(3, ordersZero)} {
			_, err = follower.ListOffsets(ctx, OffsetQuery{At: Latest})
			require.ErrorIs(t, err, NotLeaderOrFollower)
			_, err = follower.Append(ctx, encoded(t, record.BuilderOptions{}, 1), 1)
			require.ErrorIs(t, err, NotLeaderOrFollower)
		}
		_, err = g.nodes[2].Remote(1, log.TopicPartition{Topic: "none"}).ListOffsets(ctx, OffsetQuery{At: Latest})
		require.ErrorIs(t, err, UnknownTopicOrPartition)
	})
}

// Messages are lost and come twice: what has no sequence number is in the log once at most, what has one exactly once.
func TestAppendsOverABadNetworkAreNotDoubled(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
	g.network.Fault(2, 1, Faults{Loss: 0.1, Duplicate: 0.5, Delay: time.Millisecond})
	g.network.Fault(1, 2, Faults{Loss: 0.1, Duplicate: 0.5, Delay: time.Millisecond})
	far := g.nodes[2].Remote(1, ordersZero)
	ready(t, far)
	acked, unsure := 0, 0
	for i := range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := far.Append(ctx, encoded(t, record.BuilderOptions{}, 1), 1)
		cancel()
		var u *UncertainError
		switch {
		case err == nil:
			acked++
		case errors.As(err, &u):
			require.ErrorIs(t, err, context.DeadlineExceeded)
			unsure++
		default:
			t.Fatal(i, err)
		}
	}
	end := g.handle(1).Log().Offsets().LogEnd
	require.LessOrEqual(t, int64(acked), end)
	require.LessOrEqual(t, end, int64(acked+unsure))
	for i := range 30 {
		_, err := far.Append(t.Context(), encoded(t, record.BuilderOptions{Producer: &record.Producer{ID: 1, BaseSequence: int32(i)}}, 1), 1)
		require.NoError(t, err)
	}
	time.Sleep(5 * time.Millisecond)
	require.Equal(t, end+30, g.handle(1).Log().Offsets().LogEnd)
}

func TestCopiesAreRecognised(t *testing.T) {
	var c copies
	seen := map[uint64]bool{}
	at := uint64(7)<<32 + 1
	r := rand.New(rand.NewPCG(1, 2))
	for range 100000 {
		at += r.Uint64N(3) * r.Uint64N(40)
		tag := at - r.Uint64N(min(copyWindow, at&(1<<32-1)))
		require.Equal(t, !seen[tag], c.first(1, 5, tag), "%d of %d", tag, at)
		seen[tag] = true
		at = max(at, tag)
		if !c.first(1, 5, at) {
			require.True(t, seen[at])
		}
		seen[at] = true
	}
	require.False(t, c.first(1, 5, at-copyWindow), "too old to tell")
	require.True(t, c.first(1, 6, 3<<32), "another life")
	require.False(t, c.first(1, 5, at+1), "of the life before")
	require.True(t, c.first(2, 5, at))
	for id := range NodeID(1000) {
		require.True(t, c.first(id+10, 1, 1))
		require.Equal(t, id == 0, c.first(1, 6, 3<<32+7), "one that asks now and then is not forgotten for others")
		require.LessOrEqual(t, len(c.young)+len(c.old), maxCopies)
	}
	require.False(t, c.first(1010-maxCopies/2+1, 1, 1), "of so many the latest are remembered")
}

// Each connection of a client has a number of its own, and what is asked on it comes once: a thousand of them do not make a node be
// forgotten whose requests may come twice.
func TestClientsDoNotMakeNodesBeForgotten(t *testing.T) {
	var c copies
	require.True(t, c.first(1, 5, 7<<32+1))
	for i := range NodeID(1000) {
		require.True(t, c.first(firstClient-i, -1, 9<<32+1))
	}
	require.False(t, c.first(1, 5, 7<<32+1))
	require.Equal(t, 1, len(c.young)+len(c.old))
}

// Fetches and questions are asked again at once when a connection breaks, not when their time limit is over.
func TestABrokenConnectionIsNoticedAtOnce(t *testing.T) {
	patient := Config{LagTimeMax: time.Minute, FetchWait: time.Minute, FetchLimit: 10 * time.Minute, Backoff: 10 * time.Millisecond}
	g, wires := wired(t, log.Config{Durability: log.Buffered}, TCPConfig{Backoff: 5 * time.Millisecond}, patient, 1, 2)
	cut := func(id NodeID) {
		w := wires[id]
		w.mu.Lock()
		for c := range w.conns {
			_ = c.Close()
		}
		w.mu.Unlock()
	}
	g.produce("a")
	for round := range 10 {
		cut(NodeID(round%2 + 1)) // with a fetch under way, which waits for more
		began := time.Now()
		g.produce("b")
		require.Less(t, time.Since(began), 10*time.Second)
	}
	// An answer that waits is lost with its connection.
	far := g.nodes[2].Remote(1, ordersZero)
	var answered atomic.Bool
	done := make(chan error, 1)
	go func() {
		_, err := far.Fetch(t.Context(), g.handle(1).Log().Offsets().LogEnd, FetchOptions{MinBytes: 1, MaxWait: 2 * time.Minute})
		answered.Store(true)
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	require.False(t, answered.Load())
	cut(1)
	g.produce("c")
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("the question was not asked again")
	}
}

// A node that has nothing to say says so; one that says nothing at all is gone.
func TestASilentConnectionIsClosed(t *testing.T) {
	conf := TCPConfig{Idle: 500 * time.Millisecond, Backoff: 5 * time.Millisecond}
	g, wires := wired(t, log.Config{Durability: log.Buffered}, conf, Config{FetchWait: time.Minute, LagTimeMax: time.Minute, FetchLimit: 10 * time.Minute}, 1, 2)
	g.produce("a")
	count := func() int64 { return g.handle(2).Status().Counts.FetchErrors }
	before := count()
	c := dialAs(t, wires[1], 7)
	ended(t, c)
	time.Sleep(1200 * time.Millisecond)
	require.Equal(t, before, count(), "the nodes' own stay")
}

func TestAnOlderWireVersionIsRefused(t *testing.T) {
	hello := appendHello(nil, 1, 2)
	hello[7] = 2
	_, _, err := decodeHello(hello)
	require.ErrorIs(t, err, ErrFrame)
	require.ErrorContains(t, err, "version 2, not 4")
}
