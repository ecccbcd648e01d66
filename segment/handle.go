package segment

import (
	"errors"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/partlog/partlog/vfs"
)

// handle is the open .log file with a count of its users, so that parking and closing never pull it from under a read.
type handle struct {
	vfs.File
	users atomic.Int64
}

func newHandle(f vfs.File) *handle {
	h := &handle{File: f}
	h.users.Store(1)
	return h
}

// retain adds a user, unless the file is closed already.
func (h *handle) retain() bool {
	for {
		n := h.users.Load()
		if n <= 0 {
			return false
		}
		if h.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (h *handle) release() error {
	if h.users.Add(-1) == 0 {
		return h.File.Close()
	}
	return nil
}

// acquire is the one way to the .log file: it opens it on first use. The caller releases the handle.
func (s *Segment) acquire() (*handle, error) {
	for {
		if h := s.file.Load(); h != nil && h.retain() {
			return h, nil
		}
		if err := s.openFile(); err != nil {
			return nil, err
		}
	}
}

func (s *Segment) openFile() error {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.file.Load() != nil {
		return nil
	}
	if s.refs.Load() <= 0 {
		return ErrClosed
	}
	flag := os.O_RDWR
	if s.o.ReadOnly {
		flag = os.O_RDONLY
	}
	f, err := s.o.FS.OpenFile(s.nameWith(logSuffix, s.suffix), flag, 0)
	if err != nil {
		return err
	}
	s.file.Store(newHandle(f))
	return nil
}

// closeFile gives up the segment's own hold on the file; running reads finish first.
func (s *Segment) closeFile() error {
	s.opening.Lock()
	defer s.opening.Unlock()
	if h := s.file.Swap(nil); h != nil {
		return h.release()
	}
	return nil
}

// Retain takes a reference: the files stay readable until Release. It is false once the last reference is gone; read
// the segment list again then.
func (s *Segment) Retain() bool {
	for {
		n := s.refs.Load()
		if n <= 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives a reference back; the last one closes the files.
func (s *Segment) Release() {
	if s.refs.Add(-1) == 0 {
		s.shut()
	}
}

// shut closes everything after the last reference.
func (s *Segment) shut() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.set(closed)
	return errors.Join(s.dropIndexes(), s.txn.close(s), s.closeFile())
}

// Close ends writing and gives up the owner's reference; a second Close does nothing. An appended segment first gets its
// last time index entry, exact file lengths and a Sync, as for a clean shutdown; the error says if that did not succeed.
// Files are closed when the last reader is done. A segment that stopped (ErrBroken) is closed without writing.
func (s *Segment) Close() error {
	if s.closing.Swap(true) {
		return nil
	}
	err := s.finish()
	if s.refs.Add(-1) == 0 {
		err = errors.Join(err, s.shut())
	}
	return err
}

// Abandon gives up the owner's reference and writes nothing: after a failure, or when only a look was wanted.
func (s *Segment) Abandon() error {
	if s.closing.Swap(true) {
		return nil
	}
	if s.refs.Add(-1) == 0 {
		return s.shut()
	}
	return nil
}

// Park closes the files and mappings of an idle segment; the next use opens them again. What is being read finishes
// first. Nothing is lost: index entries in memory are handed to the system.
func (s *Segment) Park() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || s.state.get() == closed {
		return nil
	}
	return errors.Join(s.dropIndexes(), s.txn.close(s), s.closeFile())
}

// Rename gives all files another suffix ("" to ".deleted", ".cleaned" to ".swap", ...), in the order log, index, time
// index, transaction index; missing indexes are passed over. Readers are not disturbed. The caller syncs the directory.
func (s *Segment) Rename(suffix string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.ReadOnly {
		return ErrReadOnly
	}
	if err := errors.Join(s.dropIndexes(), s.txn.close(s)); err != nil {
		return err
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.suffix == suffix {
		return nil
	}
	for _, kind := range []string{logSuffix, idxSuffix, timeSuffix, txnSuffix} {
		err := s.o.FS.Rename(s.nameWith(kind, s.suffix), s.nameWith(kind, suffix))
		if err != nil && (kind == logSuffix || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	s.suffix = suffix
	return nil
}

// Delete removes all files, the log first. Readers that hold a reference go on. The caller syncs the directory.
func (s *Segment) Delete() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.ReadOnly {
		return ErrReadOnly
	}
	return s.remove(func() error { return nil })
}

// remove removes the log, calls gone, and removes the rest; mu is held.
func (s *Segment) remove(gone func() error) error {
	if s.refs.Load() > 0 {
		h, err := s.acquire() // so that readers that have not opened it yet still can read
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil {
			h.release()
		}
	}
	s.gone = true
	s.state.set(sealed)
	s.dropIndexes()
	var all error
	for _, kind := range []string{logSuffix, idxSuffix, timeSuffix} {
		if err := s.o.FS.Remove(s.name(kind)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
		if kind == logSuffix {
			if err := errors.Join(all, gone()); err != nil {
				return err
			}
		}
	}
	return errors.Join(all, s.txn.delete(s, s.Pins() > 0))
}
