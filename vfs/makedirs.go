package vfs

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// MkdirDurable makes a directory and its parents, as MkdirAll does, and their names durable: a power failure does not take
// the directory away again. That holds for one that was there already, too, if whoever made it used this: its name may not
// have been on the device yet when that process was killed.
//
//	a          a is there: its name is synced, in case the process that made it got no further
//	a/b        made, then a is synced
//	a/b/c      made, then a/b is synced
//
// No name is made before those above it are durable, so of a chain that is there only the last name can be in doubt.
func MkdirDurable(fsys FS, name string, perm fs.FileMode) error {
	if err := checkName("mkdir", name); err != nil {
		return err
	}
	return makeDirs(treeDirs{fsys, perm}, name)
}

// dirs is where makeDirs makes directories.
type dirs interface {
	exists(dir string) bool // what cannot be told counts as yes: make will say why
	above(dir string) (parent string, ok bool)
	make(dir string) error         // its parent exists
	sync(dir string) error         // after a name was made in dir
	settle(parent, d string) error // sync, of a d that was there before
}

func makeDirs(m dirs, name string) error {
	var missing []string // deepest first
	at := name
	for !m.exists(at) {
		missing = append(missing, at)
		parent, ok := m.above(at)
		if !ok {
			break
		}
		at = parent
	}
	if parent, ok := m.above(at); ok {
		if err := m.settle(parent, at); err != nil {
			return err
		}
	}
	for _, dir := range slices.Backward(missing) {
		if err := m.make(dir); err != nil {
			return err
		}
		if parent, ok := m.above(dir); ok {
			if err := m.sync(parent); err != nil {
				return err
			}
		}
	}
	return nil
}

// treeDirs are the directories of a tree.
type treeDirs struct {
	fs   FS
	perm fs.FileMode
}

func (t treeDirs) exists(dir string) bool {
	_, err := t.fs.Stat(dir)
	return !errors.Is(err, fs.ErrNotExist)
}

func (t treeDirs) above(dir string) (string, bool) { return path.Dir(dir), dir != "." }
func (t treeDirs) make(dir string) error           { return t.fs.MkdirAll(dir, t.perm) }
func (t treeDirs) settle(parent, _ string) error   { return t.sync(parent) }

func (t treeDirs) sync(dir string) error {
	if err := t.fs.SyncDir(dir); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// osDirs are directories of the operating system, by their absolute paths.
type osDirs struct {
	syncDir func(*os.File) error
}

func (osDirs) exists(dir string) bool {
	_, err := os.Stat(dir)
	return !errors.Is(err, fs.ErrNotExist)
}

func (osDirs) above(dir string) (string, bool) {
	parent := filepath.Dir(dir)
	return parent, parent != dir
}

func (osDirs) make(dir string) error { return os.MkdirAll(dir, 0o755) }

func (o osDirs) sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(o.syncDir(f), f.Close())
}

// settle passes over a mount point, whose name is not the parent's to keep, and a parent that this process may not open:
// then one like it has not made the name.
func (o osDirs) settle(parent, dir string) error {
	a, errA := os.Stat(parent)
	b, errB := os.Stat(dir)
	if errA != nil || errB != nil || !sameDevice(a, b) {
		return nil
	}
	f, err := os.Open(parent)
	if err != nil {
		return nil
	}
	return errors.Join(o.syncDir(f), f.Close())
}
