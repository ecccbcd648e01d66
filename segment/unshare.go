package segment

import "github.com/partlog/partlog/vfs"

// own gives the segment a .log that has no other name, before the first byte of it changes: a backup of a sealed segment
// may be a hard link. Readers that have the shared file open go on with it. mu is held.
func (s *Segment) own() error {
	if s.owned {
		return nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	copied, err := vfs.Own(s.o.FS, s.nameWith(logSuffix, s.logAs))
	if copied { // durably, with what was not synced before
		_ = s.letGo()
	}
	s.owned = err == nil
	return err
}
