package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// maxNameLen is the longest file or directory name the usual file systems take. Mem and Overlay refuse longer ones too,
// so that a topic name that cannot exist on a disk does not exist in a test either.
const maxNameLen = 255

const (
	accessFlags = os.O_RDONLY | os.O_WRONLY | os.O_RDWR
	changeFlags = os.O_WRONLY | os.O_RDWR | os.O_CREATE | os.O_TRUNC
)

var (
	errNotRegular   = errors.New("not a regular file")
	errAppendFlag   = fmt.Errorf("%w: O_APPEND with positional I/O", fs.ErrInvalid)
	errTruncateFlag = fmt.Errorf("%w: O_TRUNC without write access", fs.ErrInvalid)
	errMode         = fmt.Errorf("%w: permission bits beyond 0777", fs.ErrInvalid)
	errNegative     = fmt.Errorf("%w: negative offset or length", fs.ErrInvalid)
)

// checkName refuses names that are not of the form fs.ValidPath describes: no "..", no leading slash, no empty element.
func checkName(op, name string) error {
	if !fs.ValidPath(name) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return nil
}

// checkNames is checkName for calls that take two names.
func checkNames(op, old, new string) error {
	if !fs.ValidPath(old) || !fs.ValidPath(new) {
		return &os.LinkError{Op: op, Old: old, New: new, Err: fs.ErrInvalid}
	}
	return nil
}

// checkOpen refuses what no implementation offers.
func checkOpen(name string, flag int, perm fs.FileMode) error {
	var err error
	switch {
	case !fs.ValidPath(name):
		err = fs.ErrInvalid
	case flag&os.O_APPEND != 0:
		err = errAppendFlag
	case flag&os.O_TRUNC != 0 && flag&accessFlags == os.O_RDONLY:
		err = errTruncateFlag
	case perm&^0o777 != 0:
		err = errMode
	case name == ".":
		err = syscall.EISDIR
	default:
		return nil
	}
	return &fs.PathError{Op: "open", Path: name, Err: err}
}
