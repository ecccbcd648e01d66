package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

func TestHighWatermarkIsWhatAllInSyncReplicasHave(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.lead(1, 1, 2, 3)
	l.produce(1, 1, 10)
	for _, c := range []struct {
		node       NodeID
		offset, hw int64
	}{{2, 4, 0}, {3, 6, 4}, {2, 9, 6}, {3, 10, 9}, {3, 2, 9}, {2, 10, 9}, {3, 10, 10}} {
		acts := l.fetchFrom(c.node, c.offset)
		require.Equal(t, c.hw, l.p.Status().HighWatermark, "%+v", c)
		require.Equal(t, c.hw, l.log.hw)
		// The answer shows the mark from before it.
		require.LessOrEqual(t, reply(t, acts, 1000+uint64(c.node)).HighWatermark, c.hw)
	}
}

// Scenario: N024.
func TestReplicaAboutToJoinHoldsTheHighWatermarkIfItMay(t *testing.T) {
	for _, c := range []struct {
		name string
		peer Peer
		want int64
	}{
		{"fenced", Peer{Node: 3, BrokerEpoch: 1}, 20},
		{"shutting down", Peer{Node: 3, BrokerEpoch: 1, Alive: true, ShuttingDown: true}, 20},
		{"eligible", Peer{Node: 3, BrokerEpoch: 1, Alive: true}, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, Config{}, filled(10, entries(0, 0)...))
			l.step(c.peer)
			l.lead(1, 1, 2)
			l.fetchFrom(2, 10)
			acts := l.fetchFrom(3, 10)
			if c.want == 10 { // keep it from joining, but not from being current
				l.step(ISRAnswer{Tag: only(t, acts, ProposeISR).Tag, Err: OperationNotAttempted})
			}
			l.produce(1, 1, 10)
			l.fetchFrom(2, 20)
			require.Equal(t, c.want, l.p.Status().HighWatermark)
		})
	}
}

// Whoever may not join is not waited for, however short ago it had everything.
//
// Report: B117.
func TestAReplicaThatMayNotJoinDelaysNoProducer(t *testing.T) {
	l := newLab(t, Config{}, filled(10, entries(0, 0)...))
	l.step(Peer{Node: 3, BrokerEpoch: 1, Alive: true, ShuttingDown: true})
	l.lead(1, 1, 2)
	l.fetchFrom(2, 10)
	l.fetchFrom(3, 10)
	require.True(t, l.p.Status().Followers[1].CaughtUp)
	noReply(t, l.produce(1, -1, 5))
	require.Equal(t, None, reply(t, l.fetchFrom(2, 15), 1).Err)
	require.Equal(t, int64(15), l.p.Status().HighWatermark)
}

// From its proposal on a candidate counts, whatever becomes of it: the controller may have it in sync.
func TestCandidateHoldsTheHighWatermark(t *testing.T) {
	l := newLab(t, Config{LagTimeMax: time.Second}, filled(10, entries(0, 0)...))
	l.lead(1, 1, 2)
	l.fetchFrom(2, 10)
	only(t, l.fetchFrom(3, 10), ProposeISR)
	l.produce(1, -1, 5)
	l.step(Peer{Node: 3, BrokerEpoch: 9})
	l.now = l.now.Add(time.Minute)
	noReply(t, all(l.fetchFrom2(15), Reply))
	require.Equal(t, int64(10), l.p.Status().HighWatermark)
	l.fetchFrom(3, 12)
	require.Equal(t, int64(12), l.p.Status().HighWatermark)
}

// Scenario: N017.
func TestHowManyAreInSync(t *testing.T) {
	for _, c := range []struct {
		min       int
		isr       []NodeID
		at, under bool
	}{{1, []NodeID{1}, true, false}, {2, []NodeID{1}, false, true}, {2, []NodeID{1, 2}, true, false}, {2, []NodeID{1, 2, 3}, false, false}} {
		l := newLab(t, Config{MinISR: c.min}, filled(0))
		l.lead(1, c.isr...)
		s := l.p.Status()
		require.Equal(t, [2]bool{c.at, c.under}, [2]bool{s.AtMin, s.UnderMin}, "%+v", c)
	}
}

// Scenario: N027.
func TestHighWatermarkStandsBelowTheMinimum(t *testing.T) {
	l := newLab(t, Config{MinISR: 3}, filled(0))
	l.lead(1, 1, 2)
	require.True(t, l.p.Status().UnderMin)
	l.produce(1, 1, 10)
	l.fetchFrom(2, 10)
	require.Equal(t, int64(0), l.p.Status().HighWatermark)
	a := only(t, l.fetchFrom(3, 10), ProposeISR)
	require.Len(t, l.p.Status().MaximalISR, 3)
	l.fetchFrom(2, 10)
	require.Equal(t, int64(0), l.p.Status().HighWatermark, "the committed set decides")
	l.step(accepted(a))
	require.Equal(t, int64(10), l.p.Status().HighWatermark)
	require.True(t, l.p.Status().AtMin)
	// More required than there are replicas: all of them.
	l.step(Reconfigure{Config{MinISR: 7}})
	l.produce(1, 1, 1)
	l.fetchFrom(2, 11)
	l.fetchFrom(3, 11)
	require.Equal(t, int64(11), l.p.Status().HighWatermark)
}

func TestChangeOfTheMinimumMovesNothingByItself(t *testing.T) {
	l := newLab(t, Config{MinISR: 2}, filled(0))
	l.lead(1, 1)
	l.produce(1, 1, 3)
	require.Empty(t, l.step(Reconfigure{Config{MinISR: 1}}))
	require.Equal(t, int64(0), l.p.Status().HighWatermark)
	l.produce(2, 1, 1)
	require.Equal(t, int64(4), l.p.Status().HighWatermark)
	l.step(Reconfigure{Config{MinISR: 2}})
	require.Equal(t, int64(4), l.p.Status().HighWatermark)
}

// Nor does one that comes with a version of the partition. Whatever else that brings has its effect at once.
func TestAVersionWithAnotherMinimumMovesNothingByItself(t *testing.T) {
	for change, moves := range map[string]bool{"nothing": false, "order": false, "replicas": true, "in sync": true} {
		t.Run(change, func(t *testing.T) {
			l := newLab(t, Config{}, filled(0))
			a := Assign{Leader: 1, LeaderEpoch: 1, MinISR: 2, Replicas: []NodeID{1, 2, 3}, ISR: []NodeID{1}}
			l.step(a)
			l.produce(1, 1, 3)
			l.fetchFrom(2, 3)
			require.Equal(t, int64(0), l.p.Status().HighWatermark)
			a.PartitionEpoch, a.MinISR = 1, 1
			switch change {
			case "order":
				a.Replicas = []NodeID{3, 2, 1}
			case "replicas":
				a.MinISR, a.Replicas = 2, []NodeID{1}
			case "in sync":
				a.ISR = []NodeID{1, 2}
			}
			l.step(a)
			require.Equal(t, moves, l.p.Status().HighWatermark == 3)
			l.produce(2, 1, 1)
			l.fetchFrom(2, 4)
			require.Equal(t, int64(4), l.p.Status().HighWatermark)
		})
	}
}

func TestReplicaNeverHeardOfHoldsTheHighWatermarkOnlyInSync(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.lead(1, 1, 2)
	l.produce(1, 1, 3)
	require.Equal(t, int64(0), l.p.Status().HighWatermark)
	l.fetchFrom(2, 3)
	require.Equal(t, int64(3), l.p.Status().HighWatermark)
}

func TestOnlyWhatIsOnTheDeviceCounts(t *testing.T) {
	l := newLab(t, Config{CountSynced: true}, filled(0))
	l.hold[DoSync] = true
	l.lead(1, 1, 2)
	noReply(t, l.produce(1, -1, 3))
	noReply(t, l.fetchFrom2(3))
	require.Equal(t, int64(0), l.p.Status().HighWatermark)
	l.produce(2, -1, 1) // during the sync
	require.Len(t, l.held, 1)
	l.log.durable = 3
	s := l.log.state()
	acts := l.step(Synced{Tag: l.held[0].Tag, State: s})
	require.Equal(t, None, reply(t, acts, 1).Err)
	require.Equal(t, int64(3), l.p.Status().HighWatermark)
	require.Len(t, l.held, 2, "the rest is synced next")
	l.fetchFrom(2, 4)
	l.held = l.held[1:]
	require.Equal(t, None, reply(t, l.release(), 2).Err)
}

// fetchFrom2 is a fetch of node 2 that waits, so that there is no answer to it.
func (l *lab) fetchFrom2(offset int64) []Action {
	return l.step(FetchRequest{From: 2, Tag: 77, Offset: offset, LeaderEpoch: l.p.leaderEpoch, LastFetchedEpoch: -1, BrokerEpoch: -1,
		MaxBytes: 1 << 20, MinBytes: 1, MaxWait: time.Minute})
}

func TestCheckpointOfTheHighWatermarkIsWrittenNowAndThenAndAtStop(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.lead(1, 1)
	require.Empty(t, all(l.produce(1, 1, 3), PersistHighWatermark))
	require.Empty(t, all(l.pass(4999*time.Millisecond), PersistHighWatermark))
	l.produce(1, 1, 1)
	require.Equal(t, int64(4), only(t, l.pass(time.Millisecond), PersistHighWatermark).Offset)
	require.Empty(t, all(l.pass(time.Minute), PersistHighWatermark), "unchanged")
	l.produce(1, 1, 1)
	require.Equal(t, int64(5), only(t, l.step(Stop{LeaderEpoch: -1}), PersistHighWatermark).Offset)
}

func TestRemovalFollowsTheSlowestAssignedReplica(t *testing.T) {
	l := newLab(t, Config{LagTimeMax: 10 * time.Second}, synced(8))
	require.Equal(t, int64(0), only(t, l.lead(1, 1, 2), SetRemoval).Offset, "nobody was heard of")
	l.fetchFrom(2, 8)
	require.Empty(t, all(l.pass(5*time.Second), SetRemoval), "3 was not")
	l.fetchFrom(3, 6)
	require.Equal(t, int64(6), only(t, l.pass(5*time.Second), SetRemoval).Offset)
	require.Equal(t, int64(4), only(t, l.fetchFrom(3, 4), SetRemoval).Offset, "back at once")
	acts := l.step(Assign{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: []NodeID{1, 2}, ISR: []NodeID{1, 2}})
	require.Empty(t, all(acts, SetRemoval))
	require.Equal(t, int64(8), only(t, l.pass(5*time.Second), SetRemoval).Offset)
	acts = l.step(Assign{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 2, Replicas: []NodeID{1, 2, 4}, ISR: []NodeID{1, 2}, Adding: []NodeID{4}})
	require.Equal(t, int64(0), only(t, acts, SetRemoval).Offset)
}

func synced(n int64) *fakeLog {
	f := filled(n, entries(0, 0)...)
	f.durable = n
	return f
}

// A tombstone that is gone everywhere else is not seen again by who loses it with a power loss, and what it deleted lives there
// for good: only what is on the devices counts.
func TestRemovalCountsWhatAPowerLossLeaves(t *testing.T) {
	l := newLab(t, Config{LagTimeMax: 10 * time.Second}, synced(8))
	l.lead(1, 1, 2)
	fetch := func(node NodeID, offset, unsynced int64) []Action {
		return l.step(FetchRequest{From: node, Tag: 1000 + uint64(node), Offset: offset, Unsynced: unsynced, LeaderEpoch: l.p.leaderEpoch,
			LastFetchedEpoch: -1, BrokerEpoch: -1, MaxBytes: 1 << 20})
	}
	fetch(2, 8, 0)
	fetch(3, 8, 5)
	require.Equal(t, int64(3), only(t, l.pass(5*time.Second), SetRemoval).Offset)
	fetch(3, 8, 1)
	require.Equal(t, int64(7), only(t, l.pass(5*time.Second), SetRemoval).Offset)
	require.Equal(t, int64(6), only(t, fetch(3, 8, 2), SetRemoval).Offset, "back at once")

	l = newLab(t, Config{LagTimeMax: 10 * time.Second}, filled(8, entries(0, 0)...))
	l.lead(1, 1, 2)
	l.fetchFrom(2, 8)
	l.fetchFrom(3, 8)
	require.Empty(t, all(l.pass(5*time.Second), SetRemoval), "the leader may lose all")
}

// A follower says how much of what it fetched may be lost.
func TestAFetchSaysWhatIsNotSynced(t *testing.T) {
	f := filled(8, entries(0, 0)...)
	f.durable = 5
	l := newLab(t, Config{}, f)
	require.Equal(t, int64(3), only(t, l.follow(1), SendFetch).Fetch.Unsynced)
}

// Epochs of a log and where they end.
func TestEndOfEpoch(t *testing.T) {
	for _, c := range []struct {
		epochs []log.EpochEntry
		epoch  int32
		want   log.EpochEnd
	}{
		{nil, 0, log.EpochEnd{Epoch: -1, End: -1}},
		{entries(0, 10, 2, 13, 4, 17), -1, log.EpochEnd{Epoch: -1, End: -1}},
		{entries(0, 10, 2, 13, 4, 17), 0, log.EpochEnd{Epoch: 0, End: 13}},
		{entries(0, 10, 2, 13, 4, 17), 1, log.EpochEnd{Epoch: 0, End: 13}},
		{entries(0, 10, 2, 13, 4, 17), 2, log.EpochEnd{Epoch: 2, End: 17}},
		{entries(0, 10, 2, 13, 4, 17), 3, log.EpochEnd{Epoch: 2, End: 17}},
		{entries(0, 10, 2, 13, 4, 17), 4, log.EpochEnd{Epoch: 4, End: 20}},
		{entries(0, 10, 2, 13, 4, 17), 5, log.EpochEnd{Epoch: -1, End: -1}},
		{entries(5, 11, 6, 12, 7, 13), 4, log.EpochEnd{Epoch: 4, End: 11}},
	} {
		require.Equal(t, c.want, endOfEpoch(c.epochs, c.epoch, 20), "%v %d", c.epochs, c.epoch)
	}
}
