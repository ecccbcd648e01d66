package member

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/vfs/vfstest"
)

// The log start rises on the leader, by retention and by hand, while followers are down, cut off, behind or come back with less
// than there is, with small segments, and while the topic's settings change: everybody comes back in sync, begins where the leader
// does, and has what the leader has.
func TestALogStartThatRisesReachesWhoeverWasAway(t *testing.T) {
	seeds := uint64(3)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { retain(t, seed) })
	}
}

func retain(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 12))
	c := newCluster(t)
	defer c.tell()
	for id := range replica.NodeID(3) {
		c.nodes[id+1] = &node{fs: vfstest.NewCrash(vfstest.CrashOptions{NoMmap: true}), store: newTroubled(c.store)}
		c.start(id+1, nil)
	}
	for id := range c.nodes {
		c.inService(id)
	}
	settings := map[string]string{"min.insync.replicas": "2", "internal.segment.bytes": "400", "retention.ms": "-1"}
	c.create("orders", settings, ids{1, 2, 3})
	c.inSync(3)
	x := &exchange{cluster: c}
	leader := func() (h *replica.Handle) {
		c.until("it leads", func(p controller.Partition) bool {
			n := c.nodes[p.Leader]
			if n == nil || n.Member == nil {
				return false
			}
			var err error
			h, err = n.Node().Partition(orders)
			return err == nil && h.Log() != nil
		})
		return h
	}
	n := 0
	produce := func(most int) {
		for range rng.IntN(most) {
			c.produceWithin(time.Minute, strconv.Itoa(n))
			n++
		}
	}
	for range 20 {
		produce(20)
		away := replica.NodeID(1 + rng.IntN(3))
		if away == c.look(orders).State.Leader && rng.IntN(3) > 0 {
			away = away%3 + 1
		}
		back := func() {}
		switch rng.IntN(4) {
		case 0:
			x.crash(away, rng.IntN(2) == 0, rng.Uint64())
			back = func() { x.restart(away) }
		case 1:
			c.stop(away)
			back = func() { c.start(away, nil) }
		case 2:
			c.network.Isolate(away, true, 1, 2, 3)
			c.nodes[away].store.down.Store(true) // else it would lead or rule on, and nothing be committed
			c.nodes[away].store.expire()
			back = func() {
				c.nodes[away].store.heal()
				c.network.Isolate(away, false, 1, 2, 3)
			}
		case 3:
			c.nodes[away].store.down.Store(true)
			c.nodes[away].store.expire()
			back = c.nodes[away].store.heal
		}
		produce(30)
		l := leader()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		o := l.Log().Offsets()
		switch rng.IntN(4) {
		case 0:
			_ = l.Log().DeleteRecords(ctx, o.HighWatermark)
		case 1:
			_ = l.Log().DeleteRecords(ctx, o.LogStart+rng.Int64N(o.HighWatermark-o.LogStart+1))
		case 2:
			settings["retention.bytes"] = []string{"-1", "1000", "100"}[rng.IntN(3)]
			settings["internal.segment.bytes"] = []string{"200", "400", "100000"}[rng.IntN(3)]
			settings["cleanup.policy"] = []string{"delete", "delete", "compact,delete"}[rng.IntN(3)]
			c.ask(func(ctx context.Context, ctrl *controller.Controller) error {
				return ctrl.SetConfig(ctx, "orders", settings)
			})
			time.Sleep(time.Second)
			for _, n := range c.nodes {
				if n.Member == nil || rng.IntN(3) == 0 {
					continue
				}
				if h, err := n.Node().Partition(orders); err == nil && h.Log() != nil {
					_, _ = h.Log().Retain(ctx) // some have their turn before others
				}
			}
		case 3:
			time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
		}
		cancel()
		produce(10)
		back()
		if rng.IntN(2) == 0 {
			c.inSync(3)
		}
	}
	c.inSync(3)
	c.produce("end")
	l := leader().Log()
	for id, n := range c.nodes {
		var own []string
		for at := time.Now(); ; time.Sleep(100 * time.Millisecond) {
			h, err := n.Node().Partition(orders)
			require.NoError(t, err)
			o, of := h.Log().Offsets(), l.Offsets()
			own = values(t, h.Log(), of.LogStart)
			if o.HighWatermark == of.LogEnd && o.LogStart >= of.LogStart && slices.Equal(own, values(t, l, max(o.LogStart, of.LogStart))) {
				break
			}
			if time.Since(at) > 10*time.Minute {
				t.Fatalf("node %d: %+v, the leader: %+v\n%v\n%v", id, o, of, own, values(t, l, max(o.LogStart, of.LogStart)))
			}
		}
		require.Contains(t, own[len(own)-1], " end")
		h, _ := n.Node().Partition(orders)
		for f, err := range h.Log().Verify(t.Context()) {
			require.NoError(t, err)
			t.Errorf("node %d: %+v", id, f)
		}
	}
	o := l.Offsets()
	t.Logf("%d records, from %d to %d in epoch %d, settings %v", n, o.LogStart, o.LogEnd, o.LeaderEpoch, fmt.Sprint(settings))
}

func values(t *testing.T, l *log.Log, from int64) (list []string) {
	for r, err := range l.Records(t.Context(), max(from, l.Offsets().LogStart)) {
		require.NoError(t, err)
		list = append(list, fmt.Sprint(r.Offset, " ", string(r.Value)))
	}
	return list
}
