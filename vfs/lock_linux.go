package vfs

import "golang.org/x/sys/unix"

// Open file description locks conflict with POSIX locks of other processes both ways, and with a second opener in this
// process. They end with the last copy of their own descriptor, whatever else the process closes.
const (
	setLock         = unix.F_OFD_SETLK
	getLock         = unix.F_OFD_GETLK
	closeDropsLocks = false
)
