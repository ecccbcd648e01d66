//go:build unix

package main

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// limitFiles sets how many descriptors the process may have. The hard limit stays, so it can be raised again.
func limitFiles(n uint64) error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return err
	}
	l.Cur = n
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
}

// processorTime is what the process has used so far.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func limitText() string {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return "unknown"
	}
	return strconv.FormatUint(l.Cur, 10)
}
