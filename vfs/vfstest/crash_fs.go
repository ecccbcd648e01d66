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
	if err := validName(name); err != nil {
		return 0, dirKey{dir: -1}, err
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

func validName(name string) error {
	if !fs.ValidPath(name) {
		return fs.ErrInvalid
	}
	for elem := range strings.SplitSeq(name, "/") {
		if len(elem) > 255 {
			return syscall.ENAMETOOLONG
		}
	}
	return nil
}

func pathErr(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

func linkErr(op, old, new string, err error) error {
	return &os.LinkError{Op: op, Old: old, New: new, Err: err}
}

// OpenFile implements vfs.FS. O_APPEND, O_TRUNC without writing and permissions beyond 0777 are fs.ErrInvalid.
func (c *Crash) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	writes := flag&(os.O_WRONLY|os.O_RDWR) != 0
	if flag&os.O_APPEND != 0 || flag&os.O_TRUNC != 0 && !writes || perm != perm.Perm() {
		return nil, pathErr("open", name, fs.ErrInvalid)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id, key, err := c.find(name)
	switch {
	case err == fs.ErrNotExist && key.dir >= 0 && flag&os.O_CREATE != 0:
		id = c.create(name, key, perm, flag, false)
	case err != nil:
		return nil, pathErr("open", name, err)
	case id == rootID:
		return nil, pathErr("open", name, syscall.EISDIR)
	case flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
		return nil, pathErr("open", name, fs.ErrExist)
	case c.state.nodes[id].dir:
		return nil, pathErr("open", name, syscall.EISDIR)
	case flag&os.O_TRUNC != 0 && c.state.nodes[id].size > 0:
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
	fi := infoOf(path.Base(name), c.state.nodes[id])
	fi.links = c.state.linksOf(id)
	return fi, nil
}

// Rename implements vfs.FS. It never replaces a directory.
func (c *Crash) Rename(old, new string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, from, onto, to, err := c.findTwo(old, new)
	switch {
	case err != nil:
		return linkErr("rename", old, new, err)
	case onto >= 0 && c.state.nodes[onto].dir:
		return linkErr("rename", old, new, fs.ErrExist)
	case onto == id:
		return nil // two names of one file
	case c.state.nodes[id].dir && strings.HasPrefix(new, old+"/"):
		return linkErr("rename", old, new, syscall.EINVAL)
	case c.state.nodes[id].dir && onto >= 0:
		return linkErr("rename", old, new, syscall.ENOTDIR)
	}
	c.do(&change{kind: OpRename, op: Op{Kind: OpRename, Name: old, To: new},
		event: dirEvent{id: id, from: from, hasFrom: true, to: to, hasTo: true}})
	return nil
}

// findTwo is find for calls with an old name that must be there and a new one whose directory must be; onto is what the
// new one leads to, -1 nothing. c.mu is held.
func (c *Crash) findTwo(old, new string) (id nodeID, from dirKey, onto nodeID, to dirKey, err error) {
	onto, to, newErr := c.find(new)
	id, from, err = c.find(old)
	switch {
	case err == fs.ErrInvalid || newErr == fs.ErrInvalid:
		err = fs.ErrInvalid
	case err != nil && from.dir < 0:
	case from.dir < 0 || newErr == nil && to.dir < 0:
		err = syscall.EBUSY // the root
	case newErr != nil && to.dir < 0:
		err = newErr
	case newErr != nil:
		onto = -1
	}
	return id, from, onto, to, err
}

// Link implements vfs.FS.
func (c *Crash) Link(old, new string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, _, onto, to, err := c.findTwo(old, new)
	switch {
	case err != nil:
		return linkErr("link", old, new, err)
	case onto >= 0:
		return linkErr("link", old, new, fs.ErrExist)
	case c.state.nodes[id].dir:
		return linkErr("link", old, new, fs.ErrPermission)
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
		return pathErr("remove", name, syscall.EBUSY)
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
	if err := validName(name); err != nil {
		return pathErr("mkdir", name, err)
	}
	if perm != perm.Perm() {
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
		case err == nil && !c.state.nodes[id].dir && part == name:
			return pathErr("mkdir", part, fs.ErrExist)
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
	case err == nil && c.locks[id]:
		return nil, &vfs.LockedError{Name: name, Holder: "this process"}
	case err == fs.ErrNotExist && key.dir >= 0:
		id = c.create(name, key, 0o644, os.O_CREATE|os.O_RDWR, true)
	case err != nil:
		return nil, pathErr("lock", name, err)
	case c.state.nodes[id].dir:
		return nil, pathErr("lock", name, syscall.EISDIR)
	}
	c.locks[id] = true
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
		return nil
	}
	l.closed = true
	delete(l.c.locks, l.id)
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
	if err := validName(name); err != nil {
		return 0, pathErr("free", name, err)
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
	links int
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
func (fi fileInfo) Sys() any           { return vfs.LinkCount(fi.links) }
