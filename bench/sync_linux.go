package main

import (
	"os"
	"syscall"
)

// syncData is fdatasync, what the library uses here.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
