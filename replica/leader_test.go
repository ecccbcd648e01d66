package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

// Scenario: N003.
func TestBecomingLeaderNotesTheEpochWithoutAnyData(t *testing.T) {
	l := newLab(t, Config{}, filled(4, entries(0, 0)...))
	l.lead(8, 1, 2, 3)
	require.Equal(t, entries(0, 0, 8, 4), l.log.epochs)
	r := reply(t, l.step(EpochRequest{From: 2, Tag: 5, LeaderEpoch: 8, Epoch: 8}), 5)
	require.Equal(t, log.EpochEnd{Epoch: 8, End: 4}, r.EpochEnd)
	require.Equal(t, int64(4), l.p.Status().EpochStart)
}

// Scenario: N001. The epochs a leader has, what a follower says, what it hears.
func TestFetchesShowWhereHistoriesPart(t *testing.T) {
	epochs := entries(0, 0, 3, 2, 4, 8, 7, 13, 9, 14, 10, 17)
	for _, c := range []struct {
		start    int64
		epoch    int32
		offset   int64
		diverged bool
		end      log.EpochEnd
		err      ErrorCode
		outside  bool // the follower is not in sync
	}{
		{epoch: 2, offset: 5, diverged: true, end: log.EpochEnd{Epoch: 0, End: 2}},
		{epoch: 0, offset: 4, diverged: true, end: log.EpochEnd{Epoch: 0, End: 2}},
		{epoch: 6, offset: 6, diverged: true, end: log.EpochEnd{Epoch: 4, End: 13}},
		{epoch: 5, offset: 9, diverged: true, end: log.EpochEnd{Epoch: 4, End: 13}},
		{epoch: 10, offset: 18, diverged: true, end: log.EpochEnd{Epoch: 10, End: 17}},
		{epoch: 0, offset: 2},
		{epoch: 7, offset: 14},
		{epoch: 9, offset: 17},
		{epoch: 10, offset: 17},
		{epoch: 11, offset: 5, err: OffsetOutOfRange},
		// With a log start: N002.
		{start: 5, epoch: 2, offset: 8, diverged: true, end: log.EpochEnd{Epoch: 2, End: 5}},
		{start: 5, epoch: 0, offset: 5},
		{start: 5, epoch: 3, offset: 5},
		{start: 5, epoch: 0, offset: 0, err: OffsetOutOfRange},
		{start: 10, epoch: 5, offset: 6, err: OffsetOutOfRange},
		{start: 10, epoch: 3, offset: 6, err: OffsetOutOfRange},
		// One that is not in sync may have records of an epoch that ended long before.
		{start: 5, epoch: 0, offset: 5, outside: true, err: OffsetOutOfRange},
		{start: 5, epoch: 3, offset: 5, outside: true},
	} {
		fl := filled(17, epochs...)
		fl.hw = 17
		fl.setStart(c.start)
		l := newLab(t, Config{}, fl)
		isr := []NodeID{1, 2}
		if c.outside {
			isr = isr[:1]
		}
		l.lead(10, isr...)
		acts := l.step(FetchRequest{From: 2, Tag: 7, Offset: c.offset, LeaderEpoch: 10, LastFetchedEpoch: c.epoch, BrokerEpoch: -1, MaxBytes: 1 << 20})
		r := reply(t, acts, 7)
		require.Equal(t, c.err, r.Err, "%+v", c)
		require.Equal(t, c.diverged, r.Diverged, "%+v", c)
		if c.diverged {
			require.Equal(t, c.end, r.EpochEnd, "%+v", c)
		}
		// A follower that parts, or is elsewhere, is not known any better than before.
		known := l.p.Status().Followers[0].LogEnd
		if c.diverged || c.err != None {
			require.Equal(t, int64(-1), known, "%+v", c)
		} else {
			require.Equal(t, c.offset, known, "%+v", c)
		}
	}
}

// Scenario: N004, N008, F027.
func TestRequestsAreFencedByEpochAndRole(t *testing.T) {
	leader := newLab(t, Config{}, filled(3, entries(0, 0)...))
	leader.lead(5, 1, 2, 3)
	follower := newLab(t, Config{}, filled(3, entries(0, 0)...))
	follower.follow(5)
	for _, c := range []struct {
		name  string
		on    *lab
		from  NodeID
		epoch int32
		fetch ErrorCode
		query ErrorCode
		view  ErrorCode
	}{
		{"older epoch at the leader", leader, 2, 4, FencedLeaderEpoch, FencedLeaderEpoch, FencedLeaderEpoch},
		{"newer epoch at the leader", leader, 2, 6, UnknownLeaderEpoch, UnknownLeaderEpoch, UnknownLeaderEpoch},
		{"its epoch", leader, 2, 5, None, None, None},
		{"no epoch", leader, 2, -1, None, None, None},
		{"a stranger", leader, 9, 5, UnknownLeaderEpoch, None, None},
		{"a stranger without epoch", leader, 9, -1, NotLeaderOrFollower, None, None},
		{"older epoch at a follower", follower, 3, 4, FencedLeaderEpoch, FencedLeaderEpoch, FencedLeaderEpoch},
		{"newer epoch at a follower", follower, 3, 6, UnknownLeaderEpoch, UnknownLeaderEpoch, UnknownLeaderEpoch},
		{"a replica at a follower", follower, 3, 5, NotLeaderOrFollower, NotLeaderOrFollower, NotLeaderOrFollower},
		{"a consumer at a follower", follower, NoNode, 5, None, NotLeaderOrFollower, NotLeaderOrFollower},
		{"a debugger at a follower", follower, Debugger, -1, None, None, None},
	} {
		t.Run(c.name, func(t *testing.T) {
			acts := c.on.step(FetchRequest{From: c.from, Tag: 3, Offset: 0, LeaderEpoch: c.epoch, LastFetchedEpoch: -1, BrokerEpoch: -1, MaxBytes: 100})
			r := reply(t, acts, 3)
			require.Equal(t, c.fetch, r.Err)
			require.Equal(t, int32(5), r.LeaderEpoch)
			acts = c.on.step(EpochRequest{From: c.from, Tag: 4, LeaderEpoch: c.epoch, Epoch: 0})
			require.Equal(t, c.query, reply(t, acts, 4).Err)
			require.Equal(t, c.view, c.on.p.View(c.from, c.epoch, log.ReadUncommitted, 0).Err)
		})
	}
}

// Scenario: N023, Q006.
func TestFetchOfAnEarlierLifeIsRefused(t *testing.T) {
	l := newLab(t, Config{}, filled(5, entries(0, 0)...))
	l.lead(1, 1, 2, 3)
	fetch := func(broker, offset int64) ErrorCode {
		return reply(t, l.step(FetchRequest{From: 2, Tag: 9, Offset: offset, LeaderEpoch: 1, LastFetchedEpoch: -1, BrokerEpoch: broker, MaxBytes: 100}), 9).Err
	}
	require.Equal(t, None, fetch(7, 3))
	require.Equal(t, NotLeaderOrFollower, fetch(6, 4))
	require.Equal(t, int64(3), l.p.Status().Followers[0].LogEnd)
	require.Equal(t, None, fetch(-1, 4))
	l.step(Peer{Node: 2, BrokerEpoch: 9, Alive: true})
	require.Equal(t, NotLeaderOrFollower, fetch(8, 5))
	require.Equal(t, None, fetch(9, 5))
}

// Scenario: N018, N029, N030, Q009, Q010.
func TestFollowerIsInSyncWhileItReachesWhatTheLeaderHadBefore(t *testing.T) {
	lag := 10 * time.Second
	l := newLab(t, Config{LagTimeMax: lag}, filled(6, entries(0, 0)...))
	l.lead(1, 1, 2, 3)
	began := l.now
	state := func() FollowerStatus { return l.p.Status().Followers[0] }
	require.Equal(t, began, state().LastCaughtUp)

	l.now = l.now.Add(time.Second)
	l.fetchFrom(2, 3)
	require.Equal(t, int64(3), state().LogEnd)
	require.Equal(t, began, state().LastCaughtUp, "half way")
	l.now = l.now.Add(time.Second)
	first := l.now
	l.fetchFrom(2, 6)
	require.Equal(t, int64(6), state().LogEnd)
	require.Equal(t, first, state().LastCaughtUp, "at the end")

	// Always a record behind, but never by much: what it reaches is where the leader was at its last fetch.
	for range 20 {
		l.produce(1, 1, 1)
		before := l.now
		l.now = l.now.Add(lag / 2)
		l.fetchFrom(2, l.log.end()-1)
		require.Equal(t, before, state().LastCaughtUp)
		require.Empty(t, all(l.step(Tick{}), ProposeISR)) // node 3 is out of the question: see below
		l.fetchFrom(3, l.log.end())
	}
	// At the end and idle for long: in sync.
	l.fetchFrom(2, l.log.end())
	l.fetchFrom(3, l.log.end())
	require.Empty(t, all(l.pass(10*lag), ProposeISR))
	// Fetching, but always the same old offset: out.
	l.produce(1, 1, 1)
	old := l.log.end() - 1
	for range 4 {
		l.now = l.now.Add(lag / 4)
		l.fetchFrom(2, old)
		l.fetchFrom(3, old+1)
	}
	l.now = l.now.Add(lag / 4)
	l.fetchFrom(2, old)
	require.Equal(t, []NodeID{1, 3}, only(t, l.pass(lag/2), ProposeISR).Proposal.ISR)
}

// A follower that gets nearer with every fetch, but never to where the leader was at the fetch before, is out in the end; once it
// gets there it may come back.
//
// Scenario: Q009.
func TestASlowFollowerIsLeftOutThoughItMakesProgress(t *testing.T) {
	lag := 10 * time.Second
	l := newLab(t, Config{LagTimeMax: lag}, filled(1000, entries(0, 0)...))
	l.lead(1, 1, 2)
	offset, out, began := int64(0), []Action(nil), l.now
	for len(out) == 0 {
		require.Less(t, l.now.Sub(began), lag+lag/2+time.Second)
		l.produce(1, 1, 10)
		l.now = l.now.Add(time.Second)
		offset += 50
		out = append(all(l.fetchFrom(2, offset), ProposeISR), all(l.step(Tick{}), ProposeISR)...)
	}
	require.Greater(t, l.now.Sub(began), lag)
	require.Equal(t, []NodeID{1}, out[0].Proposal.ISR)
	l.step(accepted(out[0]))
	require.Equal(t, l.log.end(), l.p.Status().HighWatermark)
	require.Empty(t, all(l.fetchFrom(2, l.log.end()-1), ProposeISR))
	require.Equal(t, []NodeID{1, 2}, only(t, l.fetchFrom(2, l.log.end()), ProposeISR).Proposal.ISR)
}

// Scenario: Q005. At the end a replica is caught up for ever; one that had all there was at its last fetch for the time it is allowed.
func TestCaughtUp(t *testing.T) {
	lag := 10 * time.Second
	l := newLab(t, Config{LagTimeMax: lag}, filled(10, entries(0, 0)...))
	l.lead(1, 1) // 2 is not in sync, so nothing is known of it
	caughtUp := func() bool {
		l.step(Tick{}) // for the time
		return l.p.Status().Followers[0].CaughtUp
	}
	l.now = l.now.Add(time.Hour)
	l.fetchFrom(2, 5)
	require.False(t, caughtUp(), "5 of 10")
	l.produce(1, 0, 5)
	l.fetchFrom(2, 10)
	require.True(t, caughtUp(), "10 of 15, and 10 was all there was before")
	l.produce(1, 0, 1)
	require.True(t, caughtUp(), "10 of 16")
	l.now = l.now.Add(lag)
	require.True(t, caughtUp())
	l.now = l.now.Add(time.Millisecond)
	require.False(t, caughtUp(), "for too long")
	l.fetchFrom(2, 16)
	l.now = l.now.Add(time.Hour)
	require.True(t, caughtUp(), "16 of 16, long ago")
}

// Scenario: Q003, Q004.
func TestStateOfReplicasWhenAnEpochBegins(t *testing.T) {
	l := newLab(t, Config{}, filled(11, entries(0, 0)...))
	l.lead(1, 1, 2)
	for _, f := range l.p.Status().Followers {
		require.Equal(t, int64(-1), f.LogEnd)
		require.Equal(t, int64(-1), f.LogStart)
		require.Equal(t, int64(-1), f.FetchedLeaderEnd)
		require.Equal(t, int64(-1), f.BrokerEpoch)
		require.True(t, f.LastFetch.IsZero())
		require.Equal(t, f.Node == 2, f.LastCaughtUp.Equal(l.now))
	}
	l.fetchFrom(2, 10)
	l.fetchFrom(3, 10)
	l.now = l.now.Add(time.Minute)
	l.lead(2, 1, 2) // again
	for _, f := range l.p.Status().Followers {
		require.Equal(t, int64(10), f.LogEnd)
		require.Equal(t, int64(0), f.LogStart)
		require.Equal(t, int64(11), f.FetchedLeaderEnd)
		if f.Node == 2 {
			require.Equal(t, l.now, f.LastFetch)
			require.Equal(t, l.now, f.LastCaughtUp)
		} else {
			require.True(t, f.LastFetch.IsZero())
			require.True(t, f.LastCaughtUp.IsZero())
		}
	}
}

// Scenario: N010, N011.
func TestLatestOffsetIsNotAvailableBelowTheEpochStart(t *testing.T) {
	fl := filled(5, entries(0, 0)...)
	fl.hw = 2
	l := newLab(t, Config{}, fl)
	l.lead(7, 1, 2)
	v := l.p.View(NoNode, 7, log.ReadUncommitted, 0)
	require.Equal(t, OffsetNotAvailable, v.Err)
	require.False(t, v.Settled)
	require.Equal(t, int64(5), l.p.View(2, 7, log.LogEnd, 0).End)
	// A consumer between the marks gets nothing, and no error.
	r := reply(t, l.step(FetchRequest{From: NoNode, Tag: 8, Offset: 4, LeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: 100}), 8)
	require.Equal(t, None, r.Err)
	require.Zero(t, r.Bytes)
	l.fetchFrom(2, 5)
	v = l.p.View(NoNode, 7, log.ReadUncommitted, 0)
	require.Equal(t, View{End: 5, LeaderEpoch: 7, Settled: true}, v)
}

// Scenario: N033.
func TestHighWatermarkComesFromTheCheckpoint(t *testing.T) {
	for _, c := range []struct{ saved, start, want int64 }{{4, 0, 4}, {0, 0, 0}, {20, 0, 8}, {1, 3, 3}} {
		s := filled(8, entries(0, 0)...).state()
		s.HighWatermark, s.LogStart = c.saved, c.start
		p := New(log.TopicPartition{}, Config{Self: 1}, s, false)
		require.Equal(t, c.want, p.Status().HighWatermark)
	}
}

// Scenario: N036, N038.
func TestAssignmentsAreTakenInOrder(t *testing.T) {
	l := newLab(t, Config{}, filled(2, entries(0, 0)...))
	nodes := func() (list []NodeID) {
		for _, f := range l.p.Status().Followers {
			list = append(list, f.Node)
		}
		return list
	}
	l.step(Assign{Leader: 1, LeaderEpoch: 6, PartitionEpoch: 4, Replicas: []NodeID{1, 2, 3, 4}, ISR: []NodeID{1, 2}, Adding: []NodeID{4}, Removing: []NodeID{2}})
	require.Equal(t, []NodeID{2, 3, 4}, nodes())
	l.fetchFrom(3, 2)
	l.step(Assign{Leader: 1, LeaderEpoch: 6, PartitionEpoch: 3, Replicas: []NodeID{1}, ISR: []NodeID{1}})
	require.Equal(t, []NodeID{2, 3, 4}, nodes(), "older")
	l.step(Assign{Leader: 1, LeaderEpoch: 5, PartitionEpoch: 9, Replicas: []NodeID{1}, ISR: []NodeID{1}})
	require.Equal(t, []NodeID{2, 3, 4}, nodes(), "older epoch")
	l.step(Assign{Leader: 1, LeaderEpoch: 6, PartitionEpoch: 5, Replicas: []NodeID{1, 3, 4}, ISR: []NodeID{1, 3}})
	require.Equal(t, []NodeID{3, 4}, nodes())
	require.Equal(t, int64(2), l.p.Status().Followers[0].LogEnd, "who stays keeps its state")
	require.Equal(t, UnknownLeaderEpoch, reply(t, l.fetchFrom(2, 2), 1002).Err)
	require.Len(t, all(l.step(Assign{Leader: 3, LeaderEpoch: 7, PartitionEpoch: 6, Replicas: []NodeID{1, 3, 4}, ISR: []NodeID{1, 3}}), SendFetch), 1)
	require.Empty(t, nodes())
	require.Empty(t, l.step(Assign{Leader: 3, LeaderEpoch: 7, PartitionEpoch: 6, Replicas: []NodeID{1, 3, 4}, ISR: []NodeID{1, 3}}), "no second fetch")
	require.Empty(t, l.step(Assign{Leader: 4, LeaderEpoch: 7, PartitionEpoch: 7, Replicas: []NodeID{1, 3, 4}}), "an epoch has one leader")
	require.Equal(t, NodeID(3), l.p.Status().Leader)
}

func TestRequestsWaitUntilTheEpochIsInTheLog(t *testing.T) {
	l := newLab(t, Config{}, filled(2, entries(0, 0)...))
	l.hold[DoEpoch] = true
	l.lead(1, 1)
	noReply(t, l.produce(1, 1, 1))
	noReply(t, l.fetchFrom(2, 0))
	require.Equal(t, "assigning", l.p.Status().Phase)
	acts := l.release()
	require.Equal(t, int64(2), reply(t, acts, 1).Base)
	require.Equal(t, None, reply(t, acts, 1002).Err)
	require.Equal(t, entries(0, 0, 1, 2), l.log.epochs)
}

func TestLeaderOfAnEpochTheLogHasLeftBehindHalts(t *testing.T) {
	l := newLab(t, Config{}, filled(2, entries(9, 0)...))
	l.hold[DoEpoch] = true
	l.lead(3, 1)
	noReply(t, l.produce(1, -1, 1))
	require.Equal(t, NotLeaderOrFollower, reply(t, l.release(), 1).Err)
	require.Equal(t, NotLeaderOrFollower, reply(t, l.produce(2, 1, 1), 2).Err)
	require.Equal(t, "halted", l.p.Status().Phase)
	l.hold[DoEpoch] = false
	l.lead(10, 1)
	require.Equal(t, None, reply(t, l.produce(3, -1, 1), 3).Err)
}

// A leader's log moved on to a newer leader: what is asked under the old epoch does not get in.
func TestFencedLeaderCannotAppend(t *testing.T) {
	l := newLab(t, Config{}, filled(2, entries(0, 0)...))
	l.lead(1, 1)
	l.log.assign(2, 2)
	require.Equal(t, NotLeaderOrFollower, reply(t, l.produce(1, 1, 1), 1).Err)
	require.Equal(t, int64(2), l.log.end())
}

// News meant for a life of this node that is over do not count: it might lead an epoch twice, and have lost what it wrote in it.
func TestNewsForAnEarlierLifeAreIgnored(t *testing.T) {
	l := newLab(t, Config{BrokerEpoch: 5}, filled(0))
	require.Empty(t, l.step(Assign{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1, BrokerEpoch: 4, Replicas: []NodeID{1}, ISR: []NodeID{1}}))
	require.NotEmpty(t, l.step(Assign{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1, BrokerEpoch: 5, Replicas: []NodeID{1}, ISR: []NodeID{1}}))
}

func TestEpochStartLivesOnlyAsLongAsTheLeadership(t *testing.T) {
	l := newLab(t, Config{}, filled(4, entries(0, 0)...))
	l.lead(1, 1)
	require.Equal(t, int64(4), l.p.Status().EpochStart)
	l.follow(2)
	require.Equal(t, int64(-1), l.p.Status().EpochStart)
	require.Nil(t, l.p.Status().ISR)
}

// What a follower had in an epoch led here it may have lost in one that somebody else led meanwhile.
func TestALeaderThatWasNotToldOfAnotherOneForgetsWhatItsFollowersHad(t *testing.T) {
	for _, epoch := range []int32{2, 3} {
		l := newLab(t, Config{}, filled(0))
		l.lead(1, 1, 2, 3)
		l.produce(1, -1, 4)
		l.fetchFrom(2, 4)
		require.Zero(t, l.p.Status().HighWatermark)
		l.lead(epoch, 1, 2)
		if epoch == 2 {
			require.Equal(t, int64(4), l.p.Status().HighWatermark, "nobody led between")
			continue
		}
		require.Zero(t, l.p.Status().HighWatermark)
		l.fetchFrom(2, 2)
		require.Equal(t, int64(2), l.p.Status().HighWatermark)
		l.fetchFrom(2, 4)
		require.Equal(t, int64(4), l.p.Status().HighWatermark)
	}
}
