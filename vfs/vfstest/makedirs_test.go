package vfstest_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// A process is killed somewhere while it makes a chain of directories. The next one makes what is missing and puts a file there,
// durably: no power failure takes it away.
func TestADirectoryThatAKilledProcessBeganToMakeIsDurableForTheNext(t *testing.T) {
	const dir = "a/b/c"
	killed := func(make func(fsys vfs.FS) error, after int) *vfstest.Crash {
		disk := vfstest.NewCrash(vfstest.CrashOptions{})
		fault := vfstest.NewFault(disk, vfstest.Rule{Nth: after + 1, Times: vfstest.Always, Err: os.ErrClosed})
		_ = make(fault)
		return disk.Kill()
	}
	lost := func(make func(fsys vfs.FS) error) (lost int) {
		for after := range 20 {
			disk := killed(make, after)
			require.NoError(t, make(disk))
			f, err := disk.OpenFile(dir+"/f", os.O_CREATE|os.O_RDWR, 0o644)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte("acknowledged"), 0)
			require.NoError(t, err)
			require.NoError(t, f.Sync())
			require.NoError(t, f.Close())
			require.NoError(t, disk.SyncDir(dir))
			disk.Note("acknowledged")
			for left := range disk.Disks(vfstest.DiskOptions{From: disk.Len()}) {
				if b, err := vfs.ReadFile(left.FS(), dir+"/f", 100); err != nil || string(b) != "acknowledged" {
					lost++
				}
			}
		}
		return lost
	}
	require.Zero(t, lost(func(fsys vfs.FS) error { return vfs.MkdirDurable(fsys, dir, 0o755) }))
	require.NotZero(t, lost(func(fsys vfs.FS) error { // syncs what it makes itself only
		_, err := fsys.Stat(dir)
		if err == nil {
			return nil
		}
		if err := fsys.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for _, above := range []string{".", "a", "a/b"} {
			if err := fsys.SyncDir(above); err != nil {
				return err
			}
		}
		return nil
	}), "this test sees what it is about")
}
