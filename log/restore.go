package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// RestoreOptions of Restore; the zero value is right for most.
type RestoreOptions struct {
	From vfs.FS // the tree that the backup is a path of; nil: the operating system's
	FS   vfs.FS // the tree that root is a path of; nil: the operating system's
	// Link makes sealed segments hard links to the backup's, where the file system can. See BackupOptions.Copy for what
	// that means; the default is to copy.
	Link bool
	// Partitions to restore; nil: all of the backup.
	Partitions []TopicPartition
	// Config is what the logs were kept under. The verification takes IndexIntervalBytes and ProducerExpiry from it, as it
	// does from VerifyOptions; nothing else of it counts.
	Config Config
	// Progress is called now and then, from the goroutine of the call.
	Progress func(CopyProgress)
}

// ErrUnsound is what an *UnsoundError is.
var ErrUnsound = errors.New("log: not sound")

// UnsoundError: what should be restored or handed over is not as it should be. Nothing was changed.
type UnsoundError struct {
	Path     string
	Reason   string    // "" if Findings say it
	Findings []Finding // of Verify
}

func (e *UnsoundError) Error() string {
	text := fmt.Sprintf("%v: %s", ErrUnsound, e.Path)
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	for i, f := range e.Findings {
		if i == 3 {
			return text + fmt.Sprintf("; and %d more findings", len(e.Findings)-i)
		}
		text += fmt.Sprintf("; %v", f)
	}
	return text
}

// Is makes errors.Is(err, ErrUnsound) true.
func (e *UnsoundError) Is(target error) bool { return target == ErrUnsound }

// Restore copies the partitions of a backup, or of any log root that was stopped cleanly, to root: a directory that does
// not exist, which becomes the same root as the backup, identity (meta.properties) included; or an existing root that
// nobody has open, which gets the partitions beside its own. The backup is verified, every byte of it, before anything is
// changed; every copied batch is read back; and each partition appears whole and durable, or not at all. The backup stays as
// it is.
//
// *UnsoundError: the backup is damaged, or was not left by a clean stop. ErrPartitionExists: root has one of the partitions:
// nothing is ever overwritten. ErrNoPartition: the backup has no such partition. *DestinationError. ErrLocked: somebody
// has the existing root open (Dir.Restore is for this process).
func Restore(ctx context.Context, backup, root string, o RestoreOptions) (_ CopyReport, err error) {
	began := time.Now()
	src, err := openAtRest(backup, o.From)
	if err != nil {
		return CopyReport{}, err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	there, err := openExisting(src, root, o.FS)
	if err != nil {
		return CopyReport{}, err
	}
	var r CopyReport
	if there != nil {
		r, err = restoreInto(ctx, there, src, o)
	} else {
		r, err = restoreNew(ctx, root, src, o)
	}
	r.Took = time.Since(began)
	return r, spaceError(err)
}

// restoreInto opens an existing root for the time of the call.
func restoreInto(ctx context.Context, d *Dir, src *atRest, o RestoreOptions) (CopyReport, error) {
	r, err := d.restore(ctx, src, o)
	return r, errors.Join(err, d.Close())
}

// restoreNew makes a root.
func restoreNew(ctx context.Context, root string, src *atRest, o RestoreOptions) (r CopyReport, err error) {
	tps, err := src.verified(ctx, o)
	if err != nil {
		return r, err
	}
	st, err := newStage(src.fs, root, o.FS)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, st.end()) }()
	marks := newMadeMarks()
	for _, tp := range tps {
		c := src.copying(&r, o)
		if err := c.partition(ctx, tp, st.root, tp.String()); err != nil {
			return r, err
		}
		src.marksOf(tp, func(file string, offset int64) { marks[file][checkpoint.Partition(tp)] = offset })
	}
	if err := copySmall(src.fs, checkpoint.MetaProperties, st.root); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	if err := marks.write(st.root); err != nil {
		return r, err
	}
	if err := checkpoint.WriteCleanMarker(st.root, src.epoch); err != nil {
		return r, err
	}
	return r, st.commit()
}

// Restore is the package's Restore into this root, beside its open partitions. The restored ones are not opened.
func (d *Dir) Restore(ctx context.Context, backup string, o RestoreOptions) (_ CopyReport, err error) {
	if d.fs == nil || d.ended() {
		return CopyReport{}, ErrClosed
	}
	began := time.Now()
	src, err := openAtRest(backup, o.From)
	if err != nil {
		return CopyReport{}, err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	r, err := d.restore(ctx, src, o)
	r.Took = time.Since(began)
	return r, spaceError(err)
}

func (d *Dir) ended() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// restore makes the copies in a folder that a broker, too, takes for one of a deleted partition, and would remove after a
// crash:
//
//	T-P.<uuid>-delete/T-P   the copies, one beside the other
//	checkpoints             say of each what the backup's say
//	T-P                     renamed, one by one
func (d *Dir) restore(ctx context.Context, src *atRest, o RestoreOptions) (r CopyReport, err error) {
	tps, err := src.verified(ctx, o)
	if err != nil || len(tps) == 0 {
		return r, err
	}
	for _, tp := range tps {
		if d.has(tp) {
			return r, fmt.Errorf("%w: %s", ErrPartitionExists, tp)
		}
	}
	w, err := d.newWorkshop(tps[0])
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.end()) }()
	for _, tp := range tps {
		c := src.copying(&r, o)
		if err := c.partition(ctx, tp, w.root, tp.String()); err != nil {
			return r, err
		}
	}
	if err := syncDir(d.fs, w.folder); err != nil {
		return r, err
	}
	placed, err := d.install(ctx, w, tps, rested, func(tp TopicPartition) {
		src.marksOf(tp, func(file string, offset int64) { d.points.set(file, tp, offset) })
	})
	r.Partitions = r.Partitions[:placed]
	return r, err
}

// has says whether a partition is there, also by another spelling of its number.
func (d *Dir) has(tp TopicPartition) bool {
	all, _, err := Folders(d.fs)
	return err != nil || slices.Contains(all, tp)
}

// openExisting opens a root that is there, alone for this call; nil if there is none.
func openExisting(src *atRest, root string, fsys vfs.FS) (*Dir, error) {
	if root == "" {
		return nil, &DestinationError{Path: `""`, Reason: "the path is empty", Err: fs.ErrInvalid}
	}
	c := DirConfig{Manual: true}
	looked, err := openAtRest(root, fsys)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = refuseFolder(looked)
	if err == nil && vfs.Within(src.fs, looked.fs, ".") {
		err = &DestinationError{Path: root, Reason: "it lies inside of what is to be copied"}
	}
	if err = errors.Join(err, looked.close()); err != nil {
		return nil, err
	}
	if fsys != nil {
		c.FS = looked.fs
	}
	return OpenDir(root, c)
}

// refuseFolder refuses an existing directory that is no log root: a partition folder, or something else.
func refuseFolder(a *atRest) error {
	entries, err := a.fs.ReadDir(".")
	if err != nil {
		return err
	}
	if len(segment.Bases(entries)) > 0 {
		return &DestinationError{Path: a.path, Reason: "it is a partition folder; name the log root above it", Err: ErrNotLog}
	}
	named, foreign, err := Folders(a.fs)
	switch {
	case err != nil:
		return err
	case len(entries) > 0 && len(named) == 0 && !slices.ContainsFunc(entries, ofRoot):
		return &DestinationError{Path: a.path, Reason: "it holds files, and none of a log root", Err: ErrNotLog}
	case len(foreign) > 0:
		return &DestinationError{Path: a.path, Reason: fmt.Sprintf("it holds %s, which is no partition's: it is no log root", foreign[0]), Err: ErrNotLog}
	}
	return nil
}

// ofRoot says whether a name is that of a file that only a log root has.
func ofRoot(e fs.DirEntry) bool {
	name := e.Name()
	return slices.Contains(pointFiles, name) || name == checkpoint.CleanMarker || name == checkpoint.MetaProperties || name == lockFile
}
