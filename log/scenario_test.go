package log

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// Scenario: U004. Whoever moves the high watermark can never move it past what is there.
func TestTheLifeOfAHighWatermark(t *testing.T) {
	b := newBed(t, Config{Visibility: External})
	hw := func() int64 { return b.Offsets().HighWatermark }
	move := func(to int64) int64 {
		got, err := b.SetHighWatermark(to)
		require.NoError(t, err)
		require.Equal(t, got, hw())
		return got
	}
	require.Zero(t, hw())
	b.add("a", "b", "c")
	require.Zero(t, hw(), "an append leaves it")
	require.Equal(t, int64(1), move(1))
	require.Equal(t, int64(3), move(5), "not past the log end")
	_, err := b.follow(batchOf(3, 0, record.None, "d", "e", "f"))
	require.NoError(t, err)
	require.Equal(t, int64(6), move(6))
	_, err = b.Truncate(ctx, 3)
	require.NoError(t, err)
	require.Equal(t, int64(3), hw())
	b.add("x")
	require.Equal(t, int64(3), hw())
	require.NoError(t, b.ResetTo(ctx, 4))
	require.Equal(t, Offsets{LogStart: 4, LastStable: 4, HighWatermark: 4, LogEnd: 4, Durable: 4, RecoveryPoint: b.Offsets().RecoveryPoint, LeaderEpoch: -1}, b.Offsets())
	require.Equal(t, int64(4), move(-9), "not below the log start")
	own := newBed(t, Config{})
	_, err = own.SetHighWatermark(0)
	require.ErrorIs(t, err, ErrVisibility)
	require.NotErrorIs(t, err, ErrPolicy)
}

// Scenario: U037, U038, B009. An empty segment whose index could hold nothing takes appends all the same.
func TestAnIndexWithoutRoomStillLetsEverySegmentHoldABatch(t *testing.T) {
	b := newBed(t, Config{IndexBytes: 12, IndexIntervalBytes: EveryBatch})
	for range 6 {
		b.add("x")
	}
	require.Equal(t, offsetsIn(0, 6), b.readAll(0))
	_, err := b.Truncate(ctx, 0)
	require.NoError(t, err)
	segments := len(b.bases())
	_, err = b.follow(batchOf(0, 0, record.None, "again"))
	require.NoError(t, err)
	require.Len(t, b.bases(), segments)
	require.Equal(t, []int64{0}, b.readAll(0))
	b.reopen()
	require.Equal(t, []int64{0}, b.readAll(0))
}

// Scenario: L010, L012, U055.
func TestSegmentsAfterTruncationAndReset(t *testing.T) {
	three := 3 * int64(len(batchOf(0, 0, record.None, "x")))
	b := newBed(t, Config{SegmentBytes: three})
	for range 12 {
		b.add("x")
	}
	require.Equal(t, []int64{0, 3, 6, 9}, b.bases())
	end, err := b.Truncate(ctx, 7)
	require.NoError(t, err)
	require.Equal(t, int64(7), end)
	require.Equal(t, []int64{0, 3, 6}, b.bases())
	require.Equal(t, int64(7), b.add("at seven"))
	infos := b.SegmentInfos()
	for i, want := range [][2]int64{{0, 3}, {3, 6}, {6, 8}} {
		require.Equal(t, want, [2]int64{infos[i].Base, infos[i].Next})
		require.Equal(t, i < 2, infos[i].Sealed)
	}
	require.NoError(t, b.ResetTo(ctx, 10))
	require.Equal(t, []int64{10}, b.bases())
	require.Equal(t, int64(10), b.Offsets().LogEnd)
	require.Equal(t, int64(10), b.add("x"))
	end, err = b.Truncate(ctx, 0)
	require.NoError(t, err)
	require.Zero(t, end)
	require.Zero(t, b.Stats().Bytes)
	require.Equal(t, []int64{0}, b.bases())
}

// Scenario: L005, L006.
func TestSyncMovesTheRecoveryPoint(t *testing.T) {
	b := newBed(t, Config{Durability: Buffered})
	b.add("a", "b")
	require.Equal(t, [3]int64{2, 0, 0}, [3]int64{b.Offsets().LogEnd, b.Offsets().Durable, b.Offsets().RecoveryPoint})
	require.NoError(t, b.Roll(ctx))
	require.Equal(t, int64(2), b.Offsets().Durable)
	require.NoError(t, b.Sync(ctx))
	require.Equal(t, int64(2), b.Offsets().RecoveryPoint)
}

// B112, U026: whatever refuses a follower's set, its epochs are not learned.
func TestARefusedSetTeachesNothing(t *testing.T) {
	b := newBed(t, Config{})
	_, err := b.follow(batchOf(0, 3, record.None, "a"))
	require.NoError(t, err)
	for _, raw := range [][]byte{batchOf(0, 9, record.None, "below"), append(batchOf(1, 8, record.None, "x"), batchOf(1, 9, record.None, "y")...)} {
		_, err = b.follow(raw)
		require.Error(t, err)
		require.Equal(t, []EpochEntry{{3, 0}}, b.Epochs())
	}
	wide := append(batchOf(1, 8, record.None, "x"), batchOf(1<<33, 9, record.None, "y")...)
	_, err = b.follow(wide)
	require.ErrorIs(t, err, ErrTooLarge)
	require.Equal(t, []EpochEntry{{3, 0}}, b.Epochs())
	require.Equal(t, []int64{0}, b.bases(), "nothing was rolled for it")
	b.add("goes on")
	require.Equal(t, offsetsIn(0, 2), b.readAll(0))
}
