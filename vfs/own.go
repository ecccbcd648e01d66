package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
)

// CopySuffix stands behind the name of an unfinished copy that Own makes.
const CopySuffix = ".tmp"

// Own sees to it that a file has no other name (Links), so that a change of it is seen nowhere else: if it has, the name is
// given to a copy, durably, and the old file stays whole under its other names and for those who have it open. copied says
// that this was done. Where links cannot be counted nothing is. A crash leaves the old file or the copy, and perhaps a file
// named with CopySuffix.
func Own(fsys FS, name string) (copied bool, err error) {
	n, err := Links(fsys, name)
	if errors.Is(err, ErrUnsupported) || err == nil && n < 2 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	unfinished := name + CopySuffix
	if _, err := Copy(fsys, name, fsys, unfinished); err != nil {
		return false, errors.Join(err, removeFile(fsys, unfinished))
	}
	if err := fsys.Rename(unfinished, name); err != nil {
		return false, errors.Join(err, removeFile(fsys, unfinished))
	}
	if err := fsys.SyncDir(path.Dir(name)); err != nil && !errors.Is(err, ErrUnsupported) {
		return true, err
	}
	return true, nil
}

func removeFile(fsys FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Copy copies a file as long as it is now into another tree, where an existing one is replaced. Content and length are on
// the device when it returns, the name is not: see FS.SyncDir.
func Copy(from FS, name string, to FS, newName string) (bytes int64, err error) {
	src, err := from.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer src.Close()
	size, err := src.Size()
	if err != nil {
		return 0, err
	}
	dst, err := to.OpenFile(newName, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	if err := CopyRange(src, dst, size, nil); err != nil {
		return 0, &fs.PathError{Op: "copy", Path: name, Err: err}
	}
	return size, dst.Sync()
}

// CopyRange copies the first n bytes of src to the same places of dst. told, which may be nil, is called after each piece
// with the bytes done; its error ends the copy. io.ErrUnexpectedEOF: src is shorter.
func CopyRange(src io.ReaderAt, dst io.WriterAt, n int64, told func(done int64) error) error {
	buf := make([]byte, min(max(n, 1), 256<<10))
	for at := int64(0); at < n; {
		b := buf[:min(int64(len(buf)), n-at)]
		got, err := src.ReadAt(b, at)
		if got < len(b) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		if _, err := dst.WriteAt(b, at); err != nil {
			return err
		}
		at += int64(got)
		if told != nil {
			if err := told(at); err != nil {
				return err
			}
		}
	}
	return nil
}
