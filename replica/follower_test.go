package replica

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// answer is the leader's answer to the fetch under way.
func (l *lab) answer(r Result) []Action {
	l.t.Helper()
	require.NotZero(l.t, l.p.follow.tag, "no fetch is under way")
	return l.step(FetchResponse{From: l.p.leader, Tag: l.p.follow.tag, Result: r})
}

// data is an answer with n records of an epoch from offset on.
func data(offset int64, epoch int32, n int64, hw int64) Result {
	fl := &fakeLog{start: offset}
	for range n {
		fl.records = append(fl.records, fakeRecord{epoch: epoch, id: 7})
	}
	raw, _ := fl.read(offset, 1<<20, fl.end())
	return Result{Raw: raw, Bytes: int64(len(raw)), HighWatermark: hw, LogEnd: fl.end(), LogStart: 0, Removal: -1}
}

func diverging(epoch int32, end int64, hw int64) Result {
	return Result{Diverged: true, EpochEnd: log.EpochEnd{Epoch: epoch, End: end}, HighWatermark: hw, Removal: -1}
}

// Scenario: F001. It lags one answer behind with its high watermark.
func TestFollowerCopiesAndLearnsTheHighWatermark(t *testing.T) {
	l := newLab(t, Config{BrokerEpoch: 5, FetchWait: time.Second}, filled(0))
	f := only(t, l.follow(3), SendFetch)
	require.Equal(t, NodeID(2), f.To)
	require.Equal(t, FetchRequest{From: 1, Tag: f.Tag, LeaderEpoch: 3, LastFetchedEpoch: -1, BrokerEpoch: 5, Isolation: log.LogEnd,
		MaxBytes: 1 << 20, MinBytes: 1, MaxWait: time.Second}, f.Fetch)
	f = only(t, l.answer(data(0, 2, 2, 0)), SendFetch)
	require.Equal(t, int64(2), f.Fetch.Offset)
	require.Equal(t, int32(2), f.Fetch.LastFetchedEpoch)
	require.Equal(t, int64(0), l.log.hw)
	l.answer(Result{HighWatermark: 2, LogEnd: 2, Removal: -1})
	require.Equal(t, int64(2), l.log.hw)
	// Beyond its end it never is, and down it goes with the leader.
	l.answer(Result{HighWatermark: 9, LogEnd: 2, Removal: -1})
	require.Equal(t, int64(2), l.log.hw)
	l.answer(Result{HighWatermark: 1, LogEnd: 2, Removal: -1})
	require.Equal(t, int64(1), l.log.hw)
}

func TestFollowerTakesTheLogStartAfterTheHighWatermark(t *testing.T) {
	l := newLab(t, Config{}, filled(4, entries(0, 0)...))
	l.follow(1)
	acts := l.answer(Result{HighWatermark: 4, LogStart: 3, LogEnd: 4, Removal: 2})
	require.Equal(t, []string{"high watermark", "log start", "removal", "fetch"}, kinds(acts))
	require.Equal(t, int64(3), l.log.start)
	require.Equal(t, int64(3), only(t, acts, SendFetch).Fetch.LogStart)
	require.Equal(t, int64(2), l.p.Status().Removal)
}

// Scenario: F007, F009, F024. No epoch query, no second look at the log in the same epoch.
func TestFirstFetchOfAnEpoch(t *testing.T) {
	for _, c := range []struct {
		name   string
		config Config
		log    *fakeLog
		hw     int64
		cut    bool
		from   int64
		last   int32
	}{
		{"with epochs it keeps everything", Config{}, filled(4, entries(0, 0, 2, 3)...), 1, false, 4, 2},
		{"without it keeps what is committed", Config{}, filled(4), 2, true, 2, -1},
		{"an empty log", Config{}, filled(0), 0, false, 0, -1},
		{"everything committed", Config{}, filled(4), 4, false, 4, -1},
		{"the old rule cuts to the high watermark", Config{Truncation: ByHighWatermark}, filled(4, entries(0, 0, 2, 3)...), 1, true, 1, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.log.hw = c.hw
			l := newLab(t, c.config, c.log)
			f := only(t, l.follow(3), SendFetch)
			require.Equal(t, c.cut, len(all(l.all, DoTruncate)) == 1)
			require.Equal(t, c.from, f.Fetch.Offset)
			require.Equal(t, c.last, f.Fetch.LastFetchedEpoch)
			require.Empty(t, l.step(Assign{Leader: 2, LeaderEpoch: 3, PartitionEpoch: 5, Replicas: []NodeID{1, 2}, ISR: []NodeID{1, 2}}))
		})
	}
}

// Scenario: F021, F022. Where a follower cuts, by its epochs and the leader's answer.
func TestCutAfterDivergence(t *testing.T) {
	for _, c := range []struct {
		name   string
		epochs []log.EpochEntry
		end    int64
		hw     int64
		epoch  int32
		at     int64
		want   int64
	}{
		{"the worked example", entries(0, 0, 2, 1, 4, 2), 3, 0, 2, 2, 2},
		{"the leader's end is smaller", entries(0, 0, 5, 10), 20, 0, 5, 15, 15},
		{"the follower's end is smaller", entries(0, 0, 5, 10, 7, 12), 20, 0, 5, 15, 12},
		{"the follower does not know the epoch: to the end of the one before", entries(0, 0, 3, 6, 7, 12), 20, 0, 5, 15, 12},
		{"all of its epochs are newer", entries(6, 3, 7, 12), 20, 0, 5, 15, 3},
		{"undefined: to the high watermark", entries(0, 0), 20, 6, -1, -1, 6},
		{"no epoch but an end", entries(0, 0), 20, 0, -1, 9, 9},
		{"the end is beyond", entries(0, 0, 4, 20), 20, 0, 0, 30, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			fl := filled(c.end, c.epochs...)
			fl.hw = c.hw
			l := newLab(t, Config{}, fl)
			l.follow(9)
			acts := l.answer(diverging(c.epoch, c.at, 18))
			require.Equal(t, c.want, only(t, l.all, DoTruncate).Offset)
			require.Equal(t, c.want, l.log.end())
			require.Equal(t, min(c.hw, c.want), l.p.Status().HighWatermark, "marks of such an answer do not count")
			f := only(t, acts, SendFetch).Fetch
			require.Equal(t, c.want, f.Offset)
			require.Equal(t, latestEpoch(l.log.epochs), f.LastFetchedEpoch)
		})
	}
}

// Scenario: F019. Report: B104. An answer that shows where histories part counts for nothing else: its high watermark is of
// another history. It was a leader to 120 and committed to 100; the next one parts at 105 and has committed 115. At no time is
// one of the records of the old epoch at or above 105 below its high watermark.
func TestTheMarkOfAnotherHistoryIsNotTakenOver(t *testing.T) {
	fl := filled(120, entries(1, 0)...)
	fl.hw = 100
	l := newLab(t, Config{}, fl)
	l.follow(2)
	l.hold[DoTruncate] = true
	r := diverging(1, 105, 115)
	r.LogEnd, r.LogStart = 130, 50
	acts := l.answer(r)
	require.Empty(t, acts, "no mark, no log start, no fetch")
	require.Equal(t, int64(100), l.p.Status().HighWatermark)
	require.Zero(t, reply(t, l.wait(NoNode, 7, 100, 0), 7).Bytes)
	l.hold[DoTruncate] = false
	require.Equal(t, int64(105), only(t, l.release(), SendFetch).Fetch.Offset)
	require.Equal(t, int64(1), l.p.Status().Counts.Truncations)
	require.Equal(t, int64(100), l.p.Status().HighWatermark)
	l.answer(data(105, 2, 5, 115))
	require.Equal(t, int64(110), l.p.Status().HighWatermark)
	l.answer(data(110, 2, 20, 115))
	require.Equal(t, [2]int64{115, 130}, [2]int64{l.log.hw, l.log.end()})
	for _, rec := range l.log.records[105:] {
		require.Equal(t, int32(2), rec.epoch)
	}
}

// Scenario: F020. The leader has committed 160 and parts at 140.
func TestACutBelowTheLeadersMark(t *testing.T) {
	fl := filled(150, entries(1, 0)...)
	fl.hw = 130
	l := newLab(t, Config{}, fl)
	l.follow(2)
	f := only(t, l.answer(diverging(1, 140, 160)), SendFetch).Fetch
	require.Equal(t, []int64{140, 140, 130}, []int64{f.Offset, l.log.end(), l.p.Status().HighWatermark})
}

// What would only be repeated for ever waits.
func TestAnswerThatChangesNothingBacksOff(t *testing.T) {
	for _, r := range []Result{diverging(0, 30, 0), {Err: OffsetOutOfRange, LogEnd: 9, LogStart: 0}, {Err: OffsetOutOfRange, LogEnd: -1, LogStart: -1}} {
		l := newLab(t, Config{}, filled(4, entries(0, 0)...))
		l.follow(1)
		require.Empty(t, all(l.answer(r), SendFetch))
		require.Empty(t, all(l.pass(999*time.Millisecond), SendFetch))
		only(t, l.pass(time.Millisecond), SendFetch)
	}
}

// The mark on disk is never above what is committed: it is written before the cut that lowers it.
func TestHighWatermarkIsWrittenBeforeACutBelowIt(t *testing.T) {
	fl := filled(10, entries(0, 0)...)
	fl.hw, fl.saved = 8, 8
	l := newLab(t, Config{}, fl)
	l.hold[DoTruncate] = true
	l.follow(1)
	acts := l.answer(diverging(0, 5, 9))
	require.Equal(t, []string{"persist high watermark", "truncate"}, kinds(l.all))
	require.Equal(t, int64(5), only(t, acts, PersistHighWatermark).Offset)
	require.Equal(t, int64(5), l.p.Status().HighWatermark)
	require.Equal(t, int64(3), l.p.Status().Counts.RecordsBelowHWCut)
	require.Empty(t, all(l.step(Stop{LeaderEpoch: -1}), PersistHighWatermark))
	require.Equal(t, int64(5), l.log.saved)
}

// Scenario: F011. Also where the leader's log is elsewhere altogether.
func TestFetchOutOfRange(t *testing.T) {
	for _, c := range []struct {
		name                string
		leaderStart, leader int64
		start, end          int64 // after
		kind                Kind
	}{
		{"the leader ends earlier", 0, 4, 0, 4, DoTruncate},
		{"the leader was emptied", 0, 0, 0, 0, DoTruncate},
		{"the leader starts later", 15, 30, 15, 15, DoReset},
		{"it fits", 2, 30, 0, 10, DoEpoch},
	} {
		t.Run(c.name, func(t *testing.T) {
			fl := filled(10, entries(0, 0)...)
			fl.hw = 6
			l := newLab(t, Config{}, fl)
			l.follow(1)
			acts := l.answer(Result{Err: OffsetOutOfRange, LogStart: c.leaderStart, LogEnd: c.leader, HighWatermark: 20})
			if c.kind == DoEpoch {
				require.Empty(t, acts)
				return
			}
			require.Equal(t, int64(c.end), only(t, l.all, c.kind).Offset)
			require.Equal(t, [2]int64{c.start, c.end}, [2]int64{l.log.start, l.log.end()})
			require.Equal(t, max(min(6, c.end), c.start), l.p.Status().HighWatermark)
			require.Equal(t, c.end, only(t, acts, SendFetch).Fetch.Offset)
		})
	}
}

// Scenario: F002, F003, F014, F017, F023. A replica asks for itself alone, so an error of one delays or ends no other.
func TestTroubleOfFetches(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer Result
		append error
		want   string // what the follower is at then
	}{
		{"not the leader", Result{Err: NotLeaderOrFollower}, nil, "waiting"},
		{"unknown epoch", Result{Err: UnknownLeaderEpoch}, nil, "waiting"},
		{"unknown topic id", Result{Err: UnknownTopicID}, nil, "waiting"},
		{"inconsistent topic id", Result{Err: InconsistentTopicID}, nil, "waiting"},
		{"the network", Result{Err: NetworkException}, nil, "waiting"},
		{"fenced", Result{Err: FencedLeaderEpoch, LeaderEpoch: 2}, nil, "halted"},
		{"fenced by nobody newer", Result{Err: FencedLeaderEpoch, LeaderEpoch: 1}, nil, "waiting"},
		{"corrupt", data(4, 1, 1, 0), record.ErrCorrupt, "waiting"},
		{"invalid", data(4, 1, 1, 0), log.ErrInvalidRecord, "waiting"},
		{"out of order", data(4, 1, 1, 0), log.ErrOffsetsOutOfOrder, "waiting"},
		{"disk full", data(4, 1, 1, 0), log.ErrNoSpace, "waiting"},
		{"not where the log ends", data(3, 1, 1, 0), nil, "waiting"},
		{"of a later epoch", data(4, 9, 1, 0), nil, "waiting"},
		{"the log is fenced", data(4, 1, 1, 0), log.ErrFenced, "halted"},
		{"the log failed", data(4, 1, 1, 0), log.ErrFailed, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, Config{}, filled(4, entries(0, 0)...))
			l.follow(1)
			l.log.fail = c.append
			acts := l.answer(c.answer)
			require.Empty(t, all(acts, SendFetch))
			require.Equal(t, c.want, l.p.Status().Phase)
			require.Equal(t, int64(4), l.log.end())
			acts = l.pass(time.Second)
			switch c.want {
			case "waiting":
				only(t, acts, SendFetch)
				only(t, l.answer(data(4, 1, 2, 0)), SendFetch)
				require.Equal(t, int64(6), l.log.end())
			case "halted":
				require.Empty(t, all(acts, SendFetch))
				only(t, l.follow(2), SendFetch)
			default:
				require.Equal(t, Failed, l.p.Status().Role)
				require.ErrorIs(t, l.p.Status().LastError, c.append)
				require.Empty(t, l.follow(2))
			}
		})
	}
}

// Scenario: F008, F010, F015, F016. Answers that nobody waits for any more.
func TestLateAnswersAreIgnored(t *testing.T) {
	l := newLab(t, Config{}, filled(4, entries(0, 0)...))
	l.follow(1)
	old := l.p.follow.tag
	require.Empty(t, l.step(FetchResponse{From: 3, Tag: old, Result: data(4, 1, 1, 4)}), "from someone else")
	require.Empty(t, l.step(FetchResponse{From: 2, Tag: old + 99, Result: data(4, 1, 1, 4)}), "nobody asked")
	require.Equal(t, int64(2), l.p.Status().Counts.StaleEventsIgnored)
	l.follow(2)
	for _, r := range []Result{data(4, 1, 1, 4), diverging(0, 2, 0), {Err: OffsetOutOfRange, LogEnd: 1}} {
		require.Empty(t, l.step(FetchResponse{From: 2, Tag: old, Result: r}))
	}
	require.Equal(t, int64(4), l.log.end())
	tag := l.p.follow.tag
	l.answer(diverging(0, 3, 0))
	require.Equal(t, int64(3), l.log.end())
	require.Empty(t, l.step(FetchResponse{From: 2, Tag: tag, Result: diverging(0, 2, 0)}), "twice")
	l.step(Stop{LeaderEpoch: 2})
	require.Empty(t, l.step(FetchResponse{From: 2, Tag: tag + 2, Result: diverging(0, 2, 0)}))
	require.Equal(t, int64(3), l.log.end())
}

// Scenario: F008. The replica is stopped while its log is being cut: that ends, and nothing follows. Started again in the same
// epoch it goes on from where the log ends, and is cut no second time.
func TestAReplicaStoppedDuringACut(t *testing.T) {
	for _, remove := range []bool{false, true} {
		l := newLab(t, Config{}, filled(9, entries(0, 0, 2, 6)...))
		l.follow(3)
		l.hold[DoTruncate] = true
		l.answer(diverging(0, 4, 0))
		require.Len(t, l.held, 1)
		require.Empty(t, l.step(Stop{Delete: remove, LeaderEpoch: 3}))
		l.hold[DoTruncate] = false
		acts := l.release()
		if remove {
			require.Equal(t, []string{"delete"}, kinds(acts))
			require.Empty(t, l.follow(3))
			continue
		}
		require.Empty(t, acts)
		require.Equal(t, Idle, l.p.Status().Role)
		f := only(t, l.follow(3), SendFetch).Fetch
		require.Equal(t, int64(4), f.Offset)
		require.Equal(t, int64(1), l.p.Status().Counts.Truncations)
	}
}

func TestLostFetchIsSentAgain(t *testing.T) {
	l := newLab(t, Config{FetchLimit: 10 * time.Second}, filled(4, entries(0, 0)...))
	l.follow(1)
	require.Empty(t, l.pass(9*time.Second))
	only(t, l.pass(time.Second), SendFetch)
}

// Scenario: N006. News come while the log is busy: what is under way ends first, and its data stays.
func TestRoleChangesWaitForTheWorkUnderWay(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.follow(1)
	l.hold[DoAppend] = true
	l.answer(data(0, 1, 2, 2))
	require.Empty(t, all(l.follow(2), SendFetch))
	acts := l.release()
	require.Equal(t, int64(2), l.log.end())
	require.Empty(t, all(acts, SetHighWatermark), "the marks were another leader's")
	require.Equal(t, int64(2), only(t, acts, SendFetch).Fetch.Offset)

	l.hold[DoAppend] = true
	l.answer(data(2, 2, 1, 2))
	l.hold[DoAppend] = false
	require.Empty(t, l.lead(3, 1, 2, 3))
	l.release()
	require.Equal(t, entries(1, 0, 2, 2, 3, 3), l.log.epochs)
	require.True(t, l.p.Status().Active)

	l.hold[DoTruncate] = true
	l.follow(4)
	l.answer(diverging(2, 3, 0))
	require.Empty(t, all(l.lead(5, 1), DoEpoch))
	l.release()
	require.Equal(t, entries(1, 0, 2, 2, 5, 3), l.log.epochs)
}

// A leader that wrote nothing loses its epoch entry again when it follows.
func TestEpochWithoutRecordsIsDropped(t *testing.T) {
	l := newLab(t, Config{}, filled(4, entries(0, 0)...))
	l.lead(1, 1)
	require.Equal(t, entries(0, 0, 1, 4), l.log.epochs)
	require.Equal(t, int32(1), only(t, l.follow(2), SendFetch).Fetch.LastFetchedEpoch)
	l.answer(diverging(0, 4, 0))
	require.Equal(t, entries(0, 0), l.log.epochs)
	require.Equal(t, int64(4), l.log.end())
}

func TestNobodyToFollow(t *testing.T) {
	fl := filled(4, entries(0, 0)...)
	fl.hw = 3
	l := newLab(t, Config{}, fl)
	require.Empty(t, l.step(Assign{Leader: NoNode, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: []NodeID{1, 2}}))
	require.Equal(t, int64(60), reply(t, l.wait(NoNode, 7, 0, 1), 7).Bytes)
	require.Equal(t, NotLeaderOrFollower, reply(t, l.produce(1, 1, 1), 1).Err)
	require.Equal(t, int64(4), l.log.end())
	l.lead(2, 1)
	require.Equal(t, int64(4), l.p.Status().HighWatermark)
}

// The leader's log starts inside a batch: what comes first begins below the empty log.
func TestLogStartInsideABatch(t *testing.T) {
	b := record.NewBuilder(record.BuilderOptions{})
	for range 4 {
		require.NoError(t, b.Add(record.Record{Value: []byte("v")}))
	}
	batch, err := b.Finish()
	require.NoError(t, err)
	batch.SetBaseOffset(20)
	l := newLab(t, Config{}, filled(12, entries(0, 0)...))
	l.follow(1)
	l.answer(Result{Err: OffsetOutOfRange, LogStart: 22, LogEnd: 30})
	require.Equal(t, int64(22), l.log.start)
	l.hold[DoAppend] = true
	l.answer(Result{Raw: batch.Bytes(), HighWatermark: 30, LogStart: 22, LogEnd: 30, Removal: -1})
	refused := func() []Action {
		a := l.held[len(l.held)-1]
		return l.step(Appended{Tag: a.Tag, Base: -1, Last: -1, Err: fmt.Errorf("x: %w", log.ErrUnexpectedOffset), State: l.log.state()})
	}
	refused()
	require.Equal(t, int64(20), only(t, l.all, DoReset).Offset)
	require.Len(t, l.held, 2)
	l.log.records = append(l.log.records, make([]fakeRecord, 4)...)
	a := l.held[1]
	acts := l.step(Appended{Tag: a.Tag, Base: 20, Last: 23, State: l.log.state()})
	require.Equal(t, int64(22), only(t, acts, SetLogStart).Offset)
	require.Equal(t, int64(24), l.p.Status().HighWatermark)
	require.Equal(t, int64(24), only(t, acts, SendFetch).Fetch.Offset)

	// It does not happen twice, nor to a log that has records.
	l.answer(Result{Raw: batch.Bytes(), HighWatermark: 30, LogStart: 22, LogEnd: 30, Removal: -1})
	require.Empty(t, all(refused(), DoReset))
	require.Equal(t, "waiting", l.p.Status().Phase)
}

// After an unclean stop a replica says so until it has all that the leader had when it asked first.
func TestUncleanReplicaSaysSoUntilItHasCaughtUp(t *testing.T) {
	l := newLab(t, Config{}, filled(4, entries(0, 0)...))
	l.p = New(log.TopicPartition{}, Config{Self: 1}, l.log.state(), true)
	f := only(t, l.follow(1), SendFetch)
	require.True(t, f.Fetch.UncleanStop)
	r := data(4, 1, 2, 5)
	r.LogEnd = 8
	require.True(t, only(t, l.answer(r), SendFetch).Fetch.UncleanStop, "8 is where it must come to")
	r = data(6, 1, 1, 9)
	r.LogEnd = 20
	require.True(t, only(t, l.answer(r), SendFetch).Fetch.UncleanStop)
	r = data(7, 1, 1, 9)
	r.LogEnd = 30
	require.False(t, only(t, l.answer(r), SendFetch).Fetch.UncleanStop)
	require.False(t, l.p.Status().UncleanStop)
}

func TestOnlySyncedRecordsAreAskedBeyond(t *testing.T) {
	l := newLab(t, Config{CountSynced: true}, filled(0))
	l.hold[DoSync] = true
	l.follow(1)
	require.Empty(t, all(l.answer(data(0, 1, 2, 0)), SendFetch))
	require.Len(t, l.held, 1)
	require.Equal(t, int64(2), only(t, l.release(), SendFetch).Fetch.Offset)
}

func TestStopAndDelete(t *testing.T) {
	l := newLab(t, Config{}, filled(4, entries(0, 0)...))
	l.lead(3, 1)
	l.hold[DoAppend] = true
	l.produce(1, 1, 1)
	require.Empty(t, l.step(Stop{Delete: true, LeaderEpoch: 2}), "of an older epoch")
	acts := l.step(Stop{Delete: true, LeaderEpoch: 3})
	require.Empty(t, all(acts, Delete), "not before the append has ended")
	require.Equal(t, NotLeaderOrFollower, reply(t, acts, 1).Err)
	only(t, l.release(), Delete)
	require.Equal(t, UnknownTopicOrPartition, reply(t, l.fetchFrom(2, 0), 1002).Err)
	require.Empty(t, l.lead(9, 1))

	// Stopped without deletion it may be assigned again, also in the same epoch.
	l = newLab(t, Config{}, filled(4, entries(0, 0)...))
	l.follow(3)
	l.step(Stop{LeaderEpoch: 3})
	require.Equal(t, NotLeaderOrFollower, reply(t, l.wait(NoNode, 7, 0, 1), 7).Err)
	only(t, l.follow(3), SendFetch)
}

// A node makes a replica anew in one life: the topic was deleted and made again, or the partition moved away and back. An answer
// that is still on its way to the replica from before must not be taken for one to the new one.
func TestAnAnswerToAReplicaThatWasDeletedIsNotTheNextOnes(t *testing.T) {
	fetchOf := func(topic byte, partitionEpoch int32) FetchRequest {
		l := newLab(t, Config{BrokerEpoch: 5}, filled(0))
		return only(t, l.step(Assign{TopicID: [16]byte{topic}, Leader: 2, PartitionEpoch: partitionEpoch, Replicas: []NodeID{1, 2}, ISR: []NodeID{1, 2}}), SendFetch).Fetch
	}
	tags := map[uint64]bool{}
	for _, f := range []FetchRequest{fetchOf(1, 0), fetchOf(2, 0), fetchOf(1, 3)} {
		require.NotZero(t, f.Tag)
		require.Less(t, f.Tag, uint64(1<<62))
		tags[f.Tag] = true
	}
	require.Len(t, tags, 3)
	require.Equal(t, fetchOf(1, 0).Tag, fetchOf(1, 0).Tag, "and nothing is left to chance")
}
