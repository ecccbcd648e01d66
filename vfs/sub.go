package vfs

import (
	"io"
	"io/fs"
	"path"
	"time"
)

// Sub is the tree below a directory of another tree: its names are those below dir. The directory need not exist yet.
// Errors name paths of the outer tree.
func Sub(fsys FS, dir string) (FS, error) {
	if err := checkName("sub", dir); err != nil {
		return nil, err
	}
	if dir == "." {
		return fsys, nil
	}
	if outer, ok := fsys.(*subFS); ok {
		fsys, dir = outer.base, path.Join(outer.dir, dir)
	}
	return &subFS{base: fsys, dir: dir}, nil
}

// subFS has no state of its own.
type subFS struct {
	base FS
	dir  string
}

// in is the name in the outer tree. A name that would leave this one is kept as it is but for a mark that makes every
// tree refuse it.
func (s *subFS) in(name string) string {
	if !fs.ValidPath(name) {
		return "/" + name
	}
	return path.Join(s.dir, name)
}

func (s *subFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	return s.base.OpenFile(s.in(name), flag, perm)
}
func (s *subFS) Stat(name string) (fs.FileInfo, error) { return s.base.Stat(s.in(name)) }
func (s *subFS) Rename(old, new string) error          { return s.base.Rename(s.in(old), s.in(new)) }
func (s *subFS) Link(old, new string) error            { return s.base.Link(s.in(old), s.in(new)) }
func (s *subFS) Remove(name string) error              { return s.base.Remove(s.in(name)) }
func (s *subFS) MkdirAll(name string, perm fs.FileMode) error {
	return s.base.MkdirAll(s.in(name), perm)
}
func (s *subFS) ReadDir(name string) ([]fs.DirEntry, error) { return s.base.ReadDir(s.in(name)) }
func (s *subFS) SyncDir(name string) error                  { return s.base.SyncDir(s.in(name)) }
func (s *subFS) Lock(name string) (io.Closer, error)        { return s.base.Lock(s.in(name)) }
func (s *subFS) Chtimes(name string, mtime time.Time) error { return s.base.Chtimes(s.in(name), mtime) }
func (s *subFS) Free(name string) (bytes int64, err error)  { return s.base.Free(s.in(name)) }
func (s *subFS) Traits(name string) Traits                  { return s.base.Traits(s.in(name)) }
