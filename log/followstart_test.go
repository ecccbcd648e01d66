package log

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

func TestAFollowersLogStartRisesWhateverTheCleanupPolicy(t *testing.T) {
	for _, policy := range []Cleanup{Delete, Compact, Delete | Compact} {
		b := newBed(t, Config{Cleanup: policy, Visibility: External})
		for range 3 {
			_, err := b.Append(ctx, record.Record{Key: []byte("a")}, record.Record{Key: []byte("b")})
			require.NoError(t, err)
		}
		_, err := b.SetHighWatermark(4)
		require.NoError(t, err)

		require.NoError(t, b.FollowLogStart(ctx, 3))
		require.Equal(t, int64(3), b.Offsets().LogStart)
		require.NoError(t, b.FollowLogStart(ctx, 2), "it never falls")
		require.Equal(t, int64(3), b.Offsets().LogStart)
		for _, wrong := range []int64{-1, 5} {
			require.ErrorIs(t, b.FollowLogStart(ctx, wrong), ErrOffsetOutOfRange)
		}
		b.reopen()
		require.Equal(t, int64(3), b.Offsets().LogStart, "it is on the device")

		require.NoError(t, b.dir.Close())
		require.ErrorIs(t, b.FollowLogStart(ctx, 4), ErrClosed)
	}
}
