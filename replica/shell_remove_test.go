package replica

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// A log that cannot be removed is tried again without anybody's doing, and meanwhile it can be seen.
func TestARemovalThatFailsIsTriedAgain(t *testing.T) {
	disk := vfstest.NewFault(vfs.Mem())
	d, err := log.OpenDir("mem", log.DirConfig{FS: disk, Defaults: log.Config{Durability: log.Buffered}})
	require.NoError(t, err)
	var told atomic.Int64
	conf := quick
	conf.Self = 1
	n, err := NewNode(NodeConfig{Config: conf, Dir: d, Transport: NewNetwork().Transport(1), Trouble: func(tp log.TopicPartition, err error) {
		require.Equal(t, ordersZero, tp)
		told.Add(1)
	}})
	require.NoError(t, err)
	a := Assign{TopicID: [16]byte{1}, Leader: 1, Replicas: []NodeID{1}, ISR: []NodeID{1}}
	require.NoError(t, n.Assign(ordersZero, a))
	h, err := n.Partition(ordersZero)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return h.Status().Active }, 5*time.Second, time.Millisecond)
	require.Equal(t, 1, n.Stats().Leaders)

	broken := errors.New("broken")
	_, mend := disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRename}, Name: "orders-0*", Times: vfstest.Always, Err: broken})
	require.NoError(t, n.Stop(ordersZero, Stop{Delete: true, LeaderEpoch: -1}))
	require.Eventually(t, func() bool { return h.Status().DeleteFailures >= 2 }, 10*time.Second, time.Millisecond)
	s := h.Status()
	require.True(t, s.Deleting)
	require.ErrorIs(t, s.LastError, broken)
	require.GreaterOrEqual(t, told.Load(), int64(2))
	require.Equal(t, 1, n.Stats().Deleting)
	require.GreaterOrEqual(t, n.Stats().DeleteFailures, int64(2))
	_, err = h.Append(t.Context(), rawBatch(t, "too late"), 1)
	require.Error(t, err)

	mend()
	require.Eventually(t, func() bool { return n.Stats().Replicas == 0 }, 10*time.Second, time.Millisecond)
	_, err = d.Open(t.Context(), ordersZero, log.Config{})
	require.NoError(t, err, "it is another log")
	require.NoError(t, n.Close())
	require.NoError(t, d.Close())
}
