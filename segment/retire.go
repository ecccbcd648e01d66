package segment

import (
	"errors"
	"io/fs"
)

// Retire is Rename for a segment that goes while later ones stay: the .log gets the suffix, then gone is called, which makes
// that durable, and only then the other files follow. So no crash leaves a .log that lost its index of aborted
// transactions, which nothing would miss. gone may be nil where it does not matter what a crash leaves.
//
// With an empty suffix the files are removed instead: that needs no room in the directory. Readers are not disturbed either
// way; one that has to open a file waits meanwhile. After an error the segment is where it was, unless it is gone's: then
// the directory may have either.
func (s *Segment) Retire(suffix string, gone func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.ReadOnly {
		return ErrReadOnly
	}
	if gone == nil {
		gone = func() error { return nil }
	}
	if suffix == "" {
		return s.remove(gone)
	}
	s.txn.mu.Lock() // before opening, as whoever reads the index takes them, and until the end: see Rename
	defer s.txn.mu.Unlock()
	if err := errors.Join(s.dropIndexes(), s.txn.closeLocked(s)); err != nil {
		return err
	}
	if err := s.retire(suffix, gone); err != nil {
		var left *leftBehind
		if !errors.As(err, &left) {
			return err
		}
		s.txn.gone, s.txn.lost = true, left.err // the answer about aborted transactions
	}
	return nil
}

// leftBehind: the .log is gone, its index of aborted transactions has the old name still.
type leftBehind struct{ err error }

func (e *leftBehind) Error() string { return e.err.Error() }

// retire renames; mu and txn.mu are held. A derived file that cannot be renamed is left: it belongs to nobody, and an open removes it.
func (s *Segment) retire(suffix string, gone func() error) (err error) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.suffix == suffix {
		return nil
	}
	from, to := s.nameWith(logSuffix, s.suffix), s.nameWith(logSuffix, suffix)
	if err := s.o.FS.Rename(from, to); err != nil {
		return err
	}
	if err := gone(); err != nil {
		return errors.Join(err, s.o.FS.Rename(to, from))
	}
	for _, kind := range []string{idxSuffix, timeSuffix, txnSuffix} {
		if kind == txnSuffix && s.txn.none {
			err = nil
			break
		}
		err = s.o.FS.Rename(s.nameWith(kind, s.suffix), s.nameWith(kind, suffix))
	}
	s.suffix = suffix
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &leftBehind{err}
	}
	return nil
}
