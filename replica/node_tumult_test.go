package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// Everything a node can be asked for at once, while leaders change every moment, partitions are deleted and made anew, and the
// nodes are closed in the midst of it: whoever asked is answered, and nothing is left behind.
func TestWhoeverAsksInATumultIsAnswered(t *testing.T) {
	before := runtime.NumGoroutine()
	for round := range 3 {
		tumult(t, rand.New(rand.NewPCG(uint64(round), 11)), round%2 == 0)
	}
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("goroutines are left")
}

func tumult(t *testing.T, rng *rand.Rand, deletes bool) {
	network := NewNetwork()
	ids := []NodeID{1, 2, 3}
	nodes, dirs := map[NodeID]*Node{}, map[NodeID]*log.Dir{}
	for _, id := range ids {
		d, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem(), Defaults: log.Config{Durability: log.Buffered, SegmentBytes: 8 << 10}})
		require.NoError(t, err)
		c := Config{Self: id, LagTimeMax: 50 * time.Millisecond, FetchWait: 5 * time.Millisecond, FetchLimit: 20 * time.Millisecond, Backoff: time.Millisecond}
		n, err := NewNode(NodeConfig{Config: c, Dir: d, Transport: network.Transport(id), InFlight: 4, Workers: 2, SlowWorkers: 2, ProposeTimeout: 10 * time.Millisecond,
			Propose: func(ctx context.Context, _ log.TopicPartition, _ [16]byte, p Proposal) ISRAnswer {
				<-ctx.Done()
				return ISRAnswer{Err: RequestTimedOut}
			}})
		require.NoError(t, err)
		nodes[id], dirs[id] = n, d
	}
	tps := []log.TopicPartition{{Topic: "a"}, {Topic: "a", Partition: 1}, {Topic: "b"}}
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	again := func(do func(rng *rand.Rand, n *Node, tp log.TopicPartition)) {
		seed := rng.Uint64()
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			for ctx.Err() == nil {
				do(rng, nodes[ids[rng.IntN(3)]], tps[rng.IntN(3)])
			}
		})
	}
	limited := func(rng *rand.Rand) (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), time.Duration(rng.IntN(30))*time.Millisecond)
	}
	var mu sync.Mutex
	epochs, topics := map[log.TopicPartition]int32{}, map[log.TopicPartition]byte{}
	again(func(rng *rand.Rand, _ *Node, tp log.TopicPartition) {
		mu.Lock()
		epochs[tp]++
		a := Assign{TopicID: [16]byte{topics[tp] + 1}, Leader: ids[rng.IntN(3)], LeaderEpoch: epochs[tp], PartitionEpoch: epochs[tp], Replicas: ids, ISR: ids}
		mu.Unlock()
		for _, n := range nodes {
			if err := n.Assign(tp, a); err != nil && !errors.Is(err, ErrNodeClosed) {
				t.Error(err)
			}
		}
		time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond)
	})
	again(func(rng *rand.Rand, n *Node, tp log.TopicPartition) {
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
		s := Stop{LeaderEpoch: -1, Delete: deletes}
		if s.Delete {
			mu.Lock()
			topics[tp]++
			mu.Unlock()
		}
		_ = n.Stop(tp, s)
	})
	raw := rawBatch(t, "v")
	for range 4 {
		again(func(rng *rand.Rand, n *Node, tp log.TopicPartition) {
			h, err := n.Partition(tp)
			if err != nil {
				runtime.Gosched()
				return
			}
			ctx, cancel := limited(rng)
			defer cancel()
			_, _ = h.Append(ctx, slices.Clone(raw), int8(rng.IntN(3)-1))
			_, _ = h.EndTxn(ctx, record.Producer{ID: int64(rng.IntN(5))}, true, log.EndTxnOptions{})
			h.Status()
		})
		again(func(rng *rand.Rand, n *Node, tp log.TopicPartition) {
			ctx, cancel := limited(rng)
			defer cancel()
			o := FetchOptions{MinBytes: rng.Int64N(3), MaxWait: time.Duration(rng.IntN(40)) * time.Millisecond, Isolation: log.Isolation(rng.IntN(2))}
			if h, err := n.Partition(tp); err == nil {
				_, _ = h.Fetch(ctx, rng.Int64N(20), o)
				_, _ = h.EndOfEpoch(ctx, 1, nil)
			}
			r := n.Remote(ids[rng.IntN(3)], tp)
			_, _ = r.Fetch(ctx, rng.Int64N(20), o)
			_, _ = r.EndTxn(ctx, record.Producer{ID: 7}, false, log.EndTxnOptions{})
		})
	}
	epoch := int64(0)
	again(func(rng *rand.Rand, n *Node, tp log.TopicPartition) {
		epoch++
		n.Peer(Peer{Node: ids[rng.IntN(3)], BrokerEpoch: -1, Alive: rng.IntN(4) > 0})
		_ = n.Reconfigure(tp)
		if rng.IntN(50) == 0 {
			n.Registered(epoch)
		}
		for h := range n.Partitions() {
			h.Status()
		}
		time.Sleep(time.Millisecond)
	})
	time.Sleep(200 * time.Millisecond)
	var closing sync.WaitGroup
	for _, n := range nodes {
		closing.Go(func() { _ = n.Close() })
		closing.Go(func() { _ = n.Close() })
	}
	closing.Wait()
	stop()
	all.Wait()
	for _, d := range dirs {
		require.NoError(t, d.Close())
	}
}
