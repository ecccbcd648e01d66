//go:build linux || darwin || freebsd

package vfs

import (
	"io"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// posixLock takes a whole-file lock as a JVM does on Unix.
func posixLock(name string) (answer string, release func()) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err.Error(), func() {}
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart})
	if err != nil {
		return err.Error(), func() {}
	}
	return "locked", func() { f.Close() }
}

func TestPosixLockOfABrokerExcludesUsAndIsNamed(t *testing.T) {
	dir := t.TempDir()
	fsys, err := OS(dir)
	require.NoError(t, err)
	c := startChild(t, "posix", dir)
	require.Equal(t, "locked", c.answer)
	_, err = fsys.Lock(".lock")
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, ".lock: locked by process "+strconv.Itoa(c.pid))
	c.finish()
	l, err := fsys.Lock(".lock")
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

func TestOurLockExcludesThePosixLockOfABroker(t *testing.T) {
	dir := t.TempDir()
	fsys, err := OS(dir)
	require.NoError(t, err)
	l, err := fsys.Lock(".lock")
	require.NoError(t, err)
	_, err = fsys.Lock(".lock")
	require.ErrorIs(t, err, ErrLocked)
	c := startChild(t, "posix", dir)
	require.Equal(t, unix.EAGAIN.Error(), c.answer)
	c.finish()

	f, err := fsys.OpenFile(".lock", os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	if !closeDropsLocks {
		c = startChild(t, "posix", dir)
		require.Equal(t, unix.EAGAIN.Error(), c.answer, "closing another descriptor of the file dropped the lock")
		c.finish()
	}
	require.NoError(t, l.Close())
}
