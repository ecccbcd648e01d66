package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
)

// A stage is a log root that is being made, where nobody takes it for one:
//
//	dst.partial.lock   taken: a second one waits for nothing and is refused
//	dst.partial/       what a crash left of an earlier one goes first; then everything is written and synced
//	dst                renamed, the directory above synced: from now on it is there, whole
type stage struct {
	fs    vfs.FS // holds dst
	owned io.Closer
	path  string // dst, for messages
	name  string // dst below fs
	part  string
	root  vfs.FS // the tree below part
	lock  io.Closer
	done  bool
}

const partialSuffix = ".partial"

// newStage begins one. source is the tree that the copy is made of; dst must not lie inside.
func newStage(source vfs.FS, dst string, fsys vfs.FS) (_ *stage, err error) {
	st := &stage{fs: fsys, path: dst, name: dst}
	if dst == "" {
		return nil, &DestinationError{Path: `""`, Reason: "the path is empty", Err: fs.ErrInvalid}
	}
	if fsys == nil {
		if err := st.openOS(source, dst); err != nil {
			return nil, err
		}
	} else if err := st.refuse(source, fsys, dst); err != nil {
		return nil, err
	} else if err := vfs.MkdirDurable(fsys, path.Dir(dst), 0o755); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.end())
		}
	}()
	st.part = st.name + partialSuffix
	if st.lock, err = st.fs.Lock(st.part + lockFile); err != nil {
		return nil, openError(st.path+partialSuffix, err)
	}
	if exists(st.fs, st.name) { // looked at under the lock
		return nil, st.exists()
	}
	if err := removeTree(context.Background(), st.fs, st.part); err != nil {
		return nil, fmt.Errorf("remove what an interrupted call left: %w", err)
	}
	if err := st.fs.MkdirAll(st.part, 0o755); err != nil {
		return nil, err
	}
	st.root, err = vfs.Sub(st.fs, st.part)
	return st, err
}

// openOS opens the directory above dst, creating it only when it is known to be fit.
func (st *stage) openOS(source vfs.FS, dst string) error {
	abs, err := filepath.Abs(dst)
	if err != nil {
		return err
	}
	st.path, st.name = abs, filepath.Base(abs)
	above, name := filepath.Dir(abs), st.name
	for at := above; ; { // the closest directory that exists
		looked, err := vfs.OSReadOnly(at)
		if err == nil {
			err = st.refuse(source, looked, name)
			if err = errors.Join(err, closeTree(looked)); err != nil {
				return err
			}
			break
		}
		up := filepath.Dir(at)
		if !errors.Is(err, fs.ErrNotExist) || up == at {
			return openError(at, err)
		}
		at, name = up, path.Join(filepath.Base(at), name)
	}
	if st.fs, err = vfs.OS(above); err != nil {
		return openError(above, err)
	}
	st.owned, _ = st.fs.(io.Closer)
	return nil
}

func (st *stage) refuse(source, fsys vfs.FS, name string) error {
	switch {
	case !fs.ValidPath(name) || name == ".":
		return &DestinationError{Path: st.path, Reason: "not the name of a new directory", Err: fs.ErrInvalid}
	case source != nil && vfs.Within(source, fsys, name):
		return &DestinationError{Path: st.path, Reason: "it lies inside the log root, where a broker takes every directory for a partition"}
	case exists(fsys, name):
		return st.exists()
	}
	return nil
}

func (st *stage) exists() error {
	return &DestinationError{Path: st.path, Reason: "it exists already", Err: fs.ErrExist}
}

// commit makes the stage what it was made for. Everything in it is synced but names of the root itself.
func (st *stage) commit() error {
	if err := syncDir(st.fs, st.part); err != nil {
		return err
	}
	if err := st.fs.Rename(st.part, st.name); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return st.exists()
		}
		return err
	}
	st.done = true
	if err := syncDir(st.fs, path.Dir(st.name)); err != nil {
		return fmt.Errorf("%s is whole, but a power cut may take it away: %w", st.path, err)
	}
	return nil
}

// end gives the stage up, with what it holds unless it was committed.
func (st *stage) end() error {
	var errs []error
	if st.root != nil && !st.done {
		errs = append(errs, removeTree(context.Background(), st.fs, st.part))
	}
	if st.lock != nil {
		errs = append(errs, st.lock.Close())
	}
	if st.owned != nil {
		errs = append(errs, st.owned.Close())
	}
	return errors.Join(errs...)
}

// copySmall copies a file of a root, durably but for its name. fs.ErrNotExist: there is none.
func copySmall(from vfs.FS, name string, to vfs.FS) error {
	_, err := vfs.Copy(from, name, to, name)
	return err
}

// writeTopicID gives a partition folder its topic id; without one it gets no file.
func writeTopicID(fsys vfs.FS, folder string, id checkpoint.ID) error {
	if id.IsZero() {
		return nil
	}
	return checkpoint.WriteTopicID(fsys, folder+"/"+checkpoint.Metadata, id)
}
