package txnindex

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// blockEntries are read at once.
const blockEntries = 120 // just under 4 KiB

var blocks = sync.Pool{New: func() any { return new([blockEntries * EntrySize]byte) }}

func (x *Index) ended() error {
	if x.closed {
		return &fs.PathError{Op: "use", Path: x.name, Err: fs.ErrClosed}
	}
	return nil
}

// openFile opens the file if it is not open (or not for writing, and that is needed), creating it if create says so. No
// file is no error: x.file stays nil. The caller holds mu.
func (x *Index) openFile(create bool) error {
	if err := x.ended(); err != nil || x.file != nil && x.write {
		return err
	}
	flag := os.O_RDWR
	if create {
		flag |= os.O_CREATE
	}
	f, err := x.fsys.OpenFile(x.name, flag, 0o644)
	if errors.Is(err, fs.ErrNotExist) && !create {
		x.size, x.last, x.known, x.sound = 0, -1, false, 0
		return nil
	}
	if err != nil {
		return err
	}
	if err := x.release(); err != nil {
		return errors.Join(err, f.Close())
	}
	x.file, x.write, x.unsynced = f, true, true
	return nil
}

// open is openFile and learns the size and the last entry. The caller holds mu.
func (x *Index) open(create bool) error {
	if err := x.openFile(create); err != nil || x.file == nil {
		return err
	}
	return x.learn()
}

// learn reads size and last entry of the open file. The caller holds mu.
func (x *Index) learn() error {
	if x.known {
		return nil
	}
	n, err := x.file.Size()
	if err != nil {
		return err
	}
	size, last := n-n%EntrySize, int64(-1)
	if size > 0 {
		var b [EntrySize]byte
		if err := readFull(x.file, b[:], size-EntrySize); err != nil {
			return &fs.PathError{Op: "read", Path: x.name, Err: err}
		}
		e, version := Decode(b[:])
		if version != 0 {
			return x.versionError(version, size-EntrySize)
		}
		last = e.LastOffset
	}
	x.size, x.last, x.known, x.sound = size, last, true, min(x.sound, size)
	x.opens++
	return nil
}

// shared runs f with mu held shared and size known; it is not run when there is no file.
func (x *Index) shared(f func() error) error {
	for {
		x.mu.RLock()
		if err := x.ended(); err != nil {
			x.mu.RUnlock()
			return err
		}
		if x.file != nil && x.known {
			err := f()
			x.mu.RUnlock()
			return err
		}
		x.mu.RUnlock()
		if found, err := x.openToRead(); err != nil || !found {
			return err
		}
	}
}

// openToRead opens the file, for reading only if it is not open yet.
func (x *Index) openToRead() (found bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.ended(); err != nil {
		return false, err
	}
	if x.file == nil {
		f, err := x.fsys.OpenFile(x.name, os.O_RDONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		x.file, x.write, x.known = f, false, false
	}
	return true, x.learn()
}

// scan hands all entries to f until it says stop, holding mu shared block by block.
func (x *Index) scan(f func(e Entry, pos int64) (more bool, err error)) error {
	return x.scanFrom(0, f)
}

// scanFrom is scan from the entry at pos on.
func (x *Index) scanFrom(pos int64, f func(e Entry, pos int64) (more bool, err error)) error {
	more := true
	for more {
		before := pos
		err := x.read(pos, func(e Entry, at int64) (bool, error) {
			var err error
			pos = at + EntrySize
			more, err = f(e, at)
			return more, err
		})
		if err != nil {
			return err
		}
		if pos == before {
			return nil
		}
	}
	return nil
}

// read hands the entries of the block at pos to f.
func (x *Index) read(pos int64, f func(e Entry, pos int64) (more bool, err error)) error {
	return x.shared(func() error {
		_, err := x.block(pos, f)
		return err
	})
}

// block reads up to blockEntries entries at pos and says how many bytes they are. The caller holds mu, if only shared.
func (x *Index) block(pos int64, f func(e Entry, pos int64) (more bool, err error)) (int64, error) {
	n := min(x.size-pos, blockEntries*EntrySize)
	if n <= 0 {
		return 0, nil
	}
	buf := blocks.Get().(*[blockEntries * EntrySize]byte)
	defer blocks.Put(buf)
	b := buf[:n]
	if err := readFull(x.file, b, pos); err != nil {
		return 0, &fs.PathError{Op: "read", Path: x.name, Err: err}
	}
	for at := int64(0); at < n; at += EntrySize {
		e, version := Decode(b[at:])
		if version != 0 {
			return 0, x.versionError(version, pos+at)
		}
		if more, err := f(e, pos+at); err != nil || !more {
			return n, err
		}
	}
	return n, nil
}

func (x *Index) versionError(version int16, pos int64) error {
	return &CorruptError{File: x.name, Position: pos, Reason: fmt.Sprintf("version %d is not known, only 0", version)}
}

// cut sets the file's length and learns the last entry again. The caller holds mu; the file is open.
func (x *Index) cut(size int64) error {
	if n, err := x.file.Size(); err != nil || n == size {
		return err
	}
	x.unsynced = true
	if err := x.file.Truncate(size); err != nil {
		return err
	}
	x.known = false
	return x.learn()
}

func (x *Index) release() error {
	if x.file == nil {
		return nil
	}
	f := x.file
	x.file, x.write, x.known, x.sound = nil, false, false, 0
	err := f.Close()
	if err != nil && x.unsynced && x.syncErr == nil {
		x.syncErr = err
	}
	return err
}

// readFull fills b; a file that is shorter than it was is io.ErrUnexpectedEOF.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case err == nil || err == io.EOF:
		return io.ErrUnexpectedEOF
	default:
		return err
	}
}
