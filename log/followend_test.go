package log

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// What a compacted leader has no record of at its end a follower takes over as a gap.
func TestAFollowersLogEndRisesOverAGap(t *testing.T) {
	for _, empty := range []bool{false, true} {
		b := newBed(t, Config{Visibility: External})
		_, err := b.Append(ctx, record.Record{Key: []byte("a")}, record.Record{Key: []byte("b")})
		require.NoError(t, err)
		if empty {
			require.NoError(t, b.Roll(ctx)) // the active segment has no record
		}
		require.NoError(t, b.FollowEnd(ctx, 5))
		require.NoError(t, b.FollowEnd(ctx, 4), "it never falls")
		require.Equal(t, int64(5), b.Offsets().LogEnd)
		for _, wrong := range []int64{-1, math.MaxInt64} {
			require.ErrorIs(t, b.FollowEnd(ctx, wrong), ErrOffsetOutOfRange)
		}
		require.NoError(t, b.Sync(ctx))
		require.Equal(t, int64(5), b.Offsets().Durable)
		b.reopen()
		require.Equal(t, int64(5), b.Offsets().LogEnd)
		at, err := b.Append(ctx, record.Record{Key: []byte("c")})
		require.NoError(t, err)
		require.Equal(t, int64(5), at)
		b.reopen()
		require.Equal(t, int64(6), b.Offsets().LogEnd)
		require.NoError(t, b.FollowEnd(ctx, 9))
		end, err := b.Truncate(ctx, 8)
		require.NoError(t, err)
		require.Equal(t, int64(6), end)
	}
}
