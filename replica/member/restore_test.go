package member

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// A store is restored from a backup, behind which leaders, in-sync sets and registrations changed, one topic was made, and one
// deleted. Members that run on, were stopped, or were killed take its word again, and give out no epoch twice.
func TestAStoreThatWasRestoredFromABackupIsBelievedAgain(t *testing.T) {
	each := func(do func(c *cluster, id replica.NodeID)) func(*cluster) {
		return func(c *cluster) {
			for _, id := range (ids{3, 2, 1}) {
				do(c, id)
			}
		}
	}
	again := each(func(c *cluster, id replica.NodeID) { c.start(id, nil) })
	for name, how := range map[string]struct{ before, after func(c *cluster) }{
		"running": {func(*cluster) {}, func(*cluster) {}},
		"stopped": {each((*cluster).stop), again},
		"killed":  {each((*cluster).kill), again},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, 2, 3)
				three := ids{1, 2, 3}
				c.create("orders", map[string]string{"min.insync.replicas": "2"}, three)
				c.create("gone", nil, three)
				c.produce("a")
				c.inSync(3)
				backup := c.store.Snapshot()
				c.ask(func(ctx context.Context, ctrl *controller.Controller) error { return ctrl.DeleteTopic(ctx, "gone") })
				c.create("late", nil, three)
				for _, id := range (ids{1, 2, 1}) {
					c.kill(id)
					c.produce("b")
					c.start(id, nil)
					c.inSync(3)
				}
				was := c.look(orders).State
				c.produce("c")
				how.before(c)
				c.store.Restore(backup)
				require.NoError(t, controller.AfterRestore(t.Context(), c.store))
				how.after(c)
				time.Sleep(5 * time.Minute)
				for id := range c.nodes {
					c.inService(id)
				}
				now := c.inSync(3)
				require.Greater(t, now.LeaderEpoch, was.LeaderEpoch)
				require.Greater(t, now.PartitionEpoch, was.PartitionEpoch)
				c.produce("end")
				for id := range c.nodes {
					c.holds(id, "a", "b", "c", "end")
				}
				gone, err := controller.Lookup(t.Context(), c.store, log.TopicPartition{Topic: "gone"})
				require.NoError(t, err)
				require.NotEqual(t, replica.NoNode, gone.State.Leader, "it is there again, without its records")
				for id, n := range c.nodes {
					_, err := n.fs.Stat("late-0")
					require.NoError(t, err, "node %d keeps what the store has lost", id)
				}
				c.ask(func(ctx context.Context, ctrl *controller.Controller) error { return ctrl.DeleteTopic(ctx, "orders") })
				require.Eventually(t, func() bool {
					for _, n := range c.nodes {
						if _, err := n.Node().Partition(orders); err == nil {
							return false
						}
					}
					return true
				}, 5*time.Minute, time.Second, "what is deleted afterwards goes")
			})
		})
	}
}
