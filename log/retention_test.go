package log

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/retention"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// inSegments appends batches of five records with the given timestamps, each in a segment of its own.
func (b *bed) inSegments(times ...int64) {
	b.t.Helper()
	for _, ts := range times {
		if b.segments().active().Size() > 0 {
			require.NoError(b.t, b.Roll(ctx))
		}
		b.addTimes(ts, ts, ts, ts, ts)
	}
}

// same is n times one timestamp.
func same(n int, ts int64) []int64 { return slices.Repeat([]int64{ts}, n) }

func (b *bed) retain() RetentionReport {
	b.t.Helper()
	r, err := b.Retain(ctx)
	require.NoError(b.t, err)
	return r
}

// folder lists the names of the partition's files with a suffix.
func (b *bed) folder(suffix string) (names []string) {
	b.t.Helper()
	entries, err := b.fs.ReadDir("t-0")
	require.NoError(b.t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			names = append(names, e.Name())
		}
	}
	return names
}

// Scenario: U059
func TestRetentionStopsAtTheHighWatermark(t *testing.T) {
	b := newBed(t, Config{Visibility: External, RetentionTime: time.Second})
	require.NoError(t, b.AssignEpoch(1))
	b.inSegments(same(20, epoch2023-1001)...)
	require.Zero(t, b.retain().Dropped)
	for hw := int64(25); hw <= 30; hw++ {
		_, err := b.SetHighWatermark(hw)
		require.NoError(t, err)
		r := b.retain()
		require.Equal(t, retention.HighWatermark, r.Plan.HeldBy)
		require.Equal(t, hw/5*5, b.Offsets().LogStart)
		require.Equal(t, hw/5*5, b.bases()[0])
	}
	_, err := b.SetHighWatermark(100)
	require.NoError(t, err)
	r := b.retain()
	require.True(t, r.Plan.RollFirst)
	require.Equal(t, []int64{100}, b.bases())
	require.Equal(t, Offsets{LogStart: 100, LastStable: 100, HighWatermark: 100, LogEnd: 100, Durable: 100, LeaderEpoch: 1,
		RecoveryPoint: b.Offsets().RecoveryPoint}, b.Offsets())
	require.Equal(t, []EpochEntry{{1, 100}}, b.Epochs())
}

// Scenario: U061, U066, U095
func TestSegmentsBelowTheLogStartGo(t *testing.T) {
	for _, cleanup := range []Cleanup{Delete, Compact | Delete} {
		b := newBed(t, Config{RetentionTime: Forever, Cleanup: cleanup})
		b.keyedSegments(3)
		for _, c := range []struct {
			start int64
			left  int
		}{{1, 3}, {6, 2}, {15, 1}} {
			require.NoError(t, b.DeleteRecords(ctx, c.start))
			r := b.retain()
			require.Len(t, b.bases(), c.left)
			require.Equal(t, c.start, b.Offsets().LogStart)
			for _, d := range r.Plan.Drop {
				require.Equal(t, retention.StartOffset, d.Reason)
			}
		}
		b.reopen()
		require.EqualValues(t, 15, b.Offsets().LogStart)
		require.EqualValues(t, 15, b.Offsets().LogEnd)
	}
}

// keyedSegments appends n segments of five records with a key each.
func (b *bed) keyedSegments(n int) {
	b.t.Helper()
	for range n {
		if b.segments().active().Size() > 0 {
			require.NoError(b.t, b.Roll(ctx))
		}
		recs := values2records([]string{"a", "b", "c", "d", "e"})
		for i := range recs {
			recs[i].Key = []byte{byte(i)}
		}
		_, err := b.Append(ctx, recs...)
		require.NoError(b.t, err)
	}
}

// Scenario: U064, U066, K008
func TestAPolicyWithoutDeleteLetsNothingGoButWhatLiesBelowTheStart(t *testing.T) {
	for _, cleanup := range []Cleanup{Compact, NoCleanup} {
		b := newBed(t, Config{RetentionTime: time.Second, RetentionBytes: 1, Cleanup: cleanup})
		b.keyedSegments(3)
		b.clock.advance(time.Hour)
		r := b.retain()
		require.Zero(t, r.Dropped)
		require.Equal(t, retention.NoDelete, r.Plan.HeldBy)
		require.NoError(t, b.FollowLogStart(ctx, 5))
		require.Equal(t, 1, b.retain().Dropped)
		require.Equal(t, []int64{5, 10}, b.bases())
	}
}

// Scenario: U062, K007
func TestSizeTakesWholeSegmentsAndNeverMore(t *testing.T) {
	five := int64(len(timed(1, 1, 1, 1, 1)))
	for keep, left := range map[int64]int{2 * five: 2, 3 * five: 3, 2*five + 1: 3, 2*five - 1: 2, ActiveOnly: 1, Unlimited: 3} {
		b := newBed(t, Config{RetentionBytes: keep, RetentionTime: Forever})
		b.inSegments(1, 1, 1)
		b.retain()
		require.Len(t, b.bases(), left, "%d", keep)
		require.EqualValues(t, 15, b.Offsets().LogEnd)
		require.Zero(t, b.retain().Dropped)
	}
	many := newBed(t, Config{RetentionBytes: 5*five + 10, RetentionTime: Forever})
	many.inSegments(same(20, 1)...)
	require.Equal(t, 14, many.retain().Dropped)
	require.Len(t, many.bases(), 6)
	require.Equal(t, offsetsIn(70, 100), many.readAll(70))
}

// Scenario: U063, U065, K006
func TestOldRecordsLeaveOneEmptySegment(t *testing.T) {
	for _, c := range []Config{{RetentionTime: 10 * time.Second}, {RetentionTime: 10 * time.Second, Durability: Buffered},
		{RetentionTime: Immediately, RetentionBytes: 1 << 40}} {
		b := newBed(t, c)
		b.inSegments(same(3, 10)...)
		r := b.retain()
		require.Equal(t, 3, r.Dropped)
		require.Equal(t, []int64{15}, b.bases())
		require.EqualValues(t, 15, b.Offsets().LogStart)
		_, err := offsetsOf(b.Records(ctx, 14))
		require.ErrorIs(t, err, ErrOffsetOutOfRange)
		require.Empty(t, b.readAll(15))
		require.EqualValues(t, 15, b.add("next"))
		b.reopen()
		require.Equal(t, []int64{15}, b.readAll(15))
	}
	young := newBed(t, Config{RetentionTime: time.Hour})
	young.inSegments(same(3, epoch2023)...)
	require.Zero(t, young.retain().Dropped)
	require.Len(t, young.bases(), 3)

	both := newBed(t, Config{RetentionTime: time.Second, Cleanup: Compact | Delete})
	both.keyedSegments(3)
	both.clock.advance(1001 * time.Millisecond)
	require.Equal(t, 3, both.retain().Dropped)
	require.Len(t, both.bases(), 1)
}

// Scenario: U067, U068
func TestEpochsOfDroppedSegmentsGo(t *testing.T) {
	for _, c := range []struct{ second, left []EpochEntry }{
		{[]EpochEntry{{0, 0}, {1, 5}, {2, 10}}, []EpochEntry{{1, 5}, {2, 10}}},
		{[]EpochEntry{{0, 0}, {1, 7}, {2, 10}}, []EpochEntry{{0, 5}, {1, 7}, {2, 10}}},
	} {
		five := int64(len(timed(1, 1, 1, 1, 1)))
		b := newBed(t, Config{RetentionTime: Forever, RetentionBytes: 2 * five})
		require.NoError(t, b.AssignEpoch(0))
		for i, at := 1, int64(0); at < 15; {
			n := int64(5) - at%5
			if i < 3 && at < c.second[i].Start {
				n = min(n, c.second[i].Start-at)
			}
			if at%5 == 0 && at > 0 {
				require.NoError(t, b.Roll(ctx))
			}
			b.addTimes(same(int(n), 1)...)
			if at += n; i < 3 && at == c.second[i].Start {
				require.NoError(t, b.AssignEpoch(c.second[i].Epoch))
				i++
			}
		}
		require.Equal(t, c.second, b.Epochs())
		b.retain()
		require.Equal(t, []int64{5, 10}, b.bases())
		require.Equal(t, c.left, b.Epochs())
		b.reopen()
		require.Equal(t, c.left, b.Epochs())
	}
}

// Scenario: U069. Report: B130
func TestAStartOffsetUnblocksTheAgeInTheSameRun(t *testing.T) {
	b := newBed(t, Config{RetentionTime: 900 * time.Millisecond})
	for i, ts := range []int64{100, 0, 100} {
		if i > 0 {
			require.NoError(t, b.Roll(ctx))
		}
		b.addTimes(epoch2023 + ts)
	}
	require.NoError(t, b.DeleteRecords(ctx, 1))
	b.clock.advance(901 * time.Millisecond)
	require.Equal(t, 2, b.retain().Dropped)
	require.Zero(t, b.retain().Dropped)
	require.Equal(t, []int64{2}, b.bases())
}

// Scenario: U070. Report: B137, B149
func TestALogThatIsEmptiedAgainAndAgainNeverGivesAnOffsetTwice(t *testing.T) {
	b := newBed(t, Config{RetentionTime: time.Second})
	require.Zero(t, b.retain().Dropped)
	require.Equal(t, []int64{0}, b.bases())
	end := int64(0)
	for i := range 100 {
		n := []int{1, 25, 3}[i%3]
		require.Equal(t, end, b.addTimes(same(n, 1)...))
		end += int64(n)
		require.Positive(t, b.retain().Dropped)
		require.Zero(t, b.retain().Dropped)
		require.Equal(t, []int64{end}, b.bases())
		require.Equal(t, end, b.Offsets().LogEnd)
		require.Equal(t, end, b.Offsets().LogStart)
		if i%7 == 0 {
			b.reopen()
			require.Equal(t, end, b.Offsets().LogEnd)
		}
	}
}

// Scenario: U071, L008
func TestFilesStayForTheirDelay(t *testing.T) {
	b := newBed(t, Config{RetentionTime: time.Second, FileDeleteDelay: 5 * time.Second})
	b.inSegments(1, 1, epoch2023+5000)
	require.Len(t, b.folder(".log"), 3)
	r := b.retain()
	require.Equal(t, 2, r.Dropped)
	require.Equal(t, 2, r.Waiting)
	require.Len(t, b.folder(".log"), 1)
	require.Equal(t, []string{"00000000000000000000.log.deleted", "00000000000000000005.log.deleted"}, b.folder(".log.deleted"))
	require.Len(t, b.folder("index.deleted"), 4)
	require.Equal(t, 2*int64(len(timed(1, 1, 1, 1, 1))), r.Freed)
	b.clock.advance(4999 * time.Millisecond)
	require.Equal(t, 2, b.retain().Waiting)
	b.clock.advance(time.Millisecond)
	require.Zero(t, b.retain().Waiting)
	require.Empty(t, b.folder(".deleted"))

	b.inSegments(1)
	b.clock.advance(10 * time.Second)
	require.Positive(t, b.retain().Waiting)
	b.clock.advance(-time.Hour)
	require.Positive(t, b.retain().Waiting, "nobody knows how long they have waited: the wait begins anew")
	b.clock.advance(5 * time.Second)
	require.Zero(t, b.retain().Waiting)

	at := newBed(t, Config{RetentionTime: time.Second, FileDeleteDelay: Immediately})
	at.inSegments(1, 1)
	require.Zero(t, at.retain().Waiting)
	require.Empty(t, at.folder(".deleted"))

	never := newBed(t, Config{RetentionTime: time.Second, FileDeleteDelay: Forever})
	never.inSegments(1, 1)
	never.retain()
	never.clock.advance(1000 * time.Hour)
	require.Equal(t, 2, never.retain().Waiting)
	require.NoError(t, never.dir.Close())
	require.Empty(t, never.folder(".deleted"), "a closed log leaves nothing behind")
}

// Scenario: U072
func TestADropNeverPassesAHighWatermarkFromTheCheckpoint(t *testing.T) {
	b := newBed(t, Config{Visibility: External, RetentionTime: time.Second})
	b.inSegments(same(20, 1)...)
	_, err := b.SetHighWatermark(23)
	require.NoError(t, err)
	b.reopen()
	require.EqualValues(t, 23, b.Offsets().HighWatermark)
	require.Positive(t, b.retain().Dropped)
	require.LessOrEqual(t, b.Offsets().LogStart, int64(23))
}

// Scenario: K018
func TestTheCheckpointNamesAStartOnlyAboveTheFirstSegment(t *testing.T) {
	b := newBed(t, Config{RetentionTime: Forever})
	b.inSegments(same(3, 1)...)
	stored := func() (int64, bool) {
		entries, err := checkpoint.ReadOffsets(b.fs, checkpoint.LogStarts)
		require.NoError(t, err)
		at, ok := entries[checkpoint.Partition(b.tp)]
		return at, ok
	}
	require.NoError(t, b.DeleteRecords(ctx, 10))
	at, ok := stored()
	require.True(t, ok)
	require.EqualValues(t, 10, at)
	require.Equal(t, 2, b.retain().Dropped)
	require.NoError(t, b.dir.Close())
	_, ok = stored()
	require.False(t, ok)
	b.open()
	require.EqualValues(t, 10, b.Offsets().LogStart)
}

// Scenario: U094, U095, U099. Report: B099
func TestProducersOutliveTheirRecordsAndSnapshotsGoWithTheirSegments(t *testing.T) {
	b := newBed(t, Config{RetentionTime: Forever, FileDeleteDelay: time.Second})
	first := produced(record.Producer{ID: 7}, record.Record{Timestamp: epoch2023, Value: []byte("0")})
	_, err := b.AppendBatches(ctx, slices.Clone(first), AppendOptions{})
	require.NoError(t, err)
	for i := range 3 {
		require.NoError(t, b.Roll(ctx))
		b.add(fmt.Sprint(i))
		require.NoError(t, b.Sync(ctx))
	}
	snapshots := b.folder(".snapshot")
	require.NotEmpty(t, snapshots)
	require.Contains(t, snapshots, segment.FileName(1, ".snapshot"))
	require.NoError(t, b.DeleteRecords(ctx, 3))
	require.Equal(t, 3, b.retain().Dropped)
	require.NotContains(t, b.folder(".snapshot"), segment.FileName(1, ".snapshot"))
	require.Contains(t, b.folder(".snapshot.deleted"), segment.FileName(1, ".snapshot.deleted"))
	b.clock.advance(time.Second)
	b.retain()
	require.Empty(t, b.folder(".deleted"))

	res, err := b.AppendBatches(ctx, slices.Clone(first), AppendOptions{})
	require.NoError(t, err)
	require.True(t, res.Duplicate, "a repetition is still seen")
	_, err = b.AppendBatches(ctx, produced(record.Producer{ID: 7, BaseSequence: 1}, record.Record{Timestamp: epoch2023, Value: []byte("1")}), AppendOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 5, b.Offsets().LogEnd)
}

// Report: B129
func TestARecordFromTheFutureHoldsByAgeAndNotBySize(t *testing.T) {
	future := epoch2023 + 10*365*24*time.Hour.Milliseconds()
	c := Config{RetentionTime: time.Second, TimestampAfter: Forever}
	b := newBed(t, c)
	b.inSegments(epoch2023, future, epoch2023)
	b.clock.advance(2 * time.Second)
	plan := b.PlanRetention(b.now())
	require.Equal(t, retention.FutureTimestamp, plan.HeldBy)
	require.EqualValues(t, 5, plan.NewStart)
	require.Equal(t, 1, b.retain().Dropped)
	require.Equal(t, plan.NextDue, future+1001)

	c.RetentionBytes = 1
	sized := newBed(t, c)
	sized.inSegments(epoch2023, future, epoch2023)
	sized.clock.advance(2 * time.Second)
	require.GreaterOrEqual(t, sized.retain().Dropped, 2)

	strict := newBed(t, Config{RetentionTime: time.Second})
	_, err := strict.AppendBatches(ctx, timed(future), AppendOptions{})
	require.ErrorIs(t, err, ErrInvalidTimestamp)
}

// Report: B132
func TestLostTimeIndexesMakeNothingOlder(t *testing.T) {
	b := newBed(t, Config{RetentionTime: time.Hour})
	b.inSegments(same(3, epoch2023)...)
	require.NoError(t, b.dir.Close())
	for _, name := range b.folder(".timeindex") {
		require.NoError(t, b.fs.Remove("t-0/"+name))
	}
	b.clock.advance(time.Minute)
	b.open()
	require.Zero(t, b.retain().Dropped)
	require.Equal(t, offsetsIn(0, 15), b.readAll(0))
	b.clock.advance(time.Hour)
	require.Equal(t, 3, b.retain().Dropped)
}

// Report: B073
func TestADamagedSegmentGoesWhenItIsDue(t *testing.T) {
	b := newBed(t, Config{RetentionTime: time.Hour, RetentionBytes: Unlimited})
	b.inSegments(same(3, epoch2023)...)
	require.NoError(t, b.dir.Close())
	f, err := b.fs.OpenFile("t-0/"+segment.FileName(0, ".log"), syscall.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{0x80, 0, 0, 0}, 8) // the length of the first batch
	require.NoError(t, errors.Join(err, f.Close(), b.fs.Remove("t-0/"+segment.FileName(0, ".timeindex"))))
	b.open()
	_, err = offsetsOf(b.Records(ctx, 0))
	require.ErrorIs(t, err, ErrCorrupt)
	b.clock.ms.Store(time.Now().Add(2 * time.Hour).UnixMilli()) // without a timestamp the age is the file's
	require.Equal(t, 3, b.retain().Dropped)
	require.EqualValues(t, 15, b.Offsets().LogEnd)
}

func TestManySegmentsGoUnderOneStart(t *testing.T) {
	trace := vfstest.NewTrace(vfs.Mem())
	b := newBedOn(t, trace, Config{RetentionTime: time.Second})
	b.inSegments(append(same(100, 1), epoch2023)...)
	trace.Reset()
	require.Equal(t, 100, b.retain().Dropped)
	require.Less(t, trace.Count(vfstest.OpSync, vfstest.OpSyncData, vfstest.OpSyncDir), 8)
	require.EqualValues(t, 500, b.Offsets().LogStart)
	require.Equal(t, []int64{500}, b.bases())
	b.reopen()
	require.Equal(t, offsetsIn(500, 505), b.readAll(500))
}

func TestWhatIsBelowTheStartNeverComesBackWithoutWhatLiesBehindIt(t *testing.T) {
	trace := vfstest.NewTrace(vfs.Mem())
	b := newBedOn(t, trace, Config{RetentionTime: time.Second})
	b.inSegments(1, 1, epoch2023)
	require.NoError(t, b.DeleteRecords(ctx, 5))
	trace.Reset()
	require.Equal(t, 2, b.retain().Dropped)
	is := func(kind vfstest.Kind, name string) func(vfstest.Op) bool {
		return func(op vfstest.Op) bool { return op.Kind == kind && strings.Contains(op.Name, name) }
	}
	require.NoError(t, trace.InOrder(is(vfstest.OpRename, segment.FileName(0, ".log")), is(vfstest.OpSyncDir, "t-0"),
		is(vfstest.OpRename, segment.FileName(5, ".log")), is(vfstest.OpSyncDir, "t-0"), is(vfstest.OpRename, segment.FileName(5, ".index"))), "%v", trace)
}

func TestASpareIsAskedForEachAppend(t *testing.T) {
	b := newBed(t, Config{})
	b.add("one")
	var asked int64
	b.spare = func(n int64) error {
		asked = n
		return fmt.Errorf("%w: the reserve", ErrNoSpace)
	}
	_, err := b.Append(ctx, values(1, 50)...)
	require.ErrorIs(t, err, ErrNoSpace)
	require.Greater(t, asked, int64(50))
	b.spare = func(int64) error { return nil }
	require.EqualValues(t, 1, b.add("two"))
}
