//go:build unix

package log

import "golang.org/x/sys/unix"

// fileLimit is how many descriptors the process may have at one time.
func fileLimit() uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 1024
	}
	return uint64(l.Cur)
}
