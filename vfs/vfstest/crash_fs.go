package vfstest

import (
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/partlog/partlog/vfs"
)

// find walks the cache. For a name whose parent is a directory that lacks it, parent and base are set and err is
// fs.ErrNotExist. c.mu is held.
func (c *Crash) find(name string) (id nodeID, key dirKey, err error) {
	if !fs.ValidPath(name) {
		return 0, dirKey{dir: -1}, fs.ErrInvalid
	}
	if name == "." {
		return rootID, dirKey{dir: -1}, nil
	}
	dir := rootID
	for {
		elem, rest, more := strings.Cut(name, "/")
		n := c.state.nodes[dir]
		if !n.dir {
			return 0, dirKey{dir: -1}, syscall.ENOTDIR
		}
		id, ok := n.names[elem]
		switch {
		case !more && !ok:
			return 0, dirKey{dir, elem}, fs.ErrNotExist
		case !more:
			return id, dirKey{dir, elem}, nil
		case !ok:
			return 0, dirKey{dir: -1}, fs.ErrNotExist
		}
		dir, name = id, rest
	}
}

func pathErr(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

func linkErr(op, old, new string, err error) error {
	return &os.LinkError{Op: op, Old: old, New: new, Err: err}
}

// OpenFile implements vfs.FS. O_APPEND is fs.ErrInvalid. A directory can be opened for reading only; then Sync is
// SyncDir and reads are EISDIR.
func (c *Crash) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if flag&os.O_APPEND != 0 {
		return nil, pathErr("open", name, fs.ErrInvalid)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id, key, err := c.find(name)
	writes := flag&(os.O_WRONLY|os.O_RDWR) != 0
	switch {
	case err == fs.ErrNotExist && key.dir >= 0 && flag&os.O_CREATE != 0:
		id = c.create(name, key, perm, flag, false)
	case err != nil:
		return nil, pathErr("open", name, err)
	case flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, pathErr("open", name, fs.ErrExist)
	case c.state.nodes[id].dir && (writes || flag&(os.O_CREATE|os.O_TRUNC) != 0):
		return nil, pathErr("open", name, syscall.EISDIR)
	case flag&os.O_TRUNC != 0 && writes && c.state.nodes[id].size > 0:
		c.do(&change{kind: OpTruncate, id: id, op: Op{Kind: OpTruncate, Name: name}})
	}
	c.open[id]++
	return &crashFile{c: c, id: id, name: name, flag: flag}, nil
}

// create makes the file; c.mu is held.
func (c *Crash) create(name string, key dirKey, perm fs.FileMode, flag int, solid bool) nodeID {
	id := nodeID(len(c.state.nodes))
	c.do(&change{kind: OpCreate, op: Op{Kind: OpCreate, Name: name, Flag: flag}, perm: perm.Perm(), solid: solid,
		event: dirEvent{to: key, hasTo: true}})
	return id
}

// Stat implements vfs.FS.
func (c *Crash) Stat(name string) (fs.FileInfo, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	id, _, err := c.find(name)
	if err != nil {
		return nil, pathErr("stat", name, err)
	}
	return infoOf(path.Base(name), c.state.nodes[id]), nil
}

// Rename implements vfs.FS with the rules of rename(2).
func (c *Crash) Rename(old, new string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, from, err := c.find(old)
	if err == nil && from.dir < 0 {
		err = fs.ErrInvalid
	}
	if err != nil {
		return linkErr("rename", old, new, err)
	}
	onto, to, err := c.find(new)
	src := c.state.nodes[id]
	switch {
	case err == nil && to.dir < 0:
		return linkErr("rename", old, new, fs.ErrInvalid)
	case err == nil:
		dst := c.state.nodes[onto]
		switch {
		case onto == id:
			return nil
		case dst.dir && !src.dir:
			return linkErr("rename", old, new, syscall.EISDIR)
		case !dst.dir && src.dir:
			return linkErr("rename", old, new, syscall.ENOTDIR)
		case dst.dir && len(dst.names) > 0:
			return linkErr("rename", old, new, syscall.ENOTEMPTY)
		}
	case err == fs.ErrNotExist && to.dir >= 0:
	default:
		return linkErr("rename", old, new, err)
	}
	if src.dir && strings.HasPrefix(new, old+"/") {
		return linkErr("rename", old, new, fs.ErrInvalid)
	}
	c.do(&change{kind: OpRename, op: Op{Kind: OpRename, Name: old, To: new},
		event: dirEvent{id: id, from: from, hasFrom: true, to: to, hasTo: true}})
	return nil
}

// Link implements vfs.FS.
func (c *Crash) Link(old, new string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, _, err := c.find(old)
	if err != nil {
		return linkErr("link", old, new, err)
	}
	_, to, err := c.find(new)
	switch {
	case c.state.nodes[id].dir:
		return linkErr("link", old, new, fs.ErrPermission)
	case err == nil:
		return linkErr("link", old, new, fs.ErrExist)
	case err != fs.ErrNotExist || to.dir < 0:
		return linkErr("link", old, new, err)
	}
	c.do(&change{kind: OpLink, op: Op{Kind: OpLink, Name: old, To: new}, event: dirEvent{id: id, to: to, hasTo: true}})
	return nil
}

// Remove implements vfs.FS.
func (c *Crash) Remove(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, key, err := c.find(name)
	switch {
	case err != nil:
		return pathErr("remove", name, err)
	case key.dir < 0:
		return pathErr("remove", name, fs.ErrInvalid)
	case len(c.state.nodes[id].names) > 0:
		return pathErr("remove", name, syscall.ENOTEMPTY)
	}
	c.remove(name, id, key, false)
	return nil
}

func (c *Crash) remove(name string, id nodeID, key dirKey, solid bool) {
	c.do(&change{kind: OpRemove, op: Op{Kind: OpRemove, Name: name}, solid: solid,
		event: dirEvent{id: id, from: key, hasFrom: true}})
}

// MkdirAll implements vfs.FS.
func (c *Crash) MkdirAll(name string, perm fs.FileMode) error {
	if !fs.ValidPath(name) {
		return pathErr("mkdir", name, fs.ErrInvalid)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := 0; at < len(name); at++ {
		if n := strings.IndexByte(name[at:], '/'); n >= 0 {
			at += n
		} else {
			at = len(name)
		}
		part := name[:at]
		id, key, err := c.find(part)
		switch {
		case err == nil && !c.state.nodes[id].dir:
			return pathErr("mkdir", part, syscall.ENOTDIR)
		case err == nil:
		case err == fs.ErrNotExist && key.dir >= 0:
			c.do(&change{kind: OpMkdir, op: Op{Kind: OpMkdir, Name: part}, perm: perm.Perm(),
				event: dirEvent{to: key, hasTo: true}})
		default:
			return pathErr("mkdir", part, err)
		}
	}
	return nil
}

// ReadDir implements vfs.FS.
func (c *Crash) ReadDir(name string) ([]fs.DirEntry, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	id, _, err := c.find(name)
	if err == nil && !c.state.nodes[id].dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathErr("readdir", name, err)
	}
	names := c.state.nodes[id].names
	list := make([]fs.DirEntry, 0, len(names))
	for elem, child := range names {
		list = append(list, fs.FileInfoToDirEntry(infoOf(elem, c.state.nodes[child])))
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, nil
}

// SyncDir implements vfs.FS.
func (c *Crash) SyncDir(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, _, err := c.find(name)
	if err == nil && !c.state.nodes[id].dir {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return pathErr("sync", name, err)
	}
	c.do(&change{kind: OpSyncDir, id: id, op: Op{Kind: OpSyncDir, Name: name}})
	return nil
}

// Lock implements vfs.FS. The lock ends with the process: file systems made by Kill, PowerLoss and Disks hold none,
// though the file may be there.
func (c *Crash) Lock(name string) (io.Closer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, key, err := c.find(name)
	switch {
	case c.locks[name]:
		return nil, &vfs.LockedError{Name: name, Holder: "this process"}
	case err == fs.ErrNotExist && key.dir >= 0:
		id = c.create(name, key, 0o644, os.O_CREATE|os.O_RDWR, true)
	case err != nil:
		return nil, pathErr("lock", name, err)
	case c.state.nodes[id].dir:
		return nil, pathErr("lock", name, syscall.EISDIR)
	}
	c.locks[name] = true
	return &crashLock{c: c, name: name, id: id}, nil
}

type crashLock struct {
	c      *Crash
	name   string
	id     nodeID
	closed bool // guarded by c.mu
}

func (l *crashLock) Close() error {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.closed {
		return pathErr("unlock", l.name, fs.ErrClosed)
	}
	l.closed = true
	delete(l.c.locks, l.name)
	if id, key, err := l.c.find(l.name); err == nil && id == l.id {
		l.c.remove(l.name, id, key, true)
	}
	return nil
}

// Chtimes implements vfs.FS. Times are no part of what a crash can lose.
func (c *Crash) Chtimes(name string, mtime time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, _, err := c.find(name)
	if err != nil {
		return pathErr("chtimes", name, err)
	}
	c.do(&change{kind: OpChtimes, id: id, op: Op{Kind: OpChtimes, Name: name}, now: mtime.UnixNano()})
	return nil
}

// Free implements vfs.FS: always a terabyte. Put a Fault with a quota above for a full disk.
func (c *Crash) Free(name string) (int64, error) {
	if _, err := c.Stat(name); err != nil {
		return 0, pathErr("free", name, err.(*fs.PathError).Err)
	}
	return 1 << 40, nil
}

// Traits implements vfs.FS.
func (c *Crash) Traits(string) vfs.Traits {
	return vfs.Traits{Mmap: !c.opts.NoMmap, ShareDelete: true, Evict: !c.opts.NoEvict}
}

type fileInfo struct {
	name  string
	size  int64
	mode  fs.FileMode
	mtime time.Time
}

func infoOf(name string, n *node) fileInfo {
	fi := fileInfo{name: name, size: n.size, mode: n.perm, mtime: time.Unix(0, n.mtime)}
	if n.dir {
		fi.mode |= fs.ModeDir
	}
	return fi
}

func (fi fileInfo) Name() string       { return fi.name }
func (fi fileInfo) Size() int64        { return fi.size }
func (fi fileInfo) Mode() fs.FileMode  { return fi.mode }
func (fi fileInfo) ModTime() time.Time { return fi.mtime }
func (fi fileInfo) IsDir() bool        { return fi.mode.IsDir() }
func (fi fileInfo) Sys() any           { return nil }
