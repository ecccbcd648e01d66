package segment

import (
	"errors"
	"io/fs"
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

// renameDerived lets the other files follow. One that cannot be renamed is left: it belongs to nobody, and an open removes
// it; but without the index of aborted transactions readers have no answer about these.
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
		err := s.o.FS.Rename(s.nameWith(kind, s.suffix), s.nameWith(kind, suffix))
		if kind == txnSuffix && err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.txn.gone, s.txn.lost = true, err
		}
	}
	s.suffix = suffix
}
