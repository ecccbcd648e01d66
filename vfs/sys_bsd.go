//go:build darwin || freebsd

package vfs

import (
	"errors"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"
)

const canMap = bits.UintSize == 64

// syncData is Sync: there is no fdatasync that reaches the device. On darwin Sync is F_FULLFSYNC.
func syncData(o *osFile) error { return o.f.Sync() }

// syncDir makes a directory's entries durable, where the file system has such a call.
func syncDir(d *os.File) error {
	err := d.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

func allocate(o *osFile, off, n int64) error { return o.err("allocate", ErrUnsupported) }

func evict(o *osFile, off, n int64) error { return o.err("evict", ErrUnsupported) }

func freeSpace(d *os.File) (int64, error) {
	st, err := fstatfs(d)
	if err != nil {
		return 0, err
	}
	return spaceOf(st.Bavail, int64(st.Bsize)), nil
}

func platformTraits() Traits {
	return Traits{Mmap: canMap, ShareDelete: true, MaxOpen: maxOpen()}
}

// judge takes back what the file system under d cannot be trusted with.
func judge(d *os.File, t *Traits) {
	st, err := fstatfs(d)
	if err != nil {
		t.Mmap = false
		return
	}
	switch unix.ByteSliceToString(st.Fstypename[:]) {
	case "nfs", "smbfs", "afpfs", "webdav", "osxfuse", "macfuse", "fusefs", "lifs":
		t.Mmap = false
	}
}

func fstatfs(d *os.File) (st unix.Statfs_t, err error) {
	raw, err := d.SyscallConn()
	if err != nil {
		return st, err
	}
	cerr := raw.Control(func(fd uintptr) { err = unix.Fstatfs(int(fd), &st) })
	return st, errors.Join(cerr, err)
}
