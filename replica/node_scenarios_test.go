package replica

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

// A controller that does not answer, news that keep coming and a follower that is to be left out hold up no append.
//
// Scenario: N042.
func TestAppendsAndChangesOfTheInSyncSetDoNotWaitForEachOther(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2, 3)
	g.produce("first")
	g.inSync(1, 3)
	g.slow = make(chan struct{})
	g.network.Isolate(3, true, 1)
	h := g.handle(1)
	done := make(chan struct{})
	var all sync.WaitGroup
	appended := make([]int, 4)
	for i := range appended {
		all.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := h.Append(t.Context(), rawBatch(t, fmt.Sprint(i)), 1); err != nil {
					t.Errorf("append: %v", err)
					return
				}
				appended[i]++
			}
		})
	}
	all.Go(func() { // the same news, and how it stands, again and again
		for {
			select {
			case <-done:
				return
			default:
			}
			a := g.state
			a.BrokerEpoch = g.nodes[1].conf.BrokerEpoch
			if err := g.nodes[1].Assign(ordersZero, a); err != nil {
				t.Errorf("assign: %v", err)
			}
			h.Status()
			time.Sleep(time.Millisecond)
		}
	})
	require.Eventually(t, func() bool { return h.Status().Proposing }, 5*time.Second, time.Millisecond, "3 is silent for too long")
	then := h.Log().Offsets().LogEnd
	require.Eventually(t, func() bool { return h.Log().Offsets().LogEnd > then+50 }, 5*time.Second, time.Millisecond, "no answer, and appends go on")
	close(done)
	all.Wait()
	for i, n := range appended {
		require.Positive(t, n, i)
	}
	close(g.slow)
	require.Eventually(t, func() bool { // the same news made the leader drop its proposal, but the controller may have accepted it
		g.mu.Lock()
		state := g.state
		g.mu.Unlock()
		g.assign(state)
		return slices.Equal(state.ISR, []NodeID{1, 2})
	}, 10*time.Second, 20*time.Millisecond)
	g.inSync(1, 2)
	g.caughtUp(1, 2)
}

// The leader does not have one of two partitions: its follower is told so and asks again later, the other one goes on.
//
// Scenario: F003, F027.
func TestAnErrorOfOnePartitionDelaysOnlyThat(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
	g.produce("a")
	unknown := log.TopicPartition{Topic: "unknown"}
	a := g.state
	a.BrokerEpoch = g.nodes[2].conf.BrokerEpoch
	require.NoError(t, g.nodes[2].Assign(unknown, a))
	h, err := g.nodes[2].Partition(unknown)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return h.Status().LastError == UnknownTopicOrPartition }, 5*time.Second, time.Millisecond)
	for i := range 20 {
		g.produce(fmt.Sprint(i))
	}
	g.caughtUp(1, 2)
	require.NoError(t, g.handle(2).Status().LastError)
	require.Zero(t, h.Log().Offsets().LogEnd)

	// Once it is there, the follower comes by.
	a.BrokerEpoch = g.nodes[1].conf.BrokerEpoch
	require.NoError(t, g.nodes[1].Assign(unknown, a))
	require.Eventually(t, func() bool {
		leader, err := g.nodes[1].Partition(unknown)
		return err == nil && len(leader.Status().Followers) == 1 && leader.Status().Followers[0].LogEnd == 0 && h.Status().LastError == nil
	}, 5*time.Second, time.Millisecond)
}

// Scenario: F025. A fetch that brings no records says all the same how far the follower is.
func TestLagIsKnownWithoutRecords(t *testing.T) {
	l := newLab(t, Config{}, filled(10, entries(0, 0)...))
	l.lead(1, 1, 2)
	lag := func() int64 { s := l.p.Status(); return s.Lag(s.Followers[0]) }
	require.Equal(t, int64(-1), lag())
	l.fetchFrom(2, 4)
	require.Equal(t, int64(6), lag())
	noReply(t, l.wait(2, 7, 10, 1))
	require.Zero(t, lag())
}
