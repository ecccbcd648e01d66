package vfs

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"syscall"
)

// osFile is an *os.File without its cursor. Calls that need the bare descriptor run inside RawConn.Control, which keeps
// it from being closed and reused underneath them.
type osFile struct {
	f        *os.File
	raw      syscall.RawConn
	readOnly bool // of an OSReadOnly tree: nothing that could write goes through
}

func newOSFile(f *os.File, readOnly bool) *osFile {
	raw, _ := f.SyscallConn() // an error comes back at the first use: the file is closed
	return &osFile{f: f, raw: raw, readOnly: readOnly}
}

func (o *osFile) err(op string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: o.f.Name(), Err: err}
}

// control runs call with the descriptor, again after an interruption.
func (o *osFile) control(op string, call func(fd uintptr) error) error {
	if o.raw == nil {
		return o.err(op, fs.ErrClosed)
	}
	var err error
	if cerr := o.raw.Control(func(fd uintptr) {
		for {
			if err = call(fd); err != syscall.EINTR {
				return
			}
		}
	}); cerr != nil {
		return o.err(op, fs.ErrClosed)
	}
	return o.err(op, err)
}

func (o *osFile) ReadAt(b []byte, off int64) (int, error) { return o.f.ReadAt(b, off) }

func (o *osFile) WriteAt(b []byte, off int64) (int, error) {
	if o.readOnly {
		return 0, o.err("write", fs.ErrPermission)
	}
	return o.f.WriteAt(b, off)
}

func (o *osFile) Close() error { return o.f.Close() }

func (o *osFile) Size() (int64, error) {
	fi, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

func (o *osFile) Truncate(n int64) error {
	if o.readOnly {
		return o.err("truncate", fs.ErrPermission)
	}
	if n < 0 {
		return o.err("truncate", errNegative)
	}
	return o.f.Truncate(n)
}

func (o *osFile) Sync() error {
	if o.readOnly {
		return o.err("sync", fs.ErrPermission)
	}
	return o.f.Sync()
}

func (o *osFile) SyncData() error {
	if o.readOnly {
		return o.err("sync", fs.ErrPermission)
	}
	return syncData(o)
}

func (o *osFile) Allocate(off, n int64) error {
	if o.readOnly {
		return o.err("allocate", fs.ErrPermission)
	}
	if off < 0 || n < 0 || off > math.MaxInt64-n {
		return o.err("allocate", errNegative)
	}
	if n == 0 {
		return nil
	}
	return allocate(o, off, n)
}

func (o *osFile) Evict(off, n int64) error {
	if off < 0 || n < 0 || off > math.MaxInt64-n {
		return o.err("evict", errNegative)
	}
	if n == 0 {
		return nil
	}
	return evict(o, off, n)
}

func (o *osFile) Map(n int64) (Mapping, error) {
	if !canMap {
		return nil, o.err("map", ErrUnsupported)
	}
	size, err := o.Size()
	if err != nil {
		return nil, err
	}
	if err := checkMapLen(n, size); err != nil {
		return nil, o.err("map", err)
	}
	return mapFile(o, int(n))
}

func (o *osFile) SyscallConn() (syscall.RawConn, error) { return o.f.SyscallConn() }

// checkMapLen refuses a mapping that would reach past the end of the file: its last pages would fault.
func checkMapLen(n, size int64) error {
	if n <= 0 || n > size {
		return fmt.Errorf("%w: %d bytes to map of a file of %d", fs.ErrInvalid, n, size)
	}
	if n > math.MaxInt {
		return ErrUnsupported
	}
	return nil
}
