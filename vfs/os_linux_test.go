package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestOpeningAFIFODoesNotWait(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644))
	fsys, err := OS(dir)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, flag := range []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE} {
			if _, err := fsys.OpenFile("fifo", flag, 0o644); err == nil {
				t.Error("opened")
			}
			if _, err := Overlay(fsys).OpenFile("fifo", flag, 0o644); !errors.Is(err, errNotRegular) {
				t.Error("opened through an overlay", err)
			}
		}
		if _, err := fsys.Lock("fifo"); err == nil {
			t.Error("locked")
		}
		if _, err := fsys.ReadDir("fifo"); err == nil {
			t.Error("listed")
		}
		fsys.Traits("fifo")
		if err := fsys.SyncDir("fifo"); err == nil {
			t.Error("synced")
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("waits for the other end")
	}
}

// cached says whether the byte at off can be read without waiting for the device.
func cached(t *testing.T, f File, off int64) bool {
	t.Helper()
	var n int
	var err error
	raw, rerr := f.SyscallConn()
	require.NoError(t, rerr)
	require.NoError(t, raw.Control(func(fd uintptr) {
		n, err = unix.Preadv2(int(fd), [][]byte{make([]byte, 1)}, off, unix.RWF_NOWAIT)
	}))
	if errors.Is(err, unix.EAGAIN) {
		return false
	}
	if err != nil {
		t.Skip("the file system does not answer: ", err)
	}
	require.Equal(t, 1, n)
	return true
}

func TestEvictDropsCleanPagesAndOnlyThose(t *testing.T) {
	fsys := osTree(t)
	if !fsys.Traits(".").Evict {
		t.Skip("a file system that does not evict")
	}
	f, err := fsys.OpenFile("f", os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(t, err)
	defer f.Close()
	const size = 8 << 20
	_, err = f.WriteAt(make([]byte, size), 0)
	require.NoError(t, err)
	require.True(t, cached(t, f, size-1))
	require.NoError(t, f.Sync())
	require.NoError(t, f.Evict(5<<20+1234, size))
	require.False(t, cached(t, f, 5<<20+1234), "the page the range begins in")
	require.False(t, cached(t, f, size-1))
	require.True(t, cached(t, f, 0), "far below the range")
	_, err = f.WriteAt([]byte("dirty"), size-5)
	require.NoError(t, err)
	require.NoError(t, f.Evict(0, size))
	b := make([]byte, 5)
	_, err = f.ReadAt(b, size-5)
	require.NoError(t, err)
	require.Equal(t, "dirty", string(b))
}

func TestAllocateReservesWithoutChangingTheLength(t *testing.T) {
	fsys := osTree(t)
	f, err := fsys.OpenFile("f", os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(t, err)
	defer f.Close()
	if err := f.Allocate(0, 1<<20); errors.Is(err, ErrUnsupported) {
		t.Skip("a file system without reservation")
	} else {
		require.NoError(t, err)
	}
	size, err := f.Size()
	require.NoError(t, err)
	require.Zero(t, size)
	fi, err := fsys.Stat("f")
	require.NoError(t, err)
	require.GreaterOrEqual(t, fi.Sys().(*syscall.Stat_t).Blocks*512, int64(1<<20))
}

func TestTmpfsIsNotTrustedToEvict(t *testing.T) {
	const shm = "/dev/shm"
	var st unix.Statfs_t
	if unix.Statfs(shm, &st) != nil || st.Type != unix.TMPFS_MAGIC {
		t.Skip("no tmpfs")
	}
	fsys, err := OSReadOnly(shm)
	require.NoError(t, err)
	require.False(t, fsys.Traits(".").Evict)
}

func TestSpaceDoesNotOverflow(t *testing.T) {
	require.EqualValues(t, 0, spaceOf(int64(-5), 4096))
	require.EqualValues(t, 4096, spaceOf(uint64(1), 4096))
	require.EqualValues(t, int64(1<<63-1), spaceOf(uint64(1)<<62, 4096))
}
