package replica

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

// What a producer was told is committed stays, in its order, through loss, duplicates, delay, partitions, kills and elections.
func TestCommittedRecordsOutliveABadNetworkAndKills(t *testing.T) {
	conf := log.Config{Durability: log.Buffered, SegmentBytes: 64 << 10}
	g := newGroup(t, conf, 1, 2, 3)
	bad := Faults{Loss: 0.02, Duplicate: 0.1, Delay: 3 * time.Millisecond}
	for _, from := range g.ids {
		for _, to := range g.ids {
			g.network.Fault(from, to, bad)
		}
	}
	var committed []string
	send := func(round, n int) {
		for i := range n {
			v := fmt.Sprintf("%d-%d", round, i)
			g.produce(v)
			committed = append(committed, v)
		}
	}
	leader := NodeID(1)
	for round := range 4 {
		send(round, 10)
		g.inSync(leader, 3)
		next := leader%3 + 1
		if round%2 == 0 { // the old leader is alive, but nobody hears it
			g.network.Isolate(leader, true, g.ids...)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := g.handle(leader).Append(ctx, rawBatch(t, "nobody will see this"), -1)
			cancel()
			require.ErrorAs(t, err, new(*log.UnconfirmedError))
			g.mu.Lock()
			g.state.Leader, g.state.LeaderEpoch, g.state.PartitionEpoch = next, g.state.LeaderEpoch+1, g.state.PartitionEpoch+1
			g.state.ISR = []NodeID{next, next%3 + 1}
			a := g.state
			g.mu.Unlock()
			for _, id := range a.ISR {
				a.BrokerEpoch = g.nodes[id].conf.BrokerEpoch
				require.NoError(t, g.nodes[id].Assign(ordersZero, a))
			}
			send(100+round, 5)
			g.network.Isolate(leader, false, g.ids...)
			a.BrokerEpoch = g.nodes[leader].conf.BrokerEpoch
			require.NoError(t, g.nodes[leader].Assign(ordersZero, a))
		} else {
			g.kill(leader)
			g.elect(next, leader)
			send(100+round, 5)
			g.start(leader, conf)
			g.mu.Lock()
			a := g.state
			g.mu.Unlock()
			g.assign(a)
		}
		leader = next
		g.inSync(leader, 3)
	}
	g.produce("end")
	committed = append(committed, "end")
	g.caughtUp(leader, g.ids...)
	for _, id := range g.ids {
		var got []string
		for _, v := range g.values(id) { // a batch whose fate was unknown may have been sent again
			if len(got) == 0 || got[len(got)-1] != v {
				got = append(got, v)
			}
		}
		require.Equal(t, committed, got)
	}
}

func TestConcurrentProducersAreBoundedAndAllAnswered(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
	g.produce("first")
	h := g.handle(1)
	g.network.Isolate(2, true, 1)
	var all sync.WaitGroup
	errs := make(chan error, 300)
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	for range 300 {
		all.Go(func() {
			_, err := h.Append(ctx, rawBatch(t, "v"), -1)
			errs <- err
		})
	}
	all.Wait()
	waited := 0
	for range 300 {
		err := <-errs
		require.Error(t, err)
		if unconfirmed := (*log.UnconfirmedError)(nil); !errors.As(err, &unconfirmed) {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			waited++
		}
	}
	require.GreaterOrEqual(t, waited, 300-256)
	require.Equal(t, int64(1+300-waited), h.Log().Offsets().LogEnd)
	require.Eventually(t, func() bool { return len(h.r.slots) == 0 }, time.Second, time.Millisecond, "every token is back")
}

func TestAcksSayWhatIsWaitedFor(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
	g.produce("first")
	h := g.handle(1)
	g.network.Isolate(2, true, 1)
	got, err := h.Append(t.Context(), rawBatch(t, "one"), 1)
	require.NoError(t, err)
	require.Equal(t, int64(1), got.Base)
	got, err = h.Append(t.Context(), rawBatch(t, "zero"), 0)
	require.NoError(t, err)
	require.Equal(t, int64(-1), got.Base)
	require.Eventually(t, func() bool { return h.Log().Offsets().LogEnd == 3 }, time.Second, time.Millisecond)
	require.Equal(t, int64(1), h.Log().Offsets().HighWatermark, "not committed")
	_, err = h.Append(t.Context(), rawBatch(t, "no"), 7)
	require.ErrorIs(t, err, InvalidRequiredAcks)
	_, err = h.Append(t.Context(), []byte("no batch"), 1)
	require.ErrorIs(t, err, CorruptMessage)
	refused := (*RefusedError)(nil)
	_, err = g.handle(2).Append(t.Context(), rawBatch(t, "no"), 1)
	require.ErrorAs(t, err, &refused)
	require.ErrorIs(t, err, NotLeaderOrFollower)
	require.Equal(t, NodeID(1), refused.Leader)
	s := h.Status()
	require.Equal(t, int64(2), s.Lag(s.Followers[0]))
	g.inSync(1, 1) // who is not heard of leaves the in-sync set, and then all of it is committed
	require.Eventually(t, func() bool { return h.Log().Offsets().HighWatermark == 3 }, time.Second, time.Millisecond)
}

func TestADeletedReplicaIsGoneAndCanBeMadeAnew(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1)
	g.produce("old")
	h, n := g.handle(1), g.nodes[1].Node
	require.NoError(t, n.Stop(ordersZero, Stop{Delete: true, LeaderEpoch: -1}))
	require.Eventually(t, func() bool { _, err := n.Partition(ordersZero); return errors.Is(err, ErrNoReplica) }, 5*time.Second, time.Millisecond)
	require.Eventually(t, func() bool {
		_, err := h.Append(t.Context(), rawBatch(t, "v"), 1)
		return errors.Is(err, ErrNoReplica)
	}, 5*time.Second, time.Millisecond)
	require.ErrorIs(t, n.Stop(ordersZero, Stop{}), ErrNoReplica)
	g.state.TopicID = [16]byte{2}
	g.assign(g.state)
	g.produce("new")
	require.Equal(t, []string{"new"}, g.values(1))
}

func TestALogOfAnotherTopicIDIsSetAside(t *testing.T) {
	conf := log.Config{Durability: log.Buffered}
	g := newGroup(t, conf, 1)
	g.produce("old")
	g.kill(1)
	g.start(1, conf)
	g.state.TopicID = [16]byte{2}
	g.state.LeaderEpoch++
	g.assign(g.state)
	g.produce("new")
	require.Equal(t, []string{"new"}, g.values(1))
	require.Len(t, g.nodes[1].dir.Marked(), 1)
}

func TestANodeIsUsedWrongly(t *testing.T) {
	for _, c := range []NodeConfig{{}, {Dir: &log.Dir{}}, {Dir: &log.Dir{}, Transport: NewNetwork().Transport(1), Config: Config{Self: -1}}} {
		_, err := NewNode(c)
		require.ErrorIs(t, err, ErrNodeConfig)
	}
	before := runtime.NumGoroutine()
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
	g.produce("v")
	h, n := g.handle(1), g.nodes[1].Node
	require.ErrorIs(t, n.Assign(ordersZero, Assign{Leader: 2, Replicas: []NodeID{2}}), ErrNoReplica)
	require.Error(t, n.Assign(log.TopicPartition{Topic: "../x"}, Assign{Replicas: []NodeID{1}}))
	_, err := n.Partition(log.TopicPartition{Topic: "unknown"})
	require.ErrorIs(t, err, ErrNoReplica)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // each is in the log or is not, and says so
		end := h.Log().Offsets().LogEnd
		_, err = h.Append(done, rawBatch(t, "v"), -1)
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
		if err != nil && !errors.As(err, new(*log.UnconfirmedError)) {
			require.Equal(t, end, h.Log().Offsets().LogEnd)
		}
	}
	g.network.Isolate(2, true, 1)
	waiting := make(chan error)
	go func() { _, err := h.Append(t.Context(), rawBatch(t, "v"), -1); waiting <- err }()
	require.Eventually(t, func() bool { return h.Status().Waiting > 0 }, 5*time.Second, time.Millisecond)

	for _, m := range g.nodes {
		require.NoError(t, m.Close())
		require.ErrorIs(t, m.Close(), ErrNodeClosed)
		require.NoError(t, m.dir.Close())
		m.alive = false
	}
	require.Error(t, <-waiting)
	_, err = h.Append(t.Context(), rawBatch(t, "v"), -1)
	require.ErrorIs(t, err, ErrNodeClosed)
	require.ErrorIs(t, n.Assign(ordersZero, g.state), ErrNodeClosed)
	require.ErrorIs(t, n.Stop(ordersZero, Stop{}), ErrNodeClosed)
	_, err = n.Partition(ordersZero)
	require.ErrorIs(t, err, ErrNodeClosed)
	n.Peer(Peer{Node: 2})
	n.Registered(99)
	require.ErrorIs(t, n.Err(), context.Canceled)
	h.Status()
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("goroutines are left")
}

// A thousand partitions at rest cost no goroutines of their own.
func TestGoroutinesDoNotGrowWithPartitions(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
	g.produce("v")
	before := runtime.NumGoroutine()
	a := g.state
	for i := range int32(300) {
		tp := log.TopicPartition{Topic: "many", Partition: i}
		for _, id := range g.ids {
			a.BrokerEpoch = g.nodes[id].conf.BrokerEpoch
			require.NoError(t, g.nodes[id].Assign(tp, a))
		}
	}
	require.Eventually(t, func() bool {
		for h := range g.nodes[1].Partitions() {
			if s := h.Status(); s.Phase != "leading" || s.Followers[0].LogEnd < 0 {
				return false
			}
		}
		return runtime.NumGoroutine() <= before+20
	}, 20*time.Second, 10*time.Millisecond)
}

// Scenario: F017. One replica of a node fails, the others go on; a new leader epoch begins it anew.
func TestAReplicaThatFailedIsMadeAnewByNewerNews(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
	g.produce("a")
	second := log.TopicPartition{Topic: "orders", Partition: 1}
	a := g.state
	for _, id := range g.ids {
		a.BrokerEpoch = g.nodes[id].conf.BrokerEpoch
		require.NoError(t, g.nodes[id].Assign(second, a))
	}
	h := g.handle(1)
	old := h.Log()
	require.NoError(t, old.Close()) // what a log does whose disk failed: it ends
	_, err := h.Append(t.Context(), rawBatch(t, "lost"), -1)
	require.ErrorIs(t, err, KafkaStorageError)
	require.ErrorIs(t, err, log.ErrClosed)
	require.Equal(t, Failed, h.Status().Role)
	_, err = h.Append(t.Context(), rawBatch(t, "lost"), -1)
	require.ErrorIs(t, err, KafkaStorageError)
	other, err := g.nodes[1].Partition(second)
	require.NoError(t, err)
	_, err = other.Append(t.Context(), rawBatch(t, "of another partition"), -1)
	require.NoError(t, err)
	g.assign(g.state)
	time.Sleep(20 * time.Millisecond)
	require.Equal(t, Failed, h.Status().Role, "the same news do not mend it")

	g.elect(2, 1)
	g.inSync(2, 2)
	g.produce("b")
	g.caughtUp(2, 1)
	require.NotSame(t, old, h.Log())
	require.Equal(t, []string{"a", "b"}, g.values(1))
}

// One partition whose disk hangs in a truncation or a sync holds up no other.
func TestSlowWorkOfOnePartitionDoesNotHoldUpAnother(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1)
	g.produce("a")
	n := g.nodes[1].Node
	hang := make(chan struct{})
	other := newRunner(n, log.TopicPartition{Topic: "hangs"})
	for range n.conf.SlowWorkers {
		n.slow.submit(taskFunc(func() { <-hang }))
	}
	other.slowly(func() Event { return nil }) // waits its turn
	for i := range 10 {
		g.produce(fmt.Sprint("b", i))
	}
	close(hang)
	n.slow.wait()
}
