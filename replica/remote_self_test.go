package replica

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// Who follows the leader asks Remote(leader), wherever that is: here the transport knows no way to the node itself.
func TestANodeCanAskItself(t *testing.T) {
	wire, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 1})
	require.NoError(t, err)
	defer wire.Close()
	dir, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem(), Manual: true, Defaults: log.Config{Durability: log.Buffered}})
	require.NoError(t, err)
	defer dir.Close()
	n, err := NewNode(NodeConfig{Dir: dir, Transport: wire, Config: Config{Self: 1},
		Judge: func(context.Context, NodeID, log.TopicPartition, ControlRequest) ISRAnswer {
			return ISRAnswer{LeaderEpoch: 7}
		}})
	require.NoError(t, err)
	defer n.Close()
	require.NoError(t, n.Assign(ordersZero, Assign{Leader: 1, Replicas: []NodeID{1}, ISR: []NodeID{1}}))
	h, err := n.Partition(ordersZero)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: 5, Transactional: true}})
	require.NoError(t, b.Add(record.Record{Value: []byte("a")}))
	batch, err := b.Finish()
	require.NoError(t, err)
	_, err = h.Append(ctx, batch.Bytes(), -1)
	require.NoError(t, err)

	self := n.Remote(1, ordersZero)
	f, err := self.Fetch(ctx, 0, FetchOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, f.NextOffset)
	end, err := self.EndOfEpoch(ctx, 0, nil)
	require.NoError(t, err)
	require.Equal(t, log.EpochEnd{Epoch: 0, End: 1}, end)
	got, err := self.EndTxn(ctx, record.Producer{ID: 5}, true, log.EndTxnOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, got.Base)
	a, err := n.AskController(ctx, 1, ordersZero, ControlRequest{})
	require.NoError(t, err)
	require.EqualValues(t, 7, a.LeaderEpoch)
	_, err = n.Remote(1, log.TopicPartition{Topic: "none"}).Fetch(ctx, 0, FetchOptions{})
	require.ErrorIs(t, err, UnknownTopicOrPartition)
}

func TestWhoWasNotAnsweredLearnsByWhom(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := g.nodes[1].Remote(9, ordersZero).Fetch(ctx, 0, FetchOptions{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.EqualError(t, err, "replica: node 9 has not answered about orders-0: context deadline exceeded")
}
