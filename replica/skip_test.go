package replica

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// gapAtTheEnd is the answer of a leader that has nothing left to give: its log ends at 16, and compaction has removed what was behind 12.
var gapAtTheEnd = Result{HighWatermark: 16, LogEnd: 16, Removal: -1, Gap: true, EpochEnd: log.EpochEnd{Epoch: 4, End: 16}}

// A leader whose log ends behind a gap has nothing to give that would bring a follower to its end.
func TestAFollowerSkipsAGapAtTheEndOfItsLeadersLog(t *testing.T) {
	l := newLab(t, Config{}, filled(13, entries(0, 0)...))
	l.p = New(log.TopicPartition{}, Config{Self: 1}, l.log.state(), true)
	l.follow(4)
	f := only(t, l.answer(gapAtTheEnd), SendFetch).Fetch
	require.Equal(t, int64(16), f.Offset)
	require.Equal(t, int32(4), f.LastFetchedEpoch)
	require.False(t, f.UncleanStop, "it has caught up")
	require.Equal(t, int64(16), l.p.Status().HighWatermark)
	require.Equal(t, entries(0, 0, 4, 13), l.log.epochs)
}

// An answer may be empty for many reasons: a limit of bytes, a read that was given up, a wait that was over. None of them says that
// there is nothing.
func TestAnEmptyAnswerIsNoGap(t *testing.T) {
	l := newLab(t, Config{}, filled(13, entries(0, 0)...))
	l.follow(4)
	l.hold[DoSkip] = true
	for _, empty := range []Result{
		{HighWatermark: 16, LogEnd: 16, Removal: -1},
		{HighWatermark: 16, LogEnd: 16, Removal: -1, EpochEnd: log.EpochEnd{Epoch: 0, End: 16}},
	} {
		f := only(t, l.answer(empty), SendFetch).Fetch
		require.Empty(t, l.held)
		require.Equal(t, int64(13), f.Offset)
	}
}

func TestAGapThatNoLeaderHasIsNotSkipped(t *testing.T) {
	l := newLab(t, Config{}, filled(13, entries(0, 0)...))
	l.follow(4)
	l.hold[DoSkip] = true
	for _, end := range []log.EpochEnd{{Epoch: 4, End: 17}, {Epoch: 4, End: 13}, {Epoch: 4, End: 0}, {Epoch: 4, End: -1}, {Epoch: 4, End: math.MaxInt64}, {Epoch: 5, End: 16}} {
		wrong := gapAtTheEnd
		wrong.EpochEnd = end
		require.Empty(t, all(l.answer(wrong), SendFetch), "%v", end)
		require.Empty(t, l.held, "%v", end)
		require.ErrorIs(t, l.p.Status().LastError, InvalidRecord, "%v", end)
		l.now = l.p.NextTick()
		only(t, l.step(Tick{}), SendFetch)
	}
}

// Its own latest epoch is told to a follower that has a part of it, and an unknown one to whom the epochs say nothing.
func TestAnEpochThatAFollowerHasIsNotAssignedAgain(t *testing.T) {
	for _, epoch := range []int32{-1, 0} {
		l := newLab(t, Config{}, filled(13, entries(0, 0)...))
		l.follow(4)
		l.hold[DoSkip] = true
		same := gapAtTheEnd
		same.EpochEnd.Epoch = epoch
		l.answer(same)
		require.Equal(t, int64(16), l.held[0].Offset)
		require.Equal(t, int32(-1), l.held[0].LeaderEpoch)
		only(t, l.release(), SendFetch)
		require.Equal(t, entries(0, 0), l.log.epochs)
	}
}

func TestAFollowerThatCannotSkipTriesAgain(t *testing.T) {
	l := newLab(t, Config{}, filled(13, entries(0, 0)...))
	l.follow(4)
	l.hold[DoSkip] = true
	l.answer(gapAtTheEnd)
	refused := func(err error) []Action {
		return l.step(Truncated{Tag: l.held[len(l.held)-1].Tag, Err: err, State: l.log.state()})
	}
	require.Empty(t, all(refused(log.ErrNoSpace), Fail))
	require.Equal(t, "waiting", l.p.Status().Phase)
	l.now = l.p.NextTick()
	l.step(Tick{})
	l.answer(gapAtTheEnd)
	only(t, refused(errors.New("input/output error")), Fail)
	require.Equal(t, Failed, l.p.Status().Role)
}

func TestWhatWasSkippedForAnEarlierLeaderMeansNothingToTheNext(t *testing.T) {
	l := newLab(t, Config{}, filled(13, entries(0, 0)...))
	l.follow(4)
	l.hold[DoSkip] = true
	l.answer(gapAtTheEnd)
	l.follow(5)
	acts := l.step(l.log.perform(l.held[0]))
	require.Equal(t, int32(5), only(t, acts, SendFetch).Fetch.LeaderEpoch)
	require.Zero(t, l.p.Status().HighWatermark)
}

// The answer to a fetch that counts as lost, one that comes twice, and one of a node that does not lead.
func TestALateOrForeignAnswerWithAGapIsNotHeard(t *testing.T) {
	l := newLab(t, Config{}, filled(13, entries(0, 0)...))
	l.follow(4)
	l.hold[DoSkip] = true
	first := l.p.follow.tag
	l.pass(l.p.conf.FetchLimit)
	require.NotEqual(t, first, l.p.follow.tag)
	l.step(FetchResponse{From: 2, Tag: first, Result: gapAtTheEnd})
	l.step(FetchResponse{From: 3, Tag: l.p.follow.tag, Result: gapAtTheEnd})
	require.Empty(t, l.held)
	tag := l.p.follow.tag
	l.step(FetchResponse{From: 2, Tag: tag, Result: gapAtTheEnd})
	l.step(FetchResponse{From: 2, Tag: tag, Result: gapAtTheEnd})
	require.Len(t, l.held, 1)
	require.Equal(t, int64(3), l.p.Status().Counts.StaleEventsIgnored)
}

// Who has read the log says how far there is nothing; the leader hands that on, for as long as an epoch lasts, and at once.
func TestALeaderNamesAGapOnlyIfItsLogDoes(t *testing.T) {
	for _, c := range []struct {
		name  string
		from  NodeID
		read  Read
		final bool
		gap   bool
		end   log.EpochEnd
	}{
		{"nothing is known", 2, Read{Next: 3}, true, false, log.EpochEnd{Epoch: -1, End: -1}},
		{"nothing is known, nor said", 2, Read{}, true, false, log.EpochEnd{Epoch: -1, End: -1}},
		{"up to the beginning of an epoch", 2, Read{Next: 8}, false, true, log.EpochEnd{Epoch: 0, End: 5}},
		{"up to an end inside an epoch", 2, Read{Next: 4}, false, true, log.EpochEnd{Epoch: 0, End: 4}},
		{"behind the end at the time of the request", 2, Read{Next: 90}, false, true, log.EpochEnd{Epoch: 0, End: 5}},
		{"there are records", 2, Read{Bytes: 40, Raw: make([]byte, 40), Next: 8}, true, false, log.EpochEnd{Epoch: -1, End: -1}},
		{"a consumer asks", NoNode, Read{Next: 8}, true, false, log.EpochEnd{Epoch: -1, End: -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, Config{}, filled(8, entries(0, 0, 2, 5)...))
			l.log.hw = 8
			l.p = New(log.TopicPartition{}, Config{Self: 1}, l.log.state(), false)
			l.lead(3, 1, 2, 3)
			l.hold[DoRead] = true
			q := FetchRequest{From: c.from, Tag: 7, Offset: 3, LeaderEpoch: 3, LastFetchedEpoch: -1, BrokerEpoch: -1, MaxBytes: 1 << 20, MinBytes: 1, MaxWait: time.Second}
			if c.final {
				q.MaxWait = 0
			}
			noReply(t, l.step(q))
			c.read.Tag, c.read.State = l.held[0].Tag, l.log.state()
			r := reply(t, l.step(c.read), 7)
			require.Equal(t, c.gap, r.Gap)
			require.Equal(t, c.end, r.EpochEnd)
			require.Equal(t, int64(8), r.LogEnd)
		})
	}
}

func TestTheEpochOfAnOffset(t *testing.T) {
	list := entries(0, 10, 2, 13)
	for _, c := range [][4]int64{{5, 20, -1, 10}, {5, 8, -1, 8}, {10, 20, 0, 13}, {12, 13, 0, 13}, {13, 20, 2, 20}, {20, 30, 2, 30}} {
		require.Equal(t, log.EpochEnd{Epoch: int32(c[2]), End: c[3]}, epochAt(list, c[0], c[1]), "%v", c)
	}
	require.Equal(t, log.EpochEnd{Epoch: -1, End: 9}, epochAt(nil, 5, 9))
}

// compacted makes the log end behind a gap that has an offset in each of the epochs, as one does whose records there were compacted
// away, or were a copy of such a log, and whose newest segment lost what it had.
func (n *realNode) compacted(epochs ...int32) {
	n.t.Helper()
	for _, e := range epochs {
		require.NoError(n.t, skip(n.t.Context(), n.log, e, n.log.Offsets().LogEnd+1))
	}
}

// The gap lies in three epochs. The follower has them all in the end: did it lack some it would, as leader, tell others to cut off
// what is committed.
func TestAGapInSeveralEpochsBringsThemAll(t *testing.T) {
	c := newRealCluster(t, 1, 2, 3)
	one, two, three := c.nodes[1], c.nodes[2], c.nodes[3]
	three.fill(0, 0)
	for _, e := range []int32{0, 2, 4} { // not compacted yet
		three.fill(e)
	}
	one.fill(0, 0)
	one.compacted(0, 2, 4)
	one.renew()
	three.renew()
	all := []NodeID{1, 2, 3}
	c.assign(Assign{Leader: 1, LeaderEpoch: 5, Replicas: all, ISR: []NodeID{1, 3}})
	c.rounds(6)
	require.Equal(t, entries(0, 0, 2, 3, 4, 4, 5, 5), []log.EpochEntry(one.log.Epochs()))
	require.Equal(t, entries(0, 0, 2, 3, 4, 4), []log.EpochEntry(two.log.Epochs()), "epoch 5 has no record yet")
	require.Equal(t, int64(5), two.log.Offsets().LogEnd)
	require.Equal(t, int64(5), two.log.Offsets().HighWatermark)
	require.ElementsMatch(t, all, one.p.Status().ISR)

	c.fetches = nil
	c.assign(Assign{Leader: 2, LeaderEpoch: 6, PartitionEpoch: 5, Replicas: all, ISR: all})
	c.rounds(6)
	c.step(two, Produce{Tag: 1, Raw: batchOf(t, "next"), Acks: -1})
	c.rounds(4)
	require.Equal(t, int64(5), c.replies[1].Base)
	for _, n := range c.nodes {
		require.Zero(t, n.p.Status().Counts.Truncations, "node %d has cut off what is committed", n.id)
		require.Equal(t, entries(0, 0, 2, 3, 4, 4, 6, 5), []log.EpochEntry(n.log.Epochs()), "node %d", n.id)
		require.Equal(t, int64(6), n.log.Offsets().HighWatermark)
	}
}

// Behind the gap there are records: who only copied them would take the epochs that begin in the gap for one that ends there later. It
// would be cut below what is committed once its own records behind the gap are.
func TestAGapInFrontOfRecordsBringsItsEpochs(t *testing.T) {
	c := newRealCluster(t, 1, 2)
	one, two := c.nodes[1], c.nodes[2]
	one.fill(0, 0)
	one.compacted(0, 2, 3)
	one.fill(5, 5)
	one.compacted(5)
	one.fill(6)
	one.renew()
	both := []NodeID{1, 2}
	c.assign(Assign{Leader: 1, LeaderEpoch: 7, Replicas: both, ISR: []NodeID{1}})
	c.rounds(12)
	require.Equal(t, entries(0, 0, 2, 3, 3, 4, 5, 5, 6, 8), []log.EpochEntry(two.log.Epochs()))
	require.Equal(t, []int64{9, 9, 5}, []int64{two.log.Offsets().LogEnd, two.log.Offsets().HighWatermark, int64(len(two.values()))})
	require.Equal(t, both, one.p.Status().ISR)
	require.Zero(t, two.p.Status().Counts.Truncations)
}

// Compaction leaves gaps in one segment, too. Bytes are given up to one in which an epoch begins.
func TestBytesEndInFrontOfAGapInWhichAnEpochBegins(t *testing.T) {
	var raw []byte
	size := 0
	for _, at := range []int64{2, 4, 9} {
		b := batchOf(t, "one")
		v, err := record.View(b)
		require.NoError(t, err)
		v.SetBaseOffset(at)
		raw, size = append(raw, b...), len(b)
	}
	for _, c := range []struct {
		name   string
		epochs []log.EpochEntry
		offset int64
		keep   int
		base   int64
		ok     bool
	}{
		{"none begins in one", entries(0, 0, 1, 4), 2, 0, 0, false},
		{"where the gap begins", entries(0, 0, 1, 5, 2, 9), 2, 2 * size, 9, true},
		{"inside the gap", entries(0, 0, 1, 7, 2, 9), 2, 2 * size, 9, true},
		{"where the gap ends", entries(0, 0, 1, 9), 2, 0, 0, false},
		{"in the first gap", entries(0, 0, 1, 3, 2, 6), 2, size, 4, true},
		{"in front of all", entries(0, 0, 1, 1), 1, 0, 2, true},
		{"before what was asked for", entries(0, 0, 1, 1), 2, 0, 0, false},
		{"the first that is known", entries(3, 1), 1, 0, 0, false},
		{"nothing is known", nil, 1, 0, 0, false},
	} {
		keep, base, ok := gapOfEpochs(c.epochs, c.offset, raw)
		require.Equal(t, []any{c.keep, c.base, c.ok}, []any{keep, base, ok}, c.name)
	}
	keep, base, ok := gapOfEpochs(entries(0, 0, 1, 7), 2, raw[:len(raw)-1])
	require.Equal(t, []any{0, int64(0), false}, []any{keep, base, ok}, "the batch behind it is not whole")
	_, _, ok = gapOfEpochs(entries(0, 0, 1, 7), 2, nil)
	require.False(t, ok)
}

// A follower whose records part from the leader's inside what is a gap there is cut first, and skips then.
func TestADivergedFollowerIsCutBeforeItSkips(t *testing.T) {
	c := newRealCluster(t, 1, 2)
	one, two := c.nodes[1], c.nodes[2]
	one.fill(0, 0)
	one.compacted(0, 2, 2)
	two.fill(0, 0, 0, 1, 1, 1, 1)
	one.renew()
	two.renew()
	both := []NodeID{1, 2}
	c.assign(Assign{Leader: 1, LeaderEpoch: 3, Replicas: both, ISR: []NodeID{1}})
	c.rounds(6)
	require.Equal(t, entries(0, 0, 2, 3), []log.EpochEntry(two.log.Epochs()))
	require.Equal(t, []int64{5, 5, 3}, []int64{two.log.Offsets().LogEnd, two.log.Offsets().HighWatermark, int64(len(two.values()))})
	require.Equal(t, both, one.p.Status().ISR)
}

// A transaction that is open behind the gap holds back the last stable offset of both, and ends on both.
func TestATransactionBehindAGapIsKnownToWhoSkippedIt(t *testing.T) {
	c := newRealCluster(t, 1, 2)
	one, two := c.nodes[1], c.nodes[2]
	one.fill(0)
	one.compacted(0, 0)
	one.renew()
	both := []NodeID{1, 2}
	c.assign(Assign{Leader: 1, LeaderEpoch: 1, Replicas: both, ISR: both})
	c.rounds(4)
	b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: 9, Transactional: true}})
	require.NoError(t, b.Add(record.Record{Timestamp: time.Now().UnixMilli(), Key: []byte("k"), Value: []byte("v")}))
	batch, err := b.Finish()
	require.NoError(t, err)
	c.step(one, Produce{Tag: 1, Raw: bytes.Clone(batch.Bytes()), Acks: -1})
	c.rounds(4)
	for _, n := range c.nodes {
		require.Equal(t, [2]int64{4, 3}, [2]int64{n.log.Offsets().HighWatermark, n.log.Offsets().LastStable}, "node %d", n.id)
	}
	c.assign(Assign{Leader: 2, LeaderEpoch: 2, PartitionEpoch: 5, Replicas: both, ISR: both})
	c.rounds(4)
	got, err := two.log.EndTxn(t.Context(), record.Producer{ID: 9}, true, log.EndTxnOptions{})
	require.NoError(t, err)
	require.Equal(t, int64(4), got.Base)
	_, err = two.log.SetHighWatermark(5)
	require.NoError(t, err)
	require.Equal(t, int64(5), two.log.Offsets().LastStable)
}
