package vfs

import (
	"os"

	"golang.org/x/sys/windows"
)

const (
	openNonblock  = 0
	openDirectory = 0
	canMap        = false // a mapped file cannot be cut or replaced
)

func syncData(o *osFile) error { return o.f.Sync() }

// syncDir: NTFS journals names itself and a directory handle cannot be flushed.
func syncDir(d *os.File) error { return nil }

func allocate(o *osFile, off, n int64) error { return o.err("allocate", ErrUnsupported) }

func evict(o *osFile, off, n int64) error { return o.err("evict", ErrUnsupported) }

func freeSpace(d *os.File) (int64, error) {
	dir, err := windows.UTF16PtrFromString(d.Name())
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(dir, &free, nil, nil); err != nil {
		return 0, err
	}
	return int64(min(free, 1<<63-1)), nil
}

// os.Root opens with FILE_SHARE_DELETE and renames with POSIX semantics.
func platformTraits() Traits { return Traits{ShareDelete: true} }

func judge(d *os.File, t *Traits) {}
