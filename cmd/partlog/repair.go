package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

func repairCommand() *command {
	return &command{
		name: "repair", args: "DIR", summary: "mend what verify finds; deletes nothing, and without --apply only says what it would do",
		help: `
repair reads what verify reads and mends it. Without --apply it rehearses the whole repair on a view in memory and
prints each step; with --apply it takes the lock of the root (stop the broker first) and does the same on disk. DIR is
a partition folder, or a log root for all its partitions.

    partlog repair orders-0
    partlog repair orders-0 --apply

Records. Every batch with a right checksum is kept, wherever it stands, as far as offsets ascend and leader epochs do
not go back; where batches contradict each other the larger part is believed. A segment that ends badly is cut behind
its last good batch. A segment with damage in the middle is written anew from its good batches, before and behind, under
its old name; the offsets between are a gap, which readers step over. A segment with nothing good in it, or that only
repeats what others hold, is moved out.

Derived files. Indexes are rebuilt from the log, as are the index of aborted transactions and the leader epoch file.
Producer snapshots that cannot be read, or that contradict the batches, are moved out, and the state of producers is read
from the log. Lines of a checkpoint that make no sense are dropped, which means the safe side: scan again, show deleted
records again, start the high watermark anew. Leftovers are settled as a broker does. At last the log is opened and closed
once, so that the root is left as by a clean stop.

A batch is also kept where only its fields that no checksum covers are damaged, and the batches around it leave one
value for them: the base offset that joins its neighbours without a gap, the leader epoch that both have or that the
leader epoch file names, the length. A segment that was given another name gets back the one its batches ask for.

Nothing is deleted. Whatever leaves the root is first copied to a new folder below the quarantine, which is
<root>.quarantine beside the root unless --quarantine names another, and synced; each file is listed at the end. The new
form of a segment becomes valid by one rename (.cleaned to .swap), which a broker would complete too: a repair that is
killed at any point can be run again. What was lost is printed as ranges of offsets, also where only the checkpoints of the
root, or an index, know that there was something.

Folders in a root that are no partition's are left alone. Exit code 0: nothing left to mend. 1: without --apply there
is something to mend, with it something could not be mended. 2: it could not be done.`,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			apply := fl.Bool("apply", false, "change the files; without it only say what would be done")
			to := fl.String("quarantine", "", "`DIR` outside of the log root that takes what is moved out (default: <root>.quarantine)")
			s := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if err := want(args, "DIR"); err != nil {
					return err
				}
				c, err := s.config()
				if err != nil {
					return err
				}
				return runRepair(ctx, e, args[0], c, *apply, *to)
			}
		},
	}
}

func runRepair(ctx context.Context, e *env, dir string, c log.Config, apply bool, to string) (err error) {
	t, err := lookAtAll(dir)
	if err != nil {
		return err
	}
	t.notePassed(e)
	if t.folder != "" && t.folder != t.partitions[0].String() {
		return fmt.Errorf("%s is not how a log spells %s; rename the folder first", t.folder, t.partitions[0])
	}
	if to, err = quarantineDir(t.root, to); err != nil {
		return err
	}
	r := &repairer{ctx: ctx, e: e, t: t, c: c, apply: apply, q: newQuarantine(to, apply, time.Now())}
	if apply {
		root, err := vfs.OS(t.root)
		if err != nil {
			return err
		}
		lock, err := root.Lock(".lock")
		if err != nil {
			return inUse(t.root, err)
		}
		defer func() { err = errors.Join(err, lock.Close()) }()
		r.fs = &keepingFS{FS: root, q: r.q}
	} else {
		r.fs = &keepingFS{FS: vfs.Overlay(t.fs), q: r.q}
	}
	return r.run()
}

// quarantineDir is where to put things: never inside the root, where a broker would stumble over it.
func quarantineDir(root, given string) (string, error) {
	if given == "" {
		return filepath.Clean(root) + ".quarantine", nil
	}
	abs, err := resolve(given)
	if err != nil {
		return "", err
	}
	if rel, err := filepath.Rel(root, abs); err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return "", usagef("the quarantine %s lies inside the log root %s", given, root)
	}
	return abs, nil
}

// repairer mends the partitions of one root.
type repairer struct {
	ctx   context.Context
	e     *env
	t     *target
	c     log.Config
	apply bool
	fs    *keepingFS // the root, or a view of it that nobody else sees
	q     *quarantine
	steps int

	failure error // of writing to e.out
}

// say prints a step. Its first word is a verb, which is put into the past where the step is real.
func (r *repairer) say(verb, format string, args ...any) {
	r.steps++
	lead := "would " + verb
	if r.apply {
		lead = map[string]string{"move": "moved", "rewrite": "rewrote", "rebuild": "rebuilt", "mend": "mended", "rename": "renamed", "drop": "dropped", "settle": "settled", "close": "closed"}[verb]
		if lead == "" {
			lead = verb // cut, put
		}
	}
	r.print("%s %s", lead, fmt.Sprintf(format, args...))
}

func (r *repairer) print(format string, args ...any) {
	if _, err := fmt.Fprintf(r.e.out, format+"\n", args...); err != nil && r.failure == nil {
		r.failure = err
	}
}

// look verifies the partitions as they are now.
func (r *repairer) look() ([]log.Finding, error) {
	view := *r.t
	view.fs = r.fs
	return verifyAll(r.ctx, r.e, &view, r.c)
}

func (r *repairer) run() error {
	found, err := r.look()
	if err != nil {
		return fmt.Errorf("look for damage, nothing was changed: %w", err)
	}
	if len(found) == 0 {
		r.print("nothing to mend")
		return r.failure
	}
	for _, f := range found {
		r.print("found %s", f)
	}
	if err := r.mend(found); err != nil {
		return worded(err, "%s; what was moved out is in %s, run repair again", sentence(err), r.q.at)
	}
	left, err := r.look()
	if err != nil {
		return err
	}
	for _, f := range left {
		r.print("left %s", f)
	}
	r.sum(left)
	if r.failure != nil {
		return r.failure
	}
	if !r.apply || len(left) > 0 {
		return &exit{code: exitFound}
	}
	return nil
}

func (r *repairer) sum(left []log.Finding) {
	switch {
	case !r.apply:
		into := ""
		if len(r.q.kept) > 0 {
			into = fmt.Sprintf(" and puts %s (%s) into %s", counted(len(r.q.kept), "file"), counted(r.q.size, "byte"), r.q.at)
		}
		r.print("nothing was changed; --apply does %s%s", counted(r.steps, "such step"), into)
	case len(r.q.kept) > 0:
		r.print("put %s (%s) into %s", counted(len(r.q.kept), "file"), counted(r.q.size, "byte"), r.q.at)
	}
	for _, name := range r.q.kept {
		r.print("  %s", name)
	}
	if len(left) == 0 {
		r.print("verify finds nothing any more")
	} else {
		r.print("left for a person: %s", counted(len(left), "finding"))
	}
}

// mend does all steps. Each leaves a state from which a repair can begin anew.
func (r *repairer) mend(found []log.Finding) error {
	if err := r.rootFiles(found); err != nil {
		return err
	}
	for _, tp := range r.t.partitions {
		if !concerns(found, tp) {
			continue
		}
		if err := r.partition(tp); err != nil {
			return fmt.Errorf("%s: %w", tp, err)
		}
	}
	return r.reopen(found)
}

// contentsOf says what offsets a log holds, by its batches.
func contentsOf(l *log.Log) string {
	o := l.Offsets()
	for _, s := range l.SegmentInfos() {
		if s.Bytes > 0 {
			return holding(o.LogStart, o.LogEnd)
		}
	}
	return holding(o.LogEnd, o.LogEnd)
}

// concerns says whether findings speak of a partition: of a file in its folder, or of the root's files.
func concerns(found []log.Finding, tp log.TopicPartition) bool {
	for _, f := range found {
		if strings.HasPrefix(f.File, tp.String()+"/") || f.Kind == log.FindingCheckpoint || strings.Contains(f.Detail, tp.String()) {
			return true
		}
	}
	return false
}

// partition mends the files of one folder.
func (r *repairer) partition(tp log.TopicPartition) error {
	p := &partitionRepair{repairer: r, tp: tp, folder: tp.String(), interval: r.c.IndexIntervalBytes}
	steps := []func() error{p.settle, p.segments, p.marks, p.derived}
	for _, step := range steps {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// reopen opens the mended partitions as any writer would and closes them: indexes, epochs and checkpoints are fitted to
// each other, and the root ends as after a clean stop, unless other partitions of it still await their recovery.
func (r *repairer) reopen(found []log.Finding) error {
	at := &progress{e: r.e}
	defer at.done()
	d, err := log.OpenDir(r.t.root, log.DirConfig{FS: r.fs, NoEvict: !r.apply, Manual: true, Progress: at.recovered})
	if err != nil {
		return err
	}
	for _, tp := range r.t.partitions {
		if !concerns(found, tp) {
			continue
		}
		l, err := d.Open(r.ctx, tp, r.c)
		if err != nil {
			return errors.Join(fmt.Errorf("open %s after mending: %w", tp, err), d.Close())
		}
		for _, name := range l.Recovery().Removed {
			r.say("move", "%s out: what it speaks of is not in the log any more", name)
		}
		for _, f := range l.Recovery().Findings {
			if f.Kind != log.FindingShort { // the end that is known is fitted
				r.print("  %s", f)
			}
		}
		r.say("close", "%s cleanly: %s", tp, contentsOf(l))
	}
	return d.Close()
}
