package mapped

import (
	"errors"
	"io/fs"
	"os"

	"github.com/partlog/partlog/vfs"
)

// load reads an active table's state from its file: keep entries, or all there are if fewer or if keep is negative.
func (t *Table) load(src *source, keep int) (*state, error) {
	l, err := t.acquire(src)
	if err != nil {
		return nil, err
	}
	defer l.unpin()
	length, err := l.f.Size()
	if err != nil {
		return nil, err
	}
	n, err := t.live(l.f, length)
	if err != nil {
		return nil, t.pathError("read", err)
	}
	if keep >= 0 {
		n = min(n, keep)
	}
	s := &state{src: src, start: n / t.chunk() * t.chunk()}
	if s.fence, err = t.readFence(l.f, s.start); err != nil {
		return nil, t.pathError("read", err)
	}
	if s.start > 0 {
		if err := t.readEntry(l.f, s.start-1, s.prev[:t.size]); err != nil {
			return nil, t.pathError("read", err)
		}
	}
	if tail := n - s.start; tail > 0 {
		s.tail = make([]byte, t.pageFor(tail))
		if err := t.readFull(l.f, s.tail[:tail*t.size], int64(s.start)*int64(t.size)); err != nil {
			return nil, t.pathError("read", err)
		}
		s.n.Store(int64(tail))
	}
	t.written = n
	t.cut = length != int64(n)*int64(t.size)
	return s, nil
}

// pageFor is the tail's size for n entries: doubled from firstPage up to a whole chunk.
func (t *Table) pageFor(n int) int {
	page := firstPage
	for page/t.size < n {
		page *= 2
	}
	return min(page, pageSize)
}

// writable is the present state if the table can be appended to. Called under mu.
func (t *Table) writable(op string) (*state, error) {
	s := t.state.Load()
	switch {
	case s.kind == closed:
		return nil, t.pathError(op, fs.ErrClosed)
	case t.readOnly || s.kind != active:
		return nil, t.pathError(op, ErrReadOnly)
	}
	return s, nil
}

// Append adds an entry of EntrySize bytes. The entry that fills a page writes it; if that fails the entry is not in
// the table and the same append can be tried again. Neither order nor number is checked.
func (t *Table) Append(e []byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.writable("append")
	if err != nil {
		return err
	}
	n := int(s.n.Load())
	if (n+1)*t.size > len(s.tail) {
		grown := &state{gen: s.gen, src: s.src, start: s.start, fence: s.fence, prev: s.prev}
		grown.tail = make([]byte, t.pageFor(n+1))
		copy(grown.tail, s.tail)
		grown.n.Store(int64(n))
		t.state.Store(grown)
		s = grown
	}
	copy(s.tail[n*t.size:(n+1)*t.size], e)
	if n+1 < t.chunk() {
		s.n.Store(int64(n + 1))
		return nil
	}
	if err := t.writeTail(s, n+1); err != nil {
		return err
	}
	s.n.Store(int64(n + 1)) // for readers that hold s
	next := &state{gen: s.gen, src: s.src, start: s.start + n + 1}
	next.fence = append(s.fence, s.tail[:t.size]...) // readers of s never look beyond their own length
	copy(next.prev[:], e[:t.size])
	t.state.Store(next)
	return nil
}

// writeTail makes the file hold the first n entries of the tail. Called under mu.
func (t *Table) writeTail(s *state, n int) error {
	from := t.written - s.start
	if from >= n {
		return nil
	}
	return t.withFile(s.src, func(f vfs.File) error {
		t.unsynced = true
		if _, err := f.WriteAt(s.tail[from*t.size:n*t.size], int64(t.written)*int64(t.size)); err != nil {
			t.cut = true // some of it may be there
			return err
		}
		t.written = s.start + n
		return nil
	})
}

// trim makes the file exactly as long as what was written. Called under mu.
func (t *Table) trim(src *source) error {
	if !t.cut {
		return nil
	}
	return t.withFile(src, func(f vfs.File) error {
		t.unsynced = true
		if err := f.Truncate(int64(t.written) * int64(t.size)); err != nil {
			return err
		}
		t.cut = false
		return nil
	})
}

func (t *Table) withFile(src *source, do func(f vfs.File) error) error {
	l, err := t.acquire(src)
	if err != nil {
		return err
	}
	defer l.unpin()
	return do(l.f)
}

func (t *Table) flush(s *state) error {
	if err := t.writeTail(s, int(s.n.Load())); err != nil {
		return err
	}
	return t.trim(s.src)
}

// Flush writes what the tail holds and cuts what lies behind it: the file is then exactly the entries. After an error
// it can be tried again. It does nothing for a table that cannot be changed.
func (t *Table) Flush() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.writable("flush")
	if err != nil {
		return onlyClosed(err)
	}
	return t.flush(s)
}

// onlyClosed forgives that a table cannot be changed, but not that it is closed.
func onlyClosed(err error) error {
	if errors.Is(err, ErrReadOnly) {
		return nil
	}
	return err
}

// Sync is Flush and then makes the file durable. After the first failure it fails for ever with that error, because
// what the device holds is unknown: the index must be rebuilt.
func (t *Table) Sync() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.writable("sync")
	if onlyClosed(err) != nil {
		return err
	}
	if err == nil {
		if err := t.flush(s); err != nil {
			return err
		}
	} else {
		s = t.state.Load()
	}
	return t.sync(s)
}

func (t *Table) sync(s *state) error {
	if t.syncErr == nil && t.unsynced {
		t.syncErr = t.syncFile(s)
	}
	if t.syncErr == nil {
		if lost := t.lost.Load(); lost != nil {
			t.syncErr = *lost
		}
	}
	if t.syncErr != nil {
		return t.syncErr
	}
	t.unsynced = false
	return nil
}

func (t *Table) syncFile(s *state) error {
	if s.kind == active {
		return t.withFile(s.src, vfs.File.Sync)
	}
	// Sealed since it was written: the mapped file was opened for reading, which not every system can sync.
	t.open.Lock()
	f, err := t.openFile(os.O_RDWR)
	t.open.Unlock()
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Truncate keeps the first keep entries and cuts the file. A sealed table becomes active again: its mapping is given up
// first, then the file is opened for writing. If cutting the file fails the entries are gone all the same and the next
// Truncate or Flush tries again; any other error leaves the table as it was.
func (t *Table) Truncate(keep int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, keep := t.state.Load(), max(keep, 0)
	if s.kind == sealed && !t.readOnly {
		return t.unseal(s, keep)
	}
	if _, err := t.writable("truncate"); err != nil {
		return err
	}
	if keep >= s.start+int(s.n.Load()) {
		return t.trim(s.src)
	}
	next, err := t.shortened(s, keep)
	if err != nil {
		return err
	}
	if t.written > keep {
		t.written, t.cut = keep, true
	}
	t.state.Store(next)
	return t.trim(s.src)
}

// TruncateFrom is Truncate before the first entry whose key, an offset above base, stands for offset or a later one.
func (t *Table) TruncateFrom(key Key, base, offset int64) error {
	keep := 0
	if rel, ok := Relative(base, offset); ok {
		_, slot, err := t.Floor(key, rel-1)
		if err != nil {
			return err
		}
		keep = slot + 1
	}
	return t.Truncate(keep)
}

// shortened is s without the entries from keep on, in memory of its own: readers may still be in the old tail.
func (t *Table) shortened(s *state, keep int) (*state, error) {
	c := t.chunk()
	next := &state{gen: s.gen + 1, src: s.src, start: keep / c * c}
	tail := s.tail
	next.prev = s.prev
	next.fence = s.fence[: next.start/c*t.size : next.start/c*t.size]
	if next.start < s.start {
		q := queries.Get().(*query)
		defer queries.Put(q)
		q.want, q.slot = chunk, next.start/c
		if err := t.answer(q); err != nil {
			return nil, err
		}
		tail = q.out
		if next.start > 0 {
			var ok bool
			var err error
			if next.prev, ok, err = t.At(next.start - 1); err != nil || !ok {
				return nil, errors.Join(err, fs.ErrInvalid)
			}
		}
	}
	if n := keep - next.start; n > 0 {
		next.tail = make([]byte, t.pageFor(n))
		copy(next.tail, tail[:n*t.size])
		next.n.Store(int64(n))
	}
	return next, nil
}

// unseal makes a sealed table active with its first keep entries.
func (t *Table) unseal(s *state, keep int) error {
	src := t.newSource(false, -1)
	next, err := t.load(src, keep)
	if err != nil {
		t.retire(src)
		return err
	}
	next.gen = s.gen + 1
	t.state.Store(next)
	t.retire(s.src) // waits for readers of the mapping
	return t.trim(src)
}

// Seal writes everything, cuts the file to the exact length and ends appending; from then on the file is mapped on use.
// It can be tried again after an error, and does nothing for a table that cannot be changed. It does not sync.
func (t *Table) Seal() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, err := t.writable("seal")
	if err != nil {
		return onlyClosed(err)
	}
	if err := t.flush(s); err != nil {
		return err
	}
	src := t.newSource(true, -1)
	n, last, _ := t.end()
	src.last = last
	src.n.Store(int64(n))
	t.state.Store(&state{gen: s.gen + 1, kind: sealed, src: src})
	t.retire(s.src)
	return nil
}

// Rename renames the file, also while readers are at work. A file that is not there is no error if this table was
// never used.
func (t *Table) Rename(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open.Lock()
	defer t.open.Unlock()
	s := t.state.Load()
	switch {
	case s.kind == closed:
		return t.pathError("rename", fs.ErrClosed) // the name may be another table's by now
	case s.kind == inHeap:
		return nil
	case t.readOnly:
		return t.pathError("rename", ErrReadOnly)
	}
	if err := t.fs.Rename(t.Name(), name); err != nil {
		unused := s.kind == sealed && s.src.n.Load() < 0
		if !unused || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	t.name.Store(&name)
	return nil
}

// Moved tells the table the new name of its file after a directory above it was renamed.
func (t *Table) Moved(name string) {
	t.open.Lock()
	defer t.open.Unlock()
	t.name.Store(&name)
}

// Close flushes an active table to the exact length and gives everything up; look-ups then meet fs.ErrClosed. If the
// flush fails the file holds fewer entries and the error is returned; the table is closed all the same. A cut is synced,
// so that no padding can come back. A second Close does nothing.
func (t *Table) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.state.Load()
	if s.kind == closed {
		return nil
	}
	var err error
	if s.kind == active && !t.readOnly {
		wasCut := t.cut
		if err = t.flush(s); err != nil {
			err = errors.Join(err, t.trim(s.src))
		} else if wasCut {
			err = t.sync(s)
		}
	}
	t.state.Store(&state{gen: s.gen + 1, kind: closed})
	if s.src != nil {
		t.retire(s.src)
	}
	if lost := t.lost.Load(); lost != nil && err == nil {
		err = *lost
	}
	return err
}
