// Package mapped keeps a file of fixed-size, ordered entries: the common floor of the offset and the time index.
//
//	slot 0        slot 1        ...   slot n-1      behind the entries
//	+-------------+-------------+-----+-------------+- - - - - - - - - - - - - - - - - -+
//	| entry       | entry       |     | entry       : zeros of a pre-sized file, or a   :
//	| Size bytes  |             |     |             : part of an entry; never ours      :
//	+-------------+-------------+-----+-------------+- - - - - - - - - - - - - - - - - -+
//	|<--- chunk: 4096/Size slots -->|<--- chunk --->|
//
// A table is active or sealed. An active table's last chunk (the tail) is a heap page that is written to the file when
// it is full or flushed; everything before it is read from the file with ReadAt, guided by a fence, the first entry of
// each chunk, in memory. Nothing is ever written through a mapping and no file is made longer than its entries, so a
// full disk is an error of a write. A sealed table's file is exactly as long as its entries; it is opened on first use,
// mapped read-only where the file system is trusted and read by ReadAt and fence where it is not. One search works on
// all of them and probes the same slots, so they agree even about a garbled file.
//
// Readers take no lock. They load an immutable state, pin the mapping or the open file while they search, and look
// again whether entries were taken away meanwhile, in which case they start over.
package mapped

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"github.com/partlog/partlog/vfs"
)

// pageSize is what is written and read at a time.
const pageSize = 4096

// firstPage is the tail's first size: most active tables of an idle log hold a few entries.
const firstPage = 512

// MaxEntrySize is the largest entry a table can hold, in bytes.
const MaxEntrySize = 16

// Raw holds one entry's bytes in its first EntrySize places.
type Raw [MaxEntrySize]byte

// ErrReadOnly is returned by calls that would change a sealed, an in-heap or a read-only table.
var ErrReadOnly = fmt.Errorf("sealed or read only: %w", fs.ErrPermission)

// Options of a table. FS, Name, EntrySize and Blank are required.
type Options struct {
	FS        vfs.FS
	Name      string
	EntrySize int                 // bytes, 1 to MaxEntrySize
	Blank     func(e []byte) bool // true for a slot above 0 that can only be padding
	NeverMap  bool
	ReadOnly  bool    // every change is ErrReadOnly
	Budget    *Budget // nil = Default
}

// Table is one file of entries. One goroutine may change it while any number read.
type Table struct {
	fs       vfs.FS
	blank    func(e []byte) bool
	budget   *Budget
	size     int
	neverMap bool
	readOnly bool

	state atomic.Pointer[state]

	// mu admits one writer and guards the fields below it. Held across the writer's I/O; open may be taken under it.
	mu       sync.Mutex
	written  int   // entries the file is known to hold
	cut      bool  // the file may be longer than written
	unsynced bool  // the file changed since the last Sync
	syncErr  error // the first failed Sync; what the device holds is unknown from then on

	// open guards source.dead and is held while a lease is opened and while name is changed, so that a rename cannot
	// come between. Nothing of another table but its atomics is touched under it.
	open sync.Mutex
	name atomic.Pointer[string]

	lost atomic.Pointer[error] // a written file's failed close
}

type kind uint8

const (
	active kind = iota
	sealed
	inHeap
	closed
)

// state is what readers see. All but n is immutable; bytes of the tail beyond n entries belong to the writer.
type state struct {
	gen   uint64 // another one: entries went away, or the table was sealed, reopened or closed
	kind  kind
	src   *source // active, sealed
	heap  []byte  // inHeap: all entries
	start int     // active: entries before the tail, a whole number of chunks
	fence []byte  // active: the first entry of each chunk before the tail
	prev  Raw     // active: entry start-1
	tail  []byte
	n     atomic.Int64 // active: entries in the tail
}

func newTable(o Options) *Table {
	if o.Budget == nil {
		o.Budget = Default
	}
	t := &Table{fs: o.FS, blank: o.Blank, budget: o.Budget, size: o.EntrySize, neverMap: o.NeverMap, readOnly: o.ReadOnly}
	name := o.Name // not &o.Name: that would keep all of o
	t.name.Store(&name)
	return t
}

func (t *Table) newSource(sealed bool, n int) *source {
	s := &source{table: t, sealed: sealed}
	s.n.Store(int64(n))
	return s
}

// Create makes an empty file, which must not exist (fs.ErrExist), and an active table over it.
func Create(o Options) (*Table, error) {
	t := newTable(o)
	if t.readOnly {
		return nil, t.pathError("create", ErrReadOnly)
	}
	f, err := t.openFile(os.O_RDWR | os.O_CREATE | os.O_EXCL)
	if err != nil {
		return nil, err
	}
	src := t.newSource(false, -1)
	l := &lease{src: src, f: f}
	src.lease.Store(l)
	t.unsynced = true
	t.state.Store(&state{src: src})
	t.budget.Open(&l.slot, l)
	t.budget.Relieve()
	return t, nil
}

// Open opens an existing file (fs.ErrNotExist) as an active table. Zero padding and a partial entry at its end are not
// entries; they are cut off by the next Flush, Sync, Seal or Close.
func Open(o Options) (*Table, error) {
	t := newTable(o)
	src := t.newSource(false, -1)
	s, err := t.load(src, -1)
	if err != nil {
		t.retire(src)
		return nil, err
	}
	t.state.Store(s)
	return t, nil
}

// OpenSealed returns a sealed table over a file that is not touched before its first use.
func OpenSealed(o Options) *Table {
	t := newTable(o)
	t.state.Store(&state{kind: sealed, src: t.newSource(true, -1)})
	return t
}

// InHeap returns a table over whole entries in memory, which it keeps; it has no file and cannot be changed.
func InHeap(entrySize int, entries []byte) *Table {
	t := newTable(Options{EntrySize: entrySize, ReadOnly: true})
	t.state.Store(&state{kind: inHeap, heap: entries[:len(entries)/entrySize*entrySize]})
	return t
}

// Name is the file's present name; "" of an in-heap table.
func (t *Table) Name() string { return *t.name.Load() }

// Load does now what the next use of a sealed table would do: open, measure, map. Nil for any other.
func (t *Table) Load() error {
	for {
		s := t.state.Load()
		switch {
		case s.kind == closed:
			return t.pathError("read", fs.ErrClosed)
		case s.kind != sealed:
			return nil
		}
		l, err := t.acquire(s.src)
		if err == nil {
			l.unpin()
			return nil
		}
		if t.state.Load().gen == s.gen {
			return err
		}
	}
}

// sealedCount is the number of entries and the last one of a sealed table. Once known they need no file.
func (t *Table) sealedCount() (n int, last Raw, err error) {
	for {
		s := t.state.Load()
		switch {
		case s.kind == closed:
			return 0, Raw{}, t.pathError("read", fs.ErrClosed)
		case s.kind != sealed:
			return 0, Raw{}, nil
		}
		if n := s.src.n.Load(); n >= 0 {
			return int(n), s.src.last, nil
		}
		if err := t.Load(); err != nil {
			return 0, Raw{}, err
		}
	}
}

// Len is the number of entries. Of a sealed table never used it does the first use; 0 if that fails (see Load).
func (t *Table) Len() int {
	n, _, _ := t.end()
	return n
}

// Last is the last entry, false if there is none (or as Len).
func (t *Table) Last() (Raw, bool) {
	_, last, ok := t.end()
	return last, ok
}

func (t *Table) end() (n int, last Raw, ok bool) {
	switch s := t.state.Load(); s.kind {
	case active:
		k := int(s.n.Load())
		if k == 0 {
			return s.start, s.prev, s.start > 0
		}
		copy(last[:], s.tail[(k-1)*t.size:k*t.size])
		return s.start + k, last, true
	case inHeap:
		if n = len(s.heap) / t.size; n > 0 {
			copy(last[:], s.heap[(n-1)*t.size:])
		}
		return n, last, n > 0
	case sealed:
		n, last, err := t.sealedCount()
		return n, last, err == nil && n > 0
	}
	return 0, Raw{}, false
}

// Sealed is true once no entry can be appended: sealed, in heap or closed.
func (t *Table) Sealed() bool { return t.state.Load().kind != active }

// chunk is the number of entries in one page.
func (t *Table) chunk() int { return pageSize / t.size }

// acquire returns the source's lease, pinned, opening the file if it must. fs.ErrClosed: the source was given up.
func (t *Table) acquire(src *source) (*lease, error) {
	if l := src.lease.Load(); l != nil && l.pin() {
		return l, nil
	}
	l, leaving, err := t.openLease(src)
	giveBack(leaving)
	if err == nil && l.f != nil {
		t.budget.Relieve()
	}
	return l, err
}

func (t *Table) openLease(src *source) (l *lease, leaving []Holder, err error) {
	t.open.Lock()
	defer t.open.Unlock()
	if src.dead {
		return nil, nil, fs.ErrClosed
	}
	if l := src.lease.Load(); l != nil && l.pin() {
		return l, nil, nil
	}
	flag := os.O_RDWR
	if src.sealed || t.readOnly {
		flag = os.O_RDONLY
	}
	f, err := t.openFile(flag)
	if err != nil {
		return nil, nil, err
	}
	l = &lease{src: src, f: f}
	if src.sealed {
		if err := t.measure(l); err != nil {
			_ = f.Close() // only read from
			return nil, nil, err
		}
	}
	l.pins.Store(1)
	src.lease.Store(l)
	if l.f == nil && l.m == nil {
		return l, nil, nil // no entries: nothing is held
	}
	return l, t.budget.admit(l.ring(t.budget), &l.slot, l), nil
}

// openFile is called under open, or before the table is shared.
func (t *Table) openFile(flag int) (vfs.File, error) {
	f, err := t.fs.OpenFile(t.Name(), flag, 0o644)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrPermission) {
		return f, err
	}
	if !t.budget.Shed() { // perhaps the process is out of descriptors
		return nil, err
	}
	return t.fs.OpenFile(t.Name(), flag, 0o644)
}

// measure finds the entries of a sealed file that was just opened, and maps them or builds the fence.
func (t *Table) measure(l *lease) error {
	length, err := l.f.Size()
	if err != nil {
		return err
	}
	n := int(l.src.n.Load())
	if n < 0 {
		if n, err = t.live(l.f, length); err != nil {
			return err
		}
		if n > 0 {
			if err := t.readEntry(l.f, n-1, l.src.last[:t.size]); err != nil {
				return err
			}
		}
	} else if length < int64(n)*int64(t.size) {
		return t.pathError("read", fmt.Errorf("%d bytes where %d entries were: %w", length, n, io.ErrUnexpectedEOF))
	}
	l.n = n
	l.src.exact.Store(length == int64(n)*int64(t.size))
	if n > 0 && !t.neverMap && t.fs.Traits(t.Name()).Mmap {
		if m, err := l.f.Map(int64(n) * int64(t.size)); err == nil {
			l.m = m
		}
	}
	if n > 0 && l.m == nil {
		if l.fence, err = t.readFence(l.f, n); err != nil {
			return err
		}
	} else {
		_ = l.f.Close() // a mapping outlives it; nothing was written
		l.f = nil
	}
	l.src.n.Store(int64(n))
	return nil
}

// live counts the entries of a file: whole slots but for zero padding at the end. A slot above 0 that can only be
// padding ends the entries; so does slot 0, all zero, if padding follows it.
func (t *Table) live(f vfs.File, length int64) (int, error) {
	const limit = 1<<31 - 1 // bytes; beyond, int and the entries' own 32-bit fields end
	n := int(min(length, limit) / int64(t.size))
	if n < 2 {
		return n, nil
	}
	var e Raw
	blank := func(slot int) (bool, error) {
		err := t.readEntry(f, slot, e[:t.size])
		return t.blank(e[:t.size]), err
	}
	if b, err := blank(n - 1); err != nil || !b {
		return n, err
	}
	lo, hi := 1, n-1 // hi is blank; slots below lo are not
	for lo < hi {
		mid := lo + (hi-lo)/2
		b, err := blank(mid)
		switch {
		case err != nil:
			return 0, err
		case b:
			hi = mid
		default:
			lo = mid + 1
		}
	}
	if hi == 1 {
		if err := t.readEntry(f, 0, e[:t.size]); err != nil {
			return 0, err
		}
		if e == (Raw{}) {
			return 0, nil
		}
	}
	return hi, nil
}

func (t *Table) readEntry(f vfs.File, slot int, e []byte) error {
	return t.readFull(f, e, int64(slot)*int64(t.size))
}

func (t *Table) readFull(f vfs.File, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("read at %d: %w", off, err)
	}
	return err
}

// readFence reads the first of every chunk of n entries.
func (t *Table) readFence(f vfs.File, n int) ([]byte, error) {
	c := t.chunk()
	fence := make([]byte, (n+c-1)/c*t.size)
	for i := 0; i*c < n; i++ {
		if err := t.readEntry(f, i*c, fence[i*t.size:(i+1)*t.size]); err != nil {
			return nil, err
		}
	}
	return fence, nil
}

// retire gives a source up: its lease is closed and no other opened.
func (t *Table) retire(src *source) {
	t.open.Lock()
	src.dead = true
	l := src.lease.Swap(nil)
	t.open.Unlock()
	if l != nil {
		t.drop(l)
	}
}

// drop gives one lease back, unless someone else is at it.
func (t *Table) drop(l *lease) {
	if l.retire() {
		t.budget.forget(l.ring(t.budget), &l.slot)
		l.GiveBack()
	}
}

func (t *Table) pathError(op string, err error) error {
	return &fs.PathError{Op: op, Path: t.Name(), Err: err}
}
