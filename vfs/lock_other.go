//go:build !linux && !darwin && !freebsd && !netbsd && !dragonfly && !openbsd && !windows

package vfs

import "os"

const closeDropsLocks = false

// lockOS: no lock that other processes see; the registry excludes other openers in this one.
func lockOS(f *os.File) (holder string, err error) { return "", nil }
