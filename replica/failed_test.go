package replica

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

// A leader whose log has failed proposes the rest of its in-sync set, until the controller has another one lead.
func TestALeaderWhoseLogFailedAsksForAnother(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.lead(1, 1, 2, 3)
	l.log.fail = log.ErrFailed
	acts := l.produce(1, 1, 1)
	only(t, acts, Fail)
	a := only(t, acts, ProposeISR)
	require.Equal(t, Proposal{ISR: []NodeID{2, 3}, BrokerEpochs: []int64{-1, -1}, LeaderEpoch: 1}, a.Proposal)

	require.Empty(t, all(l.step(ISRAnswer{Tag: a.Tag, Err: RequestTimedOut}), ProposeISR))
	a = only(t, l.pass(time.Second), ProposeISR)
	require.Empty(t, all(l.pass(time.Minute), ProposeISR), "one at a time")

	// Another version of the same epoch: it is that which has to change.
	news := Assign{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 7, Replicas: []NodeID{1, 2, 3}, ISR: []NodeID{1, 3}}
	require.Empty(t, all(l.step(news), ProposeISR))
	require.Equal(t, Failed, l.p.Status().Role)
	l.step(ISRAnswer{Tag: a.Tag, Err: InvalidUpdateVersion})
	a = only(t, l.pass(time.Second), ProposeISR)
	require.Equal(t, Proposal{ISR: []NodeID{3}, BrokerEpochs: []int64{-1}, LeaderEpoch: 1, PartitionEpoch: 7}, a.Proposal)
	for _, code := range []ErrorCode{IneligibleReplica, NotController, NetworkException} {
		l.step(ISRAnswer{Tag: a.Tag, Err: code})
		a = only(t, l.pass(time.Second), ProposeISR)
	}
	l.step(ISRAnswer{Tag: a.Tag, Err: NewLeaderElected})
	require.Empty(t, all(l.pass(time.Hour), ProposeISR))
}

// Who is alone in sync, follows, or was fenced by its log has nobody to propose.
func TestWhoHasNobodyToProposeDoesNot(t *testing.T) {
	for name, begin := range map[string]func(l *lab){
		"alone":   func(l *lab) { l.lead(1, 1) },
		"follows": func(l *lab) { l.follow(1) },
	} {
		l := newLab(t, Config{}, filled(0))
		begin(l)
		l.p.out = nil
		l.p.fail(log.ErrFailed)
		require.Empty(t, all(l.p.out, ProposeISR), name)
		require.Empty(t, all(l.pass(time.Hour), ProposeISR), name)
	}
}

// A disk that refuses an append makes another one lead, unless it is full or there is no other.
func TestALeaderWhoseDiskRefusesGivesUpIfAnotherCanLead(t *testing.T) {
	for name, c := range map[string]struct {
		isr    []NodeID
		err    error
		failed bool
	}{
		"one of two": {[]NodeID{1, 2}, fmt.Errorf("append: %w", syscall.EIO), true},
		"alone":      {[]NodeID{1}, fmt.Errorf("append: %w", syscall.EIO), false},
		"full":       {[]NodeID{1, 2}, fmt.Errorf("append: %w: %w", log.ErrNoSpace, syscall.ENOSPC), false},
		"bad batch":  {[]NodeID{1, 2}, log.ErrInvalidRecord, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, Config{}, filled(0))
			l.lead(1, c.isr...)
			l.log.fail = c.err
			acts := l.produce(1, 1, 1)
			require.NotEqual(t, None, reply(t, acts, 1).Err)
			require.Equal(t, c.failed, len(all(acts, ProposeISR)) == 1)
			require.Equal(t, c.failed, l.p.Status().Role == Failed)
		})
	}
}

// A sync whose records were truncated meanwhile has not failed: what is there now is synced in its turn.
func TestASyncOfWhatWasTruncatedIsNoFailure(t *testing.T) {
	l := newLab(t, Config{CountSynced: true}, filled(0))
	l.hold[DoSync] = true
	l.lead(1, 1)
	l.produce(1, 1, 1)
	tag := l.held[0].Tag
	l.held = nil
	l.step(Synced{Tag: tag, Err: log.ErrTruncated, State: l.log.state()})
	require.Equal(t, Leader, l.p.Status().Role)
	only(t, l.release(), SetHighWatermark)
}

// What was proposed before the log failed is answered first, and the answer counts.
func TestAProposalUnderWayIsAnsweredBeforeALeaderGivesUp(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.lead(1, 1, 2)
	a := only(t, l.fetchFrom(3, 0), ProposeISR)
	l.log.fail = log.ErrFailed
	require.Empty(t, all(l.produce(1, 1, 1), ProposeISR))
	a = only(t, l.step(accepted(a)), ProposeISR)
	require.Equal(t, Proposal{ISR: []NodeID{2, 3}, BrokerEpochs: []int64{-1, -1}, LeaderEpoch: 1, PartitionEpoch: 1}, a.Proposal)
	l.step(Stop{LeaderEpoch: -1})
	require.Empty(t, all(l.step(ISRAnswer{Tag: a.Tag, Err: RequestTimedOut}), ProposeISR), "it was stopped")
	require.Empty(t, all(l.pass(time.Hour), ProposeISR))
}

// A log that is opened again after it failed may be shorter than it was, so its records must not be written anew in the same
// leader epoch: (epoch, offset) would name two.
func TestAReplicaMadeAnewNeverLeadsTheSameEpochAgain(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
	g.produce("a")
	h := g.handle(1)
	require.NoError(t, h.Log().Close())
	_, err := h.Append(t.Context(), rawBatch(t, "lost"), -1)
	require.ErrorIs(t, err, KafkaStorageError)
	for _, stop := range []bool{false, true} {
		if stop {
			require.NoError(t, g.nodes[1].Stop(ordersZero, Stop{LeaderEpoch: -1}))
		}
		g.mu.Lock()
		g.state.PartitionEpoch += 2
		a := g.state
		g.mu.Unlock()
		g.assign(a)
		time.Sleep(20 * time.Millisecond)
		require.Equal(t, Failed, h.Status().Role)
	}
	g.elect(2, 1)
	g.produce("b")
	g.caughtUp(2, 1)
	require.Equal(t, []string{"a", "b"}, g.values(1))
}

// A node that should lead and cannot open the log says so, until others lead; what it is told then it does.
func TestANodeThatCannotOpenTheLogItShouldLeadAsksForAnotherLeader(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
	g.produce("a")
	n := g.nodes[1]
	require.NoError(t, n.Close())
	conf := n.conf
	asked, times := make(chan Proposal, 10), atomic.Int32{}
	conf.Transport = g.network.Transport(1)
	conf.Propose = func(_ context.Context, _ log.TopicPartition, _ [16]byte, p Proposal) ISRAnswer {
		asked <- p
		if times.Add(1) < 3 {
			return ISRAnswer{Err: RequestTimedOut}
		}
		return ISRAnswer{Err: NewLeaderElected}
	}
	broken := atomic.Bool{}
	broken.Store(true)
	conf.Partitions = func(log.TopicPartition) (log.Config, Config) {
		if broken.Load() {
			return log.Config{SegmentBytes: -1}, conf.Config
		}
		return log.Config{}, conf.Config
	}
	require.NoError(t, n.dir.Close())
	d, err := log.OpenDir("mem", log.DirConfig{FS: n.fs, Defaults: log.Config{Durability: log.Buffered}})
	require.NoError(t, err)
	conf.Dir, n.dir = d, d
	n.Node, err = NewNode(conf)
	require.NoError(t, err)
	g.elect(1)
	for range 3 {
		select {
		case p := <-asked:
			require.Equal(t, []NodeID{2}, p.ISR)
			require.Equal(t, g.state.LeaderEpoch, p.LeaderEpoch)
		case <-time.After(5 * time.Second):
			t.Fatal("it does not ask")
		}
	}
	broken.Store(false)
	g.elect(2, 1)
	g.produce("b")
	g.caughtUp(2, 1)
}
