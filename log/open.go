package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// loneName is the partition that Open creates in an empty root.
var loneName = TopicPartition{Topic: "log", Partition: 0}

// Open owns dir as a Kafka log root with one partition in it: the single one found there, or a new log-0. A folder with a
// partition's name counts if it is empty or holds a file of a log. It takes dir/.lock, runs no background work and shares
// everything with OpenDir; Close closes the root too.
//
// ErrLocked: someone else has the root. ErrNotLog: dir is empty or a file, holds several partitions (use OpenDir) or is
// itself a partition folder (open its parent). *ConfigError: c cannot be used, and nothing was touched. ErrReadOnly: the
// directory cannot be written. ErrNoSpace: a new log, or bytes that were to be saved before they are cut, have no room; what is
// merely derived from the records waits in memory for some (RecoveryReport.Unfiled). ErrCorrupt: bytes below the recovery point are damaged; no
// byte of a log or checkpoint was changed (indexes of what is intact before them may have been made anew, and the marker of
// a clean stop is gone: it said what is not so).
func Open(dir string, c Config) (*Log, error) {
	if dir == "" {
		return nil, errNoPath
	}
	if err := errors.Join(c.Validate(), c.idle(c.MaxBytes)); err != nil {
		return nil, err
	}
	if err := notPartition(dir); err != nil {
		return nil, err
	}
	d, err := OpenDir(dir, DirConfig{Manual: true})
	if err != nil {
		return nil, err
	}
	l, err := d.openLone(dir, c)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return l, nil
}

// notPartition refuses a path that is a partition folder: a root must not be made inside it.
func notPartition(dir string) error {
	fsys, err := vfs.OSReadOnly(dir)
	if err != nil {
		return nil // not there yet, or OpenDir will say what is wrong
	}
	bases, err := segment.List(fsys, ".")
	if err = errors.Join(err, closeTree(fsys)); err == nil && len(bases) > 0 {
		return fmt.Errorf("%w: %s is a partition folder; open the directory above it", ErrNotLog, dir)
	}
	return nil
}

func (d *Dir) openLone(dir string, c Config) (*Log, error) {
	partitions, entries, err := d.partitions(func(TopicPartition) bool { return false })
	if err != nil {
		return nil, openError(dir, err)
	}
	tp := loneName
	switch len(partitions) {
	case 0:
	case 1:
		tp = partitions[0]
	default:
		return nil, fmt.Errorf("%w: %s holds %d partitions; use OpenDir", ErrNotLog, dir, len(partitions))
	}
	l, err := d.openAs(context.Background(), tp, c, opening{entries: entries})
	if err != nil {
		return nil, err
	}
	l.lone = true
	return l, nil
}

// newLog fits a configuration to a partition; nothing is read yet.
func (d *Dir) newLog(tp TopicPartition, c Config) (*Log, error) {
	if err := tp.Validate(); err != nil {
		return nil, err
	}
	t, err := d.tune(c)
	if err != nil {
		return nil, err
	}
	l := &Log{dir: d, now: d.cfg.Now, names: newGate(), starts: newGate(), write: newGate(), snapshots: newGate()}
	l.tuned.Store(t)
	l.fs, l.name, l.tp = d.fs, tp.String(), tp
	if d.reserve.min > 0 {
		l.spare = func(n int64) error { return d.reserve.admit(n, l.now()) }
	}
	l.producers = newProducers(t.Config)
	l.cleaner.running = newGate()
	return l, nil
}

// Close flushes everything, leaves the folder as a cleanly stopped broker would, and ends all calls: appends and
// iterators get ErrClosed. It waits for running appends, not for iterators. A log from Open also closes its root. One of a
// Dir has the root's checkpoints written, which list all partitions. In a root of more than 16 they are written for several logs
// at once, at the latest with the next checkpoint (DirConfig.CheckpointInterval, RunOnce, Dir.Close): a log that was closed just
// before a crash may be recovered as if it had been open. A second Close returns ErrClosed.
func (l *Log) Close() error {
	switch {
	case l.dir == nil:
		return ErrClosed
	case l.lone:
		return l.dir.Close()
	}
	mine, err := l.dir.shut(l, true)
	if !mine {
		return ErrClosed
	}
	return err
}

// shut ends the log: no more appends, everything synced, its checkpoint values noted. After a failed write or sync
// nothing is claimed: the recovery point stays where it was.
func (l *Log) shut() error {
	l.cleaner.stop()
	if err := l.lockNames(context.Background()); err != nil {
		return err
	}
	defer l.unlockNames()
	if err := l.commits.acquire(context.Background()); err != nil {
		return err
	}
	defer l.commits.release()
	failed := l.ended()
	l.finish(ErrClosed)
	_ = l.discardAll() // the next open removes what cannot be removed now
	segs := *l.list.Load()
	if failed != nil {
		for _, seg := range segs {
			seg.Abandon()
		}
		return fmt.Errorf("close %s: %w", l.name, failed)
	}
	return l.shutSegments(segs)
}

func (l *Log) shutSegments(segs segments) error {
	var err error
	if !l.rested(segs) {
		err = l.settleFiles(segs)
	}
	for _, seg := range segs {
		err = errors.Join(err, seg.Close())
	}
	if err != nil {
		return fmt.Errorf("close %s: %w", l.name, err)
	}
	l.update(func(o *Offsets) { o.Durable, o.RecoveryPoint = o.LogEnd, o.LogEnd })
	o := l.load()
	l.dir.points.setAll(l.tp, o, segs[0].Base())
	return nil
}

// rested says that every file of the log is on the device as it should be left: nothing was written since it was opened, or
// since it was closed and opened again in between. A recovery ends with a sync, and a clean stop vouches for what it left.
func (l *Log) rested(segs segments) bool {
	o := l.load()
	if o.RecoveryPoint < o.LogEnd || l.loose || l.commits.born < segs.active().Base() || l.epochs.Dirty() || l.producers.unwritten() {
		return false
	}
	for _, seg := range segs {
		if !seg.Rested() {
			return false
		}
	}
	return true
}

// settleFiles makes the files what a cleanly stopped broker leaves, durably. What was synced before is not synced again: of
// a log that was, most often only the last entry of a time index is to come.
func (l *Log) settleFiles(segs segments) error {
	err := segs.active().Seal(context.Background())
	for _, seg := range segs.notBelow(l.load().RecoveryPoint) {
		if e := seg.SyncWritten(); e != nil && !errors.Is(e, fs.ErrClosed) {
			err = errors.Join(err, fmt.Errorf("sync %s: %w", l.name, e))
		}
	}
	err = errors.Join(err, l.syncDir(), l.epochs.Flush(context.Background()))
	if err == nil {
		if err = l.writeSnapshots(turn{context.Background()}); err == nil {
			_, err = l.producers.state.Take(l.fs, l.name)
		}
	}
	return err
}

// exists says whether name is there; an error counts as yes, so that nothing is made over what cannot be looked at.
func exists(fsys vfs.FS, name string) bool {
	_, err := fsys.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}
