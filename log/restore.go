package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
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
		text += fmt.Sprintf("; %s: %s", f.File, f.Detail)
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

// workshop is a folder inside a root where partitions are made.
type workshop struct {
	dir    *Dir
	folder string
	root   vfs.FS
}

func (d *Dir) newWorkshop(tp TopicPartition) (*workshop, error) {
	w := &workshop{dir: d, folder: tp.markedFolder(deletingFolder)}
	if err := d.fs.MkdirAll(w.folder, 0o755); err != nil {
		return nil, err
	}
	var err error
	w.root, err = vfs.Sub(d.fs, w.folder)
	return w, err
}

func (w *workshop) end() error {
	return errors.Join(removeTree(context.Background(), w.dir.fs, w.folder), syncDir(w.dir.fs, "."))
}

// install gives partitions that were made in a workshop their places, under the marks that set sets. state is how they count
// from now on. placed is how many of them have theirs, from the first on, also after an error.
func (d *Dir) install(ctx context.Context, w *workshop, tps []TopicPartition, state partitionState, set func(TopicPartition)) (placed int, err error) {
	was := make([]partitionState, 0, len(tps))
	defer func() {
		for i, s := range was {
			if i < placed {
				s = state
			} else {
				err = errors.Join(err, d.forget(context.WithoutCancel(ctx), tps[i]))
			}
			d.end(tps[i], s, nil)
		}
	}()
	for _, tp := range tps {
		err := d.hold(ctx, tp, func() (bool, error) {
			switch {
			case d.moves[tp]:
				return false, fmt.Errorf("%w: %s", ErrMoving, tp)
			case d.logs[tp] != nil, exists(d.fs, tp.String()):
				return false, fmt.Errorf("%w: %s", ErrPartitionExists, tp)
			}
			return true, nil
		})
		if err != nil {
			return 0, err
		}
		d.mu.Lock()
		was = append(was, d.states[tp])
		d.mu.Unlock()
	}
	for _, tp := range tps {
		if err := d.forget(ctx, tp); err != nil {
			return 0, err
		}
		set(tp)
	}
	if err := d.points.writeAll(ctx); err != nil {
		return 0, err
	}
	for _, tp := range tps {
		if err := d.fs.Rename(w.folder+"/"+tp.String(), tp.String()); err != nil {
			return placed, errors.Join(err, syncDir(d.fs, "."))
		}
		placed++
	}
	return placed, errors.Join(syncDir(d.fs, "."), syncDir(d.fs, w.folder))
}

// atRest is a log root that nobody writes, opened for reading.
type atRest struct {
	fs     vfs.FS
	path   string
	owned  io.Closer
	points map[string]map[checkpoint.Partition]int64
	lost   map[string]error // checkpoints that are malformed
	epoch  int64
	clean  bool
}

func openAtRest(dir string, fsys vfs.FS) (_ *atRest, err error) {
	a := &atRest{path: dir, points: map[string]map[checkpoint.Partition]int64{}, lost: map[string]error{}}
	if dir == "" {
		return nil, errNoPath
	}
	if fsys == nil {
		a.fs, err = vfs.OSReadOnly(dir)
		a.owned, _ = a.fs.(io.Closer)
	} else {
		a.fs, err = vfs.Sub(fsys, dir)
	}
	if err == nil {
		err = a.read()
	}
	if err != nil {
		return nil, errors.Join(openError(dir, err), a.close())
	}
	return a, nil
}

func (a *atRest) close() error {
	if a.owned == nil {
		return nil
	}
	return a.owned.Close()
}

func (a *atRest) read() (err error) {
	info, err := a.fs.Stat(".")
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return ErrNotLog
	}
	if a.epoch, a.clean, err = checkpoint.ReadCleanMarker(a.fs); err != nil {
		return err
	}
	for _, name := range pointFiles {
		a.points[name], err = checkpoint.ReadOffsets(a.fs, name)
		if errors.Is(err, checkpoint.ErrFormat) {
			a.lost[name], err = err, nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// marksOf are the checkpoints' words on a partition.
func (a *atRest) marksOf(tp TopicPartition, set func(file string, offset int64)) {
	for _, name := range pointFiles {
		if at, ok := a.points[name][checkpoint.Partition(tp)]; ok {
			set(name, at)
		}
	}
}

// choose lists the partitions that are asked for; all if want is nil.
func (a *atRest) choose(want []TopicPartition) ([]TopicPartition, error) {
	all, _, err := Folders(a.fs)
	if err != nil || want == nil {
		return slices.Compact(slices.SortedFunc(slices.Values(all), TopicPartition.compare)), err
	}
	for _, tp := range want {
		if !slices.Contains(all, tp) {
			return nil, fmt.Errorf("%w: %s holds no %s", ErrNoPartition, a.path, tp)
		}
	}
	return slices.Compact(slices.SortedFunc(slices.Values(want), TopicPartition.compare)), nil
}

// verified chooses the partitions and verifies them.
func (a *atRest) verified(ctx context.Context, o RestoreOptions) ([]TopicPartition, error) {
	tps, err := a.choose(o.Partitions)
	if err != nil {
		return nil, err
	}
	if !a.clean {
		return nil, &UnsoundError{Path: a.path, Reason: "there is no marker of a clean stop: it is no backup, or somebody has it open, or did not stop cleanly"}
	}
	return tps, verifyRoot(ctx, a.fs, a.path, o.Partitions, o.Progress)
}

// verifyRoot is nil if Verify finds nothing.
func verifyRoot(ctx context.Context, fsys vfs.FS, path string, tps []TopicPartition, told func(CopyProgress)) error {
	bad := &UnsoundError{Path: path}
	o := VerifyOptions{Partitions: tps, Progress: func(p VerifyProgress) {
		if told != nil {
			folder, _, _ := strings.Cut(p.File, "/")
			tp, _ := ParseTopicPartition(folder)
			told(CopyProgress{tp, "verify", p.File, p.Done, p.Total})
		}
	}}
	for f, err := range Verify(ctx, fsys, o) {
		if err != nil {
			return err
		}
		bad.Findings = append(bad.Findings, f)
	}
	if len(bad.Findings) > 0 {
		return bad
	}
	return nil
}

// folderCopy copies a partition folder that nobody writes.
type folderCopy struct {
	src    *atRest
	link   bool
	told   func(CopyProgress)
	report *CopyReport
}

func (a *atRest) copying(r *CopyReport, o RestoreOptions) *folderCopy {
	return &folderCopy{src: a, link: o.Link, told: o.Progress, report: r}
}

// partition copies every file of the folder, and reads the copied segments back. All is synced when it returns, but for the
// folder's own name.
func (c *folderCopy) partition(ctx context.Context, tp TopicPartition, to vfs.FS, folder string) error {
	from, err := c.folderOf(tp)
	if err != nil {
		return err
	}
	entries, err := c.src.fs.ReadDir(from)
	if err != nil {
		return err
	}
	if err := to.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	p := CopiedPartition{TopicPartition: tp}
	bases := segment.Bases(entries)
	p.Segments = len(bases)
	total := int64(0)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".log") {
			total += info.Size()
		}
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		last := len(bases) > 0 && e.Name() == segment.FileName(bases[len(bases)-1], ".log")
		if err := c.file(ctx, &p, from, to, folder, e.Name(), last, total); err != nil {
			return fmt.Errorf("copy %s: %w", tp, err)
		}
	}
	c.src.marksOf(tp, func(file string, at int64) {
		switch file {
		case checkpoint.RecoveryPoints:
			p.LogEnd = at
		case checkpoint.HighWatermarks:
			p.HighWatermark = at
		case checkpoint.LogStarts:
			p.LogStart = at
		}
	})
	if len(bases) > 0 {
		p.LogStart = max(p.LogStart, bases[0])
	}
	c.report.Partitions = append(c.report.Partitions, p)
	return syncDir(to, folder)
}

// folderOf is the partition's folder; its number may be spelled in another way.
func (c *folderCopy) folderOf(tp TopicPartition) (string, error) {
	if exists(c.src.fs, tp.String()) {
		return tp.String(), nil
	}
	entries, err := c.src.fs.ReadDir(".")
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if found, err := ParseTopicPartition(e.Name()); err == nil && found == tp && e.IsDir() {
			return e.Name(), nil
		}
	}
	return "", fmt.Errorf("%w: %s", ErrNoPartition, tp)
}

func (c *folderCopy) file(ctx context.Context, p *CopiedPartition, from string, to vfs.FS, folder, file string, last bool, total int64) error {
	old, name := from+"/"+file, folder+"/"+file
	if !strings.HasSuffix(file, ".log") {
		_, err := vfs.Copy(c.src.fs, old, to, name)
		return err
	}
	info, err := c.src.fs.Stat(old)
	if err != nil {
		return err
	}
	done := p.Bytes
	p.Bytes += info.Size()
	if c.link && !last {
		if _, err := vfs.Links(c.src.fs, old); err == nil {
			err := vfs.LinkTo(c.src.fs, old, to, name)
			if err == nil {
				c.report.Linked += info.Size()
				return nil
			}
			if !errors.Is(err, vfs.ErrUnsupported) {
				return err
			}
		}
		c.link = false
	}
	tell := func(phase string) func(int64) {
		return func(at int64) {
			if c.told != nil {
				c.told(CopyProgress{p.TopicPartition, phase, name, done + at, total})
			}
		}
	}
	if err := copyLogFile(ctx, c.src.fs, old, to, name, info.Size(), tell("copy")); err != nil {
		return err
	}
	c.report.Copied += info.Size()
	base, err := parseOffset(strings.TrimSuffix(file, ".log"))
	if err != nil || file != segment.FileName(base, ".log") {
		return nil // no segment's
	}
	check := tell("check")
	return scanCopy(ctx, folder, base, segment.Options{FS: to, ReadOnly: true, Whole: c.src.clean}, func(at, _ int64) { check(at) })
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
