package segment

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/partlog/partlog/vfs"
)

// copySuffix names the unfinished copy of a .log: an open removes it.
const copySuffix = ".tmp"

// own gives the segment a .log that nobody else has a name of, before the first byte of it changes: a backup of a sealed
// segment may be a hard link. The file is copied, durably, and takes the place of the shared one, which stays whole under
// its other names. Readers that have the old file open go on with it. mu is held.
func (s *Segment) own() error {
	if s.owned {
		return nil
	}
	name := s.name(logSuffix)
	n, err := vfs.Links(s.o.FS, name)
	switch {
	case errors.Is(err, vfs.ErrUnsupported): // then nobody links
	case err != nil:
		return err
	case n > 1:
		if err := s.copyLog(name); err != nil {
			return errors.Join(err, s.dropCopy(name))
		}
	}
	s.owned = true
	return nil
}

func (s *Segment) dropCopy(name string) error {
	if err := s.o.FS.Remove(name + copySuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (s *Segment) copyLog(name string) (err error) {
	h, err := s.acquire()
	if err != nil {
		return err
	}
	defer h.release()
	size, err := h.Size()
	if err != nil {
		return err
	}
	f, err := s.o.FS.OpenFile(name+copySuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	buf := make([]byte, min(size, 256<<10))
	for at := int64(0); at < size; {
		b := buf[:min(int64(len(buf)), size-at)]
		n, err := h.ReadAt(b, at)
		if n < len(b) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if _, err := f.WriteAt(b, at); err != nil {
			return err
		}
		at += int64(n)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if err := s.o.FS.Rename(name+copySuffix, name); err != nil {
		return err
	}
	if old := s.file.Swap(newHandle(f)); old != nil {
		_ = old.release() // nothing was written through it
	}
	if err := s.o.FS.SyncDir(s.dirName()); err != nil && !errors.Is(err, vfs.ErrUnsupported) {
		return s.stopNamed(name, err)
	}
	return nil
}

func (s *Segment) dirName() string {
	if s.dir == "" {
		return "."
	}
	return s.dir
}
