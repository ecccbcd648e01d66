package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/partlog/partlog/vfs"
)

// quarantine keeps copies of what a repair takes out of a log root: one folder a run, outside of the root.
type quarantine struct {
	at   string   // folder of this run, for people
	run  string   // its name in fs
	fs   vfs.FS   // nil: a rehearsal, nothing is written
	dir  string   // where fs will be, made with the first file
	kept []string // what it took, by name in the quarantine
	size int64
}

func newQuarantine(dir string, apply bool, now time.Time) *quarantine {
	q := &quarantine{run: now.UTC().Format("20060102T150405.000Z"), dir: dir}
	if !apply {
		q.dir = ""
	}
	q.at = dir + string(os.PathSeparator) + q.run
	return q
}

// open makes the folder when it is first needed.
func (q *quarantine) open() error {
	if q.fs != nil {
		return nil
	}
	fsys, err := vfs.OS(q.dir)
	if err == nil {
		err = fsys.MkdirAll(q.run, 0o755)
	}
	if err == nil {
		err = syncDirs(fsys, q.run, ".")
	}
	if err == nil {
		q.fs = fsys
	}
	return err
}

// keep copies a piece of a file, durably: when it returns the original may go.
func (q *quarantine) keep(from vfs.FS, name, as string, position, bytes int64) error {
	q.size += bytes
	if q.dir == "" {
		q.kept = append(q.kept, as)
		return nil
	}
	if err := q.open(); err != nil {
		return fmt.Errorf("quarantine %s: %w", name, err)
	}
	to := q.run + "/" + as
	for n := 2; q.taken(to); n++ {
		to = fmt.Sprintf("%s/%s.%d", q.run, as, n)
	}
	q.kept = append(q.kept, strings.TrimPrefix(to, q.run+"/"))
	if err := q.fs.MkdirAll(path.Dir(to), 0o755); err != nil {
		return err
	}
	if err := copyFile(from, name, q.fs, to, position, bytes); err != nil {
		return fmt.Errorf("quarantine %s: %w", name, err)
	}
	return syncDirs(q.fs, path.Dir(to), q.run)
}

func (q *quarantine) taken(name string) bool {
	_, err := q.fs.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// keepFile copies a whole file.
func (q *quarantine) keepFile(from vfs.FS, name string) error {
	info, err := from.Stat(name)
	if err != nil {
		return err
	}
	return q.keep(from, name, name, 0, info.Size())
}

func syncDirs(fsys vfs.FS, names ...string) error {
	for _, name := range names {
		if err := fsys.SyncDir(name); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	return nil
}

// copyFile copies bytes of a file and syncs the copy.
func copyFile(from vfs.FS, name string, to vfs.FS, as string, position, bytes int64) (err error) {
	src, err := from.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	dst, err := to.OpenFile(as, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	_, err = io.CopyBuffer(io.NewOffsetWriter(dst, 0), io.NewSectionReader(src, position, bytes), make([]byte, 256<<10))
	if err != nil {
		return err
	}
	return dst.Sync()
}

// keepingFS is a log root in which nothing of a partition is deleted: what is removed or replaced is put into the
// quarantine first. The root's lock is held by the repair.
type keepingFS struct {
	vfs.FS
	q *quarantine
}

func (k *keepingFS) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (k *keepingFS) Remove(name string) error {
	if err := k.keepIfThere(name); err != nil {
		return err
	}
	return k.FS.Remove(name)
}

func (k *keepingFS) Rename(old, new string) error {
	if !strings.HasSuffix(old, ".tmp") { // small files are replaced all the time; the repair keeps bad ones itself
		if err := k.keepIfThere(new); err != nil {
			return err
		}
	}
	return k.FS.Rename(old, new)
}

func (k *keepingFS) keepIfThere(name string) error {
	info, err := k.FS.Stat(name)
	if err != nil || info.IsDir() || info.Size() == 0 || !strings.Contains(name, "/") {
		return nil // an absent file is the caller's to find out
	}
	return k.q.keepFile(k.FS, name)
}
