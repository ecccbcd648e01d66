package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/partlog/partlog/vfs"
)

// doomed is the folder of a deleted partition, whose files go at due, and never later than delay from now: the clock may be put
// back.
type doomed struct {
	folder string
	due    time.Time
	delay  time.Duration
}

// retryRemoval is how long a folder waits that could not be removed.
const retryRemoval = time.Minute

// Delete deletes a partition as a broker does: it is closed without another write, its folder gets a name that ends in
// -delete, durably, the checkpoints forget it, and its files are removed file.delete.delay.ms (Config.FileDeleteDelay)
// later in the background; after a crash, that long after the next open. From its return on the partition can be made
// anew. Iterators of the log end with ErrClosed, a Fetched stays readable until it is closed.
//
// ErrNoPartition: there is none, open or not. ErrMoving: a move of it is under way. ctx is heard until the folder is
// renamed. If that is what fails the partition is still there, but closed: Open loads it again, with a recovery.
func (d *Dir) Delete(ctx context.Context, tp TopicPartition) error {
	if d.fs == nil {
		return ErrClosed
	}
	delay := d.cfg.Defaults.withDefaults().FileDeleteDelay
	folder, err := d.putAside(ctx, tp, FolderDeleting, func(l *Log) error {
		delay = l.cfg().FileDeleteDelay
		return l.abandon(ctx)
	})
	if folder == "" {
		return err
	}
	d.doom(folder, delay)
	return err
}

// putAside gives a partition's folder another name, once close has ended its log if it is open. folder is "" if the
// partition is still there.
func (d *Dir) putAside(ctx context.Context, tp TopicPartition, state FolderState, closing func(*Log) error) (folder string, err error) {
	l, was, err := d.beginAside(ctx, tp)
	if err != nil {
		return "", err
	}
	defer func() { d.end(tp, was, l) }()
	if l == nil && isFile(d.fs, tp.String()) {
		return "", fmt.Errorf("%w: %s is a file", ErrNoPartition, tp)
	}
	if l != nil {
		err := closing(l)
		if isContext(err) && l.ended() == nil { // nothing has happened
			return "", err
		}
		defer l.deliver()
		if was, l = failed, nil; err != nil {
			return "", err
		}
	}
	return d.renameAside(ctx, tp, state, &was)
}

// renameAside is putAside of a partition that nobody has open.
func (d *Dir) renameAside(ctx context.Context, tp TopicPartition, state FolderState, was *partitionState) (folder string, err error) {
	folder = tp.markedFolder(folderState(state))
	switch err := d.fs.Rename(tp.String(), folder); {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w: %s", ErrNoPartition, tp)
	case err != nil:
		return "", fmt.Errorf("set %s aside: %w", tp, err)
	}
	*was = untouched
	d.mark(folder)
	if err := syncDir(d.fs, "."); err != nil {
		return folder, err
	}
	// The name comes first: the marks of a partition that is still there must not be lost. Those of one that is gone harm
	// nobody, and whoever makes it anew has them forgotten first.
	d.note(&d.failures, TopicPartition{}, taskForget, d.cfg.Now(), d.forgetSoon(context.WithoutCancel(ctx), tp))
	d.failures.clearOf(tp, taskOpen)
	return folder, nil
}

// taskForget is Failure.Task of entries of a deleted partition that could not be taken out of the checkpoints yet.
const taskForget = "forget"

// forget removes all that the root remembers of a partition that is not there any more.
func (d *Dir) forget(ctx context.Context, tp TopicPartition) error {
	return errors.Join(d.points.forget(ctx, tp), d.hints.forget(tp.String()))
}

// forgetSoon is forget with checkpoints that may be written later.
func (d *Dir) forgetSoon(ctx context.Context, tp TopicPartition) error {
	err := d.hints.forget(tp.String())
	if had := d.points.takeOutAll(tp); len(had) > 0 {
		err = errors.Join(err, d.points.soon(ctx))
	}
	return err
}

// beginAside takes a partition for a call that renames its folder; l is its log if it was open, and is not any more.
func (d *Dir) beginAside(ctx context.Context, tp TopicPartition) (l *Log, was partitionState, err error) {
	if err := ctx.Err(); err != nil {
		return nil, untouched, err
	}
	err = d.hold(ctx, tp, func() (bool, error) {
		if d.moves[tp] {
			return false, fmt.Errorf("%w: %s", ErrMoving, tp)
		}
		if l = d.logs[tp]; l != nil {
			d.takeOut(l)
		}
		was = d.states[tp]
		return true, nil
	})
	return l, was, err
}

// abandon ends the log and writes nothing. Its error is ctx's, and then nothing has happened. It returns when a compaction
// that was under way is over: it would go on in the folder of whoever makes the partition anew.
func (l *Log) abandon(ctx context.Context) error {
	if err := l.leave(ctx); err != nil {
		return err
	}
	l.cleaner.stop()
	return nil
}

func (l *Log) leave(ctx context.Context) error {
	if err := l.lockNames(ctx); err != nil {
		return err
	}
	defer l.unlockNames()
	if err := l.commits.acquire(ctx); err != nil {
		return err
	}
	defer l.commits.release()
	l.giveUp()
	return nil
}

// giveUp is abandon for a caller that holds write and the round token.
func (l *Log) giveUp() {
	l.finish(ErrClosed)
	for _, seg := range *l.list.Load() {
		_ = seg.Abandon() // the files are about to go; what cannot be closed was written by nobody
	}
	for _, w := range l.discards.take(func(*discarded) bool { return true }) {
		if w.seg != nil {
			_ = w.seg.Abandon()
		}
	}
}

// doom has a folder removed after delay.
func (d *Dir) doom(folder string, delay time.Duration) {
	if delay == Forever {
		return
	}
	d.doomAfter(folder, d.cfg.Now(), max(delay, 0))
}

func (d *Dir) doomAfter(folder string, now time.Time, delay time.Duration) {
	d.mu.Lock()
	d.doomed = append(d.doomed, doomed{folder, now.Add(delay), delay})
	d.mu.Unlock()
	if d.background != nil { // else OpenDir is not done yet
		d.background.wake()
	}
}

// removalDue is when the next folder is to be removed.
func (d *Dir) removalDue(time.Time, bool) (at time.Time, ok bool) {
	now := d.cfg.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.doomed {
		f := &d.doomed[i]
		if latest := now.Add(f.delay); latest.Before(f.due) {
			f.due = latest
		}
		if !ok || f.due.Before(at) {
			at, ok = f.due, true
		}
	}
	return at, ok
}

// takeDoomed takes out the folders that are due.
func (d *Dir) takeDoomed(now time.Time) (due []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	keep := d.doomed[:0]
	for _, f := range d.doomed {
		if f.due.After(now) {
			keep = append(keep, f)
		} else {
			due = append(due, f.folder)
		}
	}
	d.doomed = keep
	return due
}

// removeDoomed removes the folders that are due, with all that is in them; those that will not go are tried again later. A file
// that came into the place of one is nobody's partition, and stays.
func (d *Dir) removeDoomed(ctx context.Context, now time.Time) (errs []error) {
	due := d.takeDoomed(now)
	if len(due) == 0 {
		return nil
	}
	unsure := syncDir(d.fs, ".") // or a crash could give a folder its old name back, and some of its files
	for _, folder := range due {
		err := unsure
		if err == nil && !isFile(d.fs, folder) {
			err = removeTree(ctx, d.fs, folder)
		}
		if err != nil {
			d.doomAfter(folder, now, retryRemoval)
			errs = append(errs, fmt.Errorf("remove %s: %w", folder, err))
			continue
		}
		d.unmark(folder)
	}
	return errs
}

// isFile says whether name is there and is no directory.
func isFile(fsys vfs.FS, name string) bool {
	info, err := fsys.Stat(name)
	return err == nil && !info.IsDir()
}

// removeAtClose removes what is due when the Dir closes.
func (d *Dir) removeAtClose() {
	for _, err := range d.removeDoomed(context.Background(), d.cfg.Now()) {
		d.cfg.Logger.Warn("a deleted partition could not be removed; the next open tries again", "error", err)
	}
}
