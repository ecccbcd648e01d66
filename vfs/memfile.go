package vfs

import (
	"io"
	"io/fs"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// memFile is an open handle on a node.
type memFile struct {
	tree   *tree
	node   *node
	name   string // the name it was opened under, for messages
	access int
	closed atomic.Bool
}

func (f *memFile) err(op string, err error) error { return pathError(op, f.name, err) }

// ready says whether the handle is open and allows the access.
func (f *memFile) ready(op string, refused int, err error) error {
	if f.closed.Load() {
		return f.err(op, fs.ErrClosed)
	}
	if f.access == refused {
		return f.err(op, err)
	}
	return nil
}

const nothingRefused = -1

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	if len(b) == 0 && off >= 0 {
		return 0, nil // as *os.File does, whatever the state of the handle
	}
	f.node.mu.RLock()
	defer f.node.mu.RUnlock()
	if err := f.ready("read", os.O_WRONLY, syscall.EBADF); err != nil {
		return 0, err
	}
	n, err := f.node.pages.readAt(b, off, f.tree.source(f.node))
	return n, f.readErr(err)
}

// readErr leaves io.EOF as it is: readers compare it.
func (f *memFile) readErr(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return f.err("read", bare(err))
}

func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	if len(b) == 0 && off >= 0 {
		return 0, nil
	}
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	if err := f.ready("write", os.O_RDONLY, syscall.EBADF); err != nil {
		return 0, err
	}
	n, err := f.node.pages.writeAt(b, off, f.tree.source(f.node))
	if n > 0 {
		f.node.touch()
	}
	return n, f.err("write", bare(err))
}

// Close ends the handle; the file underneath is closed with the last one.
func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return f.err("close", fs.ErrClosed)
	}
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	f.node.handles--
	if f.node.handles > 0 {
		return nil
	}
	return f.err("close", bare(f.node.closeLow()))
}

func (f *memFile) Size() (int64, error) {
	f.node.mu.RLock()
	defer f.node.mu.RUnlock()
	if err := f.ready("stat", nothingRefused, nil); err != nil {
		return 0, err
	}
	return f.node.pages.size, nil
}

func (f *memFile) Truncate(n int64) error {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	if err := f.ready("truncate", os.O_RDONLY, syscall.EINVAL); err != nil {
		return err
	}
	if n < 0 {
		return f.err("truncate", errNegative)
	}
	f.node.truncate(n)
	return nil
}

// Sync: memory is as durable as it gets.
func (f *memFile) Sync() error { return f.ready("sync", nothingRefused, nil) }

func (f *memFile) SyncData() error { return f.Sync() }

func (f *memFile) Allocate(off, n int64) error {
	if err := f.ready("allocate", os.O_RDONLY, syscall.EBADF); err != nil {
		return err
	}
	if off < 0 || n < 0 || off > math.MaxInt64-n {
		return f.err("allocate", errNegative)
	}
	return nil
}

func (f *memFile) Evict(off, n int64) error {
	f.node.mu.RLock()
	defer f.node.mu.RUnlock()
	if err := f.ready("evict", nothingRefused, nil); err != nil {
		return err
	}
	if off < 0 || n < 0 || off > math.MaxInt64-n {
		return f.err("evict", errNegative)
	}
	if f.node.under == "" {
		return nil
	}
	low, err := f.tree.openLow(f.node)
	if err == nil {
		err = low.Evict(off, n)
	}
	return f.err("evict", bare(err))
}

func (f *memFile) Map(n int64) (Mapping, error) {
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	if err := f.ready("map", os.O_WRONLY, syscall.EACCES); err != nil {
		return nil, err
	}
	if err := checkMapLen(n, f.node.pages.size); err != nil {
		return nil, f.err("map", err)
	}
	m, err := f.mapNode(n)
	if err != nil {
		return nil, f.err("map", bare(err))
	}
	if f.node.maps == nil {
		f.node.maps = make(map[*memMapping]struct{})
	}
	f.node.maps[m] = struct{}{}
	return m, nil
}

// maxMapCopy bounds the copy a mapping of a file in memory makes; the file may be sparse and of any length.
const maxMapCopy = 1 << 30

// mapNode copies a file in memory, passes an unchanged file on to the tree underneath, and refuses what is neither.
func (f *memFile) mapNode(n int64) (*memMapping, error) {
	m := &memMapping{readers: readers{idle: make(chan struct{})}, node: f.node, name: f.name, length: n}
	if f.node.under == "" {
		if n > maxMapCopy {
			return nil, ErrUnsupported
		}
		m.b = make([]byte, n)
		_, err := f.node.pages.readAt(m.b, 0, nil)
		return m, err
	}
	if f.node.written {
		return nil, ErrUnsupported
	}
	low, err := f.tree.openLow(f.node)
	if err == nil {
		m.low, err = low.Map(n)
	}
	return m, err
}

func (f *memFile) SyscallConn() (syscall.RawConn, error) { return nil, f.err("raw", ErrUnsupported) }

// memMapping is a copy of a file in memory, or a mapping of the file underneath.
type memMapping struct {
	readers
	close  sync.Once
	node   *node
	name   string
	length int64
	b      []byte      // the copy, or
	low    Mapping     // the mapping underneath
	cut    atomic.Bool // the file has been shorter than length since
}

func (m *memMapping) Len() int64 { return m.length }

func (m *memMapping) Read(f func(b []byte)) error {
	if !m.enter() {
		return pathError("read mapping of", m.name, fs.ErrClosed)
	}
	defer m.leave()
	if m.cut.Load() {
		return pathError("read mapping of", m.name, ErrFault)
	}
	if m.low != nil {
		return m.low.Read(f)
	}
	f(m.b[:m.length:m.length])
	return nil
}

func (m *memMapping) Close() (err error) {
	m.close.Do(func() {
		m.shut()
		m.node.mu.Lock()
		delete(m.node.maps, m)
		m.node.mu.Unlock()
		m.b = nil
		if m.low != nil {
			err = m.low.Close()
		}
	})
	return err
}
