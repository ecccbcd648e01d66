//go:build unix

package vfs

import (
	"io/fs"
	"math"
	"syscall"
)

// linksOf is the link count of a file of the operating system.
func linksOf(fi fs.FileInfo) (int, bool) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(min(uint64(st.Nlink), math.MaxInt32)), true
}

// sameDevice says whether two files lie on one device; yes if that is not known.
func sameDevice(a, b fs.FileInfo) bool {
	x, ok := a.Sys().(*syscall.Stat_t)
	y, both := b.Sys().(*syscall.Stat_t)
	return !ok || !both || x.Dev == y.Dev
}
