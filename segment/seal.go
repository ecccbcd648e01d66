package segment

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/partlog/partlog/timeindex"
)

// Seal ends appending: the last time index entry is written, the files get their exact lengths, and the indexes are
// mapped from now on. It does not sync; Sync does. Sealing twice does nothing. Only Truncate makes a sealed segment
// writable again.
func (s *Segment) Seal(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.get() == sealed {
		return nil
	}
	if _, err := s.activate(); err != nil {
		return err
	}
	return s.seal()
}

// seal is Seal of an active segment; mu is held.
func (s *Segment) seal() error {
	x, err := s.loadIndexes(true)
	if err != nil {
		return err
	}
	m := s.pub.load()
	if m.maxTs >= 0 {
		had := x.time.Len()
		if err := x.time.AppendLast(timeindex.Entry{Timestamp: m.maxTs, Offset: m.maxTsOffset}); err != nil {
			return err
		}
		if x.time.Len() > had {
			defer s.dirtyIdx[timeIndex].Store(true)
		}
	}
	err = errors.Join(x.offset.Seal(), x.time.Seal())
	if err == nil {
		err = s.trimLog(m.size)
	}
	if err != nil { // one of them may be sealed while the segment is not: the next use opens both anew
		_ = s.dropIndexes() // fails as they did
		return err
	}
	s.state.set(sealed)
	s.ix.Store(&indexes{offset: x.offset, time: x.time})
	return nil
}

// trimLog takes away space that was allocated ahead.
func (s *Segment) trimLog(size int64) error {
	if !s.o.Preallocate {
		return nil
	}
	h, err := s.acquire()
	if err != nil {
		return err
	}
	defer h.release()
	defer h.wrote()
	return h.Truncate(size)
}

// finish is the writing part of Close.
func (s *Segment) finish() error {
	s.mu.Lock()
	if s.o.ReadOnly || s.gone || s.state.get() != active && s.state.get() != sealed || s.failure() != nil {
		s.mu.Unlock()
		return s.failure()
	}
	var err error
	if s.state.get() == active {
		err = s.seal()
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.SyncWritten()
}

// Rested says that Close would have nothing to write and nothing to sync: nothing was written since the segment was opened,
// or it was sealed and all of it is synced.
func (s *Segment) Rested() bool { return s.state.get() != active && s.synced() }

// synced says whether all that this Segment wrote, to any of its files, is durable.
func (s *Segment) synced() bool {
	h := s.file.Load()
	return (h == nil || !h.dirty()) && !s.dirtyIdx[offsetIndex].Load() && !s.dirtyIdx[timeIndex].Load() && s.txn.synced() && s.failure() == nil
}

// SyncWritten is Sync for what this Segment has written itself: a file that it did not write to, or that was synced since,
// is left alone. What was in the files when it was opened must be durable for another reason: they were closed cleanly, or
// a Sync followed the recovery. It must not run beside another Sync whose end nobody waits for.
func (s *Segment) SyncWritten() error {
	if s.o.ReadOnly {
		return ErrReadOnly
	}
	if h := s.file.Load(); h != nil && h.dirty() {
		if err := s.syncLog((*handle).syncAll); err != nil {
			return err
		}
	}
	if err := s.failure(); err != nil {
		return err
	}
	return s.syncDerived()
}

// Sync makes the .log, then the indexes, then the transaction index durable, so that the recovery point may pass the
// segment. It covers everything published before the call. After a failed sync the segment is ErrBroken: nothing is
// confirmed until it is opened and recovered again. Any other error (no space for an index, say) comes before anything
// is lost: Sync can be called again.
func (s *Segment) Sync() error {
	if err := s.syncLog((*handle).syncAll); err != nil {
		return err
	}
	return s.syncDerived()
}

func (s *Segment) syncDerived() error {
	if err := s.syncIndexes(); err != nil {
		return err
	}
	return s.syncTxn()
}

func (s *Segment) syncTxn() error {
	if err := s.txn.sync(s); err != nil {
		return s.stop(err)
	}
	return nil
}

// SyncData makes the .log durable, so that a durable acknowledgement may go out. Indexes are not touched. Errors as Sync.
func (s *Segment) SyncData() error {
	return s.syncLog((*handle).syncData)
}

func (s *Segment) syncLog(sync func(*handle) error) error {
	if s.o.ReadOnly {
		return ErrReadOnly
	}
	if err := s.failure(); err != nil {
		return err
	}
	h, err := s.acquire()
	if err != nil {
		return err
	}
	defer h.release()
	return h.sync(sync)
}

// syncIndexes syncs both index files if bytes were written to them since the last time. It takes no lock of the segment:
// appends do not wait for it, nor it for them. An error in handing the entries over is no lost sync: it can be tried again.
func (s *Segment) syncIndexes() error {
	s.refile()
	// What is written from here on is for the next time.
	dirty := [2]bool{s.dirtyIdx[offsetIndex].Swap(false), s.dirtyIdx[timeIndex].Swap(false)}
	if !dirty[offsetIndex] && !dirty[timeIndex] {
		return nil
	}
	if err := s.flushIndexes(); err != nil {
		for i, d := range dirty {
			if d {
				s.dirtyIdx[i].Store(true)
			}
		}
		return err
	}
	for i, kind := range []string{idxSuffix, timeSuffix} {
		if !dirty[i] {
			continue
		}
		if err := s.syncNamed(kind); err != nil {
			return s.stop(err)
		}
	}
	return nil
}

// flushIndexes gives what the indexes hold in memory to the system. One that was closed meanwhile did so itself.
func (s *Segment) flushIndexes() error {
	x := s.ix.Load()
	if x == nil || !x.writable {
		return nil
	}
	for _, flush := range []func() error{x.offset.Flush, x.time.Flush} {
		if err := flush(); err != nil && !errors.Is(err, fs.ErrClosed) {
			return err
		}
	}
	return nil
}

// syncNamed syncs a file that is not open here, if it is there. A rename may come between its name and the opening.
func (s *Segment) syncNamed(kind string) error {
	for {
		name := s.name(kind)
		f, err := s.o.FS.OpenFile(name, os.O_RDWR, 0)
		switch {
		case errors.Is(err, fs.ErrNotExist) && s.name(kind) != name:
			continue
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	}
}
