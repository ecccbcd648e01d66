package log

import (
	"context"
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
)

// subtree is the tree below a directory of another one.
func subtree(t testing.TB, fsys vfs.FS, dir string) vfs.FS {
	t.Helper()
	require.NoError(t, fsys.MkdirAll(dir, 0o755))
	sub, err := vfs.Sub(fsys, dir)
	require.NoError(t, err)
	return sub
}

// tree is every file of a tree with its content.
func treeOf(t testing.TB, fsys vfs.FS) map[string]string {
	t.Helper()
	all := map[string]string{}
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := fsys.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			name := e.Name()
			if dir != "." {
				name = dir + "/" + name
			}
			if e.IsDir() {
				walk(name)
				continue
			}
			b, err := vfs.ReadFile(fsys, name, 1<<30)
			require.NoError(t, err)
			all[name] = string(b)
		}
	}
	walk(".")
	return all
}

// sound fails if verify finds anything in a root.
func sound(t testing.TB, fsys vfs.FS) {
	t.Helper()
	for f, err := range Verify(context.Background(), fsys, VerifyOptions{}) {
		require.NoError(t, err)
		require.Empty(t, f)
	}
}

// backedUp makes a log of four segments with epochs and a topic id below root of a tree.
func backedUp(t testing.TB, fsys vfs.FS) *bed {
	t.Helper()
	b := newBedOn(t, subtree(t, fsys, "root"), Config{})
	require.NoError(t, b.SetTopicID([16]byte{1, 2, 3}))
	for i := range 4 {
		require.NoError(t, b.AssignEpoch(int32(i)))
		b.add("a", "b", "c")
		if i < 3 {
			require.NoError(t, b.Roll(context.Background()))
		}
	}
	return b
}

func TestABackupOfALiveLogIsARootThatOpensWithTheSameRecordsOffsetsAndEpochs(t *testing.T) {
	for _, mode := range []string{"linked", "copied"} {
		t.Run(mode, func(t *testing.T) {
			mem := vfs.Mem()
			b := backedUp(t, mem)
			require.NoError(t, b.DeleteRecords(context.Background(), 1))
			r, err := b.Backup(context.Background(), "bk/one", BackupOptions{FS: mem, Copy: mode == "copied"})
			require.NoError(t, err)
			require.Len(t, r.Partitions, 1)
			require.Equal(t, int64(12), r.Partitions[0].LogEnd)
			require.Equal(t, mode == "linked", r.Linked > 0)
			require.Equal(t, r.Partitions[0].Bytes, r.Linked+r.Copied)
			o, epochs := b.Offsets(), b.Epochs()
			b.add("later")

			copied := subtree(t, mem, "bk/one")
			sound(t, copied)
			require.NotContains(t, treeOf(t, subtree(t, mem, "bk")), "one.partial.lock")
			d, err := OpenDir("bk", DirConfig{FS: copied, Now: b.clock.now, Manual: true})
			require.NoError(t, err)
			_, clean := d.CleanShutdown()
			require.True(t, clean)
			l, err := d.Open(context.Background(), b.TopicPartition(), Config{})
			require.NoError(t, err)
			require.Empty(t, l.Recovery().Findings)
			require.Empty(t, l.Recovery().Rebuilt)
			o.Durable, o.RecoveryPoint = o.LogEnd, o.LogEnd
			require.Equal(t, o, l.Offsets())
			require.Equal(t, epochs, l.Epochs())
			require.Equal(t, [16]byte{1, 2, 3}, l.TopicID())
			got, err := offsetsOf(l.Records(context.Background(), 1))
			require.NoError(t, err)
			require.Equal(t, offsetsIn(1, 12), got)
			require.NoError(t, d.Close())
		})
	}
}

func TestTruncatingALogLeavesItsLinkedBackupWhole(t *testing.T) {
	for _, at := range []int64{1, 3, 4, 6, 12} {
		for _, reopened := range []bool{false, true} {
			mem := vfs.Mem()
			b := backedUp(t, mem)
			_, err := b.Backup(context.Background(), "bk", BackupOptions{FS: mem})
			require.NoError(t, err)
			before := treeOf(t, subtree(t, mem, "bk"))
			if reopened {
				b.reopen()
			}
			_, err = b.Truncate(context.Background(), at)
			require.NoError(t, err)
			b.add("x", "y")
			require.NoError(t, b.dir.Close())
			require.Equal(t, before, treeOf(t, subtree(t, mem, "bk")), "cut at %d", at)
			sound(t, subtree(t, mem, "root"))
			b.open()
		}
	}
}

func TestChangingALinkedBackupLeavesTheLogWhole(t *testing.T) {
	mem := vfs.Mem()
	b := backedUp(t, mem)
	_, err := b.Backup(context.Background(), "bk", BackupOptions{FS: mem})
	require.NoError(t, err)
	require.NoError(t, b.dir.Close())
	before := treeOf(t, subtree(t, mem, "root"))
	d, err := OpenDir("bk", DirConfig{FS: subtree(t, mem, "bk"), Manual: true})
	require.NoError(t, err)
	l, err := d.Open(context.Background(), b.tp, Config{})
	require.NoError(t, err)
	_, err = l.Truncate(context.Background(), 4)
	require.NoError(t, err)
	_, err = l.Append(context.Background(), values2records([]string{"q"})...)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.Equal(t, before, treeOf(t, subtree(t, mem, "root")))
	b.open()
}

func TestABackupIsRefusedWhereItMustNotBe(t *testing.T) {
	mem := vfs.Mem()
	b := backedUp(t, mem)
	root := treeOf(t, mem)
	for dst, reason := range map[string]string{"root/bk": "inside", "root": "inside", "root/t-0/x": "inside", "": "empty", ".": "new directory", "../x": "new directory"} {
		_, err := b.Backup(context.Background(), dst, BackupOptions{FS: mem})
		require.ErrorIs(t, err, ErrDestination, dst)
		require.ErrorContains(t, err, reason)
	}
	require.Equal(t, root, treeOf(t, mem))
	subtree(t, mem, "there")
	_, err := b.Backup(context.Background(), "there", BackupOptions{FS: mem})
	require.ErrorIs(t, err, fs.ErrExist)

	lock, err := mem.Lock("busy.partial.lock")
	require.NoError(t, err)
	_, err = b.Backup(context.Background(), "busy", BackupOptions{FS: mem})
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, lock.Close())
}

func TestOnADiskABackupLinksFromAnotherDirectoryAndRefusesOneInsideThroughASymbolicLink(t *testing.T) {
	base := t.TempDir()
	fsys, err := vfs.OS(base + "/root")
	require.NoError(t, err)
	b := newBedOn(t, fsys, Config{})
	b.add("a")
	require.NoError(t, b.Roll(context.Background()))
	b.add("b")
	r, err := b.Backup(context.Background(), base+"/deep/er/bk", BackupOptions{})
	require.NoError(t, err)
	if _, counted := vfs.Links(fsys, "t-0/00000000000000000000.log"); counted == nil {
		require.Positive(t, r.Linked)
	}
	_, err = b.Backup(context.Background(), base+"/root/x/y", BackupOptions{})
	require.ErrorIs(t, err, ErrDestination)
	_, err = fsys.Stat("x")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = b.Truncate(context.Background(), 0)
	require.NoError(t, err)
	copied, err := vfs.OSReadOnly(base + "/deep/er/bk")
	require.NoError(t, err)
	sound(t, copied)
}

func TestABackupOfARootHoldsAllItsPartitions(t *testing.T) {
	mem := vfs.Mem()
	d, err := OpenDir("mem", DirConfig{FS: subtree(t, mem, "root"), Manual: true, ClusterID: "c", NodeID: 3})
	require.NoError(t, err)
	for i := range 3 {
		l, err := d.Open(context.Background(), TopicPartition{"t", int32(i)}, Config{})
		require.NoError(t, err)
		_, err = l.Append(context.Background(), values(i+1, 10)...)
		require.NoError(t, err)
		if i == 1 {
			require.NoError(t, l.Close())
		}
	}
	var told []string
	r, err := d.Backup(context.Background(), "bk", BackupOptions{FS: mem, Progress: func(p CopyProgress) {
		require.LessOrEqual(t, p.Done, p.Total)
		told = append(told, p.Phase+" "+p.File)
	}})
	require.NoError(t, err)
	require.Len(t, r.Partitions, 3)
	require.Contains(t, strings.Join(told, "\n"), "copy t-2/00000000000000000000.log")
	bk := subtree(t, mem, "bk")
	sound(t, bk)
	offsets, err := checkpoint.ReadOffsets(bk, checkpoint.RecoveryPoints)
	require.NoError(t, err)
	require.Equal(t, map[checkpoint.Partition]int64{{Topic: "t", Partition: 0}: 1, {Topic: "t", Partition: 1}: 2, {Topic: "t", Partition: 2}: 3}, offsets)
	id, found, err := checkpoint.ReadIdentity(bk)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, "c", id.ClusterID)
	_, err = d.Backup(context.Background(), "bk2", BackupOptions{FS: mem, Partitions: []TopicPartition{{"t", 9}}})
	require.ErrorIs(t, err, ErrNoPartition)
	require.NoError(t, d.Close())
}
