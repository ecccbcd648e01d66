package compaction

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

// tens are n segments of ten offsets and 100 bytes each; the last one is active.
func tens(n int) State {
	s := State{LogEnd: int64(n) * 10, LastStable: math.MaxInt64}
	for i := range int64(n) {
		s.Segments = append(s.Segments, Fact{Base: i * 10, Bytes: 100, LargestTimestamp: at0.UnixMilli(), FirstTimestamp: at0.UnixMilli()})
	}
	return s
}

func plan(c Config, s State) Plan { return c.Plan(s, GroupLimits{}, at0) }

// Scenario: C026
func TestSizesOfWhatIsCleanAndCleanable(t *testing.T) {
	s := tens(5)
	s.Checkpoint = new(int64(20))
	p := plan(Config{}, s)
	require.EqualValues(t, []int64{20, 40, 200, 200}, []int64{p.FirstDirty, p.Uncleanable, p.CleanBytes, p.CleanableBytes})
	require.Equal(t, 0.5, p.DirtyRatio)
	require.False(t, p.Due, "the ratio must be above the least one")
	require.True(t, plan(Config{MinDirtyRatio: 0.49}, s).Due)
	require.Equal(t, []Range{{First: 0, Last: 3, Base: 0, Bytes: 400}}, p.Groups)

	s.Checkpoint = new(int64(25)) // the segment it lies in counts twice
	p = plan(Config{}, s)
	require.EqualValues(t, []int64{25, 40, 300, 200}, []int64{p.FirstDirty, p.Uncleanable, p.CleanBytes, p.CleanableBytes})
}

// Scenario: G003
// Report: B065
func TestACheckpointThatDoesNotFitTheLog(t *testing.T) {
	s := tens(3)
	s.LogStart = 5
	p := plan(Config{}, s)
	require.Equal(t, []any{int64(5), NotReset}, []any{p.FirstDirty, p.Reset})
	s.Checkpoint = new(int64(200))
	p = plan(Config{}, s)
	require.Equal(t, []any{int64(5), BeyondEnd}, []any{p.FirstDirty, p.Reset})
	s.Checkpoint = new(int64(4))
	p = plan(Config{}, s)
	require.Equal(t, []any{int64(5), BelowStart}, []any{p.FirstDirty, p.Reset})
	s.Checkpoint = new(int64(30))
	p = plan(Config{}, s)
	require.Equal(t, []any{int64(30), NotReset, int64(20), int64(0)}, []any{p.FirstDirty, p.Reset, p.Uncleanable, p.CleanableBytes})
	for _, text := range []string{NotReset.String(), BelowStart.String(), BeyondEnd.String(), ByActive.String(), Mapping.String()} {
		require.NotEmpty(t, text)
	}
}

// Scenario: G005, G006
func TestNothingToClean(t *testing.T) {
	s := tens(1)
	s.LogStart = 3
	require.False(t, plan(Config{MinDirtyRatio: AnyDirt}, s).Due)
	s = tens(3)
	s.Checkpoint = new(int64(25)) // in the active segment
	p := plan(Config{MinDirtyRatio: AnyDirt, MaxLag: 1}, s)
	require.False(t, p.Due)
	require.Empty(t, p.Groups)
	require.Equal(t, Plan{}, plan(Config{}, State{}))
	empty := tens(3)
	for i := range empty.Segments {
		empty.Segments[i].Bytes = 0
	}
	require.False(t, plan(Config{MinDirtyRatio: AnyDirt, MaxLag: 1}, empty).Due)
}

// Scenario: G011
func TestTheLastStableOffsetBounds(t *testing.T) {
	s := tens(5)
	s.LastStable = 25
	p := plan(Config{}, s)
	require.Equal(t, []any{int64(20), ByLastStable}, []any{p.Uncleanable, p.Hold}, "its segment is not cleaned at all")
	s.LastStable = 20
	require.EqualValues(t, 20, plan(Config{}, s).Uncleanable)
	s.LastStable = 50
	p = plan(Config{}, s)
	require.Equal(t, []any{int64(40), ByActive}, []any{p.Uncleanable, p.Hold})
}

// Scenario: G014, I006
func TestYoungRecordsAreLeft(t *testing.T) {
	s := tens(5)
	for i := range s.Segments {
		s.Segments[i].LargestTimestamp = at0.Add(time.Duration(i-4) * time.Hour).UnixMilli()
	}
	c := Config{MinLag: 2 * time.Hour}
	p := plan(c, s) // segment 2 is exactly as old as it must be
	require.Equal(t, []any{int64(30), ByMinLag}, []any{p.Uncleanable, p.Hold})
	s.Segments[2].LargestTimestamp++
	require.EqualValues(t, 20, plan(c, s).Uncleanable)
	s.LastStable = 0
	require.Equal(t, []any{int64(0), ByLastStable}, []any{plan(c, s).Uncleanable, plan(c, s).Hold})
	s.LastStable = math.MaxInt64
	s.Checkpoint = new(int64(30)) // clean already: their age does not matter any more
	require.EqualValues(t, 30, plan(c, s).Uncleanable)
}

// Scenario: I005
func TestOldDirtIsCleanedWhateverTheRatio(t *testing.T) {
	s := tens(5)
	s.Checkpoint = new(int64(30))
	c := Config{MinDirtyRatio: 1, MaxLag: 6 * time.Hour}
	at := func(d time.Duration) Plan { return c.Plan(s, GroupLimits{}, at0.Add(d)) }
	require.False(t, at(3*time.Hour).Due)
	require.False(t, at(6*time.Hour).Due)
	p := at(6*time.Hour + time.Millisecond)
	require.True(t, p.Due)
	require.True(t, p.Overdue)
	require.Equal(t, at0.UnixMilli(), p.OldestDirty)
	s.Segments[3].FirstTimestamp = 0 // as good as none
	require.False(t, at(9*time.Hour).Due)
	s.Segments[2].FirstTimestamp = 1 // clean
	require.False(t, at(9*time.Hour).Due)
}

func TestMeasureLooksOnlyWhereItMust(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.o.IndexIntervalBytes = -1
	w.add(plain(0, "a=1"), plain(1, "b=1"))
	w.add(plain(2, "x=1"))
	w.reopen()
	facts, err := Config{}.Measure(w.segs, false)
	require.NoError(t, err)
	require.Equal(t, Fact{Base: 0, Bytes: w.segs[0].Size(), LargestTimestamp: -1, FirstTimestamp: -1}, facts[0])
	facts, err = Config{MinLag: 1, MaxLag: 1}.Measure(w.segs, true)
	require.NoError(t, err)
	require.Equal(t, Fact{Base: 0, Bytes: w.segs[0].Size(), IndexBytes: 8, TimeIndexBytes: 12,
		LargestTimestamp: at0.UnixMilli() + 1, FirstTimestamp: at0.UnixMilli()}, facts[0])
}
