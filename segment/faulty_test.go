package segment

import (
	"io/fs"
	"sync/atomic"

	"github.com/partlog/partlog/vfs"
)

// countingFS counts opens.
type countingFS struct {
	vfs.FS
	opens int
}

func (c *countingFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	c.opens++
	return c.FS.OpenFile(name, flag, perm)
}

// faultFS makes calls on files fail while a switch is on.
type faultFS struct {
	vfs.FS
	write, truncate, sync atomic.Pointer[error]
	short                 atomic.Int64 // bytes that a failing write still writes
	match                 func(name string) bool
}

type faultFile struct {
	vfs.File
	fs *faultFS
}

func (f *faultFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	file, err := f.FS.OpenFile(name, flag, perm)
	if err != nil || f.match != nil && !f.match(name) {
		return file, err
	}
	return &faultFile{file, f}, nil
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	if e := f.fs.write.Load(); e != nil {
		n, _ := f.File.WriteAt(p[:min(int64(len(p)), f.fs.short.Load())], off)
		return n, *e
	}
	return f.File.WriteAt(p, off)
}

func (f *faultFile) Truncate(n int64) error {
	if e := f.fs.truncate.Load(); e != nil {
		return *e
	}
	return f.File.Truncate(n)
}

func (f *faultFile) Sync() error {
	if e := f.fs.sync.Load(); e != nil {
		return *e
	}
	return f.File.Sync()
}

func (f *faultFile) SyncData() error {
	if e := f.fs.sync.Load(); e != nil {
		return *e
	}
	return f.File.SyncData()
}
