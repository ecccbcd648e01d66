package log

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/partlog/partlog/vfs"
)

var errNoPath = fmt.Errorf("%w: the path is empty", ErrNotLog)

// openError gives an error of opening its name in this package.
func openError(path string, err error) error {
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return &openFailure{ErrLocked, path, err}
	case errors.Is(err, fs.ErrPermission), isReadOnlyFS(err):
		return &openFailure{ErrReadOnly, path, err}
	case isNoSpace(err):
		return &openFailure{ErrNoSpace, path, err}
	case errors.Is(err, syscall.ENOTDIR):
		return &openFailure{ErrNotLog, path, err}
	}
	return &openFailure{nil, path, err}
}

// openFailure is an error of opening a path, which it names once. kind may be nil.
type openFailure struct {
	kind error
	path string
	err  error
}

func (e *openFailure) Error() string {
	text := e.err.Error()
	if p, ok := e.err.(*fs.PathError); ok && filepath.Clean(p.Path) == filepath.Clean(e.path) {
		text = p.Err.Error()
	}
	text = e.path + ": " + text
	if e.kind == nil {
		return "open " + text
	}
	return e.kind.Error() + ": " + text
}

func (e *openFailure) Unwrap() []error {
	if e.kind == nil {
		return []error{e.err}
	}
	return []error{e.kind, e.err}
}
