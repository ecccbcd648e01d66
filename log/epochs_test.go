package log

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// Scenario: U025, U026, E007.
func TestBatchesCarryTheEpochOfTheirLeader(t *testing.T) {
	b := newBed(t, Config{})
	require.Equal(t, int32(-1), b.Offsets().LeaderEpoch)
	b.add("zero")
	require.Equal(t, []EpochEntry{{0, 0}}, b.Epochs(), "a new log is in epoch 0")
	require.NoError(t, b.AssignEpoch(72))
	for i := range 3 {
		epoch := int32(72)
		res, err := b.AppendBatches(ctx, batchOf(0, -1, record.None, "x"), AppendOptions{LeaderEpoch: &epoch})
		require.NoError(t, err)
		require.Equal(t, int64(i+1), res.Base)
	}
	for got, err := range b.Batches(ctx, 1) {
		require.NoError(t, err)
		require.Equal(t, int32(72), got.LeaderEpoch())
	}
	require.Equal(t, EpochEnd{72, 4}, b.EndOfEpoch(72))
	_, err := b.follow(batchOf(4, 99, record.None, "x"), batchOf(5, 100, record.None, "y"))
	require.NoError(t, err)
	require.Equal(t, []EpochEntry{{0, 0}, {72, 1}, {99, 4}, {100, 5}}, b.Epochs())
	require.Equal(t, int32(100), b.Offsets().LeaderEpoch)
	b.reopen()
	require.Equal(t, []EpochEntry{{0, 0}, {72, 1}, {99, 4}, {100, 5}}, b.Epochs())
}

func TestStaleLeadersAreFenced(t *testing.T) {
	b := newBed(t, Config{})
	require.NoError(t, b.AssignEpoch(5))
	require.NoError(t, b.AssignEpoch(5), "again changes nothing")
	require.ErrorIs(t, b.AssignEpoch(4), ErrFenced)
	require.ErrorIs(t, b.AssignEpoch(-1), ErrFenced)
	for _, wrong := range []int32{4, 6, -1} {
		_, err := b.AppendBatches(ctx, batchOf(0, -1, record.None, "x"), AppendOptions{LeaderEpoch: &wrong})
		require.ErrorIs(t, err, ErrFenced)
	}
	old, now := int32(4), int32(6)
	_, err := b.AppendBatches(ctx, batchOf(0, 5, record.None, "x"), AppendOptions{As: Follower, LeaderEpoch: &old})
	require.ErrorIs(t, err, ErrFenced)
	set := append(batchOf(0, 5, record.None, "x"), batchOf(1, 7, record.None, "y")...)
	res, err := b.AppendBatches(ctx, set, AppendOptions{As: Follower, LeaderEpoch: &now})
	require.NoError(t, err)
	require.Equal(t, int64(0), res.Last, "a batch newer than the leader we follow is left out")
}

// Scenario: U027.
func TestALegacyBatchClearsTheEpochs(t *testing.T) {
	for _, raw := range [][]byte{legacy(1, 1, "b"), legacy(0, 1, "b"), legacyGzip(1, 1, "b", "c"), legacyGzip(0, 1, "b", "c")} {
		b := newBed(t, Config{})
		_, err := b.follow(batchOf(0, 5, record.None, "a"))
		require.NoError(t, err)
		_, err = b.follow(bytes.Clone(raw))
		require.NoError(t, err)
		require.Empty(t, b.Epochs())
		require.Equal(t, int32(-1), b.Offsets().LeaderEpoch)
		require.Equal(t, EpochEnd{-1, -1}, b.EndOfEpoch(5))
		require.Equal(t, offsetsIn(0, b.Offsets().LogEnd), b.readAll(0))
		b.reopen()
		require.Empty(t, b.Epochs())
		require.Equal(t, offsetsIn(0, b.Offsets().LogEnd), b.readAll(0))
	}
}

// Scenario: E002, E004, E006, E009, E010 at the level of the log.
func TestEndOfEpochAnswersAFollower(t *testing.T) {
	b := newBed(t, Config{})
	require.Equal(t, EpochEnd{-1, -1}, b.EndOfEpoch(0))
	for i, at := range []int64{10, 13, 17} {
		_, err := b.follow(batchOf(at, int32(2*i), record.None, "x"))
		require.NoError(t, err)
	}
	for epoch, want := range map[int32]EpochEnd{-1: {-1, -1}, 0: {0, 13}, 1: {0, 13}, 2: {2, 17}, 3: {2, 17}, 4: {4, 18}, 5: {-1, -1}} {
		require.Equal(t, want, b.EndOfEpoch(epoch), "epoch %d", epoch)
	}
}

// Scenario: U048, the epochs of answers by time.
func TestAnswersByTimeNameTheEpoch(t *testing.T) {
	b := newBed(t, Config{})
	b.addTimes(epoch2023)
	require.NoError(t, b.AssignEpoch(1))
	b.addTimes(epoch2023 + 1)
	for i := range int64(2) {
		at, err := b.OffsetForTime(ctx, b.clock.now())
		require.NoError(t, err)
		require.Equal(t, At{Offset: 0, Timestamp: epoch2023, LeaderEpoch: 0}, at)
		at, err = b.OffsetOfMaxTime(ctx)
		require.NoError(t, err)
		require.Equal(t, At{Offset: 1, Timestamp: epoch2023 + 1, LeaderEpoch: 1}, at)
		if i == 0 {
			b.reopen()
		}
	}
	require.NoError(t, b.AssignEpoch(2))
	require.Equal(t, int32(2), b.Offsets().LeaderEpoch)
}

// Scenario: U056.
func TestAnEpochWithoutRecordsGoesWithATruncationAtTheEnd(t *testing.T) {
	for _, at := range []int64{29, 30} {
		b := newBed(t, Config{})
		_, err := b.follow(batchOf(27, 19, record.None, "a", "b"))
		require.NoError(t, err)
		require.NoError(t, b.AssignEpoch(24))
		end, err := b.Truncate(ctx, at)
		require.NoError(t, err)
		require.Equal(t, int64(29), end)
		require.Equal(t, []EpochEntry{{19, 27}}, b.Epochs())
	}
}
