package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

// writing is a partition opened for change, the lock of its root held.
type writing struct {
	*log.Log
	dir *log.Dir
}

// openForWriting takes the lock of the root, opens the partition (recovering it if the last stop was not clean) and
// says on standard error what a person should know: foreign folders, what recovery found, settings without effect.
func openForWriting(ctx context.Context, e *env, t *target, s settings, c log.Config) (*writing, error) {
	return openAt(ctx, e, t, s, c, nil)
}

// openAt is openForWriting with another clock.
func openAt(ctx context.Context, e *env, t *target, s settings, c log.Config, clock func() time.Time) (*writing, error) {
	tp, err := t.one()
	if err != nil {
		return nil, err
	}
	if t.folder != "" && t.folder != tp.String() {
		return nil, fmt.Errorf("%s is not how a log spells %s; rename the folder first", t.folder, tp)
	}
	s.notes(e)
	at := &progress{e: e}
	d, err := log.OpenDir(t.root, log.DirConfig{Now: clock, Manual: true, Progress: at.recovered}) // a command does what it is told, nothing in the background
	if err != nil {
		return nil, inUse(t.root, err)
	}
	if t.missing {
		fmt.Fprintf(e.err, "note: creating %s\n", filepath.Join(t.root, tp.String()))
	}
	if _, foreign, err := d.Folders(); err == nil {
		for _, name := range foreign {
			fmt.Fprintf(e.err, "warning: %s is no partition folder; a broker would not start over it\n", filepath.Join(t.root, name))
		}
	}
	for _, name := range t.passed {
		fmt.Fprintf(e.err, "warning: %s is named like a partition, but holds nothing of one; a broker would take it for one\n", filepath.Join(t.root, name))
	}
	l, err := d.Open(ctx, tp, c)
	at.done()
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	announce(e, l)
	return &writing{Log: l, dir: d}, nil
}

// close leaves the root as a cleanly stopped broker does.
func (w *writing) close() error { return w.dir.Close() }

// announce tells what the open had to mend.
func announce(e *env, l *log.Log) {
	r := l.Recovery()
	for _, f := range r.Findings {
		fmt.Fprintf(e.err, "warning: %s: %s\n", f.File, f.Detail)
	}
	if r.Cut > 0 {
		fmt.Fprintf(e.err, "warning: %s cut off the end of %s\n", counted(r.Cut, "byte"), l.TopicPartition())
	}
	if r.SetAside > 0 {
		fmt.Fprintf(e.err, "warning: %s of whole segments of %s set aside\n", counted(r.SetAside, "byte"), l.TopicPartition())
	}
	for _, file := range r.Saved {
		fmt.Fprintf(e.err, "warning: what was taken out is kept in %s\n", file)
	}
}

// inUse says who has a root, or that nobody may write it.
func inUse(root string, err error) error {
	var locked *vfs.LockedError
	switch {
	case errors.As(err, &locked):
	case errors.Is(err, fs.ErrPermission) && !errors.Is(err, log.ErrReadOnly):
		return fmt.Errorf("%w: %w", log.ErrReadOnly, err)
	default:
		return err
	}
	holder := locked.Holder
	if holder == "" {
		holder = "another process"
	}
	return worded(err, "%s is in use by %s; stop it first (reading commands take no lock)", root, holder)
}
