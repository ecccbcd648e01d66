package replica

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

// Who is refused learns the numbers, here and at another node, over either transport.
func TestRefusalsHaveNumbers(t *testing.T) {
	g := &group{t: t, ids: []NodeID{1, 2, 3}, nodes: map[NodeID]*member{}}
	g.state = Assign{TopicID: [16]byte{1}, Leader: 1, Replicas: []NodeID{1, 2}, ISR: []NodeID{1}, MinISR: 2}
	network := NewNetwork()
	wires := []*TCP{listen(t, 1), listen(t, 3)}
	wires[0].SetPeer(3, wires[1].Addr().String())
	wires[1].SetPeer(1, wires[0].Addr().String())
	leader, far := patient(t, 1, wires[0]), patient(t, 3, wires[1])
	near, local := patient(t, 4, network.Transport(4)), patient(t, 5, network.Transport(5))
	for _, n := range []*Node{leader, near} {
		a := g.state
		a.Leader, a.Replicas, a.ISR, a.MinISR = n.conf.Self, []NodeID{n.conf.Self, 2}, []NodeID{n.conf.Self}, 0
		require.NoError(t, n.Assign(ordersZero, a))
		h, err := n.Partition(ordersZero)
		require.NoError(t, err)
		_, err = h.Append(t.Context(), rawBatch(t, "a", "b", "c"), -1)
		require.NoError(t, err)
		a.PartitionEpoch, a.MinISR = 1, 2
		require.NoError(t, n.Assign(ordersZero, a))
		require.NoError(t, h.Log().DeleteRecords(t.Context(), 1))
	}
	handle, err := leader.Partition(ordersZero)
	require.NoError(t, err)
	type asked interface {
		Append(ctx context.Context, raw []byte, acks int8) (log.Appended, error)
		Fetch(ctx context.Context, offset int64, o FetchOptions) (*Fetched, error)
	}
	for name, at := range map[string]asked{"handle": handle, "TCP": far.Remote(1, ordersZero), "in process": local.Remote(4, ordersZero), "itself": leader.Remote(1, ordersZero)} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := at.Append(ctx, rawBatch(t, "d"), -1)
		require.ErrorIs(t, err, NotEnoughReplicas, name)
		few, refused := (*NotEnoughReplicasError)(nil), (*RefusedError)(nil)
		require.ErrorAs(t, err, &refused, name)
		require.ErrorAs(t, err, &few, name)
		require.Equal(t, NotEnoughReplicasError{InSync: 1, MinISR: 2}, *few, name)
		require.EqualError(t, err, fmt.Sprintf("append to orders-0 refused by node %d: NOT_ENOUGH_REPLICAS: 1 in sync, min.insync.replicas is 2", refused.Node), name)
		for _, offset := range []int64{0, 4, 1 << 40} {
			_, err = at.Fetch(ctx, offset, FetchOptions{})
			require.ErrorIs(t, err, OffsetOutOfRange, name)
			require.ErrorIs(t, err, log.ErrOffsetOutOfRange, name)
			wrong := (*log.OffsetRangeError)(nil)
			require.ErrorAs(t, err, &wrong, name)
			require.Equal(t, log.OffsetRangeError{Offset: offset, LogStart: 1, LogEnd: 3}, *wrong, name)
		}
		cancel()
	}
}

// What is in the log, and was confirmed by fewer than it should have been, says by how many.
func TestNotEnoughAfterTheAppendHasNumbers(t *testing.T) {
	l := newLab(t, Config{MinISR: 1}, filled(0))
	l.lead(1, 1, 2)
	noReply(t, l.produce(1, -1, 1))
	l.step(Reconfigure{Config{MinISR: 3}})
	l.p.lead.isr = []NodeID{1, 2, 3} // the guard of the high watermark has not seen it yet
	r := reply(t, l.fetchFrom(2, 1), 1)
	require.Equal(t, NotEnoughReplicasAfterAppend, r.Err)
	_, err := outcome(ordersZero, appendTo, r)
	few := (*NotEnoughReplicasError)(nil)
	require.ErrorAs(t, err, &few)
	require.Equal(t, NotEnoughReplicasError{InSync: 2, MinISR: 3}, *few)
	require.ErrorIs(t, err, NotEnoughReplicasAfterAppend)
	require.ErrorAs(t, err, new(*log.UnconfirmedError))

	head, _ := appendFrame(nil, ordersZero, Answer{Tag: 1, Result: r})
	_, m, err := decodeFrame(head[4:])
	require.NoError(t, err)
	require.Equal(t, r.Cause, m.(Answer).Result.Cause)
	require.Equal(t, log.EpochEnd{Epoch: -1, End: -1}, m.(Answer).Result.EpochEnd)
}
