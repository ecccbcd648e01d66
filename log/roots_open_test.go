package log

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// A process is killed when it has made a folder, and has not synced the root yet. The next one finds the folder, and what is
// acknowledged there must not go with its name when the power fails.
func TestTheFolderThatAKilledProcessMadeLasts(t *testing.T) {
	disk := vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock})
	fault := vfstest.NewFault(disk)
	d, err := OpenDir("root", DirConfig{FS: fault, Manual: true, Now: crashClock})
	require.NoError(t, err)
	var next *vfstest.Crash
	fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncDir}, Name: ".", Hook: func(vfstest.Op) error {
		next = disk.Kill()
		return nil
	}})
	_, err = d.Open(ctx, TopicPartition{"t", 0}, Config{})
	require.NoError(t, err)
	require.True(t, exists(next, "t-0"))

	d, err = OpenDir("root", DirConfig{FS: next, Manual: true, Now: crashClock})
	require.NoError(t, err)
	l, err := d.Open(ctx, TopicPartition{"t", 0}, Config{})
	require.NoError(t, err)
	add(t, l, "a")
	for left := range next.Disks(vfstest.DiskOptions{From: next.Len()}) {
		d, err = OpenDir("root", DirConfig{FS: left.FS(), Manual: true, Now: crashClock})
		require.NoError(t, err)
		l, err = d.Open(ctx, TopicPartition{"t", 0}, Config{})
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, valuesOf(t, l), left.Describe())
	}
}

// What a crash leaves of a deleted partition in the checkpoints is not believed of a folder that somebody puts there later:
// a log start would hide its records.
func TestCheckpointsForgetPartitionsThatAreNotThere(t *testing.T) {
	disk := vfs.Mem()
	b := newRootBed(t, disk, DirConfig{})
	add(t, b.log("t", 0, Config{}), "a", "b", "c")
	require.NoError(t, b.Dir.Close())
	gone := checkpoint.Partition{Topic: "gone", Partition: 0}
	here := checkpoint.Partition{Topic: "t", Partition: 0}
	for _, name := range pointFiles {
		require.NoError(t, checkpoint.WriteOffsets(disk, name, map[checkpoint.Partition]int64{gone: 2, here: 1}))
	}
	b.open()
	require.NoError(t, b.Dir.Close())
	for _, name := range pointFiles {
		at, err := checkpoint.ReadOffsets(disk, name)
		require.NoError(t, err)
		require.Equal(t, map[checkpoint.Partition]int64{here: 1}, at, name)
	}
}
