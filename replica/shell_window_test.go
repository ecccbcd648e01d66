package replica

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

func TestWhatIsUnderWayToAFollowerIsBounded(t *testing.T) {
	w := newWindow(100, time.Hour)
	a, b, c, d := &runner{}, &runner{}, &runner{}, &runner{}
	var resumed []*runner
	await := func(r *runner, needed bool) {
		require.False(t, w.enter(2, r, 40))
		w.await(2, r, 40, func() bool { resumed = append(resumed, r); return needed })
	}
	bytes := func() int64 { return w.followers[2].bytes }

	require.True(t, w.enter(2, a, 40))
	require.True(t, w.enter(2, b, 40))
	await(c, true)
	require.True(t, w.enter(3, c, 40), "another follower has its own")
	require.Equal(t, int64(80), bytes())
	w.settle(2, a, 30) // less than it might have been, and still too much
	require.Empty(t, resumed)
	w.settle(2, b, 5)
	require.Equal(t, []*runner{c}, resumed)
	require.Equal(t, int64(75), bytes())

	await(d, true)
	await(a, true) // a fetch that came in place of an earlier one
	require.Equal(t, []*runner{c, d}, resumed, "that one is not under way any more")
	require.Equal(t, int64(85), bytes())
	w.settle(2, d, 0)
	require.Equal(t, []*runner{c, d, a}, resumed)
	w.leave(2, a)
	w.leave(2, b)
	w.leave(2, c)
	w.forget(d)
	require.Zero(t, bytes())
	require.Empty(t, w.followers[2].flights)

	// One that is larger than allowed is under way alone.
	require.True(t, w.enter(2, a, 500))
	await(b, false) // that nobody needs by then
	await(c, true)
	resumed = nil
	w.leave(2, a)
	require.Equal(t, []*runner{b, c}, resumed)
	require.Equal(t, int64(40), bytes())

	// What waits is withdrawn with its partition.
	w.settle(2, c, 90)
	await(d, true)
	w.forget(d)
	resumed = nil
	w.leave(2, c)
	require.Empty(t, resumed)
}

func TestAnswersThatWereLostHoldUpNothingForEver(t *testing.T) {
	w := newWindow(100, time.Millisecond)
	a, b := &runner{}, &runner{}
	require.True(t, w.enter(2, a, 100))
	time.Sleep(2 * time.Millisecond)
	require.False(t, w.enter(2, b, 100))
	resumed := false
	w.await(2, b, 100, func() bool { resumed = true; return true })
	require.True(t, resumed)
}

// A follower is behind with many partitions, far more than what may be on its way to it at a time: it gets all of it, a part at a
// time. Its leader then goes over to it, and nothing is left that counts as under way.
func TestAFollowerBehindWithManyPartitionsIsSentALittleAtATime(t *testing.T) {
	const limit, partitions, batches = 32 << 10, 12, 60
	g := newTunedGroup(t, log.Config{Durability: log.Buffered}, func(c *NodeConfig) { c.ResponseBytes, c.FetchBytes = limit, 8<<10 }, 1, 2)
	g.network.Isolate(2, true, 1)
	a := Assign{TopicID: [16]byte{2}, Leader: 1, Replicas: []NodeID{1, 2}, ISR: []NodeID{1}}
	tell := func(a Assign) {
		for id := NodeID(1); id <= 2; id++ {
			a.BrokerEpoch = g.nodes[id].conf.BrokerEpoch
			for n := range int32(partitions) {
				require.NoError(t, g.nodes[id].Assign(log.TopicPartition{Topic: "many", Partition: n}, a))
			}
		}
	}
	at := func(id NodeID, n int32) *Handle {
		h, err := g.nodes[id].Partition(log.TopicPartition{Topic: "many", Partition: n})
		require.NoError(t, err)
		return h
	}
	tell(a)
	value := string(bytes.Repeat([]byte("v"), 1000))
	for n := range int32(partitions) {
		for range batches {
			_, err := at(1, n).Append(t.Context(), rawBatch(t, value), 1)
			require.NoError(t, err)
		}
	}
	g.network.Isolate(2, false, 1)
	g.network.Fault(1, 2, Faults{Delay: 2 * time.Millisecond}) // so that answers are under way together
	w := g.nodes[1].window
	most, delayed := int64(0), 0
	require.Eventually(t, func() bool {
		w.mu.Lock()
		if u := w.followers[2]; u != nil {
			most, delayed = max(most, u.bytes), u.delayed
		}
		w.mu.Unlock()
		for n := range int32(partitions) {
			if h := at(2, n); h.Log() == nil || h.Log().Offsets().LogEnd < batches {
				return false
			}
		}
		return true
	}, 20*time.Second, 20*time.Microsecond)
	w.mu.Lock()
	delayed = w.followers[2].delayed
	w.mu.Unlock()
	require.LessOrEqual(t, most, int64(limit))
	require.Positive(t, delayed)

	a.Leader, a.LeaderEpoch, a.PartitionEpoch, a.ISR = 2, 1, 99, []NodeID{2}
	tell(a)
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		u := w.followers[2]
		return u.bytes == 0 && len(u.flights) == 0 && len(u.waiting) == 0
	}, 5*time.Second, time.Millisecond)
}
