//go:build !linux && !darwin && !freebsd && !windows

package vfs

import "os"

// canMap: some of these systems keep mappings and the file cache apart, others have no mappings.
const canMap = false

func syncData(o *osFile) error { return o.f.Sync() }

// syncDir is best effort: hosts of WebAssembly give a directory no such call.
func syncDir(d *os.File) error {
	_ = d.Sync()
	return nil
}

func allocate(o *osFile, off, n int64) error { return o.err("allocate", ErrUnsupported) }

func evict(o *osFile, off, n int64) error { return o.err("evict", ErrUnsupported) }

func freeSpace(d *os.File) (int64, error) { return 0, ErrUnsupported }

func platformTraits() Traits { return Traits{ShareDelete: openDirectory != 0, MaxOpen: maxOpen()} }

func judge(d *os.File, t *Traits) {}
