package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// OS is the directory tree below root on the operating system's file system. The root is created, durably, if absent: a root
// that a power failure takes away would take every acknowledged record with it. One that is there is made durable in its
// parent, as [MkdirDurable] does.
//
// Names cannot leave the tree: every element is resolved below an open descriptor of the root (openat), so symbolic
// links are followed while they stay inside and refused when they point out of it, and the tree keeps working when the
// root is renamed. Anything but a regular file is refused by OpenFile; opening a FIFO does not wait for a writer.
//
// The returned FS holds one descriptor, released when the FS becomes unreachable. It is also an io.Closer for those who
// want it released sooner (Windows cannot remove a directory that is held open): open files stay usable, a lock closed
// after that is released without removing its file.
func OS(root string) (FS, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if err := makeDirs(osDirs{syncDir}, realPath(root)); err != nil {
		return nil, err
	}
	return openRoot(root, false)
}

// OSReadOnly is an existing directory tree that is never changed: every call that could write a byte, a name, a time or
// a lock is fs.ErrPermission, also on its files. A missing root is fs.ErrNotExist. See [OS] for the rest.
func OSReadOnly(root string) (FS, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	return openRoot(root, true)
}

func openRoot(root string, readOnly bool) (FS, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		if info, e := os.Stat(root); e == nil && !info.IsDir() { // os.Root has an error of its own for that
			err = &fs.PathError{Op: "open", Path: root, Err: syscall.ENOTDIR}
		}
		return nil, err
	}
	return &osFS{root: r, dir: root, readOnly: readOnly}, nil
}

// osFS is a tree on the operating system. It has no state of its own, so it needs no lock.
type osFS struct {
	root     *os.Root
	dir      string // absolute path of the root, for messages
	readOnly bool
}

// Close releases the descriptor of the root.
func (o *osFS) Close() error { return o.root.Close() }

// full is the absolute path of name, for messages.
func (o *osFS) full(name string) string { return filepath.Join(o.dir, filepath.FromSlash(name)) }

// named makes err a *fs.PathError with the whole path: os.Root reports paths below the root, which a host with several
// trees cannot tell apart.
func (o *osFS) named(op, name string, err error) error {
	if err == nil {
		return nil
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return &fs.PathError{Op: op, Path: o.full(name), Err: err}
}

func (o *osFS) namedLink(op, old, new string, err error) error {
	if err == nil {
		return nil
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		err = l.Err
	}
	return &os.LinkError{Op: op, Old: o.full(old), New: o.full(new), Err: err}
}

// change says whether a call that changes the tree may go on.
func (o *osFS) change(op, name string) error {
	if err := checkName(op, name); err != nil {
		return err
	}
	if o.readOnly {
		return o.named(op, name, fs.ErrPermission)
	}
	return nil
}

func (o *osFS) change2(op, old, new string) error {
	if err := checkNames(op, old, new); err != nil {
		return err
	}
	if o.readOnly {
		return o.namedLink(op, old, new, fs.ErrPermission)
	}
	return nil
}

func (o *osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if err := checkOpen(name, flag, perm); err != nil {
		return nil, err
	}
	if o.readOnly && flag&changeFlags != 0 {
		return nil, o.named("open", name, fs.ErrPermission)
	}
	f, err := o.openRegular(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return newOSFile(f, o.readOnly), nil
}

// truncatesOnOpen: hosts of WebAssembly refuse os.Root's call with O_TRUNC, so a file is emptied after it was opened.
var truncatesOnOpen = runtime.GOOS != "wasip1"

// openRegular opens a regular file and nothing else. openNonblock keeps a FIFO from blocking the call; on regular files
// it has no effect.
func (o *osFS) openRegular(name string, flag int, perm fs.FileMode) (*os.File, error) {
	empty := flag&os.O_TRUNC != 0 && !truncatesOnOpen
	if empty {
		flag &^= os.O_TRUNC
	}
	f, err := o.root.OpenFile(name, flag|openNonblock, perm)
	if err != nil {
		return nil, o.named("open", name, err)
	}
	fi, err := f.Stat()
	switch {
	case err != nil:
	case fi.IsDir():
		err = syscall.EISDIR
	case !fi.Mode().IsRegular():
		err = errNotRegular
	case empty:
		err = f.Truncate(0)
	}
	if err != nil {
		f.Close()
		return nil, o.named("open", name, err)
	}
	return f, nil
}

// openDir opens a directory to list, sync or ask about.
func (o *osFS) openDir(name string) (*os.File, error) {
	return o.root.OpenFile(name, os.O_RDONLY|openDirectory|openNonblock, 0)
}

func (o *osFS) Stat(name string) (fs.FileInfo, error) {
	if err := checkName("stat", name); err != nil {
		return nil, err
	}
	fi, err := o.root.Stat(name)
	if err != nil {
		return nil, o.named("stat", name, err)
	}
	return fi, nil
}

func (o *osFS) Rename(old, new string) error {
	if err := o.change2("rename", old, new); err != nil {
		return err
	}
	return o.namedLink("rename", old, new, o.root.Rename(old, new))
}

func (o *osFS) Link(old, new string) error {
	if err := o.change2("link", old, new); err != nil {
		return err
	}
	return o.namedLink("link", old, new, o.root.Link(old, new))
}

func (o *osFS) Remove(name string) error {
	if err := o.change("remove", name); err != nil {
		return err
	}
	return o.named("remove", name, o.root.Remove(name))
}

func (o *osFS) MkdirAll(name string, perm fs.FileMode) error {
	if err := o.change("mkdir", name); err != nil {
		return err
	}
	if perm&^0o777 != 0 {
		return o.named("mkdir", name, errMode)
	}
	return o.named("mkdir", name, o.root.MkdirAll(name, perm))
}

func (o *osFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := checkName("readdir", name); err != nil {
		return nil, err
	}
	d, err := o.openDir(name)
	if err != nil {
		return nil, o.named("readdir", name, err)
	}
	entries, err := d.ReadDir(-1)
	if err = errors.Join(err, d.Close()); err != nil {
		return nil, o.named("readdir", name, err)
	}
	ours := make([]osEntry, len(entries))
	for i, e := range entries {
		ours[i] = osEntry{DirEntry: e, fs: o, dir: name}
		entries[i] = ours[i].resolved()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// resolved follows a symbolic link that stays inside the tree, as every other call does; one that leads nowhere stays a
// symbolic link.
func (e *osEntry) resolved() fs.DirEntry {
	if e.Type()&fs.ModeSymlink != 0 {
		if fi, err := e.fs.root.Stat(e.path()); err == nil {
			return fs.FileInfoToDirEntry(renamedInfo{fi, e.Name()})
		}
	}
	return e
}

// renamedInfo is the target's description under the link's name.
type renamedInfo struct {
	fs.FileInfo
	name string
}

func (r renamedInfo) Name() string { return r.name }

// osEntry has its information from the listing: below an os.Root every entry is looked at (fstatat) while the directory is
// read, so that Info costs nothing and holds when the root has been renamed since.
type osEntry struct {
	fs.DirEntry
	fs  *osFS
	dir string
}

func (e *osEntry) path() string { return path.Join(e.dir, e.Name()) }

func (e *osEntry) Info() (fs.FileInfo, error) {
	fi, err := e.DirEntry.Info()
	if err != nil {
		return nil, e.fs.named("stat", e.path(), err)
	}
	return fi, nil
}

func (o *osFS) SyncDir(name string) error {
	if err := o.change("sync", name); err != nil {
		return err
	}
	d, err := o.openDir(name)
	if err != nil {
		return o.named("sync", name, err)
	}
	return o.named("sync", name, errors.Join(syncDir(d), d.Close()))
}

func (o *osFS) Lock(name string) (io.Closer, error) {
	if err := o.change("lock", name); err != nil {
		return nil, err
	}
	return lockFile(o, name)
}

func (o *osFS) Chtimes(name string, mtime time.Time) error {
	if err := o.change("chtimes", name); err != nil {
		return err
	}
	return o.named("chtimes", name, o.root.Chtimes(name, time.Time{}, mtime))
}

func (o *osFS) Free(name string) (int64, error) {
	if err := checkName("free", name); err != nil {
		return 0, err
	}
	d, err := o.nearestDir(name)
	if err != nil {
		return 0, o.named("free", name, err)
	}
	free, err := freeSpace(d)
	if err = errors.Join(err, d.Close()); err != nil {
		return 0, o.named("free", name, err)
	}
	return free, nil
}

func (o *osFS) Traits(name string) Traits {
	t := platformTraits()
	if checkName("traits", name) != nil {
		return t
	}
	d, err := o.nearestDir(name)
	if err != nil {
		t.Mmap, t.Evict = false, false
		return t
	}
	defer d.Close()
	judge(d, &t)
	return t
}

// nearestDir opens the directory that holds name, or the closest one above it that exists.
func (o *osFS) nearestDir(name string) (*os.File, error) {
	for {
		fi, err := o.root.Stat(name)
		if err == nil && fi.IsDir() {
			return o.openDir(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) || name == "." {
			return nil, err
		}
		name = path.Dir(name)
	}
}
