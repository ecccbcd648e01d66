package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// accepted is the controller's yes to a proposal.
func accepted(a Action) ISRAnswer {
	return ISRAnswer{Tag: a.Tag, ISR: a.Proposal.ISR, LeaderEpoch: a.Proposal.LeaderEpoch, PartitionEpoch: a.Proposal.PartitionEpoch + 1}
}

// Scenario: N016. A fetch at the high watermark is enough, if that is not below the start of the epoch.
func TestReplicaJoinsAtTheHighWatermarkAndTheEpochStart(t *testing.T) {
	fl := filled(10, entries(0, 0)...)
	fl.hw = 4
	l := newLab(t, Config{}, fl)
	l.lead(3, 1, 2)
	require.Empty(t, all(l.fetchFrom(3, 4), ProposeISR), "at the high watermark, below the epoch start")
	require.Empty(t, all(l.fetchFrom(3, 9), ProposeISR))
	a := only(t, l.fetchFrom(3, 10), ProposeISR)
	require.Equal(t, Proposal{ISR: []NodeID{1, 2, 3}, BrokerEpochs: []int64{-1, -1, -1}, LeaderEpoch: 3, PartitionEpoch: 0}, a.Proposal)
	s := l.p.Status()
	require.Equal(t, []NodeID{1, 2}, s.ISR)
	require.Equal(t, []NodeID{1, 2, 3}, s.MaximalISR)
	require.Equal(t, "expand", s.Pending)

	// With the high watermark at 14 and the leader at 20: 13 is too little, 14 enough.
	l = newLab(t, Config{LagTimeMax: time.Second}, filled(0))
	l.lead(1, 1, 2)
	l.produce(1, 1, 20)
	l.fetchFrom(2, 14)
	require.Equal(t, int64(14), l.p.Status().HighWatermark)
	require.Empty(t, all(l.fetchFrom(3, 13), ProposeISR))
	only(t, l.fetchFrom(3, 14), ProposeISR)
}

// Scenario: N020, N021, N031. What becomes of a proposal.
func TestAnswersToProposals(t *testing.T) {
	for _, c := range []struct {
		err      ErrorCode
		maximal  int
		retried  bool
		possible bool // another attempt, later
	}{
		{None, 3, false, false},
		{IneligibleReplica, 2, false, true},
		{OperationNotAttempted, 2, false, true},
		{FencedLeaderEpoch, 3, false, false},
		{InvalidUpdateVersion, 3, false, false},
		{InvalidRequest, 3, false, false},
		{UnknownTopicOrPartition, 3, false, false},
		{UnknownTopicID, 3, false, false},
		{NewLeaderElected, 3, false, false},
		{Unknown, 3, true, false},
		{NetworkException, 3, true, false},
		{NotController, 3, true, false},
		{StaleBrokerEpoch, 3, true, false},
	} {
		t.Run(c.err.String(), func(t *testing.T) {
			l := newLab(t, Config{Backoff: time.Second}, filled(3, entries(0, 0)...))
			l.lead(1, 1, 2)
			a := only(t, l.fetchFrom(3, 3), ProposeISR)
			answer := accepted(a)
			if answer.Err = c.err; c.err != None {
				answer.ISR = nil
			}
			l.step(answer)
			s := l.p.Status()
			require.Len(t, s.MaximalISR, c.maximal)
			require.False(t, s.Proposing)
			if c.err == None {
				require.Len(t, s.ISR, 3)
				require.Equal(t, int64(1), s.Counts.Expands)
			} else {
				require.Len(t, s.ISR, 2)
				require.Equal(t, !c.retried, s.Counts.ISRFailures == 1)
			}
			require.Empty(t, all(l.pass(999*time.Millisecond), ProposeISR))
			require.Equal(t, c.retried, len(all(l.pass(time.Millisecond), ProposeISR)) == 1)
			if !c.retried {
				require.Equal(t, c.possible, len(all(l.fetchFrom(3, 3), ProposeISR)) == 1)
			}
			// Newer news end the uncertainty.
			l.lead(1, 1, 2, 3)
			require.Empty(t, l.p.Status().Pending)
		})
	}
}

// Scenario: N031. A shrink that was refused for good stays under way, and is not asked for again; one that got no clear answer
// is. The set is the committed one all the time.
func TestAnswersToAShrink(t *testing.T) {
	for code, retried := range map[ErrorCode]bool{InvalidUpdateVersion: false, FencedLeaderEpoch: false, NewLeaderElected: false,
		UnknownTopicOrPartition: false, Unknown: true, NetworkException: true} {
		l := newLab(t, Config{LagTimeMax: 2 * time.Second, Backoff: time.Second}, filled(10, entries(0, 0)...))
		l.lead(1, 1, 2)
		l.fetchFrom(2, 5)
		a := only(t, l.pass(3*time.Second), ProposeISR)
		require.Equal(t, []NodeID{1}, a.Proposal.ISR)
		l.step(ISRAnswer{Tag: a.Tag, Err: code})
		s := l.p.Status()
		require.Equal(t, []any{"shrink", []NodeID{1, 2}, []NodeID{1, 2}, int64(5)}, []any{s.Pending, s.ISR, s.MaximalISR, s.HighWatermark}, "%v", code)
		again := all(l.pass(time.Second), ProposeISR)
		for range 10 {
			again = append(again, all(l.pass(time.Second), ProposeISR)...)
		}
		require.Equal(t, retried, len(again) == 1, "%v", code)
		require.Equal(t, "shrink", l.p.Status().Pending)
	}
}

// Scenario: N021. Report: B126. What the controller would refuse is not proposed.
func TestNodesThatMayNotJoinAreNotProposed(t *testing.T) {
	l := newLab(t, Config{Backoff: time.Hour}, filled(3, entries(0, 0)...))
	l.lead(1, 1, 2)
	for _, barred := range []Peer{{Node: 3, BrokerEpoch: 5}, {Node: 3, BrokerEpoch: 5, Alive: true, ShuttingDown: true}} {
		l.step(barred)
		require.Empty(t, all(l.fetchFrom(3, 3), ProposeISR))
	}
	l.step(Peer{Node: 3, BrokerEpoch: 5, Alive: true})
	a := only(t, l.fetchFrom(3, 3), ProposeISR)
	l.step(ISRAnswer{Tag: a.Tag, Err: IneligibleReplica})
	require.Empty(t, all(l.fetchFrom(3, 3), ProposeISR), "not at once again")
	l.step(Peer{Node: 3, BrokerEpoch: 5, Alive: true})
	only(t, l.fetchFrom(3, 3), ProposeISR)
}

// Scenario: N022.
func TestOnlyAFetchOfThePresentLifeLetsAReplicaJoin(t *testing.T) {
	l := newLab(t, Config{BrokerEpoch: 50}, filled(3, entries(0, 0)...))
	l.lead(1, 1, 2)
	fetch := func(broker int64) []Action {
		return l.step(FetchRequest{From: 3, Tag: 9, Offset: 3, LeaderEpoch: 1, LastFetchedEpoch: -1, BrokerEpoch: broker, MaxBytes: 100})
	}
	l.step(Peer{Node: 3, BrokerEpoch: 60, Alive: true})
	require.Empty(t, all(fetch(61), ProposeISR), "its registration is not known here yet")
	require.Equal(t, int64(3), l.p.Status().Followers[1].LogEnd)
	l.step(Peer{Node: 3, BrokerEpoch: 61, Alive: true})
	require.Equal(t, []int64{50, -1, 61}, only(t, fetch(61), ProposeISR).Proposal.BrokerEpochs)
}

// Scenario: N025, N026. 30 s of lag: a silent follower leaves between 30 and 45 s after it had everything last.
func TestSilentFollowerIsLeftOut(t *testing.T) {
	l := newLab(t, Config{}, filled(10, entries(0, 0)...))
	l.lead(1, 1, 2, 3)
	l.fetchFrom(2, 10)
	l.fetchFrom(3, 10)
	l.produce(1, 1, 5)
	require.Equal(t, int64(10), l.p.Status().HighWatermark)
	for range 30 { // 2 keeps up, 3 is silent
		acts := l.pass(time.Second)
		acts = append(acts, l.fetchFrom(2, 15)...)
		require.Empty(t, all(acts, ProposeISR))
	}
	var a Action
	for s := 31; a.Kind == 0; s++ {
		require.LessOrEqual(t, s, 45)
		for _, found := range all(append(l.pass(time.Second), l.fetchFrom(2, 15)...), ProposeISR) {
			a = found
		}
	}
	require.Equal(t, []NodeID{1, 2}, a.Proposal.ISR)
	s := l.p.Status()
	require.Equal(t, []NodeID{1, 2, 3}, s.ISR)
	require.Equal(t, []NodeID{1, 2, 3}, s.MaximalISR)
	require.Equal(t, int64(10), s.HighWatermark, "nothing changes until it is confirmed")
	l.step(ISRAnswer{Tag: a.Tag, Err: NetworkException})
	again := only(t, l.pass(time.Second), ProposeISR)
	require.Equal(t, a.Proposal, again.Proposal)
	require.NotEqual(t, a.Tag, again.Tag)
	l.step(accepted(again))
	s = l.p.Status()
	require.Equal(t, []NodeID{1, 2}, s.ISR)
	require.Equal(t, int64(15), s.HighWatermark, "the silent one does not hold it back any more")
	require.Equal(t, int64(1), s.Counts.Shrinks)
}

// Scenario: N026, N030.
func TestNobodyIsLeftOutAtTheBeginningOrWithoutWrites(t *testing.T) {
	l := newLab(t, Config{}, filled(10, entries(0, 0)...))
	l.lead(1, 1, 2, 3)
	require.Empty(t, all(l.pass(15*time.Second), ProposeISR))
	l.fetchFrom(2, 10)
	l.fetchFrom(3, 10)
	for range 100 {
		require.Empty(t, all(l.pass(15*time.Second), ProposeISR))
	}
}

// Scenario: N028, N032.
func TestOneProposalIsUnderWayAtATime(t *testing.T) {
	l := newLab(t, Config{LagTimeMax: 2 * time.Second}, filled(10, entries(0, 0)...))
	l.lead(1, 1, 2, 3)
	l.fetchFrom(2, 10)
	l.fetchFrom(3, 5)
	a := only(t, l.pass(3*time.Second), ProposeISR)
	require.Equal(t, []NodeID{1, 2}, a.Proposal.ISR)
	require.Empty(t, all(l.pass(3*time.Second), ProposeISR))
	// The same state once more: the change is off, but its answer is still to come.
	l.step(Assign{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 0, Replicas: []NodeID{1, 2, 3}, ISR: []NodeID{1, 2, 3}})
	require.Empty(t, l.p.Status().Pending)
	require.True(t, l.p.Status().Proposing)
	require.Empty(t, all(l.pass(3*time.Second), ProposeISR))
	l.step(accepted(a)) // too late to count
	require.Equal(t, []NodeID{1, 2, 3}, l.p.Status().ISR)
	only(t, l.pass(3*time.Second), ProposeISR)

	// Nor does a replica join while another one's joining is open.
	l = newLab(t, Config{}, filled(10, entries(0, 0)...))
	l.lead(1, 1)
	a = only(t, l.fetchFrom(3, 10), ProposeISR)
	require.Empty(t, all(l.fetchFrom(2, 10), ProposeISR))
	l.step(accepted(a))
	require.Equal(t, []NodeID{1, 3, 2}, only(t, l.fetchFrom(2, 10), ProposeISR).Proposal.ISR)
}

// The controller may have the candidate in sync already: as long as nothing newer is known it counts.
func TestCandidateStaysOneWhenTheSameStateIsSentAgain(t *testing.T) {
	l := newLab(t, Config{}, filled(10, entries(0, 0)...))
	l.lead(1, 1, 2)
	only(t, l.fetchFrom(3, 10), ProposeISR)
	l.step(Assign{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 0, Replicas: []NodeID{1, 2, 3}, ISR: []NodeID{1, 2}})
	require.Equal(t, []NodeID{1, 2, 3}, l.p.Status().MaximalISR)
	l.step(Assign{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: []NodeID{1, 2, 3}, ISR: []NodeID{1, 2}})
	require.Equal(t, []NodeID{1, 2}, l.p.Status().MaximalISR)
}

// A member that may have lost its synced tail is left out at once, and comes back when it has everything again.
func TestUncleanMemberIsLeftOutUntilItHasCaughtUp(t *testing.T) {
	l := newLab(t, Config{}, filled(10, entries(0, 0)...))
	l.lead(1, 1, 2, 3)
	l.fetchFrom(2, 10)
	l.fetchFrom(3, 10)
	fetch := func(offset int64, unclean bool) []Action {
		return l.step(FetchRequest{From: 3, Tag: 9, Offset: offset, LeaderEpoch: 1, LastFetchedEpoch: 0, BrokerEpoch: -1, UncleanStop: unclean, MaxBytes: 1})
	}
	a := only(t, fetch(7, true), ProposeISR)
	require.Equal(t, []NodeID{1, 2}, a.Proposal.ISR)
	l.step(accepted(a))
	require.Empty(t, all(fetch(10, true), ProposeISR))
	require.False(t, l.p.Status().Followers[1].Eligible)
	a = only(t, fetch(10, false), ProposeISR)
	require.Equal(t, []NodeID{1, 2, 3}, a.Proposal.ISR)
}

func TestUncleanMemberIsLeftOutOnceAnotherChangeIsThrough(t *testing.T) {
	l := newLab(t, Config{}, filled(10, entries(0, 0)...))
	l.lead(1, 1, 2)
	a := only(t, l.fetchFrom(3, 10), ProposeISR)
	acts := l.step(FetchRequest{From: 2, Tag: 9, Offset: 7, LeaderEpoch: 1, LastFetchedEpoch: 0, BrokerEpoch: -1, UncleanStop: true, MaxBytes: 1})
	require.Empty(t, all(acts, ProposeISR))
	require.Equal(t, []NodeID{1, 3}, only(t, l.step(accepted(a)), ProposeISR).Proposal.ISR)
}

// A yes of another epoch, or of an older version, is no answer to go by.
func TestAcceptanceOfAnotherVersionDoesNotCount(t *testing.T) {
	for _, change := range []func(a *ISRAnswer){
		func(a *ISRAnswer) { a.LeaderEpoch-- },
		func(a *ISRAnswer) { a.PartitionEpoch = 0 },
	} {
		l := newLab(t, Config{}, filled(3, entries(0, 0)...))
		l.lead(1, 1, 2)
		l.lead(1, 1, 2)
		answer := accepted(only(t, l.fetchFrom(3, 3), ProposeISR))
		change(&answer)
		l.step(answer)
		s := l.p.Status()
		require.Equal(t, []NodeID{1, 2}, s.ISR)
		require.Equal(t, "expand", s.Pending)
	}
}

// What the controller says of min.insync.replicas comes with a version of the partition, and counts from that version on, whatever
// the configuration says, which may be older.
func TestTheMinISROfAVersionCounts(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	a := Assign{Leader: 1, LeaderEpoch: 1, Replicas: []NodeID{1, 2, 3}, ISR: []NodeID{1}}
	l.step(a)
	require.Equal(t, None, reply(t, l.produce(1, -1, 1), 1).Err)
	a.PartitionEpoch, a.MinISR = 1, 2
	l.step(a)
	require.Equal(t, NotEnoughReplicas, reply(t, l.produce(2, -1, 1), 2).Err)
	l.step(Reconfigure{Config{MinISR: 1}})
	require.Equal(t, NotEnoughReplicas, reply(t, l.produce(3, -1, 1), 3).Err)
	require.Equal(t, 2, l.p.Status().MinISR)
	a.PartitionEpoch, a.MinISR = 2, -3
	l.step(a)
	require.Equal(t, 3, l.p.Status().MinISR)
	l.step(Reconfigure{Config{MinISR: 2}})
	a.PartitionEpoch, a.MinISR = 3, -1
	l.step(a)
	require.Equal(t, 2, l.p.Status().MinISR, "its own is larger")
	l.step(Reconfigure{Config{MinISR: 1}})
	a.PartitionEpoch, a.MinISR = 4, 0
	l.step(a)
	require.Equal(t, None, reply(t, l.produce(4, -1, 1), 4).Err)
}
