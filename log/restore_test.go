package log

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

// backupOf makes a backup of backedUp at bk of the tree.
func backupOf(t testing.TB, mem vfs.FS) *bed {
	t.Helper()
	b := backedUp(t, mem)
	require.NoError(t, b.DeleteRecords(context.Background(), 2))
	_, err := b.Backup(context.Background(), "bk", BackupOptions{FS: mem})
	require.NoError(t, err)
	return b
}

func TestARestoredRootIsTheBackupByteForByte(t *testing.T) {
	for _, link := range []bool{false, true} {
		mem := vfs.Mem()
		backupOf(t, mem)
		before := treeOf(t, subtree(t, mem, "bk"))
		r, err := Restore(context.Background(), "bk", "new", RestoreOptions{From: mem, FS: mem, Link: link})
		require.NoError(t, err)
		require.Equal(t, link, r.Linked > 0)
		require.Equal(t, before, treeOf(t, subtree(t, mem, "bk")))
		require.Equal(t, before, treeOf(t, subtree(t, mem, "new")))
		require.Equal(t, int64(12), r.Partitions[0].LogEnd)
		require.Equal(t, int64(2), r.Partitions[0].LogStart)
	}
}

func TestARestoredPartitionStandsBesideTheOthersOfARoot(t *testing.T) {
	mem := vfs.Mem()
	b := backupOf(t, mem)
	o := b.Offsets()
	d, err := OpenDir("other", DirConfig{FS: subtree(t, mem, "other"), Manual: true})
	require.NoError(t, err)
	l, err := d.Open(context.Background(), TopicPartition{"own", 0}, Config{})
	require.NoError(t, err)
	_, err = l.Append(context.Background(), values(2, 5)...)
	require.NoError(t, err)
	require.NoError(t, d.Close())

	_, err = Restore(context.Background(), "bk", "other", RestoreOptions{From: mem, FS: mem})
	require.NoError(t, err)
	other := subtree(t, mem, "other")
	sound(t, other)
	_, err = Restore(context.Background(), "bk", "other", RestoreOptions{From: mem, FS: mem})
	require.ErrorIs(t, err, ErrPartitionExists)
	sound(t, other)

	d, err = OpenDir("other", DirConfig{FS: other, Manual: true})
	require.NoError(t, err)
	_, clean := d.CleanShutdown()
	require.True(t, clean)
	require.Empty(t, d.Marked())
	l, err = d.Open(context.Background(), b.tp, Config{})
	require.NoError(t, err)
	require.Zero(t, l.Recovery().Scanned)
	require.Equal(t, o.LogStart, l.Offsets().LogStart)
	require.Equal(t, o.LogEnd, l.Offsets().LogEnd)
	require.NoError(t, d.Close())
}

func TestAnOpenDirTakesARestoredPartitionInAtOnce(t *testing.T) {
	mem := vfs.Mem()
	b := backupOf(t, mem)
	d, err := OpenDir("other", DirConfig{FS: subtree(t, mem, "other"), Manual: true})
	require.NoError(t, err)
	_, err = d.Restore(context.Background(), "bk", RestoreOptions{From: mem, Partitions: []TopicPartition{b.tp}})
	require.NoError(t, err)
	l, err := d.Open(context.Background(), b.tp, Config{})
	require.NoError(t, err)
	require.Zero(t, l.Recovery().Scanned)
	got, err := offsetsOf(l.Records(context.Background(), 2))
	require.NoError(t, err)
	require.Equal(t, offsetsIn(2, 12), got)
	_, err = d.Restore(context.Background(), "bk", RestoreOptions{From: mem})
	require.ErrorIs(t, err, ErrPartitionExists)
	_, err = d.Restore(context.Background(), "bk", RestoreOptions{From: mem, Partitions: []TopicPartition{{"no", 0}}})
	require.ErrorIs(t, err, ErrNoPartition)
	require.NoError(t, d.Close())
	_, err = d.Restore(context.Background(), "bk", RestoreOptions{From: mem})
	require.ErrorIs(t, err, ErrClosed)
	sound(t, subtree(t, mem, "other"))
}

func TestADamagedBackupIsRefusedBeforeAnythingIsChanged(t *testing.T) {
	damage := map[string]func(t *testing.T, bk vfs.FS){
		"a flipped bit of a sealed segment": func(t *testing.T, bk vfs.FS) { turnBit(t, bk, "t-0/00000000000000000003.log", 70) },
		"a flipped bit of the last segment": func(t *testing.T, bk vfs.FS) { turnBit(t, bk, "t-0/00000000000000000009.log", 70) },
		"a snapshot":                        func(t *testing.T, bk vfs.FS) { turnBit(t, bk, "t-0/00000000000000000012.snapshot", 3) },
		"a segment is missing the tail": func(t *testing.T, bk vfs.FS) {
			f, err := bk.OpenFile("t-0/00000000000000000003.log", 2, 0)
			require.NoError(t, err)
			require.NoError(t, f.Truncate(40))
			require.NoError(t, f.Close())
		},
		"no marker": func(t *testing.T, bk vfs.FS) { require.NoError(t, bk.Remove(".kafka_cleanshutdown")) },
	}
	for name, hurt := range damage {
		t.Run(name, func(t *testing.T) {
			mem := vfs.Mem()
			b := backedUp(t, mem)
			_, err := b.Backup(context.Background(), "bk", BackupOptions{FS: mem, Copy: true})
			require.NoError(t, err)
			hurt(t, subtree(t, mem, "bk"))
			before := treeOf(t, mem)
			_, err = Restore(context.Background(), "bk", "new", RestoreOptions{From: mem, FS: mem})
			require.ErrorIs(t, err, ErrUnsound)
			require.Equal(t, before, treeOf(t, mem))
		})
	}
}

// turnBit turns one bit of a file.
func turnBit(t testing.TB, fsys vfs.FS, name string, at int64) {
	t.Helper()
	f, err := fsys.OpenFile(name, 2, 0)
	require.NoError(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	require.NoError(t, err)
	b[0] ^= 4
	_, err = f.WriteAt(b[:], at)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestRestoreIsRefusedWhereItMustNotBe(t *testing.T) {
	mem := vfs.Mem()
	backupOf(t, mem)
	subtree(t, mem, "pictures/2024")
	subtree(t, mem, "docs")
	f, err := mem.OpenFile("docs/a.txt", 0o102, 0o644)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	before := treeOf(t, mem)
	for _, root := range []string{"bk", "bk/x", "bk/t-0", "pictures", "docs", ""} {
		_, err := Restore(context.Background(), "bk", root, RestoreOptions{From: mem, FS: mem})
		require.ErrorIs(t, err, ErrDestination, root)
	}
	_, err = Restore(context.Background(), "bk", "root", RestoreOptions{From: mem, FS: mem}) // it is open
	require.ErrorIs(t, err, ErrLocked)
	require.Equal(t, before, treeOf(t, mem))
}
