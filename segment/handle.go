package segment

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"

	"github.com/partlog/partlog/internal/mapped"
	"github.com/partlog/partlog/vfs"
)

// handle is the open .log file with a count of its users, so that parking and closing never pull it from under a read. It
// is counted in the segment's budget of open files, which closes it when others need the room and nobody is at it.
//
// A file that was written is not closed before it was synced, and the sync is one of this very descriptor: an fsync of
// another one, opened later, would flush the same pages, but if the device fails to take them the kernel tells only those
// who had the file open at that time. So bytes that are not synced count as a user.
type handle struct {
	vfs.File
	s        *Segment
	users    atomic.Int64 // the segment itself is one, unsynced bytes are another; 0: closed for good
	unsynced atomic.Bool  // bytes or a length were written that no sync has begun to make durable
	syncing  atomic.Int32 // syncs that are running: what they took over from unsynced is not durable yet
	slot     mapped.Slot
}

func (s *Segment) newHandle(f vfs.File) *handle {
	h := &handle{File: f, s: s}
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

// wrote notes that the file was changed, or may have been. The caller is a user and calls it behind the change: a sync
// that runs meanwhile need not have seen it.
func (h *handle) wrote() {
	if h.unsynced.Load() {
		return
	}
	h.users.Add(1) // first: a sync that takes over unsynced takes this away
	if !h.unsynced.CompareAndSwap(false, true) {
		h.users.Add(-1)
	}
}

// dirty says whether something may not be durable.
func (h *handle) dirty() bool { return h.unsynced.Load() || h.syncing.Load() > 0 }

// sync runs call, a sync of the file, for all that was written before. The caller is a user.
func (h *handle) sync(call func(*handle) error) error {
	h.syncing.Add(1) // before unsynced is taken over: there is no moment at which the file looks clean
	defer h.syncing.Add(-1)
	took := h.unsynced.Swap(false)
	if err := call(h); err != nil {
		if took && !h.unsynced.CompareAndSwap(false, true) {
			h.users.Add(-1) // somebody wrote meanwhile, and counts for both
		}
		return h.s.stop(err)
	}
	if took {
		h.users.Add(-1) // never the last one: the caller is one
	}
	return h.s.failure() // another sync may have failed and taken the error this one should have seen
}

// Retire, Unsettled, Settle and GiveBack are for the budget.
func (h *handle) Retire() bool { return h.users.CompareAndSwap(1, 0) }

// Unsettled: only unsynced bytes keep the file open.
func (h *handle) Unsettled() bool {
	return h.unsynced.Load() && h.users.Load() == 2 && h.s.failure() == nil
}

// Settle syncs it. A failure is the segment's: its next append or sync meets it.
func (h *handle) Settle() {
	if h.retain() {
		_ = h.sync((*handle).syncData)
		_ = h.release()
	}
}

// GiveBack closes a file that nothing was written to since it was synced: its error would say nothing.
func (h *handle) GiveBack() {
	h.s.file.CompareAndSwap(h, nil)
	_ = h.File.Close()
}

func (h *handle) syncData() error { return h.File.SyncData() }

func (h *handle) syncAll() error { return h.File.Sync() }

// budget is what the segment's open files are counted in.
func (s *Segment) budget() *mapped.Budget {
	if s.o.Budget == nil {
		return mapped.Default
	}
	return s.o.Budget
}

// acquire is the one way to the .log file: it opens it on first use. The caller releases the handle, and does not hold
// opening.
func (s *Segment) acquire() (*handle, error) {
	for {
		if h := s.file.Load(); h != nil && h.retain() {
			h.slot.Touch()
			return h, nil
		}
		h, opened, err := s.openFile()
		switch {
		case err != nil:
			return nil, err
		case opened:
			s.budget().Relieve()
			return h, nil
		}
	}
}

// openFile opens the file, counts it and makes the caller a user, unless it is open already. It is counted before others
// can see it: whoever closes it finds it in the budget.
func (s *Segment) openFile() (h *handle, opened bool, err error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if h := s.file.Load(); h != nil && h.users.Load() > 0 {
		return nil, false, nil
	}
	if s.refs.Load() <= 0 {
		return nil, false, ErrClosed
	}
	flag := os.O_RDWR
	if s.o.ReadOnly {
		flag = os.O_RDONLY
	}
	f, err := s.openNamed(s.nameWith(logSuffix, s.logAs), flag)
	if err != nil {
		return nil, false, err
	}
	h = s.newHandle(f)
	h.users.Add(1)
	s.budget().Open(&h.slot, h)
	s.file.Store(h)
	return h, true, nil
}

// openNamed opens one of the segment's files. If the process was out of descriptors it closes others first.
func (s *Segment) openNamed(name string, flag int) (vfs.File, error) {
	f, err := s.o.FS.OpenFile(name, flag, 0o644)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrPermission) || !s.budget().Shed() {
		return f, err
	}
	return s.o.FS.OpenFile(name, flag, 0o644)
}

// closeFile gives up the segment's own hold on the file, and what unsynced bytes have; running reads finish first.
func (s *Segment) closeFile() error {
	s.opening.Lock()
	defer s.opening.Unlock()
	return s.letGo()
}

// letGo is closeFile; opening is held.
func (s *Segment) letGo() error {
	h := s.file.Swap(nil)
	if h == nil || !h.retain() {
		return nil // or the budget was faster
	}
	s.budget().Closed(&h.slot)
	if h.unsynced.Swap(false) {
		h.users.Add(-1)
	}
	h.users.Add(-1)
	return h.release()
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
// first. Nothing is lost: index entries in memory are handed to the system, and a .log with bytes that are not synced stays
// open.
func (s *Segment) Park() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || s.state.get() == closed {
		return nil
	}
	err := errors.Join(s.dropIndexes(), s.txn.close(s))
	if h := s.file.Load(); h != nil && h.dirty() {
		return err
	}
	return errors.Join(err, s.closeFile())
}

// Rename gives all files another suffix ("" to ".deleted", ".cleaned" to ".swap", ...), in the order log, index, time
// index, transaction index; missing indexes are passed over, and for ".deleted" a log that somebody removed. Readers are not
// disturbed. The caller syncs the directory.
func (s *Segment) Rename(suffix string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.ReadOnly {
		return ErrReadOnly
	}
	s.txn.mu.Lock() // until the end: nobody may open the index under the name that it loses
	defer s.txn.mu.Unlock()
	if err := errors.Join(s.dropIndexes(), s.txn.closeLocked(s)); err != nil {
		return err
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.suffix == suffix {
		return nil
	}
	for _, kind := range []string{logSuffix, idxSuffix, timeSuffix, txnSuffix} {
		err := s.o.FS.Rename(s.nameWith(kind, s.suffix), s.nameWith(kind, suffix))
		missing := errors.Is(err, fs.ErrNotExist) && (kind != logSuffix || strings.HasSuffix(suffix, ".deleted")) // what goes may be gone
		if err != nil && !missing {
			return err
		}
	}
	s.suffix, s.logAs = suffix, suffix
	return nil
}

// Delete removes all files, the log first. Readers that hold a reference go on. The caller syncs the directory. After the
// last reference is gone it is cheaper: nothing has to be opened for readers that might still come.
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
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrClosed) {
			return err
		}
		if err == nil {
			s.budget().Closed(&h.slot) // it could not be opened again
			h.release()
		}
	}
	s.gone = true
	if s.state.get() != closed {
		s.state.set(sealed)
	}
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
	return errors.Join(all, s.txn.delete(s))
}
