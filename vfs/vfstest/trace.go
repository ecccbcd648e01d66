package vfstest

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/partlog/partlog/vfs"
)

// Trace is an FS that passes every call on and writes it down when it has returned, so that the order of the list is
// the order in which calls completed. It is safe for concurrent use. Traits is not written down.
type Trace struct {
	inner vfs.FS

	mu     sync.Mutex // guards the list below; nothing is called under it
	ops    []Op
	counts [lastKind]int
}

var _ vfs.FS = (*Trace)(nil)

// NewTrace wraps fsys.
func NewTrace(fsys vfs.FS) *Trace { return &Trace{inner: fsys} }

// Note puts v into the list, e.g. "offset 5 acknowledged".
func (t *Trace) Note(v any) { t.add(Op{Kind: OpNote, Note: v}) }

// Ops is a copy of the list.
func (t *Trace) Ops() []Op {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.ops)
}

// Reset empties the list and sets the counters to zero.
func (t *Trace) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ops, t.counts = nil, [lastKind]int{}
}

// Count is how many calls of the given kinds there were since the last Reset, of all kinds but notes if none is given.
// Each is about one system call.
func (t *Trace) Count(kinds ...Kind) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for k := range lastKind {
		if matchKind(k, kinds) && (k != OpNote || len(kinds) > 0) {
			n += t.counts[k]
		}
	}
	return n
}

// Filter is the calls that match, see [Op.Match].
func (t *Trace) Filter(pattern string, kinds ...Kind) []Op {
	ops := t.Ops()
	return slices.DeleteFunc(ops, func(o Op) bool { return !o.Match(pattern, kinds...) })
}

// InOrder checks that calls matching the steps happened without error in this order, with anything in between; the
// error names the first step that is missing and shows the list.
//
//	err := t.InOrder(
//		func(o Op) bool { return o.Match("orders-0", OpSyncDir) },
//		func(o Op) bool { return o.Note == "ack 5" })
func (t *Trace) InOrder(steps ...func(Op) bool) error {
	ops := t.Ops()
	at := 0
	for i, step := range steps {
		n := slices.IndexFunc(ops[at:], func(o Op) bool { return o.Err == nil && step(o) })
		if n < 0 {
			return fmt.Errorf("step %d of %d did not happen at or after call %d:\n%s", i+1, len(steps), at, formatOps(ops))
		}
		at += n + 1
	}
	return nil
}

// String is the list, one numbered call a line.
func (t *Trace) String() string { return formatOps(t.Ops()) }

func (t *Trace) add(o Op) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ops = append(t.ops, o)
	t.counts[o.Kind]++
}

func (t *Trace) note(o Op, err error) error {
	o.Err = err
	t.add(o)
	return err
}

func openKind(flag int) Kind {
	if flag&os.O_CREATE != 0 {
		return OpCreate
	}
	return OpOpen
}

// OpenFile is recorded as OpOpen, or OpCreate with O_CREATE.
func (t *Trace) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := t.inner.OpenFile(name, flag, perm)
	if t.note(Op{Kind: openKind(flag), Name: name, Flag: flag}, err) != nil {
		return nil, err
	}
	return &traceFile{t: t, name: name, inner: f}, nil
}

// Stat is recorded as OpStat.
func (t *Trace) Stat(name string) (fs.FileInfo, error) {
	fi, err := t.inner.Stat(name)
	return fi, t.note(Op{Kind: OpStat, Name: name}, err)
}

// Rename is recorded as OpRename.
func (t *Trace) Rename(old, new string) error {
	return t.note(Op{Kind: OpRename, Name: old, To: new}, t.inner.Rename(old, new))
}

// Link is recorded as OpLink.
func (t *Trace) Link(old, new string) error {
	return t.note(Op{Kind: OpLink, Name: old, To: new}, t.inner.Link(old, new))
}

// Remove is recorded as OpRemove.
func (t *Trace) Remove(name string) error {
	return t.note(Op{Kind: OpRemove, Name: name}, t.inner.Remove(name))
}

// MkdirAll is recorded as OpMkdir.
func (t *Trace) MkdirAll(name string, perm fs.FileMode) error {
	return t.note(Op{Kind: OpMkdir, Name: name}, t.inner.MkdirAll(name, perm))
}

// ReadDir is recorded as OpReadDir.
func (t *Trace) ReadDir(name string) ([]fs.DirEntry, error) {
	l, err := t.inner.ReadDir(name)
	return l, t.note(Op{Kind: OpReadDir, Name: name}, err)
}

// SyncDir is recorded as OpSyncDir.
func (t *Trace) SyncDir(name string) error {
	return t.note(Op{Kind: OpSyncDir, Name: name}, t.inner.SyncDir(name))
}

// Lock is recorded as OpLock, its release as OpUnlock.
func (t *Trace) Lock(name string) (io.Closer, error) {
	l, err := t.inner.Lock(name)
	if t.note(Op{Kind: OpLock, Name: name}, err) != nil {
		return nil, err
	}
	return closerFunc(func() error { return t.note(Op{Kind: OpUnlock, Name: name}, l.Close()) }), nil
}

// Chtimes is recorded as OpChtimes.
func (t *Trace) Chtimes(name string, mtime time.Time) error {
	return t.note(Op{Kind: OpChtimes, Name: name}, t.inner.Chtimes(name, mtime))
}

// Free is recorded as OpFree.
func (t *Trace) Free(name string) (int64, error) {
	n, err := t.inner.Free(name)
	return n, t.note(Op{Kind: OpFree, Name: name}, err)
}

// Traits passes through.
func (t *Trace) Traits(name string) vfs.Traits { return t.inner.Traits(name) }

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

type traceFile struct {
	t     *Trace
	name  string
	inner vfs.File
}

func (f *traceFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.inner.ReadAt(p, off)
	f.t.add(Op{Kind: OpRead, Name: f.name, Off: off, Len: int64(len(p)), Done: int64(n), Err: err})
	return n, err
}

func (f *traceFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.inner.WriteAt(p, off)
	f.t.add(Op{Kind: OpWrite, Name: f.name, Off: off, Len: int64(len(p)), Done: int64(n), Err: err})
	return n, err
}

func (f *traceFile) Close() error {
	return f.t.note(Op{Kind: OpClose, Name: f.name}, f.inner.Close())
}

func (f *traceFile) Size() (int64, error) {
	n, err := f.inner.Size()
	return n, f.t.note(Op{Kind: OpSize, Name: f.name}, err)
}

func (f *traceFile) Truncate(n int64) error {
	return f.t.note(Op{Kind: OpTruncate, Name: f.name, Len: n}, f.inner.Truncate(n))
}

func (f *traceFile) Sync() error {
	return f.t.note(Op{Kind: OpSync, Name: f.name}, f.inner.Sync())
}

func (f *traceFile) SyncData() error {
	return f.t.note(Op{Kind: OpSyncData, Name: f.name}, f.inner.SyncData())
}

func (f *traceFile) Allocate(off, n int64) error {
	return f.t.note(Op{Kind: OpAllocate, Name: f.name, Off: off, Len: n}, f.inner.Allocate(off, n))
}

func (f *traceFile) Evict(off, n int64) error {
	return f.t.note(Op{Kind: OpEvict, Name: f.name, Off: off, Len: n}, f.inner.Evict(off, n))
}

func (f *traceFile) Map(n int64) (vfs.Mapping, error) {
	m, err := f.inner.Map(n)
	if f.t.note(Op{Kind: OpMap, Name: f.name, Len: n}, err) != nil {
		return nil, err
	}
	return &traceMapping{Mapping: m, f: f}, nil
}

func (f *traceFile) SyscallConn() (syscall.RawConn, error) {
	c, err := f.inner.SyscallConn()
	return c, f.t.note(Op{Kind: OpConn, Name: f.name}, err)
}

// losePages lets a Fault above this Trace reach a Crash below it.
func (f *traceFile) losePages(lost func(page int64) bool) bool { return losePages(f.inner, lost) }

// traceMapping counts reads of a mapping. They are no system calls: Count without kinds includes them all the same.
type traceMapping struct {
	vfs.Mapping
	f *traceFile
}

func (m *traceMapping) Read(f func(b []byte)) error {
	return m.f.t.note(Op{Kind: OpMapRead, Name: m.f.name, Len: m.Len()}, m.Mapping.Read(f))
}
