package main

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

// target is what a DIR argument names: a log root, or one partition folder in it.
type target struct {
	root       string               // path of the log root
	fs         vfs.FS               // the root, read-only
	partitions []log.TopicPartition // what is meant; on a root all that are there
	foreign    []string             // directories of the root that are no partitions
	isRoot     bool
}

// lookAt finds out what dir is, without changing anything. A partition folder is one that holds a segment or whose
// name is a partition's and which is no root itself; its root is the directory above.
func lookAt(dir string) (*target, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	fsys, err := vfs.OSReadOnly(abs)
	if err != nil {
		return nil, err
	}
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return nil, err
	}
	tp, nameErr := log.ParseTopicPartition(filepath.Base(abs))
	holdsSegment, holdsPartition := false, false
	for _, e := range entries {
		holdsSegment = holdsSegment || !e.IsDir() && strings.HasSuffix(e.Name(), ".log")
		if e.IsDir() {
			_, err := log.ParseTopicPartition(e.Name())
			holdsPartition = holdsPartition || err == nil
		}
	}
	if holdsSegment || nameErr == nil && !holdsPartition {
		if nameErr != nil {
			return nil, fmt.Errorf("%s holds segments, but its name is no partition's: %w", dir, nameErr)
		}
		parent, err := vfs.OSReadOnly(filepath.Dir(abs))
		if err != nil {
			return nil, err
		}
		return &target{root: filepath.Dir(abs), fs: parent, partitions: []log.TopicPartition{tp}}, nil
	}
	t := &target{root: abs, fs: fsys, isRoot: true}
	t.partitions, t.foreign, err = log.Folders(fsys)
	return t, err
}

// one is the single partition a command needs.
func (t *target) one() (log.TopicPartition, error) {
	switch len(t.partitions) {
	case 1:
		return t.partitions[0], nil
	case 0:
		return log.TopicPartition{}, fmt.Errorf("%s holds no partition folder", t.root)
	}
	names := make([]string, len(t.partitions))
	for i, tp := range t.partitions {
		names[i] = tp.String()
	}
	return log.TopicPartition{}, fmt.Errorf("%s holds %d partitions; name one of them: %s", t.root, len(names), strings.Join(names, ", "))
}

// settings are the --config flags: Kafka's topic keys.
type settings map[string]string

func configFlag(fl *flag.FlagSet) settings {
	s := settings{}
	fl.Func("config", "`KEY=VALUE` one of Kafka's topic settings (segment.bytes=…, internal.segment.bytes for tiny segments); may be repeated", func(text string) error {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("want KEY=VALUE")
		}
		s[strings.TrimSpace(key)] = strings.TrimSpace(value)
		return nil
	})
	return s
}

func (s settings) config() (log.Config, error) { return log.ParseConfig(s) }
