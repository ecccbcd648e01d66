package main

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

func TestEdgeShowsThatTheOldestReadingsGoAndTheRestIsSent(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, show(t.Context(), &out))
	require.Regexp(t, `^a good day:  500 readings; sent  500, lost    0; on disk  500 in  \d\d KiB of 256
no network: 1000 readings; sent    0, lost    0; on disk 1500 in  \d\d KiB of 256
still none: 9000 readings; sent    0, lost    0; on disk \d{4} in 2\d\d KiB of 256
back again:  500 readings; sent \d{4}, lost \d{4}; on disk \d{4} in 2\d\d KiB of 256
$`, out.String())
}

var errDown = errors.New("down")

// collect sends until the readings in the buffer are sent, or so many.
func collect(t *testing.T, b *Buffer, most int) (offsets []int64) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	end := b.log.Offsets().LogEnd
	err := b.Uplink(ctx, func(r record.Record) error {
		if len(offsets) == most {
			return errDown
		}
		if offsets = append(offsets, r.Offset); r.Offset == end-1 {
			stop()
		}
		return nil
	})
	require.Error(t, err)
	return offsets
}

func TestTheUplinkGoesOnWhereItStoppedAndCountsWhatWasLost(t *testing.T) {
	dir := t.TempDir()
	b, err := Open(dir, nil)
	require.NoError(t, err)
	require.NoError(t, b.Put(t.Context(), measure(50)...))
	require.Len(t, collect(t, b, 30), 30)
	require.NoError(t, b.Close())

	b, err = Open(dir, nil)
	require.NoError(t, err)
	for range 200 {
		require.NoError(t, b.Put(t.Context(), measure(50)...))
		require.LessOrEqual(t, b.log.Stats().Bytes, int64(maxBytes))
	}
	sent := collect(t, b, -1)
	start, end := b.log.Offsets().LogStart, b.log.Offsets().LogEnd
	require.Greater(t, start, int64(50))
	require.Equal(t, start, sent[0])
	require.Len(t, sent, int(end-start))
	require.Equal(t, start-30, b.Lost, "what was there and never sent")
	require.NoError(t, b.Close())
}

func TestARefusalOfTheFarSideRepeatsThatReading(t *testing.T) {
	b, err := Open(t.TempDir(), nil)
	require.NoError(t, err)
	require.NoError(t, b.Put(t.Context(), measure(5)...))
	require.ErrorIs(t, b.Uplink(t.Context(), func(r record.Record) error {
		if r.Offset == 3 {
			return errDown
		}
		return nil
	}), errDown)
	require.Equal(t, []int64{3, 4}, collect(t, b, -1))
	require.NoError(t, b.Close())
}

func TestAFullDeviceRefusesReadingsAndStopsNothing(t *testing.T) {
	disk := vfstest.NewFault(vfs.Mem())
	b, err := Open(t.TempDir(), disk)
	require.NoError(t, err)
	require.NoError(t, b.Put(t.Context(), measure(10)...))
	disk.SetQuota(100)
	require.NoError(t, b.Put(t.Context(), measure(10)...))
	require.Equal(t, 10, b.Refused)
	require.Len(t, collect(t, b, -1), 10, "what is there can be sent")
	disk.SetQuota(-1)
	require.NoError(t, b.Put(t.Context(), measure(10)...))
	require.Equal(t, []int64{10, 11, 12, 13, 14, 15, 16, 17, 18, 19}, collect(t, b, -1))
	require.NoError(t, b.Close())
}
