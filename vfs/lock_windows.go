package vfs

import (
	"os"

	"golang.org/x/sys/windows"
)

const closeDropsLocks = false

// lockOS locks the range a JVM locks for a whole file: 0 to 2^63-1.
func lockOS(f *os.File) (holder string, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return "", err
	}
	cerr := raw.Control(func(fd uintptr) {
		const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
		err = windows.LockFileEx(windows.Handle(fd), flags, 0, 0xffffffff, 0x7fffffff, new(windows.Overlapped))
	})
	if err == windows.ERROR_LOCK_VIOLATION || err == windows.ERROR_IO_PENDING {
		return "", errHeld
	}
	if cerr != nil {
		return "", cerr
	}
	return "", err
}
