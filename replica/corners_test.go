package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

func TestNewsOfAnotherTopicOfThatNameAreNotTaken(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	a := Assign{TopicID: [16]byte{1}, Leader: 1, LeaderEpoch: 1, Replicas: []NodeID{1, 2}, ISR: []NodeID{1, 2}}
	l.step(a)
	a.TopicID, a.LeaderEpoch, a.PartitionEpoch, a.Leader = [16]byte{2}, 2, 1, 2
	l.step(a)
	s := l.p.Status()
	require.Equal(t, Leader, s.Role)
	require.Equal(t, [16]byte{1}, s.TopicID)
	require.Equal(t, int64(1), s.Counts.StaleEventsIgnored)
}

// A leader that has not begun yet cannot say where epochs ended.
func TestALeaderThatHasNotBegunAnswersNoQuestionForAnEpoch(t *testing.T) {
	l := newLab(t, Config{}, filled(4, entries(0, 0)...))
	l.hold[DoEpoch] = true
	l.lead(1, 1)
	require.Equal(t, LeaderNotAvailable, reply(t, l.step(EpochRequest{From: NoNode, Tag: 5, LeaderEpoch: 1, Epoch: 0}), 5).Err)
	l.release()
	require.Equal(t, log.EpochEnd{Epoch: 0, End: 4}, reply(t, l.step(EpochRequest{From: NoNode, Tag: 6, LeaderEpoch: 1, Epoch: 0}), 6).EpochEnd)
}

// Who wants more than may come at a time gets what may.
func TestAFetchWaitsForNoMoreThanItMayBring(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.lead(1, 1)
	l.produce(1, 1, 1) // 20 bytes
	acts := l.step(FetchRequest{From: NoNode, Tag: 5, LeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: 20, MinBytes: 1000, MaxWait: time.Hour})
	require.Equal(t, int64(20), reply(t, acts, 5).Bytes)
}

// What became of a proposal is not known before it is answered, whatever news come meanwhile: none is made beside it.
func TestNoProposalBesideOneThatIsNotAnswered(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.lead(1, 1)
	a := only(t, l.fetchFrom(2, 0), ProposeISR)
	l.lead(1, 1) // another version of the epoch: nothing is pending now
	require.Equal(t, "", l.p.Status().Pending)
	require.Empty(t, all(l.fetchFrom(2, 0), ProposeISR))
	require.Empty(t, all(l.fetchFrom(3, 0), ProposeISR))
	l.step(ISRAnswer{Tag: a.Tag, Err: InvalidUpdateVersion})
	only(t, l.fetchFrom(3, 0), ProposeISR)
}

// A candidate that was refused is waited for no longer than others that are not in sync.
func TestARefusedCandidateHoldsUpNothing(t *testing.T) {
	l := newLab(t, Config{LagTimeMax: time.Second, Backoff: time.Hour}, filled(0))
	l.lead(1, 1)
	l.produce(1, 1, 1)
	a := only(t, l.fetchFrom(2, 1), ProposeISR)
	l.produce(2, 1, 1)
	require.Equal(t, int64(1), l.p.Status().HighWatermark)
	l.step(ISRAnswer{Tag: a.Tag, Err: IneligibleReplica})
	l.pass(2 * time.Second)
	l.produce(3, 1, 1)
	require.Equal(t, int64(3), l.p.Status().HighWatermark)
}

// A consumer that waits at an offset which a truncation removes is told at once.
func TestATruncationAnswersWhoWaitsAboveIt(t *testing.T) {
	l := newLab(t, Config{}, filled(4, entries(0, 0, 2, 2)...))
	l.log.hw = 4
	fetch := only(t, l.follow(3), SendFetch)
	l.step(FetchResponse{From: 2, Tag: fetch.Tag, Result: Result{HighWatermark: 4, LogEnd: 4, LogStart: 0, Removal: -1}})
	fetch.Tag = l.p.follow.tag
	noReply(t, l.step(FetchRequest{From: NoNode, Tag: 5, Offset: 4, LeaderEpoch: -1, LastFetchedEpoch: -1, MinBytes: 1, MaxWait: time.Hour}))
	acts := l.step(FetchResponse{From: 2, Tag: fetch.Tag, Result: Result{Diverged: true, EpochEnd: log.EpochEnd{Epoch: 0, End: 2}}})
	require.Equal(t, OffsetOutOfRange, reply(t, acts, 5).Err)
}

// The answer to acks=all has the high watermark that confirmed it.
func TestAConfirmedRequestIsToldTheHighWatermark(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.lead(1, 1, 2)
	noReply(t, l.produce(7, -1, 2))
	require.Equal(t, int64(2), reply(t, l.fetchFrom(2, 2), 7).HighWatermark)
}

// A request that was made under one leader epoch of this node is not appended in the next.
func TestARequestThatWaitedIsFencedByAnEpochThatCameMeanwhile(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.lead(1, 1)
	l.hold[DoAppend] = true
	l.produce(1, 1, 1)
	epoch := int32(1)
	noReply(t, l.step(Produce{Tag: 2, Raw: records(1), Acks: 1, LeaderEpoch: &epoch}))
	noReply(t, l.step(Produce{Tag: 3, Raw: records(1), Acks: 1}))
	l.lead(2, 1)
	acts := l.release()
	require.Equal(t, FencedLeaderEpoch, reply(t, acts, 2).Err)
	require.Equal(t, None, reply(t, acts, 3).Err)
	require.Equal(t, int64(2), l.log.end())
}

// A leader that does not say which epoch is the newer one is believed all the same.
func TestAFencedFollowerWaitsForNews(t *testing.T) {
	for leaderEpoch, phase := range map[int32]string{-1: "halted", 1: "waiting", 2: "halted"} {
		l := newLab(t, Config{}, filled(0))
		fetch := only(t, l.follow(1), SendFetch)
		r := refusal(FencedLeaderEpoch)
		r.LeaderEpoch = leaderEpoch
		l.step(FetchResponse{From: 2, Tag: fetch.Tag, Result: r})
		require.Equal(t, phase, l.p.Status().Phase, leaderEpoch)
	}
}

// What a log says of itself between two answers counts as far as it fits to what is known of its end.
func TestEpochsOfRecordsNotYetKnownAreNotTaken(t *testing.T) {
	l := newLab(t, Config{}, filled(4, entries(0, 0)...))
	s := l.log.state()
	s.LogStart, s.LogEnd, s.Epochs = 2, 6, entries(0, 2, 1, 5)
	l.step(LogChanged{State: s})
	require.Equal(t, int64(2), l.p.Status().Offsets.LogStart)
	require.Equal(t, int64(4), l.p.Status().Offsets.LogEnd)
	require.Equal(t, entries(0, 0), l.p.Status().Epochs)
}

// placed is a batch as a leader sends it.
func placed(t *testing.T, base int64, epoch int32, values ...string) []byte {
	raw := rawBatch(t, values...)
	b, err := record.View(raw)
	require.NoError(t, err)
	record.Validated{Batch: b}.Place(base, epoch)
	return raw
}

// A log that is emptied for a batch that begins below its end first has no more than that in the checkpoint. For one that begins
// above it is not emptied: that leaves a hole.
func TestALogIsEmptiedOnlyForABatchThatReachesOverItsEnd(t *testing.T) {
	for base, reset := range map[int64]bool{3: true, 6: false, 1: false} {
		fl := &fakeLog{start: 5, hw: 5, saved: 5}
		l := newLab(t, Config{}, fl)
		fetch := only(t, l.follow(1), SendFetch)
		l.hold[DoAppend], l.hold[DoReset] = true, true
		r := Result{HighWatermark: 9, LogStart: 5, LogEnd: 9, Removal: -1}
		r.Raw = placed(t, base, 1, "a", "b", "c")
		r.Bytes = int64(len(r.Raw))
		l.step(FetchResponse{From: 2, Tag: fetch.Tag, Result: r})
		tag := l.held[0].Tag
		l.held = nil
		acts := l.step(Appended{Tag: tag, Base: -1, Last: -1, Err: log.ErrUnexpectedOffset, State: fl.state()})
		require.Equal(t, reset, len(l.held) == 1, base)
		if reset {
			require.Equal(t, int64(3), only(t, l.held, DoReset).Offset)
			require.Equal(t, int64(3), only(t, acts, PersistHighWatermark).Offset)
			require.Less(t, indexOf(l.all, PersistHighWatermark), indexOf(l.all, DoReset))
		}
	}
}

func indexOf(acts []Action, k Kind) int {
	for i, a := range acts {
		if a.Kind == k {
			return i
		}
	}
	return -1
}

// Of a leader that goes on in another epoch the replicas are known; what the leader had at their last fetch is where the epoch
// begins, so that a fetch from below is not one of a replica that has caught up.
func TestALeaderThatGoesOnMeasuresFromTheStartOfItsEpoch(t *testing.T) {
	l := newLab(t, Config{LagTimeMax: time.Second}, filled(0))
	l.lead(1, 1, 2, 3)
	l.produce(1, 1, 4)
	l.fetchFrom(2, 2)
	l.produce(2, 1, 4)
	l.lead(2, 1, 2, 3)
	require.Equal(t, int64(8), l.p.Status().Followers[0].FetchedLeaderEnd)
}

func TestAReplicaStaysTheNodeItIs(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.step(Reconfigure{Config{Self: 9, MinISR: 2}})
	l.lead(1, 1)
	require.Equal(t, Leader, l.p.Status().Role)
	require.True(t, l.p.Status().UnderMin)
}

// A leader that refuses an offset which is its own end is not asked again at once.
func TestARefusedOffsetThatIsTheLeadersEndIsAskedForLater(t *testing.T) {
	l := newLab(t, Config{}, filled(4, entries(0, 0)...))
	fetch := only(t, l.follow(1), SendFetch)
	r := refusal(OffsetOutOfRange)
	r.LogStart, r.LogEnd = 0, 4
	require.Empty(t, l.step(FetchResponse{From: 2, Tag: fetch.Tag, Result: r}))
	only(t, l.pass(time.Second), SendFetch)
}

// A proposal outlives the epoch it was made in: until it is answered there is no other, whoever led meanwhile.
func TestAProposalOutlivesItsEpoch(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.lead(1, 1)
	a := only(t, l.fetchFrom(2, 0), ProposeISR)
	l.follow(2)
	l.lead(3, 1)
	require.Empty(t, all(l.fetchFrom(3, 0), ProposeISR))
	require.True(t, l.p.Status().Proposing)
	l.step(ISRAnswer{Tag: a.Tag, Err: FencedLeaderEpoch})
	only(t, l.fetchFrom(3, 0), ProposeISR)
}

func TestAReplicaThatIsStoppedKnowsNoLeader(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.follow(1)
	l.step(Stop{LeaderEpoch: -1})
	require.Equal(t, NoNode, l.p.Status().Leader)
}
