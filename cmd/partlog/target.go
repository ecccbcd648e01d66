package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// target is what a DIR argument names: a log root, or one partition folder in it.
type target struct {
	root       string               // path of the log root
	fs         vfs.FS               // the root, read-only; nil if it does not exist yet
	partitions []log.TopicPartition // what is meant; on a root all that are there
	passed     []string             // directories of the root that are named like partitions and hold nothing of one
	isRoot     bool
	folder     string // name of the partition folder that was named; "" on a root
	missing    bool   // that folder does not exist yet (locate only)
}

// lookAt finds out what dir is, without changing anything. A partition folder has the name of a partition, and holds
// files of a log or nothing at all; its root is the directory above. A directory of any name with a segment in it is
// taken for a partition folder too, if only to say what is wrong with its name. All else is looked at as a root.
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
	t := &target{root: abs, fs: fsys, isRoot: true}
	if err := t.findPartitions(); err != nil {
		return nil, err
	}
	_, nameErr := log.ParseTopicPartition(filepath.Base(abs))
	switch {
	case !holdsSegment(entries) && (len(t.partitions) > 0 || holdsRoot(entries)):
		return t, nil
	case nameErr != nil && holdsSegment(entries):
		return nil, worded(nameErr, "%s holds segments, but its name is no partition's: %s", dir, sentence(nameErr))
	case nameErr == nil && len(entries) > 0 && !holdsLog(entries):
		return nil, worded(log.ErrNotLog, "%s is named like a partition, but holds neither a segment nor %s; it holds %s", dir, checkpoint.Metadata, someOf(entries))
	case nameErr == nil:
		return inRoot(abs, false)
	}
	return t, nil
}

// lookAtAll is lookAt for a command that takes every partition of a root: one at least.
func lookAtAll(dir string) (*target, error) {
	t, err := lookAt(dir)
	if err == nil && len(t.partitions) == 0 {
		return nil, t.noPartition(dir)
	}
	return t, err
}

// findPartitions takes in the partitions of a root: folders named like one that hold files of a log or nothing at all.
func (t *target) findPartitions() error {
	named, _, err := log.Folders(t.fs)
	if err != nil {
		return err
	}
	taken := map[log.TopicPartition]bool{}
	entries, err := t.fs.ReadDir(".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		tp, err := log.ParseTopicPartition(e.Name())
		if err != nil || !e.IsDir() || !slices.Contains(named, tp) {
			continue
		}
		inside, err := t.fs.ReadDir(e.Name())
		switch {
		case err == nil && len(inside) > 0 && !holdsLog(inside):
			t.passed = append(t.passed, e.Name())
		case !taken[tp]: // one that cannot be looked into too: the command will say why
			taken[tp] = true
			t.partitions = append(t.partitions, tp)
		}
	}
	return nil
}

// notePassed says which folders of a root do not count although they are named like partitions.
func (t *target) notePassed(e *env) {
	for _, name := range t.passed {
		fmt.Fprintf(e.err, "note: passed over %s: it is named like a partition, but holds nothing of one\n", filepath.Join(t.root, name))
	}
}

// noPartition is the error of a root without partitions.
func (t *target) noPartition(dir string) error {
	if len(t.passed) > 0 {
		return worded(log.ErrNotLog, "%s holds no partition folder; named like one, but without anything of a log in it: %s", dir, strings.Join(t.passed, ", "))
	}
	return worded(log.ErrNotLog, "%s holds no partition folder, and is none", dir)
}

// holdsLog says whether a directory holds anything that only a partition folder has: a file of a segment, or
// partition.metadata, or the leader epoch file.
func holdsLog(entries []fs.DirEntry) bool {
	for _, e := range entries {
		kind, plain := kindOf(e.Name())
		if kind == checkpoint.Metadata || kind == checkpoint.LeaderEpochs {
			return true
		}
		digits, _, _ := strings.Cut(plain, ".")
		if _, err := offsetArg(digits); err == nil && strings.HasPrefix(kind, ".") {
			return true
		}
	}
	return false
}

// holdsSegment says whether a directory holds the .log of a segment.
func holdsSegment(entries []fs.DirEntry) bool {
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		digits, isLog := strings.CutSuffix(e.Name(), ".log")
		_, err := offsetArg(digits)
		return isLog && err == nil && !e.IsDir()
	})
}

// holdsRoot says whether a directory holds a file that only a log root has.
func holdsRoot(entries []fs.DirEntry) bool {
	for _, e := range entries {
		switch e.Name() {
		case checkpoint.MetaProperties, ".lock", checkpoint.CleanMarker, checkpoint.RecoveryPoints, checkpoint.LogStarts, checkpoint.HighWatermarks, checkpoint.CleanerOffsets:
			return true
		}
	}
	return false
}

// someOf names a few entries of a directory.
func someOf(entries []fs.DirEntry) string {
	const most = 3
	var names []string
	for _, e := range entries[:min(most, len(entries))] {
		names = append(names, e.Name())
	}
	text := strings.Join(names, ", ")
	if more := len(entries) - len(names); more > 0 {
		text += fmt.Sprintf(" and %s more", counted(more, "name"))
	}
	return text
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
	if err := mayBecomeRoot(filepath.Dir(abs), filepath.Base(abs)); err != nil {
		return nil, err
	}
	return inRoot(abs, true)
}

// mayBecomeRoot refuses to make a log root of a directory inside of another root or of a partition: no broker starts
// over that.
func mayBecomeRoot(root, folder string) error {
	for at := root; ; at = filepath.Dir(at) {
		entries, err := os.ReadDir(at)
		_, nameErr := log.ParseTopicPartition(filepath.Base(at))
		switch {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil // nothing of ours can be told of what cannot be read
		case nameErr == nil && holdsLog(entries):
			return worded(log.ErrNotLog, "%s is a partition folder: no other can be created in it; name %s", at, filepath.Join(filepath.Dir(at), folder))
		case holdsRoot(entries) && at == root:
			return nil
		case holdsRoot(entries):
			return worded(log.ErrNotLog, "%s would become a log root inside the log root %s, over which no broker starts; name %s", root, at, outside(root, at, folder))
		case at == filepath.Dir(at):
			return nil
		}
	}
}

// outside suggests where to make folder instead: beside the partitions of the root at; for a root of its own, outside of at.
func outside(root, at, folder string) string {
	if filepath.Base(root) == folder {
		return "a path outside of it"
	}
	return filepath.Join(at, folder)
}

// one is the single partition a command needs.
func (t *target) one() (log.TopicPartition, error) {
	switch len(t.partitions) {
	case 1:
		return t.partitions[0], nil
	case 0:
		return log.TopicPartition{}, t.noPartition(t.root)
	}
	names := make([]string, len(t.partitions))
	for i, tp := range t.partitions {
		names[i] = tp.String()
	}
	return log.TopicPartition{}, worded(log.ErrNotLog, "%s holds %d partitions; name one of them: %s", t.root, len(names), strings.Join(names, ", "))
}

// openReader reads the partition that dir names, or the only one of the root that dir names. What is read once is read as an open
// would find it where a swap of segments was interrupted; who follows a writer sees what comes.
func openReader(e *env, dir string, follows bool) (*log.Reader, error) {
	t, err := lookAt(dir)
	if err != nil {
		return nil, err
	}
	tp, err := t.one()
	if err != nil {
		return nil, err
	}
	t.notePassed(e)
	folder := t.folder
	if folder == "" {
		folder = tp.String()
	}
	dir = filepath.Join(t.root, folder)
	if view := t.settled(folder); view != nil && !follows {
		if r, err := log.OpenReader(dir, log.ReaderOptions{FS: view}); err == nil {
			return r, nil
		}
	}
	return log.OpenReader(dir, log.ReaderOptions{})
}

// settled is a view of the root in which a swap of segments that was interrupted in the folder is finished, or undone, as an open
// would; nil if there is none.
func (t *target) settled(folder string) vfs.FS {
	entries, err := t.fs.ReadDir(folder)
	if err != nil || !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return strings.HasSuffix(e.Name(), ".swap") }) {
		return nil
	}
	view := vfs.Overlay(t.fs)
	if _, err := compaction.Settle(folder, segment.Options{FS: view}); err != nil {
		return nil
	}
	return view
}
