package member

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/vfs"
)

// witness sees every state of the partition there is, and that no epoch is given out twice.
type witness struct {
	leaders  map[int32]replica.NodeID
	versions map[int32]string
	wrong    []string
}

func (w *witness) watch(ctx context.Context, s replica.Store) {
	for n, err := range controller.Follow(ctx, s) {
		if err != nil || n.Partition != orders || n.Deleted {
			continue
		}
		p := n.State
		what := fmt.Sprintf("%+v", p)
		if was, ok := w.leaders[p.LeaderEpoch]; ok && was != p.Leader {
			w.wrong = append(w.wrong, fmt.Sprintf("epoch %d is of %d and of %d", p.LeaderEpoch, was, p.Leader))
		}
		if was, ok := w.versions[p.PartitionEpoch]; ok && was != what {
			w.wrong = append(w.wrong, fmt.Sprintf("version %d is %s and %s", p.PartitionEpoch, was, what))
		}
		w.leaders[p.LeaderEpoch], w.versions[p.PartitionEpoch] = p.Leader, what
	}
}

// Commits lose to other writers, many in a row, or are done and called a conflict, as by a client of the store that sends a
// transaction twice whose first answer was lost. Nobody waits for himself for ever, no decision is lost that was answered, and no
// epoch is given out twice.
func TestAStormOfConflictsHoldsUpNothingForEver(t *testing.T) {
	for name, storm := range map[string]func(s *troubled){
		"another writer wins":          func(s *troubled) { s.loses.Store(80) },
		"a conflict that is none":      func(s *troubled) { s.lies.Store(60) },
		"both, and answers get lost":   func(s *troubled) { s.loses.Store(30); s.lies.Store(30); s.flaky.Store(30) },
		"every conflict is none, slow": func(s *troubled) { s.lies.Store(90); s.slow.Store(int64(300 * time.Millisecond)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				defer c.tell()
				w := &witness{map[int32]replica.NodeID{}, map[int32]string{}, nil}
				go w.watch(t.Context(), c.store)
				each := func(do func(s *troubled)) {
					for _, n := range c.nodes {
						do(n.store)
					}
				}
				well := func(s *troubled) { s.loses.Store(0); s.lies.Store(0); s.flaky.Store(0); s.slow.Store(0) }
				for id := replica.NodeID(1); id <= 3; id++ {
					c.nodes[id] = &node{fs: vfs.Mem(), store: newTroubled(c.store)}
				}
				each(storm)
				for id := range c.nodes {
					c.start(id, nil)
				}
				time.Sleep(30 * time.Second)
				for id := range c.nodes {
					c.inService(id)
				}
				made := false
				for deadline := time.Now().Add(time.Hour); !made && time.Now().Before(deadline); time.Sleep(time.Second) {
					for _, n := range c.nodes {
						_, err := n.Controller().CreateTopic(t.Context(), controller.CreateTopic{Topic: "orders", Assignment: []ids{{1, 2, 3}}, Config: map[string]string{"min.insync.replicas": "2"}})
						made = made || err == nil
					}
					n := c.look(orders)
					made = made || !n.Deleted
				}
				require.True(t, made, "the topic")
				var want []string
				for round := range 4 {
					want = append(want, fmt.Sprint("v", round))
					c.produceWithin(time.Hour, want[round])
					id := replica.NodeID(round%3 + 1)
					c.kill(id)
					time.Sleep(10 * time.Second)
					c.start(id, nil)
					time.Sleep(20 * time.Second)
				}
				each(well)
				for id := range c.nodes {
					c.inService(id)
				}
				c.inSync(3)
				c.produce("end")
				want = append(want, "end")
				for id := range c.nodes {
					c.holds(id, want...)
				}
				require.Empty(t, w.wrong)
			})
		})
	}
}
