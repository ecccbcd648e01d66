package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

// target is what a DIR argument names: a log root, or one partition folder in it.
type target struct {
	root       string               // path of the log root
	fs         vfs.FS               // the root, read-only; nil if it does not exist yet
	partitions []log.TopicPartition // what is meant; on a root all that are there
	foreign    []string             // directories of the root that are no partitions
	isRoot     bool
	folder     string // name of the partition folder that was named; "" on a root
	missing    bool   // that folder does not exist yet (locate only)
}

// lookAt finds out what dir is, without changing anything. A partition folder is one that holds a segment, or one
// whose name is a partition's and which holds nothing of a root; its root is the directory above.
func lookAt(dir string) (*target, error) {
	abs, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, worded(fs.ErrNotExist, "%s does not exist", dir)
	}
	if err == nil && !info.IsDir() {
		return nil, worded(log.ErrNotLog, "%s is a file; name the partition folder or log root that holds it", dir)
	}
	fsys, err := vfs.OSReadOnly(abs)
	if err != nil {
		return nil, err
	}
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return nil, err
	}
	holdsSegment, holdsRoot := holds(entries)
	name := filepath.Base(abs)
	_, nameErr := log.ParseTopicPartition(name)
	if !holdsSegment && (nameErr != nil || holdsRoot) {
		t := &target{root: abs, fs: fsys, isRoot: true}
		t.partitions, t.foreign, err = log.Folders(fsys)
		return t, err
	}
	if nameErr != nil {
		return nil, worded(nameErr, "%s holds segments, but its name is no partition's: %s", dir, sentence(nameErr))
	}
	return inRoot(abs, false)
}

// holds says what a directory looks like: segments make a partition folder; partition folders and a root's own files
// make a root.
func holds(entries []fs.DirEntry) (segment, root bool) {
	for _, e := range entries {
		switch name := e.Name(); {
		case e.IsDir():
			_, err := log.ParseTopicPartition(name)
			root = root || err == nil
		case strings.HasSuffix(name, ".log"):
			segment = true
		case name == "meta.properties", name == ".lock", name == checkpoint.RecoveryPoints, name == checkpoint.HighWatermarks:
			root = true
		}
	}
	return segment, root
}

// inRoot is the target of a partition folder, whose name is known to be one.
func inRoot(abs string, missing bool) (*target, error) {
	t := &target{root: filepath.Dir(abs), folder: filepath.Base(abs), missing: missing}
	tp, err := log.ParseTopicPartition(t.folder)
	if err != nil {
		return nil, err
	}
	t.partitions = []log.TopicPartition{tp}
	t.fs, err = vfs.OSReadOnly(t.root)
	if missing && errors.Is(err, fs.ErrNotExist) {
		t.fs = nil
		return t, nil
	}
	return t, err
}

// resolve is dir as an absolute path with symbolic links followed as far as it exists: a partition's root is the
// directory that really holds it.
func resolve(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real, nil
	}
	if parent, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
		return filepath.Join(parent, filepath.Base(abs)), nil
	}
	return abs, nil
}

// locate is lookAt for a command that may create the partition folder it is given.
func locate(dir string) (*target, error) {
	t, err := lookAt(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		if err == nil && t.isRoot && len(t.partitions) == 0 {
			return nil, worded(log.ErrNotLog, "%s holds no partition folder; name the one to create, as %s", dir, filepath.Join(dir, "orders-0"))
		}
		return t, err
	}
	abs, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	tp, err := log.ParseTopicPartition(filepath.Base(abs))
	if err == nil {
		err = tp.Validate()
	}
	if err != nil {
		return nil, worded(err, "%s does not exist, and cannot be created as a partition folder: %s", dir, sentence(err))
	}
	return inRoot(abs, true)
}

// one is the single partition a command needs.
func (t *target) one() (log.TopicPartition, error) {
	switch len(t.partitions) {
	case 1:
		return t.partitions[0], nil
	case 0:
		return log.TopicPartition{}, worded(log.ErrNotLog, "%s holds no partition folder", t.root)
	}
	names := make([]string, len(t.partitions))
	for i, tp := range t.partitions {
		names[i] = tp.String()
	}
	return log.TopicPartition{}, worded(log.ErrNotLog, "%s holds %d partitions; name one of them: %s", t.root, len(names), strings.Join(names, ", "))
}

// openReader reads the partition that dir names, or the only one of the root that dir names.
func openReader(dir string) (*log.Reader, error) {
	t, err := lookAt(dir)
	if err != nil {
		return nil, err
	}
	tp, err := t.one()
	if err != nil {
		return nil, err
	}
	folder := t.folder
	if folder == "" {
		folder = tp.String()
	}
	return log.OpenReader(filepath.Join(t.root, folder), log.ReaderOptions{})
}
