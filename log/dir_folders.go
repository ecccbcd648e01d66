package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/partlog/partlog/vfs"
)

// FolderState is what a partition's folder is whose name has one of Kafka's suffixes.
type FolderState uint8

const (
	FolderDeleting = FolderState(deletingFolder) // -delete: of a deleted partition, its files go after file.delete.delay.ms
	FolderStray    = FolderState(strayFolder)    // -stray: set aside, because nobody knew the partition any more
	FolderFuture   = FolderState(futureFolder)   // -future: the copy that a move to this root makes, or has left
)

// String is Kafka's suffix without its dash: "delete", "stray" or "future".
func (s FolderState) String() string { return folderState(s).String() }

// MarkedFolder is a folder of the root that is a partition's, but no live one's.
type MarkedFolder struct {
	Name string // in the root
	// TopicPartition as the name has it: of a deleted or stray partition the topic may be cut at its end.
	TopicPartition TopicPartition
	State          FolderState
}

// Marked lists the folders of deleted, stray and moved partitions, by name. None of them is ever loaded.
func (d *Dir) Marked() []MarkedFolder {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]MarkedFolder, 0, len(d.marked))
	for _, f := range d.marked {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b MarkedFolder) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// readMarked finds them at OpenDir, and has those of deleted partitions removed: a minute, or whatever the default of
// file.delete.delay.ms is, after they were last changed.
func (d *Dir) readMarked(entries []fs.DirEntry) {
	delay := d.cfg.Defaults.withDefaults().FileDeleteDelay
	for _, e := range entries {
		if !e.IsDir() || ignoredFolder(e.Name()) {
			continue
		}
		if tp, err := ParseTopicPartition(e.Name()); err == nil && tp.String() != e.Name() {
			d.misnamed[tp] = e.Name()
		}
		if f, ok := markedFolder(e.Name()); ok {
			d.mark(f.Name)
			if f.State == FolderDeleting {
				d.doomFound(f.Name, e, delay)
			}
		}
	}
}

// misnamed refuses a partition whose folder a broker would load, but name otherwise: beside a folder of the right name, which an open
// here would make, no broker starts.
func misnamed(folder string, tp TopicPartition) error {
	return &FolderError{Name: folder, Reason: fmt.Sprintf("its number is not written as in %s, whose folder a broker takes it for; give it that name", tp)}
}

// doomFound is doom for a folder whose deletion was begun by an earlier owner of the root.
func (d *Dir) doomFound(folder string, e fs.DirEntry, delay time.Duration) {
	if delay == Forever {
		return
	}
	now := d.cfg.Now()
	since := now
	if info, err := e.Info(); err == nil && info.ModTime().Before(now) {
		since = info.ModTime()
	}
	d.doomed = append(d.doomed, doomed{folder, since.Add(max(delay, 0)), max(delay, 0)})
}

// markedFolder reads the name of a folder that is a partition's, but no live one's.
func markedFolder(name string) (MarkedFolder, bool) {
	tp, state, err := parseFolder(name)
	return MarkedFolder{Name: name, TopicPartition: tp, State: FolderState(state)}, err == nil && state != liveFolder
}

func (d *Dir) mark(folder string) {
	f, ok := markedFolder(folder)
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.marked[folder] = f; f.State == FolderFuture {
		d.futures[f.TopicPartition] = folder
	}
}

func (d *Dir) unmark(folder string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.marked[folder]; f.State == FolderFuture && d.futures[f.TopicPartition] == folder {
		delete(d.futures, f.TopicPartition)
	}
	delete(d.marked, folder)
}

// futureOf is the folder of a copy of the partition, if there is one.
func (d *Dir) futureOf(tp TopicPartition) (folder string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	folder, ok = d.futures[tp]
	return folder, ok
}

// SetStray sets a partition aside, as a broker does with one that the cluster does not know any more: it is closed, with
// everything synced, and its folder, whose new name is returned, ends in -stray. Nobody loads or removes it but Unstray, and
// from now on the partition can be made anew. What the checkpoints alone knew of it (a log start inside a segment, the high
// watermark) is forgotten. Errors as Delete's.
func (d *Dir) SetStray(ctx context.Context, tp TopicPartition) (folder string, err error) {
	if d.fs == nil {
		return "", ErrClosed
	}
	return d.putAside(ctx, tp, FolderStray, func(l *Log) error { return l.shut() })
}

// Unstray makes the folder of a stray partition that of the live partition tp again, and leaves it to Open to recover it
// from its start. Kafka has no such command: its administrator renames the folder while the broker is stopped. tp is given
// because the name of the folder may have lost the end of a long topic.
//
// ErrNoPartition: there is no such stray folder, or it is not tp's. ErrPartitionExists: tp is there already.
func (d *Dir) Unstray(ctx context.Context, folder string, tp TopicPartition) error {
	if d.fs == nil {
		return ErrClosed
	}
	if err := tp.Validate(); err != nil {
		return err
	}
	d.mu.Lock()
	f, ok := d.marked[folder]
	d.mu.Unlock()
	if !ok || f.State != FolderStray || f.TopicPartition.Partition != tp.Partition || !strings.HasPrefix(tp.Topic, f.TopicPartition.Topic) {
		return fmt.Errorf("%w: no stray folder %q of %s", ErrNoPartition, folder, tp)
	}
	return d.comeAlive(ctx, folder, tp, failed)
}

// comeAlive gives a marked folder the name of a partition that is not there. The marks that the root has of the partition
// are kept if state is untouched.
func (d *Dir) comeAlive(ctx context.Context, folder string, tp TopicPartition, state partitionState) error {
	err := d.hold(ctx, tp, func() (bool, error) {
		if d.moves[tp] {
			return false, fmt.Errorf("%w: %s", ErrMoving, tp)
		}
		if d.logs[tp] != nil {
			return false, fmt.Errorf("%w: %s", ErrPartitionExists, tp)
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	d.mu.Lock()
	was := d.states[tp]
	d.mu.Unlock()
	defer func() { d.end(tp, was, nil) }()
	if exists(d.fs, tp.String()) {
		return fmt.Errorf("%w: %s", ErrPartitionExists, tp)
	}
	if state != untouched {
		if err := d.forget(ctx, tp); err != nil {
			return err
		}
	}
	if err := d.fs.Rename(folder, tp.String()); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%w: %s: %w", ErrPartitionExists, tp, err)
		}
		return err
	}
	d.unmark(folder)
	was = state
	return syncDir(d.fs, ".")
}

// removeTree removes a folder and everything in it. What is gone already is no error.
func removeTree(ctx context.Context, fsys vfs.FS, name string) error {
	entries, err := fsys.ReadDir(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		child := name + "/" + e.Name()
		if e.IsDir() {
			err = removeTree(ctx, fsys, child)
		} else {
			err = fsys.Remove(child)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
