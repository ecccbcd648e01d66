package log

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// A log start that could not be taken out of the checkpoint, because the device was full, is not that of the next partition of the
// name: it is not made until the entry is gone.
func TestALogStartThatCouldNotBeForgottenIsNotTheNextPartitions(t *testing.T) {
	tp := TopicPartition{"t", 0}
	disk := vfstest.NewFault(vfs.Mem())
	d, err := OpenDir("root", DirConfig{Manual: true, FS: disk})
	require.NoError(t, err)
	l, err := d.Open(ctx, tp, Config{})
	require.NoError(t, err)
	add(t, l, "a", "b", "c")
	require.NoError(t, l.DeleteRecords(ctx, 2))

	disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpWrite}, Name: "*" + checkpoint.LogStarts + ".tmp", Times: vfstest.Always, Err: syscall.ENOSPC})
	require.NoError(t, d.Delete(ctx, tp))
	_, err = d.Open(ctx, tp, Config{})
	require.ErrorIs(t, err, ErrNoSpace)

	disk.Clear()
	l, err = d.Open(ctx, tp, Config{})
	require.NoError(t, err)
	require.Zero(t, l.Offsets().LogStart)
	starts, err := checkpoint.ReadOffsets(disk, checkpoint.LogStarts)
	require.NoError(t, err)
	require.NotContains(t, starts, checkpoint.Partition(tp))
	require.NoError(t, d.Close())
}
