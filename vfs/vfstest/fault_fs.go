package vfstest

import (
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/partlog/partlog/vfs"
)

// OpenFile matches OpOpen, or OpCreate with O_CREATE.
func (f *Fault) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	var file vfs.File
	err := f.do(Op{Kind: openKind(flag), Name: name, Flag: flag}, func() (err error) {
		file, err = f.inner.OpenFile(name, flag, perm)
		return err
	})
	if err != nil {
		if file != nil {
			_ = file.Close() // the answer got lost, see Rule.Done
		}
		return nil, err
	}
	return &faultFile{f: f, name: name, inner: file}, nil
}

// Stat matches OpStat.
func (f *Fault) Stat(name string) (fi fs.FileInfo, err error) {
	err = f.do(Op{Kind: OpStat, Name: name}, func() (err error) {
		fi, err = f.inner.Stat(name)
		return err
	})
	return fi, err
}

// Rename matches OpRename by either name.
func (f *Fault) Rename(old, new string) error {
	return f.do(Op{Kind: OpRename, Name: old, To: new}, func() error { return f.inner.Rename(old, new) })
}

// Link matches OpLink by either name.
func (f *Fault) Link(old, new string) error {
	return f.do(Op{Kind: OpLink, Name: old, To: new}, func() error { return f.inner.Link(old, new) })
}

// Remove matches OpRemove.
func (f *Fault) Remove(name string) error {
	return f.do(Op{Kind: OpRemove, Name: name}, func() error { return f.inner.Remove(name) })
}

// MkdirAll matches OpMkdir.
func (f *Fault) MkdirAll(name string, perm fs.FileMode) error {
	return f.do(Op{Kind: OpMkdir, Name: name}, func() error { return f.inner.MkdirAll(name, perm) })
}

// ReadDir matches OpReadDir.
func (f *Fault) ReadDir(name string) (l []fs.DirEntry, err error) {
	err = f.do(Op{Kind: OpReadDir, Name: name}, func() (err error) {
		l, err = f.inner.ReadDir(name)
		return err
	})
	return l, err
}

// SyncDir matches OpSyncDir.
func (f *Fault) SyncDir(name string) error {
	return f.do(Op{Kind: OpSyncDir, Name: name}, func() error { return f.inner.SyncDir(name) })
}

// Lock matches OpLock, its release OpUnlock.
func (f *Fault) Lock(name string) (l io.Closer, err error) {
	err = f.do(Op{Kind: OpLock, Name: name}, func() (err error) {
		l, err = f.inner.Lock(name)
		return err
	})
	if err != nil {
		if l != nil {
			_ = l.Close()
		}
		return nil, err
	}
	held := l // the named result becomes the wrapper
	return closerFunc(func() error { return f.do(Op{Kind: OpUnlock, Name: name}, held.Close) }), nil
}

// Chtimes matches OpChtimes.
func (f *Fault) Chtimes(name string, mtime time.Time) error {
	return f.do(Op{Kind: OpChtimes, Name: name}, func() error { return f.inner.Chtimes(name, mtime) })
}

// Free matches OpFree. Under a quota it says what is left of it.
func (f *Fault) Free(name string) (n int64, err error) {
	err = f.do(Op{Kind: OpFree, Name: name}, func() (err error) {
		n, err = f.inner.Free(name)
		return err
	})
	if left, ok := f.left(); ok && err == nil {
		n = min(n, left)
	}
	return n, err
}

// Traits passes through.
func (f *Fault) Traits(name string) vfs.Traits { return f.inner.Traits(name) }

type faultFile struct {
	f     *Fault
	name  string
	inner vfs.File
}

func (f *faultFile) op(k Kind, off, n int64) Op { return Op{Kind: k, Name: f.name, Off: off, Len: n} }

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	return f.f.move(f.op(OpRead, off, int64(len(p))), p, func(p []byte) (int, error) {
		return f.inner.ReadAt(p, off)
	}, io.EOF)
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	return f.f.move(f.op(OpWrite, off, int64(len(p))), p, func(p []byte) (int, error) {
		fits := f.f.take(len(p))
		if fits == len(p) {
			return f.inner.WriteAt(p, off)
		}
		n := 0
		if fits > 0 {
			var err error
			if n, err = f.inner.WriteAt(p[:fits], off); err != nil {
				return n, err
			}
		}
		return n, &fs.PathError{Op: "write", Path: f.name, Err: syscall.ENOSPC}
	}, io.ErrShortWrite)
}

// Close always closes the file below: a rule changes the answer only, as with close(2).
func (f *faultFile) Close() error {
	closed := false
	err := f.f.do(f.op(OpClose, 0, 0), func() error {
		closed = true
		return f.inner.Close()
	})
	if !closed {
		_ = f.inner.Close()
	}
	return err
}

func (f *faultFile) Size() (n int64, err error) {
	err = f.f.do(f.op(OpSize, 0, 0), func() (err error) {
		n, err = f.inner.Size()
		return err
	})
	return n, err
}

func (f *faultFile) Truncate(n int64) error {
	return f.f.do(f.op(OpTruncate, 0, n), func() error { return f.inner.Truncate(n) })
}

func (f *faultFile) Sync() error { return f.sync(f.op(OpSync, 0, 0), f.inner.Sync) }

func (f *faultFile) SyncData() error { return f.sync(f.op(OpSyncData, 0, 0), f.inner.SyncData) }

func (f *faultFile) sync(op Op, call func() error) error {
	r, ok := f.f.due(op)
	if !ok {
		return call()
	}
	if err := r.wait(op); err != nil {
		return err
	}
	if r.Err == nil && !r.LosePages {
		return call()
	}
	if r.LosePages {
		losePages(f.inner, r.Lost)
	} else if r.Done {
		if err := call(); err != nil {
			return err
		}
	}
	if r.Err == nil {
		return &fs.PathError{Op: "sync", Path: f.name, Err: syscall.EIO}
	}
	return r.Err
}

// losePages lets a Fault above this one reach a Crash below it.
func (f *faultFile) losePages(lost func(page int64) bool) bool { return losePages(f.inner, lost) }

func (f *faultFile) Allocate(off, n int64) error {
	return f.f.do(f.op(OpAllocate, off, n), func() error {
		if left, ok := f.f.left(); ok && n > left {
			return &fs.PathError{Op: "allocate", Path: f.name, Err: syscall.ENOSPC}
		}
		return f.inner.Allocate(off, n)
	})
}

func (f *faultFile) Evict(off, n int64) error {
	return f.f.do(f.op(OpEvict, off, n), func() error { return f.inner.Evict(off, n) })
}

func (f *faultFile) Map(n int64) (vfs.Mapping, error) {
	var m vfs.Mapping
	err := f.f.do(f.op(OpMap, 0, n), func() (err error) {
		m, err = f.inner.Map(n)
		return err
	})
	if err != nil {
		if m != nil {
			_ = m.Close()
		}
		return nil, err
	}
	return &faultMapping{Mapping: m, f: f}, nil
}

func (f *faultFile) SyscallConn() (c syscall.RawConn, err error) {
	err = f.f.do(f.op(OpConn, 0, 0), func() (err error) {
		c, err = f.inner.SyscallConn()
		return err
	})
	return c, err
}

// faultMapping fails reads: use vfs.ErrFault as Rule.Err for a page that could not be read.
type faultMapping struct {
	vfs.Mapping
	f *faultFile
}

func (m *faultMapping) Read(f func(b []byte)) error {
	return m.f.f.do(m.f.op(OpMapRead, 0, m.Len()), func() error { return m.Mapping.Read(f) })
}
