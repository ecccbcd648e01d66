package member

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// A store is restored from an old backup while the members are as they come: some run on, some are stopped, killed or started anew
// before or after, one of them rules, news from before are on their way twice, and messages are late. All take its word again, give no
// epoch out twice, and go on; what was committed before the backup is there.
func TestAStoreThatWasRestoredInTheMiddleOfEverything(t *testing.T) {
	seeds := uint64(3)
	if n, err := strconv.ParseUint(os.Getenv("PARTLOG_TEST_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { restoreInTheMiddle(t, seed) })
		})
	}
}

func restoreInTheMiddle(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 4))
	c := newCluster(t, 1, 2, 3)
	defer c.tell()
	c.create("orders", map[string]string{"min.insync.replicas": fmt.Sprint(1 + r.IntN(2))}, ids{1, 2, 3})
	c.inSync(3)
	c.produce("a")
	backup := c.store.Snapshot()
	some := func() replica.NodeID { return replica.NodeID(r.IntN(3) + 1) }
	up := func() (n int) {
		for _, n2 := range c.nodes {
			if n2.Member != nil {
				n++
			}
		}
		return n
	}
	shake := func(times, least int) {
		for range times {
			id := some()
			switch n := c.nodes[id]; {
			case n.Member == nil:
				c.start(id, nil)
			case up() <= least:
			case r.IntN(2) == 0:
				c.stop(id)
			default:
				c.kill(id)
			}
			switch r.IntN(4) {
			case 0:
				c.nodes[some()].store.again.Store(r.IntN(2) == 0)
			case 1:
				c.network.Fault(some(), some(), replica.Faults{Delay: time.Duration(r.Int64N(int64(3 * time.Second))), Duplicate: 0.2, Loss: 0.05})
			case 2:
				c.nodes[some()].store.expire()
			}
			time.Sleep(time.Duration(r.Int64N(int64(10 * time.Second))))
		}
	}
	shake(1+r.IntN(8), 2)
	for _, n := range c.nodes {
		n.store.down.Store(true)
	}
	time.Sleep(time.Duration(r.Int64N(int64(5 * time.Second))))
	highest := c.look(orders).State
	c.store.Restore(backup)
	require.NoError(t, controller.AfterRestore(t.Context(), c.store))
	if r.IntN(3) == 0 {
		require.NoError(t, controller.AfterRestore(t.Context(), c.store))
	}
	for _, id := range r.Perm(3) { // they reach it one after the other
		c.nodes[replica.NodeID(id+1)].store.down.Store(false)
		time.Sleep(time.Duration(r.Int64N(int64(20 * time.Second))))
	}
	w := &witness{map[int32]replica.NodeID{}, map[int32]string{}, nil}
	go w.watch(t.Context(), c.store)
	shake(r.IntN(6), 1)
	for id, n := range c.nodes {
		n.store.again.Store(false)
		for other := range c.nodes {
			c.network.Fault(id, other, replica.Faults{})
		}
		if n.Member == nil {
			c.start(id, nil)
		}
	}
	time.Sleep(5 * time.Minute)
	if c.look(orders).State.Leader == replica.NoNode { // all were killed since the backup: whoever led last is elected uncleanly, by hand
		c.ask(func(ctx context.Context, ctrl *controller.Controller) error {
			_, err := ctrl.Elect(ctx, controller.Elect{Election: controller.Uncleanly})
			return err
		})
	}
	for id := range c.nodes {
		c.inService(id)
	}
	now := c.inSync(3)
	require.Greater(t, now.LeaderEpoch, highest.LeaderEpoch)
	require.Greater(t, now.PartitionEpoch, highest.PartitionEpoch)
	c.produce("end")
	for id := range c.nodes {
		c.holds(id, "a", "end")
	}
	require.Empty(t, w.wrong)
}
