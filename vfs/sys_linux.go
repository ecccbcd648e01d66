package vfs

import (
	"errors"
	"math"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"
)

// canMap: with 32 bits a few indexes would fill the address space.
const canMap = bits.UintSize == 64

func syncData(o *osFile) error {
	return o.control("sync", func(fd uintptr) error { return unix.Fdatasync(int(fd)) })
}

// syncDir makes a directory's entries durable. A file system that has no such call (some network ones say EINVAL) has
// no slower way either; it keeps its entries as it keeps them.
func syncDir(d *os.File) error {
	err := d.Sync()
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		return nil
	}
	return err
}

func allocate(o *osFile, off, n int64) error {
	return o.control("allocate", func(fd uintptr) error {
		return unix.Fallocate(int(fd), unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
}

// evictUnit is the largest folio of the page cache. The kernel skips a folio that is only partly inside the range, so
// the range is widened to whole ones; clean pages outside it cost a read, nothing else.
const evictUnit = 2 << 20

func evict(o *osFile, off, n int64) error {
	start := off &^ (evictUnit - 1)
	length := int64(0) // to the end of the file
	if end := off + n; end < math.MaxInt64-evictUnit {
		length = (end+evictUnit-1)&^(evictUnit-1) - start
	}
	return o.control("evict", func(fd uintptr) error {
		return unix.Fadvise(int(fd), start, length, unix.FADV_DONTNEED)
	})
}

// freeSpace is f_bavail, which leaves out what is reserved for root, in fragments.
func freeSpace(d *os.File) (int64, error) {
	st, err := fstatfs(d)
	if err != nil {
		return 0, err
	}
	unit := int64(st.Frsize)
	if unit == 0 {
		unit = int64(st.Bsize)
	}
	return spaceOf(st.Bavail, unit), nil
}

func platformTraits() Traits {
	return Traits{Mmap: canMap, Sendfile: true, ShareDelete: true, Evict: true, MaxOpen: maxOpen()}
}

// judge takes back what the file system under d cannot be trusted with.
func judge(d *os.File, t *Traits) {
	st, err := fstatfs(d)
	if err != nil {
		t.Mmap, t.Evict = false, false
		return
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.NCP_SUPER_MAGIC,
		unix.FUSE_SUPER_MAGIC, unix.V9FS_MAGIC, unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC, unix.CODA_SUPER_MAGIC,
		unix.CEPH_SUPER_MAGIC, unix.OCFS2_SUPER_MAGIC, unix.HOSTFS_SUPER_MAGIC, lustreMagic, gfs2Magic, vboxMagic:
		t.Mmap, t.Evict = false, false // another machine changes files underneath, or the daemon's cache stays
	case unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, zfsMagic:
		t.Evict = false // no device below the cache, or a second cache that takes no advice
	}
}

// Magic numbers that golang.org/x/sys does not name.
const (
	lustreMagic = 0x0bd00bd0
	gfs2Magic   = 0x01161970
	vboxMagic   = 0x786f4256
	zfsMagic    = 0x2fc12fc1
)

func fstatfs(d *os.File) (st unix.Statfs_t, err error) {
	raw, err := d.SyscallConn()
	if err != nil {
		return st, err
	}
	cerr := raw.Control(func(fd uintptr) {
		for {
			if err = unix.Fstatfs(int(fd), &st); err != unix.EINTR {
				return
			}
		}
	})
	return st, errors.Join(cerr, err)
}
