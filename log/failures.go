package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Failure is work in the background that failed and is going to be tried again.
type Failure struct {
	TopicPartition TopicPartition // zero: the root as a whole
	Task           string         // what was done: "flush", "checkpoint", "retention", "delete" and so on; "open" for a partition that could not be opened
	Err            error
	Since          time.Time // when it failed for the first time, by DirConfig.Now
	Times          int       // in a row
}

func (f *Failure) Error() string {
	where := "the log root"
	if f.TopicPartition != (TopicPartition{}) {
		where = f.TopicPartition.String()
	}
	return fmt.Sprintf("log: %s of %s: %v", f.Task, where, f.Err)
}

// Unwrap gives the reason.
func (f *Failure) Unwrap() error { return f.Err }

// failures are those of one log, or of the root, by task.
type failures struct {
	count atomic.Int32 // of them, to be read without mu

	// mu is a leaf, held for an instant.
	mu  sync.Mutex
	all []Failure // a few at most
}

// put notes a failure, and says whether it is a new one.
func (f *failures) put(failed Failure) (isNew bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.all {
		if old := &f.all[i]; old.Task == failed.Task && old.TopicPartition == failed.TopicPartition {
			isNew = old.Err.Error() != failed.Err.Error()
			old.Err, old.Times = failed.Err, old.Times+1
			return isNew
		}
	}
	f.all = append(f.all, failed)
	f.count.Store(int32(len(f.all)))
	return true
}

// clear forgets the failure of a task that went well.
func (f *failures) clear(task string) { f.clearOf(TopicPartition{}, task) }

func (f *failures) clearOf(tp TopicPartition, task string) {
	if f.count.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = slices.DeleteFunc(f.all, func(old Failure) bool {
		return old.Task == task && (tp == TopicPartition{} || old.TopicPartition == tp)
	})
	f.count.Store(int32(len(f.all)))
}

// list is a copy, by task.
func (f *failures) list() []Failure {
	if f.count.Load() == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Clone(f.all)
	slices.SortFunc(all, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(a.Task, b.Task), a.TopicPartition.compare(b.TopicPartition))
	})
	return all
}

// note keeps how a task went in f, and tells of a failure: the first time, and whenever the reason is another one. A log
// that was closed meanwhile is no failure.
func (d *Dir) note(f *failures, tp TopicPartition, task string, now time.Time, err error) {
	if err == nil || errors.Is(err, ErrClosed) {
		f.clearOf(tp, task)
		return
	}
	failed := Failure{TopicPartition: tp, Task: task, Err: err, Since: now, Times: 1}
	if !f.put(failed) {
		return
	}
	d.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, task+" failed", slog.String("partition", tp.label()), slog.Any("error", err))
	if e := d.cfg.Events; e != nil && e.Failed != nil {
		out := &d.out
		if l, ok := d.Get(tp); ok {
			out = &l.out
		}
		out.add(func(e *Events) { e.Failed(tp, &failed) })
	}
}

// label is the partition's name; "" for none.
func (tp TopicPartition) label() string {
	if tp == (TopicPartition{}) {
		return ""
	}
	return tp.String()
}

// failed lists what fails of one task, over all logs.
func (d *Dir) failed(task string) (errs []error) {
	for _, f := range d.allFailures() {
		if f.Task == task {
			errs = append(errs, &f)
		}
	}
	return errs
}

// allFailures lists what fails, of the root and of open logs.
func (d *Dir) allFailures() []Failure {
	all := d.failures.list()
	for l := range d.open() {
		all = append(all, l.failures.list()...)
	}
	slices.SortStableFunc(all, func(a, b Failure) int { return a.TopicPartition.compare(b.TopicPartition) })
	return all
}
