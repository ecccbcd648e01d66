//go:build darwin || freebsd || netbsd || dragonfly || openbsd

package vfs

import "golang.org/x/sys/unix"

// POSIX locks belong to the process: a second one always succeeds here, and closing any descriptor of the file drops
// them all. The registry excludes the first and parks descriptors against the second.
const (
	setLock         = unix.F_SETLK
	getLock         = unix.F_GETLK
	closeDropsLocks = true
)
