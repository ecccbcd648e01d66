package log

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

// metadataLog is the closed folder of a cluster's metadata whose first segments are deleted: what they held is in the snapshot.
func metadataLog(t *testing.T, tp TopicPartition) (root vfs.FS, snapshot string) {
	b := newBed(t, Config{})
	require.NoError(t, b.ResetTo(context.Background(), 3))
	b.add("three")
	b.add("four")
	require.NoError(t, b.dir.Close())
	files := treeOf(t, b.fs)
	root, snapshot = vfs.Mem(), tp.String()+"/00000000000000000003-0000000001.checkpoint"
	require.NoError(t, root.MkdirAll(tp.String(), 0o755))
	for name, content := range files {
		if folder, file, ok := bytes.Cut([]byte(name), []byte("/")); ok && string(folder) == "t-0" {
			writeAll(t, root, tp.String()+"/"+string(file), []byte(content))
		}
	}
	writeAll(t, root, snapshot, []byte("offsets 0 to 2"))
	for _, name := range []string{"00000000000000000003-0000000002.checkpoint.part", "00000000000000000003-1.checkpoint", "x.checkpoint"} {
		writeAll(t, root, tp.String()+"/"+name, []byte("no snapshot"))
	}
	return root, snapshot
}

func TestSnapshotsOfClusterMetadataGoWhereTheirLogGoes(t *testing.T) {
	ctx, tp := context.Background(), clusterMetadata
	open := func(t *testing.T, root vfs.FS) (*Dir, *Log) {
		d, err := OpenDir("mem", DirConfig{Manual: true, FS: root})
		require.NoError(t, err)
		t.Cleanup(func() { _ = d.Close() })
		l, err := d.Open(ctx, tp, Config{})
		require.NoError(t, err)
		require.EqualValues(t, 3, l.Offsets().LogStart)
		require.EqualValues(t, 5, l.Offsets().LogEnd)
		return d, l
	}
	has := func(t *testing.T, root vfs.FS) {
		t.Helper()
		_, snapshot := metadataLog(t, tp)
		files := treeOf(t, root)
		require.Equal(t, "offsets 0 to 2", files[snapshot])
		require.NotContains(t, files, tp.String()+"/x.checkpoint")
	}
	t.Run("a backup, and what is restored from it", func(t *testing.T) {
		root, _ := metadataLog(t, tp)
		_, l := open(t, root)
		out := vfs.Mem()
		_, err := l.Backup(ctx, "b", BackupOptions{FS: out})
		require.NoError(t, err)
		has(t, subtree(t, out, "b"))
		_, err = Restore(ctx, "b", "again", RestoreOptions{From: out, FS: out})
		require.NoError(t, err)
		has(t, subtree(t, out, "again"))
		open(t, subtree(t, out, "again"))
		_, err = Restore(ctx, "b", "named", RestoreOptions{From: out, FS: out, Partitions: []TopicPartition{clusterMetadata}})
		require.NoError(t, err)
		has(t, subtree(t, out, "named"))
	})
	t.Run("a move", func(t *testing.T) {
		root, _ := metadataLog(t, tp)
		from, _ := open(t, root)
		there := vfs.Mem()
		to, err := OpenDir("there", DirConfig{Manual: true, FS: there})
		require.NoError(t, err)
		t.Cleanup(func() { _ = to.Close() })
		require.NoError(t, from.Move(ctx, tp, to))
		has(t, there)
	})
}
