package replica

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// A Dir that is closed while a node uses it: whoever asks is refused, the logs are looked for now and then and not all the time, and the
// node can be closed.
func TestADirThatIsClosedUnderneathANodeIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := NewNetwork()
		d, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem(), Defaults: log.Config{Durability: log.Buffered}})
		require.NoError(t, err)
		var troubles atomic.Int64
		n, err := NewNode(NodeConfig{Config: Config{Self: 1}, Dir: d, Transport: network.Transport(1), Trouble: func(log.TopicPartition, error) { troubles.Add(1) }})
		require.NoError(t, err)
		follows := log.TopicPartition{Topic: "follows"}
		require.NoError(t, n.Assign(ordersZero, Assign{Leader: 1, Replicas: []NodeID{1}, ISR: []NodeID{1}}))
		require.NoError(t, n.Assign(follows, Assign{Leader: 2, Replicas: []NodeID{1, 2}, ISR: []NodeID{2}}))
		h, err := n.Partition(ordersZero)
		require.NoError(t, err)
		_, err = h.Append(t.Context(), rawBatch(t, "v"), -1)
		require.NoError(t, err)
		require.NoError(t, d.Close())
		_, err = h.Append(t.Context(), rawBatch(t, "v"), -1)
		require.ErrorIs(t, err, KafkaStorageError)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = h.Fetch(ctx, 0, FetchOptions{MinBytes: 1, MaxWait: time.Second})
		require.ErrorIs(t, err, KafkaStorageError)
		_, err = h.EndTxn(ctx, record.Producer{ID: 1}, true, log.EndTxnOptions{})
		require.ErrorIs(t, err, KafkaStorageError)
		_, err = h.ListOffsets(ctx, OffsetQuery{At: Earliest})
		require.ErrorIs(t, err, KafkaStorageError)
		require.NoError(t, n.Assign(log.TopicPartition{Topic: "new"}, Assign{Leader: 1, Replicas: []NodeID{1}, ISR: []NodeID{1}}))
		require.NoError(t, n.Stop(follows, Stop{Delete: true, LeaderEpoch: -1}))
		time.Sleep(time.Hour)
		require.Less(t, troubles.Load(), int64(4*80))
		require.NoError(t, n.Close())
	})
}

// A message that a transport hands over after Serve has returned, which it must not, finds nobody.
func TestWhatATransportDeliversAfterCloseFindsNobody(t *testing.T) {
	d, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem(), Defaults: log.Config{Durability: log.Buffered}})
	require.NoError(t, err)
	w := wire{make(chan Message, 1024), make(chan func(Envelope), 1)}
	judged := make(chan bool, 1)
	n, err := NewNode(NodeConfig{Config: Config{Self: 1}, Dir: d, Transport: w, Judge: func(context.Context, NodeID, log.TopicPartition, ControlRequest) ISRAnswer {
		judged <- true
		return ISRAnswer{}
	}})
	require.NoError(t, err)
	deliver := <-w.deliver
	require.NoError(t, n.Assign(ordersZero, Assign{Leader: 1, Replicas: []NodeID{1, 2}, ISR: []NodeID{1}}))
	h, err := n.Partition(ordersZero)
	require.NoError(t, err)
	_, err = h.Append(t.Context(), rawBatch(t, "v"), -1)
	require.NoError(t, err)
	require.NoError(t, n.Close())
	end := h.Log().Offsets()
	for _, m := range append(someMessages, Lost{}, nil, AppendRequest{Tag: 1, Raw: rawBatch(t, "late"), Acks: 1, LeaderEpoch: -1}) {
		deliver(Envelope{From: 2, Partition: ordersZero, Message: m})
	}
	require.Equal(t, end, h.Log().Offsets())
	require.NoError(t, d.Close())
	require.Empty(t, judged)
}
