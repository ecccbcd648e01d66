package vfstest

import (
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/partlog/partlog/vfs"
)

// maxFile bounds a file's length, and with it the table of its pages.
const maxFile = 64 << 30

// crashFile is an open file of a Crash. It holds the node, so it survives Remove and Rename.
type crashFile struct {
	c      *Crash
	id     nodeID
	name   string
	flag   int
	closed bool // guarded by c.mu
}

// usable returns the node; c.mu is held.
func (f *crashFile) usable(op string, writes bool) (*node, error) {
	n := f.c.state.nodes[f.id]
	switch {
	case f.closed:
		return nil, pathErr(op, f.name, fs.ErrClosed)
	case writes && f.flag&(os.O_WRONLY|os.O_RDWR) == 0, !writes && f.flag&os.O_WRONLY != 0:
		return nil, pathErr(op, f.name, syscall.EBADF)
	}
	return n, nil
}

func (f *crashFile) ReadAt(p []byte, off int64) (int, error) {
	f.c.mu.RLock()
	defer f.c.mu.RUnlock()
	n, err := f.usable("read", false)
	switch {
	case err != nil:
		return 0, err
	case off < 0:
		return 0, pathErr("read", f.name, fs.ErrInvalid)
	case len(p) == 0:
		return 0, nil
	case off >= n.size:
		return 0, io.EOF
	}
	short := int64(len(p)) > n.size-off
	if short {
		p = p[:n.size-off]
	}
	readPages(n.pages, p, off)
	if short {
		return len(p), io.EOF
	}
	return len(p), nil
}

func readPages(pages []*page, p []byte, off int64) {
	for len(p) > 0 {
		idx, in := int(off/PageSize), int(off%PageSize)
		part := p[:min(len(p), PageSize-in)]
		n := 0
		if b := pageAt(pages, idx).bytes(); in < len(b) {
			n = copy(part, b[in:])
		}
		clear(part[n:])
		p, off = p[len(part):], off+int64(len(part))
	}
}

func (f *crashFile) WriteAt(p []byte, off int64) (int, error) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	n, err := f.usable("write", true)
	switch {
	case err != nil:
		return 0, err
	case off < 0:
		return 0, pathErr("write", f.name, fs.ErrInvalid)
	case off > maxFile-int64(len(p)):
		return 0, pathErr("write", f.name, syscall.EFBIG)
	case len(p) == 0:
		return 0, nil
	}
	ch := change{kind: OpWrite, id: f.id, size: max(n.size, off+int64(len(p))),
		op: Op{Kind: OpWrite, Name: f.name, Off: off, Len: int64(len(p)), Done: int64(len(p))}}
	for rest := p; len(rest) > 0; {
		idx, in := int(off/PageSize), int(off%PageSize)
		part := rest[:min(len(rest), PageSize-in)]
		ch.pages = append(ch.pages, version{idx: idx, page: pageAt(n.pages, idx).with(in, part), lo: in, hi: in + len(part)})
		rest, off = rest[len(part):], off+int64(len(part))
	}
	f.c.do(&ch)
	return len(p), nil
}

func (f *crashFile) Close() error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if f.closed {
		return pathErr("close", f.name, fs.ErrClosed)
	}
	f.closed = true
	if f.c.open[f.id]--; f.c.open[f.id] == 0 {
		delete(f.c.open, f.id)
	}
	return nil
}

func (f *crashFile) Size() (int64, error) {
	f.c.mu.RLock()
	defer f.c.mu.RUnlock()
	if f.closed {
		return 0, pathErr("stat", f.name, fs.ErrClosed)
	}
	return f.c.state.nodes[f.id].size, nil
}

func (f *crashFile) Truncate(size int64) error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	n, err := f.usable("truncate", true)
	switch {
	case err != nil:
		return err
	case size < 0:
		return pathErr("truncate", f.name, fs.ErrInvalid)
	case size > maxFile:
		return pathErr("truncate", f.name, syscall.EFBIG)
	case size == n.size:
		return nil
	}
	ch := change{kind: OpTruncate, id: f.id, size: size, op: Op{Kind: OpTruncate, Name: f.name, Len: size}}
	// The page the cut goes through is zeroed behind it and written back like any other, perhaps before the new length.
	idx := int(size / PageSize)
	if p := pageAt(n.pages, idx); size < n.size && size%PageSize > 0 && p.head(size%PageSize) != p {
		ch.pages = []version{{idx: idx, page: p.head(size % PageSize), lo: int(size % PageSize), hi: PageSize}}
	}
	f.c.do(&ch)
	return nil
}

func (f *crashFile) Sync() error { return f.sync(OpSync) }

func (f *crashFile) SyncData() error { return f.sync(OpSyncData) }

func (f *crashFile) sync(k Kind) error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if f.closed {
		return pathErr("sync", f.name, fs.ErrClosed)
	}
	f.c.do(&change{kind: k, id: f.id, op: Op{Kind: k, Name: f.name}})
	return nil
}

// losePages is how a Fault above makes a sync fail the way Linux does.
func (f *crashFile) losePages(lost func(page int64) bool) bool {
	f.c.losePages(f.id, Op{Kind: OpSync, Name: f.name, Err: syscall.EIO}, lost)
	return true
}

// Allocate does nothing: no space is ever missing and no content changes.
func (f *crashFile) Allocate(off, n int64) error {
	f.c.mu.RLock()
	defer f.c.mu.RUnlock()
	if _, err := f.usable("allocate", true); err != nil {
		return err
	}
	if off < 0 || n < 0 || off > maxFile-n {
		return pathErr("allocate", f.name, fs.ErrInvalid)
	}
	return nil
}

// Evict drops the clean pages that lie in the range as a whole, as posix_fadvise does.
func (f *crashFile) Evict(off, n int64) error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	switch {
	case f.closed:
		return pathErr("evict", f.name, fs.ErrClosed)
	case f.c.opts.NoEvict:
		return pathErr("evict", f.name, vfs.ErrUnsupported)
	case off < 0 || n < 0 || off+n < off:
		return pathErr("evict", f.name, fs.ErrInvalid)
	case !f.c.state.nodes[f.id].diverged:
		return nil // cache and device agree on every clean page
	}
	f.c.do(&change{kind: OpEvict, id: f.id, op: Op{Kind: OpEvict, Name: f.name, Off: off, Len: n}})
	return nil
}

// SyscallConn is not there: there is no descriptor.
func (f *crashFile) SyscallConn() (syscall.RawConn, error) {
	return nil, pathErr("conn", f.name, vfs.ErrUnsupported)
}

func (f *crashFile) Map(n int64) (vfs.Mapping, error) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	node, err := f.usable("map", false)
	switch {
	case err != nil:
		return nil, err
	case f.c.opts.NoMmap:
		return nil, pathErr("map", f.name, vfs.ErrUnsupported)
	case n <= 0 || n > node.size:
		return nil, pathErr("map", f.name, fs.ErrInvalid)
	}
	f.c.open[f.id]++ // a mapping keeps the file like a handle
	m := &crashMapping{c: f.c, id: f.id, n: n}
	m.idle.L = &m.mu
	return m, nil
}

// crashMapping sees the file as it is at each Read; a file cut so that a mapped page is gone faults.
type crashMapping struct {
	c  *Crash
	id nodeID
	n  int64

	mu      sync.Mutex // guards the two below; c.mu may be taken under it
	readers int
	closed  bool
	idle    sync.Cond // of mu: readers is 0

	cacheMu sync.Mutex // guards the copy; c.mu may be taken under it
	pages   []*page    // what buf was made of
	buf     []byte     // never changed once handed out
}

func (m *crashMapping) Len() int64 { return m.n }

func (m *crashMapping) Read(f func(b []byte)) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return fs.ErrClosed
	}
	m.readers++
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.readers--; m.readers == 0 {
			m.idle.Broadcast()
		}
	}()
	b := m.view()
	if b == nil {
		return vfs.ErrFault
	}
	f(b)
	return nil
}

// view is the present content, nil if a mapped page is gone.
func (m *crashMapping) view() []byte {
	m.cacheMu.Lock()
	defer m.cacheMu.Unlock()
	m.c.mu.RLock()
	defer m.c.mu.RUnlock()
	n := m.c.state.nodes[m.id]
	if (n.size+PageSize-1)/PageSize < (m.n+PageSize-1)/PageSize {
		return nil
	}
	count := int((m.n + PageSize - 1) / PageSize)
	same := m.buf != nil
	for i := range count {
		if same && m.pages[i] != pageAt(n.pages, i) {
			same = false
		}
	}
	if same {
		return m.buf
	}
	m.pages = make([]*page, count)
	copy(m.pages, n.pages)
	m.buf = make([]byte, m.n)
	readPages(n.pages, m.buf, 0)
	return m.buf
}

func (m *crashMapping) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	for m.readers > 0 {
		m.idle.Wait()
	}
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	if m.c.open[m.id]--; m.c.open[m.id] == 0 {
		delete(m.c.open, m.id)
	}
	return nil
}
