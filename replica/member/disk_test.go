package member

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// The disk of a leader fails for one partition: another of those in sync leads it, and nothing that was confirmed is lost; the
// member leads its other partitions on. When the disk is well again it catches up.
func TestALeaderWhoseDiskFailsGivesThePartitionToAnother(t *testing.T) {
	c := newCluster(t)
	var fault *vfstest.Fault
	for id := range replica.NodeID(3) {
		var fs vfs.FS = vfs.Mem()
		if id == 0 {
			fault = vfstest.NewFault(fs)
			fs = fault
		}
		c.nodes[id+1] = &node{fs: fs, store: newTroubled(c.store)}
		c.start(id+1, nil)
	}
	for id := range c.nodes {
		c.inService(id)
	}
	c.create("orders", map[string]string{"min.insync.replicas": "2"}, ids{1, 2, 3}, ids{1, 2, 3})
	c.inSync(3)
	c.produce("a")
	_, mend := fault.Add(vfstest.Rule{Name: "orders-0/*", Ops: []vfstest.Kind{vfstest.OpWrite}, Times: vfstest.Always, Err: syscall.EIO})
	c.produce("b")
	p := c.inSync(2)
	require.NotEqual(t, replica.NodeID(1), p.Leader)
	other, err := controller.Lookup(t.Context(), c.store, log.TopicPartition{Topic: "orders", Partition: 1})
	require.NoError(t, err)
	require.Equal(t, replica.NodeID(1), other.State.Leader)

	mend()
	c.inSync(3)
	c.produce("c")
	c.holds(1, "a", "b", "c")
}

// A leader that is alone in sync, and whose log has failed, leads on once the disk is well again: nobody has to restart it.
func TestALeaderThatIsAloneLeadsOnWhenItsDiskIsWellAgain(t *testing.T) {
	c := newCluster(t)
	disk := vfstest.NewFault(vfs.Mem())
	c.nodes[1] = &node{fs: disk, store: newTroubled(c.store)}
	c.start(1, nil)
	c.inService(1)
	c.create("orders", nil, ids{1})
	c.produce("a")
	h, err := c.nodes[1].Node().Partition(orders)
	require.NoError(t, err)
	_, mend := disk.Add(vfstest.Rule{Name: "orders-0/*", Ops: []vfstest.Kind{vfstest.OpSync, vfstest.OpSyncData, vfstest.OpOpen}, Times: vfstest.Always, Err: syscall.EIO})
	require.ErrorIs(t, h.Log().Sync(t.Context()), log.ErrFailed)
	b := record.NewBuilder(record.BuilderOptions{})
	require.NoError(t, b.Add(record.Record{Timestamp: 1, Value: []byte("refused")}))
	batch, err := b.Finish()
	require.NoError(t, err)
	_, err = h.Append(t.Context(), batch.Bytes(), -1)
	require.ErrorIs(t, err, replica.KafkaStorageError)
	require.Eventually(t, func() bool { return h.Status().LogFailures >= 2 }, 20*time.Second, time.Millisecond)
	mend()
	c.produce("b")
	c.holds(1, "a", "b")
}

// A follower whose disk is full, or fails, holds nobody up for longer than it may lag behind, and catches up by itself when the
// disk is well again.
func TestAFollowerWhoseDiskFailsCatchesUpAfterwards(t *testing.T) {
	for name, errno := range map[string]error{"full": syscall.ENOSPC, "broken": syscall.EIO} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			fault := vfstest.NewFault(vfs.Mem())
			for id := range replica.NodeID(3) {
				c.nodes[id+1] = &node{fs: vfs.Mem(), store: newTroubled(c.store)}
				if id == 2 {
					c.nodes[id+1].fs = fault
				}
				c.start(id+1, nil)
			}
			for id := range c.nodes {
				c.inService(id)
			}
			c.create("orders", map[string]string{"min.insync.replicas": "2"}, ids{1, 2, 3})
			c.inSync(3)
			c.produce("a")
			_, mend := fault.Add(vfstest.Rule{Name: "orders-0/*", Ops: []vfstest.Kind{vfstest.OpWrite}, Times: vfstest.Always, Err: errno})
			c.produce("b")
			p := c.inSync(2)
			require.NotContains(t, p.ISR, replica.NodeID(3))
			mend()
			c.inSync(3)
			c.produce("c")
			c.holds(3, "a", "b", "c")
		})
	}
}
