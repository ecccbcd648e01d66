package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"time"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
)

// BackupOptions of Backup; the zero value is right for most.
type BackupOptions struct {
	// FS is the tree that dst is a path of; nil: the operating system's.
	FS vfs.FS
	// Copy makes no hard links. A link costs no space and no time, and partlog never changes a file that has another name:
	// it cuts and appends to a copy. A broker does not look: where one may truncate the log later (a follower does), or where
	// the backup is to outlive damage of the disk's sectors, copy. A destination on another device is copied in any case.
	Copy bool
	// Partitions of Dir.Backup; nil: all of the root.
	Partitions []TopicPartition
	// Progress is called now and then, from the goroutine of the call. It must not call the log.
	Progress func(CopyProgress)
}

// CopyProgress says how far a backup, restore or hand-over is.
type CopyProgress struct {
	TopicPartition
	Phase       string // "verify", "copy", "link", "check": what is done with File
	File        string // path below the root
	Done, Total int64  // bytes of the partition's .log files
}

// CopyReport says what a backup, restore or hand-over made.
type CopyReport struct {
	Partitions []CopiedPartition
	Linked     int64         // bytes of .log files that are hard links
	Copied     int64         // bytes of .log files that were copied
	Took       time.Duration // by the wall clock
}

// CopiedPartition is a partition of a CopyReport.
type CopiedPartition struct {
	TopicPartition
	LogStart, HighWatermark, LogEnd int64 // of the copy; a backup ends at what was durable
	Segments                        int
	Bytes                           int64 // of its .log files
}

// ErrDestination is what a *DestinationError is.
var ErrDestination = errors.New("log: destination cannot be used")

// DestinationError: a backup, restore or hand-over cannot be made there. Nothing was changed.
type DestinationError struct {
	Path   string // as given
	Reason string // part of a sentence
	Err    error  // fs.ErrExist if it is there already; may be nil
}

func (e *DestinationError) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrDestination, e.Path, e.Reason)
}

// Is makes errors.Is(err, ErrDestination) true.
func (e *DestinationError) Is(target error) bool { return target == ErrDestination }

// Unwrap gives the cause.
func (e *DestinationError) Unwrap() error { return e.Err }

// Backup makes a copy of the log as it is at one moment during the call, beside appends, reads, retention, compaction and
// truncation. dst is a new directory, outside of the log's root: a log root of its own, left as by a clean stop, which
// holds this one partition with its records, offsets, marks, epochs, producers and topic id. Open opens it, and so does a
// broker.
//
// Everything appended before the call is in it, and on the device. Sealed segments are hard links where the file system
// can, see BackupOptions.Copy; the active one is copied. What was copied is read back, with the checksums of all batches;
// of links the length is looked at. Appends wait twice for an instant, at worst for a sync. The backup appears at dst when
// it is whole and durable: until then it is made in dst + ".partial", which the next Backup to dst removes if a crash left
// it.
//
// *DestinationError: dst exists (fs.ErrExist) or lies inside the root. ErrLocked: another backup to dst is under way.
// *CorruptError: what was copied cannot be read. ErrNoSpace. After an error there is no backup, and what was written is
// removed.
func (l *Log) Backup(ctx context.Context, dst string, o BackupOptions) (CopyReport, error) {
	if err := l.ended(); err != nil {
		return CopyReport{}, err
	}
	o.Partitions = []TopicPartition{l.tp}
	return l.dir.backup(ctx, dst, o, func(yield func(*Log, error) bool) { yield(l, nil) })
}

// Backup is Log.Backup for all partitions of the root, or those that o names, one after the other: each is whole by
// itself, taken at a moment of its own. Those that are not open are opened, and stay open. A partition that is deleted
// meanwhile is left out; one that cannot be opened ends the backup, unless o.Partitions leaves it out.
func (d *Dir) Backup(ctx context.Context, dst string, o BackupOptions) (CopyReport, error) {
	if d.fs == nil {
		return CopyReport{}, ErrClosed
	}
	tps := o.Partitions
	if tps == nil {
		var err error
		if tps, _, err = d.partitions(func(TopicPartition) bool { return false }); err != nil {
			return CopyReport{}, err
		}
	}
	return d.backup(ctx, dst, o, func(yield func(*Log, error) bool) {
		for _, tp := range tps {
			if !exists(d.fs, tp.String()) {
				// Gone meanwhile, or a folder that spells the number in another way: that must not be left out in silence.
				if (o.Partitions != nil || d.has(tp)) && !yield(nil, fmt.Errorf("back up %s: %w: no folder has that name", tp, ErrNoPartition)) {
					return
				}
				continue
			}
			l, err := d.Open(ctx, tp, Config{})
			if err != nil {
				err = fmt.Errorf("back up %s: %w", tp, err)
			}
			if !yield(l, err) {
				return
			}
		}
	})
}

// backup copies the logs that each gives.
func (d *Dir) backup(ctx context.Context, dst string, o BackupOptions, each iter.Seq2[*Log, error]) (_ CopyReport, err error) {
	began := time.Now()
	st, err := newStage(d.fs, dst, o.FS)
	if err != nil {
		return CopyReport{}, err
	}
	defer func() { err = spaceError(errors.Join(err, st.end())) }()
	r, err := d.backupTo(ctx, st, o, each)
	if err != nil {
		return CopyReport{}, err
	}
	if err := st.commit(); err != nil {
		return CopyReport{}, err
	}
	r.Took = time.Since(began)
	return r, nil
}

func (d *Dir) backupTo(ctx context.Context, st *stage, o BackupOptions, each iter.Seq2[*Log, error]) (r CopyReport, err error) {
	marks := newMadeMarks()
	for l, bad := range each {
		if bad != nil {
			return r, bad
		}
		tp := l.tp
		b := &logBackup{log: l, root: st.root, link: !o.Copy, told: o.Progress, report: &r}
		err := b.run(ctx)
		if errors.Is(err, ErrClosed) && o.Partitions == nil && d.lacks(ctx, tp) {
			if err = removeTree(ctx, st.root, tp.String()); err == nil {
				continue
			}
		}
		if err != nil {
			return r, fmt.Errorf("back up %s: %w", tp, err)
		}
		marks.set(tp, b.at.o, b.at.segs.first().Base())
		if b.at.cleaned >= 0 {
			marks[checkpoint.CleanerOffsets][checkpoint.Partition(tp)] = b.at.cleaned
		}
	}
	if err := copySmall(d.fs, checkpoint.MetaProperties, st.root); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	if err := marks.write(st.root); err != nil {
		return r, err
	}
	epoch, _ := d.CleanShutdown()
	return r, checkpoint.WriteCleanMarker(st.root, epoch)
}

// lacks says that a partition is not there any more, once whoever deletes or moves it is done.
func (d *Dir) lacks(ctx context.Context, tp TopicPartition) bool {
	err := d.hold(ctx, tp, func() (bool, error) { return false, nil })
	return err == nil && !exists(d.fs, tp.String())
}

// madeMarks are the four checkpoints of a root that is being made.
type madeMarks map[string]map[checkpoint.Partition]int64

func newMadeMarks() madeMarks {
	m := madeMarks{}
	for _, name := range pointFiles {
		m[name] = map[checkpoint.Partition]int64{}
	}
	return m
}

// set is points.setAll of a log of which all is on the device.
func (m madeMarks) set(tp TopicPartition, o Offsets, firstBase int64) {
	key := checkpoint.Partition(tp)
	m[checkpoint.RecoveryPoints][key] = o.LogEnd
	m[checkpoint.HighWatermarks][key] = o.HighWatermark
	if o.LogStart > firstBase {
		m[checkpoint.LogStarts][key] = o.LogStart
	}
}

func (m madeMarks) write(root vfs.FS) error {
	for _, name := range pointFiles {
		if err := checkpoint.WriteOffsets(root, name, m[name]); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// spaceError gives a full device this package's name.
func spaceError(err error) error {
	if isNoSpace(err) && !errors.Is(err, ErrNoSpace) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
