package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ErrTooLong is returned by ReadFile for a file longer than its caller is ready to hold in memory.
var ErrTooLong = errors.New("vfs: file longer than allowed")

// ReadFile reads a whole small file. A file longer than max bytes is ErrTooLong and is not read; max < 0 is refused.
func ReadFile(fsys FS, name string, max int64) (_ []byte, err error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > max || int64(int(size)) != size {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("%w: %d bytes, at most %d", ErrTooLong, size, max)}
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF { // io.EOF: the file was cut since; what is there is its content
		return nil, err
	}
	return b[:n], nil
}
