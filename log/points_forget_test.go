package log

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs/vfstest"
)

// A log start that stood in the checkpoint, and does not matter any more because the log now begins there with a segment, is
// dropped in memory only at first. When the partition is set aside the file must not keep it for the next one of that name: it
// would begin there after a restart, without its records.
func TestALogStartOfAPartitionSetAsideIsNotTheNextOnes(t *testing.T) {
	disk := vfstest.NewCrash(vfstest.CrashOptions{})
	b := newRootBed(t, disk, DirConfig{})
	tp := TopicPartition{"t", 0}
	l := b.log("t", 0, Config{})
	add(t, l, "a", "b")
	require.NoError(t, l.Roll(ctx))
	add(t, l, "c")
	require.NoError(t, l.DeleteRecords(ctx, 2))
	stored, err := checkpoint.ReadOffsets(disk, checkpoint.LogStarts)
	require.NoError(t, err)
	require.Equal(t, map[checkpoint.Partition]int64{{Topic: "t"}: 2}, stored)

	_, err = l.Retain(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(2), l.SegmentInfos()[0].Base)
	_, err = b.SetStray(ctx, tp)
	require.NoError(t, err)
	l = b.log("t", 0, Config{})
	add(t, l, "d")
	require.NoError(t, l.Sync(ctx))

	b.cfg.FS = disk.Kill()
	b.open()
	o := b.log("t", 0, Config{}).Offsets()
	require.Equal(t, int64(0), o.LogStart)
	require.Equal(t, int64(1), o.LogEnd)
}
