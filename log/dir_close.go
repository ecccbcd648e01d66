package log

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/partlog/partlog/internal/checkpoint"
)

// Close ends the background work, closes every partition and then the root: all is synced, checkpoints and the
// clean-shutdown marker are written, and the lock is released. It waits for running appends, not for iterators. If a
// partition could not be flushed the marker is withheld, so that the next open (ours or a broker's) recovers. Folders of
// deleted partitions whose time has not come stay, and go after the next open. A second Close returns ErrClosed.
func (d *Dir) Close() error {
	logs, first := d.beginEnd()
	if !first {
		return ErrClosed
	}
	d.background.end()
	var errs []error
	for {
		errs = append(errs, d.shutAll(logs)...)
		running := d.running()
		if running == nil {
			break
		}
		<-running
		logs, _ = d.beginEnd() // what another call had begun to open
	}
	d.removeAtClose()
	errs = append(errs, d.writeRoot(), d.lock.Close(), closeTree(d.own))
	d.deliver()
	return errors.Join(errs...)
}

// beginEnd refuses what comes from now on and gives the logs that are open.
func (d *Dir) beginEnd() (logs []*Log, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first, d.closed = !d.closed && d.fs != nil, true
	logs = slices.Collect(maps.Values(d.logs))
	if d.inOrder() {
		slices.SortFunc(logs, byName)
	}
	return logs, first
}

// inOrder says that logs are to be worked on one after the other, by their names.
func (d *Dir) inOrder() bool { return d.cfg.Manual && d.cfg.SyncParallelism == 1 }

// shutAll closes logs, several at a time.
func (d *Dir) shutAll(logs []*Log) []error {
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, len(logs))
	for range min(d.cfg.SyncParallelism, len(logs)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(logs)); i = next.Add(1) - 1 {
				_, errs[i] = d.shut(logs[i], false)
			}
		})
	}
	all.Wait()
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// running is closed when one of the partitions that are being loaded or closed is done; nil if there is none.
func (d *Dir) running() chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, running := range d.busy {
		return running
	}
	return nil
}

// writeRoot leaves the root as a cleanly stopped broker does: checkpoints first, the marker last.
func (d *Dir) writeRoot() error {
	err := d.points.writeAll(context.Background())
	stopped := false
	if err == nil {
		stopped, err = d.stoppedCleanly()
	}
	if err := errors.Join(err, d.hints.close(stopped)); err != nil || !stopped {
		return err
	}
	d.mu.Lock()
	epoch := d.epoch
	d.mu.Unlock()
	return checkpoint.WriteCleanMarker(d.fs, epoch)
}

// stoppedCleanly: the marker speaks for every partition of the root.
func (d *Dir) stoppedCleanly() (bool, error) {
	unclean, _, err := d.partitions(func(tp TopicPartition) bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.startsClean(tp)
	})
	return len(unclean) == 0, err
}

// shut ends one log and remembers how, in the checkpoints too, soon, if asked. It is false if another call did or does it.
func (d *Dir) shut(l *Log, write bool) (mine bool, err error) {
	if !d.beginClose(l) {
		return false, nil
	}
	state := failed
	defer func() {
		d.end(l.tp, state, nil)
		l.deliver()
	}()
	if err := l.shut(); err != nil {
		return true, err
	}
	state = rested
	if write {
		err = d.points.soon(context.Background())
	}
	return true, err
}
