package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

// viewed opens one partition over a view that keeps every change in memory, and lets go of it.
func viewed(ctx context.Context, e *env, t *target, tp log.TopicPartition, c log.Config, clock func() time.Time, look func(*log.Log) error) (err error) {
	if t.folder != "" && t.folder != tp.String() {
		return fmt.Errorf("%s is not how a log spells %s", t.folder, tp)
	}
	view := vfs.Overlay(t.fs)
	at := &progress{e: e}
	d, err := log.OpenDir(t.root, log.DirConfig{FS: view, Now: clock, NoEvict: true, Manual: true, Progress: at.recovered})
	if err != nil {
		return err
	}
	defer func() { // what this writes stays in the view as well
		if closed := d.Close(); err == nil && closed != nil {
			err = closed
		}
	}()
	l, err := d.Open(ctx, tp, c)
	at.done()
	if err != nil {
		return err
	}
	return look(l)
}

// each looks at every partition of the target. On a log root one that cannot be looked at is told of, and keeps no other from
// it.
func (t *target) each(ctx context.Context, e *env, command string, look func(tp log.TopicPartition) error) error {
	failed := 0
	for _, tp := range t.partitions {
		err := look(tp)
		if err != nil && (!t.isRoot || ctx.Err() != nil || errors.Is(err, syscall.EPIPE)) {
			return err
		}
		if err != nil {
			fmt.Fprintf(e.err, "partlog %s: %s: %s\n", command, tp, sentence(err))
			failed = max(failed, failureCode(err))
		}
	}
	if failed != 0 {
		return &exit{code: failed}
	}
	return nil
}

// failureCode is the exit code of one partition's error where others follow.
func failureCode(err error) int {
	if errors.Is(err, log.ErrCorrupt) {
		return exitFound
	}
	return exitFailed
}
