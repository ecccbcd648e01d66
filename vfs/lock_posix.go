//go:build darwin || freebsd || netbsd || dragonfly || openbsd

package vfs

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// POSIX locks belong to the process: a second one always succeeds here, and closing any descriptor of the file drops
// them all. The registry excludes the first and parks descriptors against the second.
const closeDropsLocks = true

// lockOS takes the lock a JVM takes: a write lock over the whole file.
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
		switch err = unix.FcntlFlock(fd, unix.F_SETLK, &lk); err {
		case nil:
			return "", nil
		case unix.EINTR:
			continue
		case unix.EAGAIN, unix.EACCES:
		default:
			return "", err
		}
		lk = unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
		if unix.FcntlFlock(fd, unix.F_GETLK, &lk) != nil {
			return "", errHeld
		}
		if lk.Type == unix.F_UNLCK {
			continue
		}
		if lk.Pid > 0 {
			holder = "process " + strconv.Itoa(int(lk.Pid))
		}
		return holder, errHeld
	}
	return "", errHeld
}
