package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/partlog/partlog/internal/txnindex"
)

// AbortedTxn is an entry of the transaction index: a transaction whose ABORT marker lies in the segment.
type AbortedTxn struct {
	ProducerID  int64
	FirstOffset int64 // first data offset of the transaction; may be in an earlier segment
	LastOffset  int64 // of the marker
	LastStable  int64 // last stable offset right after the abort
}

func (t AbortedTxn) entry() txnindex.Entry {
	return txnindex.Entry{ProducerID: t.ProducerID, FirstOffset: t.FirstOffset, LastOffset: t.LastOffset, LastStableOffset: t.LastStable}
}

func aborted(e txnindex.Entry) AbortedTxn {
	return AbortedTxn{ProducerID: e.ProducerID, FirstOffset: e.FirstOffset, LastOffset: e.LastOffset, LastStable: e.LastStableOffset}
}

// txns is the transaction index of a segment; most segments never have one.
type txns struct {
	mu     sync.Mutex // guards the fields; held across the index's file I/O, never together with opening
	x      *txnindex.Index
	none   bool // there is no file, as far as this process knows
	dirty  bool // written since the last Sync
	memory []txnindex.Entry
	gone   bool  // the file was deleted, memory has what was in it
	lost   error // why memory has not all of it
}

// use runs f with the index. It is not run, and nothing is wrong, if there is no file and none is to be made.
func (t *txns) use(s *Segment, create bool, f func(x *txnindex.Index) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return nil
	}
	if t.none && !create {
		return nil
	}
	if t.x == nil {
		if s.refs.Load() <= 0 {
			return ErrClosed
		}
		name := s.name(txnSuffix)
		if !create {
			switch _, err := s.o.FS.Stat(name); {
			case errors.Is(err, fs.ErrNotExist):
				t.none = !s.o.ReadOnly // a live writer may make one
				return nil
			case err != nil:
				return err
			}
		}
		t.x = txnindex.New(s.o.FS, name, s.base)
	}
	t.none = false
	return f(t.x)
}

// AppendAborted adds an entry; LastOffset must grow. A file comes into being with the first one, and its name has to be
// made durable by the caller. Durable after Sync.
func (s *Segment) AppendAborted(a AbortedTxn) error {
	if err := s.writableTxn(); err != nil {
		return err
	}
	return s.txn.use(s, true, func(x *txnindex.Index) error {
		s.txn.dirty = true
		return x.Append(a.entry())
	})
}

// SetAborted replaces all entries: recovery finds them anew. Without entries an existing file stays, empty.
func (s *Segment) SetAborted(all []AbortedTxn) error {
	if err := s.writableTxn(); err != nil {
		return err
	}
	return s.txn.use(s, len(all) > 0, func(x *txnindex.Index) error {
		s.txn.dirty = true
		if err := x.Reset(); err != nil {
			return err
		}
		for _, a := range all {
			if err := x.Append(a.entry()); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Segment) writableTxn() error {
	if s.o.ReadOnly {
		return ErrReadOnly
	}
	if s.closing.Load() {
		return ErrClosed
	}
	return s.failure()
}

// Aborted returns the transactions that a read-committed reader of [from, upTo) must know: those that end at or above
// from and begin below upTo, possibly more. complete says that no later segment has another one. A damaged index is an
// error that wraps a cause naming the file; SetAborted repairs it.
func (s *Segment) Aborted(from, upTo int64) (found []AbortedTxn, complete bool, err error) {
	var entries []txnindex.Entry
	err = s.txn.use(s, false, func(x *txnindex.Index) (err error) {
		entries, complete, err = x.Collect(nil, from, upTo)
		return err
	})
	if s.txn.deleted() {
		entries, complete = collect(s.txn.memory, from, upTo)
		err = s.txn.lost
	}
	for _, e := range entries {
		found = append(found, aborted(e))
	}
	return found, complete, wrapTxn(err)
}

// AbortedFrom hands the entries from the n-th on to each, oldest first, up to the first one that is complete: no later one,
// here or in a later segment, begins below upTo. read is how many these were: whoever comes again goes on behind them. An
// entry that cannot be right is an error as in Aborted, behind the good ones.
func (s *Segment) AbortedFrom(n, upTo int64, each func(AbortedTxn)) (read int64, complete bool, err error) {
	take := func(e txnindex.Entry) (more bool) {
		each(aborted(e))
		complete = e.LastStableOffset >= upTo
		return !complete
	}
	err = s.txn.use(s, false, func(x *txnindex.Index) (err error) {
		read, err = x.From(n, take)
		return err
	})
	if s.txn.deleted() && err == nil && read == 0 {
		for _, e := range s.txn.memory[min(n, int64(len(s.txn.memory))):] {
			if read++; !take(e) {
				break
			}
		}
		err = s.txn.lost
	}
	return read, complete, wrapTxn(err)
}

func collect(all []txnindex.Entry, from, upTo int64) (found []txnindex.Entry, complete bool) {
	for _, e := range all {
		if e.LastOffset >= from && e.FirstOffset < upTo {
			found = append(found, e)
		}
		if e.LastStableOffset >= upTo {
			return found, true
		}
	}
	return found, false
}

// CheckAborted reads the whole transaction index and says what is wrong with it: errors.Is ErrCorrupt. No file is fine.
func (s *Segment) CheckAborted() error {
	return wrapTxn(s.txn.use(s, false, func(x *txnindex.Index) error { return x.Check() }))
}

func wrapTxn(err error) error {
	if errors.Is(err, txnindex.ErrCorrupt) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// truncate drops the entries at and above offset. A damaged index is left as it is: CheckAborted tells, SetAborted repairs.
func (t *txns) truncate(s *Segment, offset int64) error {
	err := t.use(s, false, func(x *txnindex.Index) error {
		t.dirty = true
		return x.Truncate(offset)
	})
	if errors.Is(err, txnindex.ErrCorrupt) {
		return nil
	}
	return err
}

func (t *txns) sync(s *Segment) error {
	return t.use(s, false, func(x *txnindex.Index) error {
		if !t.dirty {
			return nil
		}
		err := x.Sync()
		t.dirty = err != nil
		return err
	})
}

// close gives the file back; what was written is synced first, because a later Sync would not know of it.
func (t *txns) close(s *Segment) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.x == nil {
		return nil
	}
	var err error
	if t.dirty && s.failure() == nil {
		if err = t.x.Sync(); err != nil {
			err = s.stop(err)
		}
		t.dirty = false
	}
	err = errors.Join(err, t.x.Close())
	t.x = nil
	return err
}

// delete removes the file; readers that still hold the segment are answered from memory.
func (t *txns) delete(s *Segment, pinned bool) error {
	err := t.use(s, false, func(x *txnindex.Index) error {
		if pinned {
			for e, err := range x.All() {
				if err != nil {
					t.lost = err
					break
				}
				t.memory = append(t.memory, e)
			}
		}
		t.gone = true // at once: a reader that came now would find no file and take it for no aborted transaction
		return x.Remove()
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
	return err
}

func (t *txns) deleted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone
}
