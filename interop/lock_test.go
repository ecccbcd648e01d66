package interop

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

func TestLocksOfKafkaAndOursExcludeEachOther(t *testing.T) {
	_, d := kafka(t)
	root := t.TempDir()
	fsys, err := vfs.OS(root)
	require.NoError(t, err)

	got, err := d.Lock(root)
	require.NoError(t, err)
	require.True(t, got)
	_, err = fsys.Lock(".lock")
	require.ErrorIs(t, err, vfs.ErrLocked, "while Kafka holds it")
	require.NoError(t, d.Unlock(root, true))

	ours, err := fsys.Lock(".lock")
	require.NoError(t, err, "a lock file that nobody holds")
	got, err = d.Lock(root)
	require.NoError(t, err)
	require.False(t, got, "while we hold it")
	require.NoError(t, ours.Close())

	got, err = d.Lock(root)
	require.NoError(t, err)
	require.True(t, got, "after we gave it back")
	require.NoError(t, d.Unlock(root, false))
	_, err = os.Stat(filepath.Join(root, ".lock"))
	require.ErrorIs(t, err, os.ErrNotExist, "Kafka removes the file at a clean stop")
	ours, err = fsys.Lock(".lock")
	require.NoError(t, err)
	require.NoError(t, ours.Close())
}

func TestBrokerDoesNotStartOnARootWeHold(t *testing.T) {
	b := newBroker(t, nil)
	fsys, err := vfs.OS(b.Root)
	require.NoError(t, err)
	lock, err := fsys.Lock(".lock")
	require.NoError(t, err)
	require.ErrorContains(t, b.Start(), "lock")
	require.NoError(t, lock.Close())

	require.NoError(t, os.WriteFile(filepath.Join(b.Root, "a-foreign-file.txt"), []byte("not a log"), 0o644))
	require.NoError(t, b.Start(), "afterwards it does, and a foreign plain file does not disturb it")
	_, err = fsys.Lock(".lock")
	require.ErrorIs(t, err, vfs.ErrLocked)
	b.Kill()
	lock, err = fsys.Lock(".lock")
	require.NoError(t, err, "a kill leaves the file but not the lock")
	require.NoError(t, lock.Close())
}
