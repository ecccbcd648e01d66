//go:build unix

package vfs

import (
	"math"

	"golang.org/x/sys/unix"
)

const (
	openNonblock  = unix.O_NONBLOCK
	openDirectory = unix.O_DIRECTORY
)

// maxOpen is the soft limit on descriptors of this process. The Go runtime raises it to the hard limit at start.
func maxOpen() int {
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil {
		return 0
	}
	return int(min(uint64(lim.Cur), math.MaxInt32))
}

// spaceOf multiplies without overflow; a negative count, which some systems report when root has used its reserve, is 0.
func spaceOf[B int32 | int64 | uint32 | uint64](blocks B, unit int64) int64 {
	if blocks <= 0 || unit <= 0 {
		return 0
	}
	if uint64(blocks) > uint64(math.MaxInt64/unit) {
		return math.MaxInt64
	}
	return int64(blocks) * unit
}
