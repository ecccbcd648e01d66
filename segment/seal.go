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
		if err := x.time.AppendLast(timeindex.Entry{Timestamp: m.maxTs, Offset: m.maxTsOffset}); err != nil {
			return err
		}
		defer s.dirtyIdx.Store(true)
	}
	err = errors.Join(x.offset.Seal(), x.time.Seal())
	if err == nil {
		err = s.trimLog(m.size)
	}
	if err != nil { // one of them may be sealed while the segment is not: the next use opens both anew
		return errors.Join(err, s.dropIndexes())
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
	wasActive := s.state.get() == active
	if wasActive {
		err = s.seal()
	}
	dirty := s.dirtyIdx.Load()
	s.mu.Unlock()
	if err != nil || !wasActive && !dirty {
		return err
	}
	return s.Sync()
}

// Sync makes the .log, then the indexes, then the transaction index durable, so that the recovery point may pass the
// segment. It covers everything published before the call. After a failed sync the segment is ErrBroken: nothing is
// confirmed until it is opened and recovered again. Any other error (no space for an index, say) comes before anything
// is lost: Sync can be called again.
func (s *Segment) Sync() error {
	if err := s.syncLog(func(h *handle) error { return h.Sync() }); err != nil {
		return err
	}
	if s.o.ReadOnly {
		return nil
	}
	if err := s.syncIndexes(); err != nil {
		return err
	}
	if err := s.txn.sync(s); err != nil {
		return s.stop(err)
	}
	return nil
}

// SyncData makes the .log durable, so that a durable acknowledgement may go out. Indexes are not touched. Errors as Sync.
func (s *Segment) SyncData() error {
	return s.syncLog(func(h *handle) error { return h.SyncData() })
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
	if err := sync(h); err != nil {
		return s.stop(err)
	}
	return s.failure() // another sync may have failed and taken the error this one should have seen
}

// syncIndexes syncs both index files if bytes were written to them since the last time. It takes no lock of the segment:
// appends do not wait for it, nor it for them. An error in handing the entries over is no lost sync: it can be tried again.
func (s *Segment) syncIndexes() error {
	if !s.dirtyIdx.Swap(false) { // what is written from here on is for the next time
		return nil
	}
	if err := s.flushIndexes(); err != nil {
		s.dirtyIdx.Store(true)
		return err
	}
	for _, kind := range []string{idxSuffix, timeSuffix} {
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

func (s *Segment) syncNamed(kind string) error {
	f, err := s.o.FS.OpenFile(s.name(kind), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
