//go:build linux || darwin || freebsd || netbsd || dragonfly || openbsd

package vfs

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// lockOS takes the lock a JVM takes, a write lock over the whole file, with the platform's setLock.
func lockOS(f *os.File) (holder string, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return "", err
	}
	if cerr := raw.Control(func(fd uintptr) { holder, err = lockFD(fd) }); cerr != nil {
		return "", cerr
	}
	return holder, err
}

func lockFD(fd uintptr) (holder string, err error) {
	for range lockAttempts {
		lk := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
		switch err = unix.FcntlFlock(fd, setLock, &lk); err {
		case nil:
			return "", nil
		case unix.EINTR:
			continue
		case unix.EAGAIN, unix.EACCES:
		default:
			return "", err
		}
		lk = unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
		if unix.FcntlFlock(fd, getLock, &lk) != nil {
			return "", errHeld
		}
		if lk.Type == unix.F_UNLCK {
			continue // released between the two calls
		}
		if lk.Pid > 0 { // on Linux -1 for another descriptor lock, 0 for a process outside this namespace
			holder = "process " + strconv.Itoa(int(lk.Pid))
		}
		return holder, errHeld
	}
	return "", errHeld
}
