package log

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// What a leader of the metadata quorum does: its batches bring their offsets, and none may lie below or beyond the log end.
//
// Scenario: U002
func TestALeaderWhoseBatchesBringTheirOffsetsLeavesNoHole(t *testing.T) {
	b := newBed(t, Config{})
	at := func(base int64) error {
		_, err := b.AppendBatches(ctx, batchOf(base, 0, record.None, "x", "y", "z"), AppendOptions{As: Follower, ExpectedOffset: &base})
		return err
	}
	require.NoError(t, at(0))
	require.Equal(t, int64(3), b.Offsets().LogEnd)
	require.ErrorIs(t, at(1), ErrUnexpectedOffset)
	require.ErrorIs(t, at(4), ErrUnexpectedOffset, "a hole, which is legal for a follower")
	require.Equal(t, int64(3), b.Offsets().LogEnd)
	require.NoError(t, at(3))
	require.Equal(t, int64(6), b.Offsets().LogEnd)
}
