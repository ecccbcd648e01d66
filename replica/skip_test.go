package replica

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

// gapAtTheEnd is the answer of a leader that has nothing left to give: its log ends at 16, and compaction has removed what was behind 12.
var gapAtTheEnd = Result{HighWatermark: 16, LogEnd: 16, Removal: -1}

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
	require.Equal(t, entries(0, 0, 4, 16), l.log.epochs)
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
