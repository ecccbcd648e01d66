package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
)

// LinkTo makes a hard link to a file of one tree in another one: FS.Link where both are views of one tree, and a link
// between directories of the operating system. ErrUnsupported: these two have no such links, because they are different
// kinds of trees, lie on different devices, or their file system knows none. fs.ErrNotExist and fs.ErrExist as FS.Link.
func LinkTo(from FS, old string, to FS, new string) error {
	if err := checkNames("link", old, new); err != nil {
		return err
	}
	from, old = whole(from, old)
	to, new = whole(to, new)
	if same(from, to) {
		return linkable(from.Link(old, new))
	}
	a, isOS := from.(*osFS)
	b, bothOS := to.(*osFS)
	if !isOS || !bothOS {
		return &os.LinkError{Op: "link", Old: old, New: new, Err: ErrUnsupported}
	}
	return a.linkTo(old, b, new)
}

// linkTo goes by the paths that the roots had when they were opened, and looks whether these still lead to them.
func (o *osFS) linkTo(old string, to *osFS, new string) error {
	if err := to.change("link", new); err != nil {
		return err
	}
	was, err := o.root.Stat(old)
	if err != nil {
		return o.named("link", old, err)
	}
	if !was.Mode().IsRegular() {
		return o.named("link", old, errNotRegular)
	}
	if err := os.Link(o.full(old), to.full(new)); err != nil {
		return linkable(err)
	}
	if is, err := to.root.Stat(new); err == nil && os.SameFile(was, is) {
		return nil
	}
	// A root was renamed since, and something else has its name.
	err = fmt.Errorf("%w: a directory is not where it was", ErrUnsupported)
	return &os.LinkError{Op: "link", Old: o.full(old), New: to.full(new), Err: errors.Join(err, os.Remove(to.full(new)))}
}

// linkable gives the refusals of file systems without hard links one name.
func linkable(err error) error {
	for _, refusal := range []error{syscall.EXDEV, syscall.EPERM, syscall.EMLINK, syscall.ENOTSUP, syscall.ENOSYS} {
		if errors.Is(err, refusal) {
			return fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
	}
	return err
}

// Links is how many names a file has, as far as its file system says: more than one means that others see what is written
// to it. ErrUnsupported where that cannot be known.
func Links(fsys FS, name string) (int, error) {
	fi, err := fsys.Stat(name)
	if err != nil {
		return 0, err
	}
	if c, ok := fi.Sys().(interface{ Links() int }); ok {
		return c.Links(), nil
	}
	if n, ok := linksOf(fi); ok {
		return n, nil
	}
	return 0, &fs.PathError{Op: "links", Path: name, Err: ErrUnsupported}
}

// LinkCount is what the FileInfo.Sys of a tree that is not the operating system's may return: the number of a file's names,
// for [Links].
type LinkCount int

// Links is the count.
func (n LinkCount) Links() int { return int(n) }

// Within says whether name in one tree lies in another, or is its root. Trees of the operating system are compared by
// their paths, with symbolic links followed as far as they exist; trees of different kinds lie apart.
func Within(outer FS, fsys FS, name string) bool {
	outer, top := whole(outer, ".")
	fsys, name = whole(fsys, name)
	if same(outer, fsys) {
		return top == "." || name == top || strings.HasPrefix(name, top+"/")
	}
	a, isOS := outer.(*osFS)
	b, bothOS := fsys.(*osFS)
	if !isOS || !bothOS {
		return false
	}
	rel, err := filepath.Rel(realPath(a.full(top)), realPath(b.full(name)))
	return err == nil && (rel == "." || filepath.IsLocal(rel))
}

// realPath follows the symbolic links of the part of a path that exists.
func realPath(p string) string {
	for at, rest := p, ""; ; {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest)
		}
		up := filepath.Dir(at)
		if up == at {
			return p
		}
		at, rest = up, filepath.Join(filepath.Base(at), rest)
	}
}

// whole undoes Sub.
func whole(fsys FS, name string) (FS, string) {
	if s, ok := fsys.(*subFS); ok {
		return s.base, s.in(name)
	}
	return fsys, name
}

// same says whether two trees are one; values that cannot be compared are not.
func same(a, b FS) bool {
	t := reflect.TypeOf(a)
	return t == reflect.TypeOf(b) && t != nil && t.Comparable() && a == b
}
