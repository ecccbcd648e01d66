package segment

import (
	"errors"
	"io/fs"

	"github.com/partlog/partlog/internal/txnindex"
)

// Retire is Rename for a segment that goes while later ones stay: the .log gets the suffix, then gone is called, which makes
// that durable, and only then the other files follow. So no crash leaves a .log that lost its index of aborted
// transactions, which nothing would miss. gone may be nil where it does not matter what a crash leaves.
//
// A .log that somebody removed is gone, as it was to be. With an empty suffix the files are removed: that needs no room in the
// directory. Readers are not disturbed either way; one that has to open a file waits for a rename, not for gone. After an error
// the segment is where it was, unless it is gone's: then the directory may have either. Nobody else may rename or delete the
// segment meanwhile.
func (s *Segment) Retire(suffix string, gone func() error) error {
	if gone == nil {
		gone = func() error { return nil }
	}
	if suffix == "" {
		return s.removeFor(gone)
	}
	was, err := s.renameLog(suffix)
	if err != nil || was == suffix {
		return err
	}
	if err := gone(); err != nil {
		_, back := s.renameLog(was)
		return errors.Join(err, back)
	}
	s.renameDerived(suffix)
	return nil
}

func (s *Segment) removeFor(gone func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.ReadOnly {
		return ErrReadOnly
	}
	return s.remove(gone)
}

// renameLog gives the .log alone another suffix, and says which one it had.
func (s *Segment) renameLog(suffix string) (was string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.o.ReadOnly {
		return "", ErrReadOnly
	}
	s.txn.mu.Lock() // before opening, as whoever reads the index takes them
	defer s.txn.mu.Unlock()
	if err := errors.Join(s.dropIndexes(), s.txn.closeLocked(s)); err != nil {
		return "", err
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if was = s.logAs; was == suffix {
		return was, nil
	}
	err = s.o.FS.Rename(s.nameWith(logSuffix, was), s.nameWith(logSuffix, suffix))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // somebody removed it: then it is gone, as it was to be
		return was, err
	}
	s.logAs = suffix
	return was, nil
}

// renameDerived lets the other files follow. One that cannot be renamed, for want of room in the directory, is removed: the
// indexes can be made anew, and the aborted transactions are kept in memory for those who still read.
func (s *Segment) renameDerived(suffix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.txn.mu.Lock() // until the end: nobody may open the index under the name that it loses
	defer s.txn.mu.Unlock()
	_ = errors.Join(s.dropIndexes(), s.txn.closeLocked(s)) // a reader may have opened them again, and wrote nothing
	s.opening.Lock()
	defer s.opening.Unlock()
	for _, kind := range []string{idxSuffix, timeSuffix, txnSuffix} {
		if kind == txnSuffix && s.txn.none {
			break
		}
		name := s.nameWith(kind, s.suffix)
		err := s.o.FS.Rename(name, s.nameWith(kind, suffix))
		switch {
		case err == nil || errors.Is(err, fs.ErrNotExist):
		case kind == txnSuffix:
			_ = s.txn.remember(txnindex.New(s.o.FS, name, s.base)) // what cannot be removed either, the next open removes
			if len(s.txn.memory) == 0 {                            // or it has the new name, and the answer got lost
				s.txn.lost = err
			}
		default:
			_ = s.o.FS.Remove(name)
		}
	}
	s.suffix = suffix
}
