package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

// wait is a fetch that waits for min bytes, at most for a second. A record is 20 bytes here.
func (l *lab) wait(from NodeID, tag uint64, offset, minBytes int64) []Action {
	epoch := l.p.leaderEpoch
	if from == NoNode {
		epoch = -1
	}
	return l.step(FetchRequest{From: from, Tag: tag, Offset: offset, LeaderEpoch: epoch, LastFetchedEpoch: -1, BrokerEpoch: -1,
		MaxBytes: 200, MinBytes: minBytes, MaxWait: time.Second})
}

func TestWaitingFetch(t *testing.T) {
	fl := filled(4, entries(0, 0)...)
	fl.hw = 4
	newLeader := func() *lab {
		l := newLab(t, Config{}, fl)
		fl = filled(4, entries(0, 0)...)
		fl.hw = 4
		l.lead(1, 1, 2)
		l.fetchFrom(2, 4)
		return l
	}
	t.Run("a follower's ends with enough written", func(t *testing.T) {
		l := newLeader()
		noReply(t, l.wait(2, 7, 4, 60))
		require.Empty(t, all(l.all, DoRead), "there is nothing to read")
		noReply(t, l.produce(1, 0, 2))
		require.Empty(t, all(l.all, DoRead), "and this is too little")
		r := reply(t, l.produce(1, 0, 1), 7)
		require.Equal(t, int64(60), r.Bytes)
		require.Equal(t, int64(4), r.HighWatermark)
		require.Equal(t, int64(7), r.LogEnd)
	})
	t.Run("a follower's is not ended by the high watermark", func(t *testing.T) {
		l := newLeader()
		l.produce(1, 0, 1)
		noReply(t, l.wait(3, 7, 5, 1))
		acts := l.fetchFrom(2, 5)
		require.Equal(t, int64(5), l.p.Status().HighWatermark)
		require.Len(t, all(acts, Reply), 1)
	})
	t.Run("a consumer's ends when the high watermark passes", func(t *testing.T) {
		l := newLeader()
		noReply(t, l.wait(NoNode, 7, 4, 1))
		noReply(t, l.produce(1, 0, 1))
		require.Empty(t, all(l.all, DoRead))
		acts := l.fetchFrom(2, 5)
		r := reply(t, acts, 7)
		require.Equal(t, int64(20), r.Bytes)
		require.Equal(t, int64(5), r.HighWatermark)
	})
	t.Run("a consumer's sees no more than the high watermark", func(t *testing.T) {
		l := newLeader()
		l.produce(1, 0, 3)
		r := reply(t, l.wait(NoNode, 7, 2, 1), 7)
		require.Equal(t, int64(40), r.Bytes)
	})
	t.Run("time is up", func(t *testing.T) {
		l := newLeader()
		noReply(t, l.wait(NoNode, 7, 3, 100))
		noReply(t, l.wait(2, 8, 4, 1))
		noReply(t, l.pass(999*time.Millisecond))
		acts := l.pass(time.Millisecond)
		require.Equal(t, int64(20), reply(t, acts, 7).Bytes)
		require.Zero(t, reply(t, acts, 8).Bytes)
		require.Zero(t, l.p.Status().Fetches)
	})
	t.Run("what MaxBytes cut off does not wait for more", func(t *testing.T) {
		l := newLeader()
		acts := l.step(FetchRequest{From: NoNode, Tag: 7, LeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: 50, MinBytes: 50, MaxWait: time.Second})
		require.Equal(t, int64(40), reply(t, acts, 7).Bytes)
	})
	t.Run("the end of a segment does not wait for more", func(t *testing.T) {
		l := newLeader()
		l.hold[DoRead] = true
		l.wait(NoNode, 7, 0, 100)
		acts := l.step(Read{Tag: l.held[0].Tag, Bytes: 20, Next: 1, State: l.log.state()})
		require.Equal(t, int64(20), reply(t, acts, 7).Bytes)
	})
	t.Run("more was written while it was read", func(t *testing.T) {
		l := newLeader()
		l.hold[DoRead] = true
		l.wait(2, 7, 3, 40)
		require.Len(t, l.held, 1)
		first := l.log.perform(l.held[0])
		l.produce(1, 0, 1)
		noReply(t, l.step(first))
		require.Len(t, l.held, 2)
		l.held = l.held[1:]
		require.Equal(t, int64(40), reply(t, l.release(), 7).Bytes)
	})
	t.Run("leadership is lost", func(t *testing.T) {
		l := newLeader()
		noReply(t, l.wait(2, 7, 4, 1))
		noReply(t, l.wait(NoNode, 8, 4, 1))
		l.hold[DoRead] = true
		noReply(t, l.wait(2, 9, 3, 1))
		acts := l.follow(2)
		require.Equal(t, FencedLeaderEpoch, reply(t, acts, 7).Err)
		require.Equal(t, NodeID(2), reply(t, acts, 7).Leader)
		require.Equal(t, FencedLeaderEpoch, reply(t, acts, 9).Err)
		require.Equal(t, 1, l.p.Status().Fetches, "a consumer can wait at a follower, too")
		noReply(t, l.release()) // the read comes too late
		require.Zero(t, reply(t, l.pass(time.Second), 8).Bytes)
	})
	t.Run("errors of the read", func(t *testing.T) {
		l := newLeader()
		l.hold[DoRead] = true
		l.wait(2, 7, 2, 1)
		acts := l.step(Read{Tag: l.held[0].Tag, Err: &log.OffsetRangeError{}, State: l.log.state()})
		require.Equal(t, OffsetOutOfRange, reply(t, acts, 7).Err)
		l.wait(2, 8, 2, 1)
		acts = l.step(Read{Tag: l.held[1].Tag, Err: log.ErrCorrupt, State: l.log.state()})
		require.Equal(t, KafkaStorageError, reply(t, acts, 8).Err)
	})
	t.Run("out of range", func(t *testing.T) {
		l := newLeader()
		for tag, offset := range []int64{-1, 5, 100} {
			r := reply(t, l.wait(NoNode, uint64(tag), offset, 1), uint64(tag))
			require.Equal(t, OffsetOutOfRange, r.Err)
			require.Equal(t, [2]int64{0, 4}, [2]int64{r.LogStart, r.LogEnd})
		}
	})
	t.Run("records are deleted under it", func(t *testing.T) {
		l := newLeader()
		noReply(t, l.wait(NoNode, 7, 4, 1000)) // as much as MaxBytes
		l.produce(1, 0, 2)
		l.fetchFrom(2, 6)
		l.log.setStart(6)
		require.Equal(t, OffsetOutOfRange, reply(t, l.step(LogChanged{State: l.log.state()}), 7).Err)
	})
}

// A replica's high watermark may be below its log end when it starts; what lies between was not appended in its time.
func TestConsumerWaitsForRecordsFromBeforeTheStart(t *testing.T) {
	fl := filled(5, entries(0, 0)...)
	fl.hw = 2
	l := newLab(t, Config{}, fl)
	l.lead(1, 1, 2)
	noReply(t, l.wait(NoNode, 7, 2, 1))
	require.Equal(t, int64(60), reply(t, l.fetchFrom(2, 5), 7).Bytes)
}

func TestConsumersReadFromFollowersUpToTheirHighWatermark(t *testing.T) {
	fl := filled(5, entries(0, 0)...)
	fl.hw = 3
	l := newLab(t, Config{}, fl)
	l.follow(1)
	require.Equal(t, int64(60), reply(t, l.wait(NoNode, 7, 0, 1), 7).Bytes)
	noReply(t, l.wait(NoNode, 8, 3, 1))
	require.Equal(t, OffsetOutOfRange, reply(t, l.wait(NoNode, 9, 6, 1), 9).Err)
	require.Equal(t, int64(100), reply(t, l.wait(Debugger, 10, 0, 1), 10).Bytes)
	// F025: the follower's mark moves.
	acts := l.step(FetchResponse{From: 2, Tag: l.p.follow.tag, Result: Result{HighWatermark: 5, LogEnd: 5, Removal: -1}})
	require.Equal(t, int64(40), reply(t, acts, 8).Bytes)
}

func TestReadCommittedWaitsForTheLastStableOffset(t *testing.T) {
	fl := filled(4, entries(0, 0)...)
	l := newLab(t, Config{}, fl)
	l.lead(1, 1)
	require.Equal(t, int64(4), l.p.Status().HighWatermark)
	l.hold[DoRead] = true
	acts := l.step(FetchRequest{From: NoNode, Tag: 7, Offset: 2, LeaderEpoch: -1, LastFetchedEpoch: -1, Isolation: log.ReadCommitted, MaxBytes: 100, MinBytes: 1, MaxWait: time.Minute})
	noReply(t, acts)
	require.Equal(t, log.ReadCommitted, l.held[0].Isolation)
	s := l.log.state()
	s.LastStable = 2
	noReply(t, l.step(Read{Tag: l.held[0].Tag, Next: 2, State: s}))
	require.Len(t, l.held, 1)
	s.LastStable = 4
	l.step(LogChanged{State: s})
	require.Len(t, l.held, 2)
	r := reply(t, l.step(Read{Tag: l.held[1].Tag, Bytes: 40, Next: 4, State: s}), 7)
	require.Equal(t, int64(4), r.LastStable)
}

func TestAnswersOfReadsFitOnlyTheirFetch(t *testing.T) {
	l := newLab(t, Config{}, filled(4, entries(0, 0)...))
	l.lead(1, 1)
	l.hold[DoRead] = true
	l.wait(NoNode, 7, 0, 1)
	tag := l.held[0].Tag
	answer := l.log.perform(l.held[0])
	acts := l.step(answer)
	require.Equal(t, tag, only(t, acts, Reply).ReadTag)
	l.wait(NoNode, 8, 0, 1)
	noReply(t, l.step(answer))
	noReply(t, l.step(Read{Tag: 1 << 40}))
	noReply(t, l.step(Read{}))
	require.Equal(t, int64(3), l.p.Status().Counts.StaleEventsIgnored)
}
