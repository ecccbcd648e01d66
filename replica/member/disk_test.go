package member

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// The disk of a leader fails for one partition: another of those in sync leads it, and nothing that was confirmed is lost; the
// member leads its other partitions on. When the disk is well again it catches up at the next news.
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
	c.stop(3) // news
	c.produce("c")
	p = c.inSync(2)
	require.Contains(t, p.ISR, replica.NodeID(1))
	c.holds(1, "a", "b", "c")
}

// A follower whose disk is full, or fails, holds nobody up for longer than it may lag behind, and catches up when the disk is well
// again and there are news.
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
			c.stop(2)
			c.produce("c")
			c.holds(3, "a", "b", "c")
		})
	}
}
