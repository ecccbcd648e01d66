package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is an empty tree in memory, complete enough to be the test double of [OS]: the same errors for the same calls,
// hard links, handles that outlive renames and removals, locks within the process, sparse files.
//
// Differences a caller can see: permissions are kept but not enforced, there are no symbolic links, nothing is ever
// full (Free is 1 TiB) and nothing is ever lost. A mapping is a copy made by Map: later writes do not show in it, and
// once its file has been cut below its length every Read is ErrFault, as a read of the lost page would be on a disk.
func Mem() FS { return newTree(nil) }

const memFree = 1 << 40

// tree is the file system behind Mem and Overlay: nodes in memory above an optional tree that is only read.
type tree struct {
	base FS // nil: nothing underneath

	mu    sync.Mutex // guards the shape: children, links, locks. Taken before node.mu.
	root  *node
	locks map[*node]struct{}
}

func newTree(base FS) *tree {
	t := &tree{base: base, locks: make(map[*node]struct{})}
	t.root = newNode(fs.ModeDir | 0o755)
	if base != nil {
		t.root.under = "."
	}
	return t
}

func newNode(mode fs.FileMode) *node {
	n := &node{mode: mode, links: 1, mtime: time.Now(), written: true}
	if mode.IsDir() {
		n.children = make(map[string]*node)
	}
	return n
}

// list fills in what the directory underneath has, once. Called under t.mu.
func (t *tree) list(n *node) error {
	if n.listed || n.under == "" {
		return nil
	}
	entries, err := t.base.ReadDir(n.under)
	if err != nil {
		return bare(err)
	}
	for _, e := range entries {
		child := newNode(e.Type().Type() | 0o644)
		if child.isDir() {
			child.mode = fs.ModeDir | 0o755
		}
		child.under, child.written = path.Join(n.under, e.Name()), false
		n.children[e.Name()] = child
	}
	n.listed = true
	return nil
}

// bare takes the name off an error of the tree underneath: the caller adds its own.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// lookup walks to a node. Called under t.mu.
func (t *tree) lookup(name string) (*node, error) {
	n := t.root
	if name == "." {
		return n, nil
	}
	for elem := range strings.SplitSeq(name, "/") {
		if !n.isDir() {
			return nil, syscall.ENOTDIR
		}
		if len(elem) > maxNameLen {
			return nil, syscall.ENAMETOOLONG
		}
		if err := t.list(n); err != nil {
			return nil, err
		}
		child, ok := n.children[elem]
		if !ok {
			return nil, syscall.ENOENT
		}
		n = child
	}
	return n, nil
}

// lookupParent walks to the directory that holds, or would hold, name. Called under t.mu.
func (t *tree) lookupParent(name string) (dir *node, base string, err error) {
	dir, err = t.lookup(path.Dir(name))
	if err != nil {
		return nil, "", err
	}
	base = path.Base(name)
	switch {
	case !dir.isDir():
		return nil, "", syscall.ENOTDIR
	case len(base) > maxNameLen:
		return nil, "", syscall.ENAMETOOLONG
	case name == ".":
		return nil, "", syscall.EBUSY
	}
	return dir, base, t.list(dir)
}

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func linkError(op, old, new string, err error) error {
	if err == nil {
		return nil
	}
	return &os.LinkError{Op: op, Old: old, New: new, Err: err}
}

func (t *tree) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if err := checkOpen(name, flag, perm); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f, err := t.open(name, flag, perm)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return f, nil
}

// open makes a handle on an existing or new file. Called under t.mu.
func (t *tree) open(name string, flag int, perm fs.FileMode) (*memFile, error) {
	n, err := t.lookup(name)
	switch {
	case err == nil && flag&(os.O_CREATE|os.O_EXCL) == os.O_CREATE|os.O_EXCL:
		return nil, syscall.EEXIST
	case err == syscall.ENOENT && flag&os.O_CREATE != 0:
		n, err = t.create(name, perm)
	}
	switch {
	case err != nil:
		return nil, err
	case n.isDir():
		return nil, syscall.EISDIR
	case !n.mode.IsRegular():
		return nil, errNotRegular
	}
	if err := t.size(n); err != nil {
		return nil, bare(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if flag&os.O_TRUNC != 0 {
		n.truncate(0)
	}
	n.handles++
	return &memFile{tree: t, node: n, name: name, access: flag & accessFlags}, nil
}

// create makes an empty file. Called under t.mu.
func (t *tree) create(name string, perm fs.FileMode) (*node, error) {
	dir, base, err := t.lookupParent(name)
	if err != nil {
		return nil, err
	}
	n := newNode(perm)
	dir.children[base] = n
	dir.touchDir()
	return n, nil
}

func (t *tree) Stat(name string) (fs.FileInfo, error) {
	if err := checkName("stat", name); err != nil {
		return nil, err
	}
	t.mu.Lock()
	n, err := t.lookup(name)
	links := 0
	if err == nil {
		links = n.links
	}
	t.mu.Unlock()
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	fi, err := t.describe(n, name)
	if err != nil {
		return nil, pathError("stat", name, bare(err))
	}
	fi.links = links
	return fi, nil
}

func (t *tree) Rename(old, new string) error {
	if err := checkNames("rename", old, new); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return linkError("rename", old, new, t.rename(old, new))
}

func (t *tree) rename(old, new string) error {
	from, oldBase, err := t.lookupParent(old)
	if err != nil {
		return err
	}
	to, newBase, err := t.lookupParent(new)
	if err != nil {
		return err
	}
	n, ok := from.children[oldBase]
	if !ok {
		return syscall.ENOENT
	}
	target := to.children[newBase]
	switch {
	case target != nil && target.isDir():
		return syscall.EEXIST
	case target == n:
		return nil // two names of one file: POSIX does nothing
	case n.isDir() && (new == old || strings.HasPrefix(new, old+"/")):
		return syscall.EINVAL
	case n.isDir() && target != nil:
		return syscall.ENOTDIR
	}
	if target != nil {
		target.links--
	}
	delete(from.children, oldBase)
	to.children[newBase] = n
	from.touchDir()
	to.touchDir()
	return nil
}

func (t *tree) Link(old, new string) error {
	if err := checkNames("link", old, new); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return linkError("link", old, new, t.link(old, new))
}

func (t *tree) link(old, new string) error {
	from, oldBase, err := t.lookupParent(old)
	if err != nil {
		return err
	}
	dir, base, err := t.lookupParent(new)
	if err != nil {
		return err
	}
	n, ok := from.children[oldBase]
	if !ok {
		return syscall.ENOENT
	}
	if _, ok := dir.children[base]; ok {
		return syscall.EEXIST
	}
	if n.isDir() {
		return syscall.EPERM
	}
	n.links++
	dir.children[base] = n
	dir.touchDir()
	return nil
}

func (t *tree) Remove(name string) error {
	if err := checkName("remove", name); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return pathError("remove", name, t.remove(name))
}

func (t *tree) remove(name string) error {
	dir, base, err := t.lookupParent(name)
	if err != nil {
		return err
	}
	n, ok := dir.children[base]
	if !ok {
		return syscall.ENOENT
	}
	if n.isDir() {
		if err := t.list(n); err != nil {
			return err
		}
		if len(n.children) > 0 {
			return syscall.ENOTEMPTY
		}
	}
	n.links--
	delete(dir.children, base)
	dir.touchDir()
	return nil
}

func (t *tree) MkdirAll(name string, perm fs.FileMode) error {
	if err := checkName("mkdir", name); err != nil {
		return err
	}
	if perm&^0o777 != 0 {
		return pathError("mkdir", name, errMode)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return pathError("mkdir", name, t.mkdirAll(name, perm))
}

func (t *tree) mkdirAll(name string, perm fs.FileMode) error {
	n := t.root
	if name == "." {
		return nil
	}
	for elem := range strings.SplitSeq(name, "/") {
		if !n.isDir() {
			return syscall.ENOTDIR
		}
		if len(elem) > maxNameLen {
			return syscall.ENAMETOOLONG
		}
		if err := t.list(n); err != nil {
			return err
		}
		child, ok := n.children[elem]
		if !ok {
			child = newNode(fs.ModeDir | perm)
			n.children[elem] = child
			n.touchDir()
		}
		n = child
	}
	if !n.isDir() {
		return syscall.EEXIST
	}
	return nil
}

func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := checkName("readdir", name); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.lookupDir(name)
	if err != nil {
		return nil, pathError("readdir", name, err)
	}
	entries := make([]fs.DirEntry, 0, len(n.children))
	for _, child := range sortedNames(n.children) {
		entries = append(entries, memEntry{tree: t, node: n.children[child], name: child})
	}
	return entries, nil
}

// lookupDir walks to a directory and lists it. Called under t.mu.
func (t *tree) lookupDir(name string) (*node, error) {
	n, err := t.lookup(name)
	if err != nil {
		return nil, err
	}
	if !n.isDir() {
		return nil, syscall.ENOTDIR
	}
	return n, t.list(n)
}

func (t *tree) SyncDir(name string) error {
	if err := checkName("sync", name); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.lookupDir(name)
	return pathError("sync", name, err)
}

func (t *tree) Chtimes(name string, mtime time.Time) error {
	if err := checkName("chtimes", name); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.lookup(name)
	if err == nil {
		err = bare(t.size(n))
	}
	if err != nil {
		return pathError("chtimes", name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mtime = mtime
	return nil
}

func (t *tree) Lock(name string) (io.Closer, error) {
	if err := checkName("lock", name); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	f, err := t.open(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, pathError("lock", name, err)
	}
	if _, taken := t.locks[f.node]; taken {
		f.Close()
		return nil, &LockedError{Name: name, Holder: thisProcess}
	}
	t.locks[f.node] = struct{}{}
	return &memLock{tree: t, file: f, name: name}, nil
}

// memLock is a lock file held in memory.
type memLock struct {
	tree *tree
	file *memFile
	name string
	once sync.Once
}

func (l *memLock) Close() (err error) {
	l.once.Do(func() {
		t := l.tree
		t.mu.Lock()
		defer t.mu.Unlock()
		if n, lerr := t.lookup(l.name); lerr == nil && n == l.file.node {
			err = pathError("unlock", l.name, t.remove(l.name))
		}
		delete(t.locks, l.file.node)
		err = errors.Join(err, l.file.Close())
	})
	return err
}

func (t *tree) Free(name string) (int64, error) {
	if err := checkName("free", name); err != nil {
		return 0, err
	}
	if t.base != nil {
		return t.base.Free(name)
	}
	return memFree, nil
}

func (t *tree) Traits(name string) Traits {
	if t.base == nil {
		return Traits{Mmap: true, ShareDelete: true, Evict: true}
	}
	b := t.base.Traits(name)
	return Traits{Mmap: b.Mmap, ShareDelete: true, Evict: b.Evict, MaxOpen: b.MaxOpen}
}
