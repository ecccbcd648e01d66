package log

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

const week = 7 * 24 * time.Hour

// Scenario: U031.
func TestWithoutTimestampsTheWallClockRolls(t *testing.T) {
	b := newBed(t, Config{})
	add := func() {
		_, err := b.Append(ctx, record.Record{Timestamp: record.NoTimestamp})
		require.NoError(t, err)
	}
	b.clock.advance(week + time.Millisecond)
	add()
	require.Len(t, b.bases(), 1, "an empty segment is not rolled")
	add()
	require.Len(t, b.bases(), 2)
	for i := range 4 {
		b.clock.advance(week + time.Millisecond)
		add()
		require.Len(t, b.bases(), 3+i)
	}
	require.Equal(t, offsetsIn(0, 6), b.readAll(0))
}

// Scenario: U032, U033.
func TestMessageTimeRollsWhereTheFirstBatchHasOne(t *testing.T) {
	none := newBed(t, Config{TimestampAfter: Forever})
	none.addTimes(record.NoTimestamp)
	none.addTimes(epoch2023 + week.Milliseconds() + 1)
	require.Len(t, none.bases(), 1, "the first batch has no time: the wall clock decides, and it stands")

	b := newBed(t, Config{TimestampAfter: Forever})
	b.addTimes(epoch2023)
	b.clock.advance(week + time.Millisecond)
	b.addTimes(epoch2023)
	require.Len(t, b.bases(), 1, "no message time has passed")
	b.addTimes(epoch2023 + week.Milliseconds())
	require.Len(t, b.bases(), 1, "not strictly more")
	b.addTimes(epoch2023 + week.Milliseconds() + 1)
	require.Len(t, b.bases(), 2)
	b.addTimes(5)
	require.Len(t, b.bases(), 2, "time that runs back rolls nothing")
}

// Scenario: U035.
func TestJitterTakesOffAtMostItsBound(t *testing.T) {
	for range 20 {
		b := newBed(t, Config{SegmentAge: time.Hour, SegmentJitter: 20 * time.Minute, TimestampAfter: Forever})
		b.addTimes(epoch2023)
		b.addTimes(epoch2023 + (40 * time.Minute).Milliseconds())
		require.Len(t, b.bases(), 1)
		b.addTimes(epoch2023 + time.Hour.Milliseconds() + 1)
		require.Len(t, b.bases(), 2)
	}
}

// Scenario: U015 and invariant S2: size rolls before the limit would be passed.
func TestSizeRollsBeforeTheLimitIsPassed(t *testing.T) {
	b := newBed(t, Config{SegmentBytes: 100})
	for i := range 100 {
		b.add("x")
		infos := b.SegmentInfos()
		require.Len(t, infos, i+1, "two batches do not fit into 100 bytes")
		require.LessOrEqual(t, infos[i].Bytes, int64(100))
		require.Equal(t, int64(i), infos[i].Base)
	}
	require.Equal(t, offsetsIn(0, 100), b.readAll(0))
	require.Empty(t, b.readAll(100))
	require.GreaterOrEqual(t, b.Offsets().Durable, b.SegmentInfos()[99].Base)
	b.reopen()
	require.Equal(t, offsetsIn(0, 100), b.readAll(0))
	fit := newBed(t, Config{SegmentBytes: 3 * int64(len(batchOf(0, 0, record.None, "x")))})
	for range 6 {
		fit.add("x")
	}
	require.Equal(t, []int64{0, 3}, fit.bases(), "a segment is filled to the last byte")
}

func TestAFullIndexRolls(t *testing.T) {
	b := newBed(t, Config{IndexBytes: 36, IndexIntervalBytes: EveryBatch})
	for range 40 {
		b.add("x")
	}
	require.GreaterOrEqual(t, len(b.bases()), 8)
	require.Equal(t, offsetsIn(0, 40), b.readAll(0))
	b.reopen()
	require.Equal(t, offsetsIn(0, 40), b.readAll(0))
}

func TestAnOffsetTooFarFromTheBaseRolls(t *testing.T) {
	b := newBed(t, Config{})
	for _, o := range []int64{0, 1<<31 - 1, 1 << 31, 1 << 33} {
		_, err := b.follow(batchOf(o, 0, record.None, "x"))
		require.NoError(t, err)
	}
	require.Equal(t, []int64{0, 1 << 31, 1 << 33}, b.bases())
	require.Equal(t, []int64{0, 1<<31 - 1, 1 << 31, 1 << 33}, b.readAll(0))
	empty := newBed(t, Config{})
	_, err := empty.follow(batchOf(1<<40, 0, record.None, "x"))
	require.NoError(t, err)
	require.Equal(t, []int64{1 << 40}, empty.readAll(0))
	empty.reopen()
	require.Equal(t, []int64{1 << 40}, empty.readAll(0))
}

// A legacy wrapper is named after its last offset, so its first records lie below: the segment must begin before them.
func TestASegmentThatBeginsWithALegacyBatchHasABaseBelowIt(t *testing.T) {
	b := newBed(t, Config{})
	b.add("a")
	_, err := b.follow(legacyGzip(1, 1<<31+10, "b", "c", "d"))
	require.NoError(t, err)
	require.Equal(t, []int64{0, (1<<31 + 12) - (1<<31 - 1)}, b.bases())
	require.Equal(t, []int64{0, 1<<31 + 10, 1<<31 + 11, 1<<31 + 12}, b.readAll(0))
	require.Equal(t, []int64{1<<31 + 11, 1<<31 + 12}, b.readAll(1<<31+11))
}

// Scenario: U037, L002, L017: an empty active segment stays.
func TestRollingByHandKeepsAnEmptySegment(t *testing.T) {
	b := newBed(t, Config{})
	require.NoError(t, b.Roll(ctx))
	require.Equal(t, []int64{0}, b.bases())
	b.add("a")
	require.NoError(t, b.Roll(ctx))
	require.NoError(t, b.Roll(ctx))
	require.Equal(t, []int64{0, 1}, b.bases())
	b.add("b")
	require.Equal(t, offsetsIn(0, 2), b.readAll(0))
	require.NoError(t, b.Close())
	require.ErrorIs(t, b.Roll(ctx), ErrClosed)
}

// Scenario: U029.
func TestEmptyFilesOfSegmentZeroAreALog(t *testing.T) {
	fsys := vfs.Mem()
	require.NoError(t, fsys.MkdirAll("t-0", 0o755))
	for _, kind := range []string{".log", ".index", ".timeindex"} {
		f, err := fsys.OpenFile("t-0/00000000000000000000"+kind, 0o102, 0o644)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	b := newBedOn(t, fsys, Config{})
	b.add("a")
	require.Equal(t, []int64{0}, b.readAll(0))
}

// Whatever step of a roll fails, the log goes on in the old segment, or stops and says so; what was confirmed is there.
func TestARollThatFailsLeavesALogThatWorks(t *testing.T) {
	kinds := []vfstest.Kind{vfstest.OpCreate, vfstest.OpWrite, vfstest.OpTruncate, vfstest.OpSync, vfstest.OpSyncData, vfstest.OpSyncDir, vfstest.OpOpen}
	for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
		for nth := 1; nth < 12; nth++ {
			fault := vfstest.NewFault(vfs.Mem())
			b := newBedOn(t, fault, Config{IndexIntervalBytes: EveryBatch})
			b.add("a", "b")
			b.add("c")
			hits, remove := fault.Add(vfstest.Rule{Ops: kinds, Name: "", Nth: nth, Err: cause})
			rolled := b.Roll(ctx)
			remove()
			if hits() == 0 {
				break
			}
			_, err := b.Append(ctx, record.Record{Value: []byte("d")})
			if b.Err() != nil {
				require.ErrorIs(t, err, ErrFailed)
				require.Equal(t, offsetsIn(0, 3), b.readAll(0)[:3])
				continue
			}
			require.NoError(t, err, "%v, call %d: %v", cause, nth, rolled)
			require.NoError(t, b.Roll(ctx))
			b.add("e")
			require.Equal(t, offsetsIn(0, 5), b.readAll(0))
			b.reopen()
			require.Equal(t, offsetsIn(0, 5), b.readAll(0))
		}
	}
}

// A follower's batch that lies behind a gap begins a segment of its own. If it cannot be written that segment goes again:
// an empty one above the log end would move the end when the log is opened.
func TestARollBeforeAGapIsTakenBack(t *testing.T) {
	for _, first := range []int64{0, 2} {
		fault := vfstest.NewFault(vfs.Mem())
		b := newBedOn(t, fault, Config{})
		if first > 0 {
			b.add("a", "b")
		}
		_, remove := fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpWrite}, Name: "*.log", Times: vfstest.Always, Err: syscall.ENOSPC})
		_, err := b.follow(batchOf(1<<40, 0, record.None, "far"))
		require.ErrorIs(t, err, ErrNoSpace)
		require.Equal(t, []int64{0}, b.bases())
		remove()
		if first == 0 {
			b.reopen()
		}
		require.Equal(t, first, b.add("goes on"))
		_, err = b.follow(batchOf(1<<40, 0, record.None, "far"))
		require.NoError(t, err)
		b.reopen()
		require.Equal(t, append(offsetsIn(0, first+1), 1<<40), b.readAll(0))
	}
}
