package log

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// manyLogs makes a root of n partitions with three records each.
func manyLogs(t *testing.T, fsys vfs.FS, n int32) (*Dir, []*Log) {
	d, err := OpenDir("root", DirConfig{FS: fsys, Manual: true, Now: crashClock})
	require.NoError(t, err)
	var logs []*Log
	for i := range n {
		l, err := d.Open(ctx, TopicPartition{"t", i}, Config{})
		require.NoError(t, err)
		add(t, l, "a", "b", "c")
		logs = append(logs, l)
	}
	return d, logs
}

// The checkpoints list all partitions of the root: written at each close, and each deletion, they would cost the square of their
// number.
func TestClosingDeletingAndMakingPartitionsOneByOneWritesEachCheckpointAFewTimes(t *testing.T) {
	const n = 320
	trace := vfstest.NewTrace(vfs.Mem())
	writes := func(f func()) int {
		trace.Reset()
		f()
		return len(trace.Filter(checkpoint.RecoveryPoints+".tmp", vfstest.OpRename))
	}
	d, logs := manyLogs(t, trace, n)
	require.LessOrEqual(t, writes(func() {
		for _, l := range logs {
			require.NoError(t, l.Close())
		}
	}), mostShare*5) // the checkpoints grow
	require.Zero(t, writes(func() {
		for i := range int32(n) / 2 {
			l, err := d.Open(ctx, TopicPartition{"new", i}, Config{})
			require.NoError(t, err)
			require.Zero(t, l.Offsets().LogEnd)
		}
	}))
	require.LessOrEqual(t, writes(func() { // a new one for each that goes
		for i := range int32(n) / 2 {
			require.NoError(t, d.Delete(ctx, TopicPartition{"t", i}))
			_, err := d.Open(ctx, TopicPartition{"u", i}, Config{})
			require.NoError(t, err)
		}
	}), mostShare*2)
	require.LessOrEqual(t, writes(func() {
		for i := range int32(n) / 2 {
			require.NoError(t, d.Delete(ctx, TopicPartition{"t", n/2 + i}))
		}
	}), mostShare*8) // fewer and fewer are left
	require.NoError(t, d.Close())
	points, err := checkpoint.ReadOffsets(trace, checkpoint.RecoveryPoints)
	require.NoError(t, err)
	require.Len(t, points, n)
}

// A checkpoint that is not written yet is nobody's loss: a log that was closed has its records after a kill, and the marks of one
// that was deleted are not those of the next of its name, in the same process or another.
func TestWhatACheckpointDoesNotSayYetIsNoLoss(t *testing.T) {
	disk := vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock})
	const n = 40
	d, logs := manyLogs(t, disk, n)
	for _, l := range logs {
		require.NoError(t, l.DeleteRecords(ctx, 2))
		require.NoError(t, l.Sync(ctx))
	}
	stored := func(disk vfs.FS, name string) map[checkpoint.Partition]int64 {
		m, err := checkpoint.ReadOffsets(disk, name)
		require.NoError(t, err)
		return m
	}
	require.NoError(t, d.Delete(ctx, logs[0].TopicPartition()))
	require.NoError(t, d.Delete(ctx, logs[1].TopicPartition()))
	add(t, logs[2], "d")
	require.NoError(t, logs[2].Close())
	add(t, logs[3], "d")
	require.NoError(t, logs[3].Close())
	require.Len(t, stored(disk, checkpoint.LogStarts), n-2, "two waited for the third; the fourth waits")
	require.Equal(t, int64(3), stored(disk, checkpoint.RecoveryPoints)[checkpoint.Partition{Topic: "t", Partition: 3}])
	require.NoError(t, d.Delete(ctx, logs[4].TopicPartition()))
	require.Len(t, stored(disk, checkpoint.LogStarts), n-2)

	again := func(d *Dir, l *Log, end int64) *Log {
		l, err := d.Open(ctx, l.TopicPartition(), Config{})
		require.NoError(t, err)
		require.Equal(t, end, l.Offsets().LogEnd)
		return l
	}
	next := disk.Kill()
	e, err := OpenDir("root", DirConfig{FS: next, Manual: true, Now: crashClock})
	require.NoError(t, err)
	for _, i := range []int{0, 1, 4} {
		require.Zero(t, again(e, logs[i], 0).Offsets().LogStart)
		require.NotContains(t, stored(next, checkpoint.LogStarts), checkpoint.Partition(logs[i].TopicPartition()))
	}
	again(e, logs[2], 4)
	require.Positive(t, again(e, logs[3], 4).Recovery().Scanned)

	require.Zero(t, again(d, logs[4], 0).Offsets().LogStart)
	require.NotContains(t, stored(disk, checkpoint.LogStarts), checkpoint.Partition(logs[4].TopicPartition()))
	again(d, logs[3], 4)
	require.Equal(t, int64(4), stored(disk, checkpoint.RecoveryPoints)[checkpoint.Partition{Topic: "t", Partition: 3}], "durable hints are taken under it")
}
