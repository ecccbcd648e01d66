package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/partlog/partlog/internal/mapped"
	"github.com/partlog/partlog/internal/txnindex"
)

// AbortedTxn is an entry of the transaction index: a transaction whose ABORT marker lies in the segment.
type AbortedTxn struct {
	ProducerID  int64
	FirstOffset int64 // first data offset of the transaction; may be in an earlier segment
	LastOffset  int64 // of the marker
	LastStable  int64 // last stable offset right after the abort, as it was noted; see Covers
}

// Covers says that no transaction that ends later begins below upTo.
func (t AbortedTxn) Covers(upTo int64) bool { return t.entry().Covers(upTo) }

func (t AbortedTxn) entry() txnindex.Entry {
	return txnindex.Entry{ProducerID: t.ProducerID, FirstOffset: t.FirstOffset, LastOffset: t.LastOffset, LastStableOffset: t.LastStable}
}

func aborted(e txnindex.Entry) AbortedTxn {
	return AbortedTxn{ProducerID: e.ProducerID, FirstOffset: e.FirstOffset, LastOffset: e.LastOffset, LastStable: e.LastStableOffset}
}

// txns is the transaction index of a segment; most segments never have one.
type txns struct {
	mu     sync.Mutex // guards the fields but dirty; held across the index's file I/O. Under it: opening
	x      *txnindex.Index
	open   *txnFile    // x and what its file is counted by
	none   bool        // there is no file, as far as this process knows
	dirty  atomic.Bool // written since the last Sync; changed under mu
	memory []txnindex.Entry
	gone   bool  // the file was deleted, memory has what was in it
	lost   error // why memory has not all of it
}

// use runs f with the index. It is not run, and nothing is wrong, if there is no file and none is to be made.
func (t *txns) use(s *Segment, create bool, f func(x *txnindex.Index) error) error {
	opened, err := t.useLocked(s, create, f)
	if opened != nil && opened.out.CompareAndSwap(true, false) {
		s.budget().Open(&opened.slot, opened)
		s.budget().Relieve()
	}
	if opened != nil {
		opened.users.Add(-1)
	}
	return err
}

// useLocked also gives the file to be counted, with the caller as a user.
func (t *txns) useLocked(s *Segment, create bool, f func(x *txnindex.Index) error) (*txnFile, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone {
		return nil, nil
	}
	if t.none && !create {
		return nil, nil
	}
	if t.x == nil {
		if s.refs.Load() <= 0 {
			return nil, ErrClosed
		}
		name := s.name(txnSuffix)
		if !create {
			switch _, err := s.o.FS.Stat(name); {
			case errors.Is(err, fs.ErrNotExist):
				t.none = !s.o.ReadOnly // a live writer may make one
				return nil, nil
			case err != nil:
				return nil, err
			}
		}
		t.x = txnindex.New(s.o.FS, name, s.base)
		t.open = &txnFile{s: s, x: t.x}
		t.open.out.Store(true)
	}
	t.none = false
	t.open.users.Add(1)
	t.open.slot.Touch()
	return t.open, f(t.x)
}

// txnFile is the open file of a transaction index in the budget. The index opens it again by itself.
type txnFile struct {
	s     *Segment
	x     *txnindex.Index
	users atomic.Int32
	out   atomic.Bool // not counted
	slot  mapped.Slot
}

// Retire, Unsettled, Settle and GiveBack are for the budget. As the .log, it is not closed before it was synced.
func (f *txnFile) Retire() bool {
	if f.users.Load() > 0 || f.s.txn.dirty.Load() {
		return false
	}
	f.out.Store(true) // whoever uses it from now on counts it again
	return true
}

func (f *txnFile) Unsettled() bool {
	return f.users.Load() == 0 && f.s.txn.dirty.Load() && f.s.failure() == nil
}

func (f *txnFile) Settle() { _ = f.s.syncTxn() }

func (f *txnFile) GiveBack() { _ = f.x.Release() }

// AppendAborted adds an entry; LastOffset must grow. A file comes into being with the first one, and its name has to be
// made durable by the caller. Durable after Sync.
func (s *Segment) AppendAborted(a AbortedTxn) error {
	if err := s.writableTxn(); err != nil {
		return err
	}
	return s.txn.use(s, true, func(x *txnindex.Index) error {
		s.txn.dirty.Store(true)
		return x.Append(a.entry())
	})
}

// SetAborted replaces all entries: recovery finds them anew. Without entries an existing file stays, empty. Those that are in
// the file as they should be stay there: a full device takes none again.
func (s *Segment) SetAborted(all []AbortedTxn) error {
	if err := s.writableTxn(); err != nil {
		return err
	}
	return s.txn.use(s, len(all) > 0, func(x *txnindex.Index) error {
		s.txn.dirty.Store(true)
		n := beginning(x, all)
		trim := x.Reset
		if n > 0 {
			trim = func() error { return x.Truncate(math.MaxInt64) } // half an entry at the end, if there is one
		}
		if err := trim(); err != nil {
			return err
		}
		for _, a := range all[n:] {
			if err := x.Append(a.entry()); err != nil {
				return err
			}
		}
		return nil
	})
}

// beginning is how many of all are what the index holds; 0 if it holds anything else.
func beginning(x *txnindex.Index, all []AbortedTxn) (n int) {
	for e, err := range x.All() {
		if err != nil || n == len(all) || aborted(e) != all[n] {
			return 0
		}
		n++
	}
	return n
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
		complete = e.Covers(upTo)
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

// AbortedBelow is the number of entries whose transaction ends below offset, to begin AbortedFrom behind them. Where that cannot
// be told by an index that is in order it is 0: AbortedFrom will say what is wrong.
func (s *Segment) AbortedBelow(offset int64) (n int64, err error) {
	err = s.txn.use(s, false, func(x *txnindex.Index) (err error) {
		n, err = x.Below(offset)
		return err
	})
	if errors.Is(err, txnindex.ErrCorrupt) {
		return 0, nil
	}
	if s.txn.deleted() && err == nil && n == 0 {
		n = int64(sort.Search(len(s.txn.memory), func(i int) bool { return s.txn.memory[i].LastOffset >= offset }))
	}
	return n, err
}

func collect(all []txnindex.Entry, from, upTo int64) (found []txnindex.Entry, complete bool) {
	for _, e := range all {
		if e.LastOffset >= from && e.FirstOffset < upTo {
			found = append(found, e)
		}
		if e.Covers(upTo) {
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
		t.dirty.Store(true)
		return x.Truncate(offset)
	})
	if errors.Is(err, txnindex.ErrCorrupt) {
		return nil
	}
	return err
}

// synced says whether all that was written is durable.
func (t *txns) synced() bool {
	return !t.dirty.Load()
}

func (t *txns) sync(s *Segment) error {
	if t.synced() {
		return nil
	}
	return t.use(s, false, func(x *txnindex.Index) error {
		if t.synced() {
			return nil
		}
		err := x.Sync()
		t.dirty.Store(err != nil)
		return err
	})
}

// close gives the file back; what was written is synced first, because a later Sync would not know of it.
func (t *txns) close(s *Segment) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closeLocked(s)
}

// closeLocked is close; mu is held.
func (t *txns) closeLocked(s *Segment) error {
	if t.x == nil {
		return nil
	}
	var err error
	if !t.synced() && s.failure() == nil {
		if err = t.x.Sync(); err != nil {
			err = s.stop(err)
		}
		t.dirty.Store(false)
	}
	err = errors.Join(err, t.x.Close())
	s.budget().Closed(&t.open.slot)
	t.x, t.open = nil, nil
	return err
}

// delete removes the file; readers that still have the segment are answered from memory. That it is in nobody's hold says
// nothing: a reader of the segment before it asks for what was aborted there.
func (t *txns) delete(s *Segment) error {
	if s.refs.Load() > 0 {
		if err := t.use(s, false, t.remember); !errors.Is(err, ErrClosed) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.gone = true
			return err
		}
	} // the last reader has gone, or went just now
	return t.removeFile(s)
}

// remember keeps what is in the file and removes it; mu is held.
func (t *txns) remember(x *txnindex.Index) error {
	for e, err := range x.All() {
		if err != nil {
			t.lost = err
			break
		}
		t.memory = append(t.memory, e)
	}
	t.gone = true // at once: a reader that came now would find no file and take it for no aborted transaction
	return x.Remove()
}

// removeFile is delete for a segment that was given up. Most have no such file, and then nothing is opened.
func (t *txns) removeFile(s *Segment) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone || t.none {
		return nil
	}
	name := s.name(txnSuffix)
	switch _, err := s.o.FS.Stat(name); {
	case errors.Is(err, fs.ErrNotExist):
		t.gone = true
		return nil
	case err != nil:
		return err
	}
	return t.remember(txnindex.New(s.o.FS, name, s.base))
}

func (t *txns) deleted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone
}
