package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/epoch"
	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// logBackup copies one log while it is written. It takes down what the log is at one moment, links or copies the files, and
// then looks whether the log still consists of them. If a truncation, a compaction or retention came between it takes the
// log down again, and keeps what is still part of it; after a few times it makes these wait.
type logBackup struct {
	log    *Log
	root   vfs.FS // to copy to
	link   bool
	told   func(CopyProgress)
	report *CopyReport
	at     *capture
	sealed []*sealedFiles
	bytes  int64 // of the .log files dealt with
}

// sealedFiles is a segment whose files are in the backup.
type sealedFiles struct {
	seg    *segment.Segment
	linked bool
	size   int64
}

// capture is a log at one moment. All below LogEnd is on the device.
type capture struct {
	segs     segments // retained
	o        Offsets
	cuts     uint64
	size     int64 // of the active segment
	epochs   []epoch.Entry
	id       checkpoint.ID
	snapshot producerstate.Snapshot
	cleaned  int64 // cleaner-offset-checkpoint; -1 none
	unlock   func()
}

func (c *capture) release() {
	for _, seg := range c.segs {
		seg.Release()
	}
	if c.unlock != nil {
		c.unlock()
	}
}

// errMoved: the files are not the log's any more.
var errMoved = errors.New("log: changed while it was copied")

// backupTries is how often the log is taken down before it is kept from changing.
const backupTries = 5

func (b *logBackup) run(ctx context.Context) error {
	for try := 1; ; try++ {
		c, err := b.log.capture(ctx, try > backupTries)
		if err != nil {
			return err
		}
		err = b.copy(ctx, c)
		if err == nil {
			err = b.holds(ctx, c)
		} else if !isContext(err) && !isNoSpace(err) && c.unlock == nil {
			if moved := b.holds(ctx, c); errors.Is(moved, errMoved) {
				err = moved
			}
		}
		c.release()
		if err == nil {
			b.count(c)
		}
		if !errors.Is(err, errMoved) {
			return err
		}
		if try > backupTries {
			return fmt.Errorf("%w: its files are not where they belong", err)
		}
	}
}

// capture takes the log down. With hold, nothing in it changes until the capture is released.
func (l *Log) capture(ctx context.Context, hold bool) (*capture, error) {
	if err := l.Sync(ctx); err != nil && !errors.Is(err, ErrNoSpace) { // most of it, while appends go on
		return nil, err
	}
	unlock, err := l.exclusive(ctx)
	if err != nil {
		return nil, err
	}
	c, err := l.captureLocked()
	if err != nil || !hold {
		unlock()
		return c, err
	}
	c.unlock = unlock
	return c, nil
}

func (l *Log) captureLocked() (*capture, error) {
	if o := l.load(); o.Durable < o.LogEnd {
		if err := l.syncRound(); err != nil {
			return nil, err
		}
	}
	segs := slices.Clone(*l.list.Load())
	active := segs.active()
	if err := active.Sync(); err != nil { // its last index entries
		return nil, err
	}
	snapshot, err := l.producers.state.Snapshot()
	if err != nil {
		return nil, err
	}
	c := &capture{epochs: l.epochs.Entries(), id: l.TopicID(), snapshot: snapshot, size: active.Size(), cleaned: -1}
	c.o, c.cuts = l.loadCuts()
	c.snapshot.Offset = c.o.LogEnd
	if at, ok, _ := l.dir.points.get(checkpoint.CleanerOffsets, l.tp); ok {
		c.cleaned = at
	}
	for _, seg := range segs {
		if !seg.Retain() {
			c.release()
			return nil, ErrClosed
		}
		c.segs = append(c.segs, seg)
	}
	return c, nil
}

// holds is errMoved if one of the files that were copied does not belong to the log any more. It waits for a swap that is
// under way: until then the list has segments whose names others may have.
func (b *logBackup) holds(ctx context.Context, c *capture) error {
	if c.unlock != nil {
		return nil
	}
	l := b.log
	if err := l.lockNames(ctx); err != nil {
		return err
	}
	defer l.unlockNames()
	if err := l.ended(); err != nil {
		return err
	}
	segs := *l.list.Load()
	if _, cuts := l.loadCuts(); cuts != c.cuts || !segs.hasRun(segs.floor(c.segs[0].Base()), c.segs) {
		return errMoved
	}
	return nil
}

func (b *logBackup) copy(ctx context.Context, c *capture) error {
	if err := b.keepOnly(ctx, c); err != nil {
		return err
	}
	if err := b.root.MkdirAll(b.log.name, 0o755); err != nil {
		return err
	}
	b.at, b.bytes = c, 0
	for _, seg := range c.segs[:len(c.segs)-1] {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := b.copySealed(ctx, seg); err != nil {
			return err
		}
	}
	if err := b.holds(ctx, c); err != nil { // before the largest copy
		return err
	}
	if err := b.copyActive(ctx, c); err != nil {
		return err
	}
	if err := b.copyState(c); err != nil {
		return err
	}
	return syncDir(b.root, b.log.name)
}

// keepOnly removes from the backup what is not part of the log any more.
func (b *logBackup) keepOnly(ctx context.Context, c *capture) error {
	if b.at == nil {
		return nil
	}
	was := b.sealed
	if b.sealed = nil; c.cuts != b.at.cuts {
		return removeTree(ctx, b.root, b.log.name)
	}
	keep := map[string]bool{}
	for _, f := range was {
		if slices.Contains(c.segs[:len(c.segs)-1], f.seg) {
			b.sealed = append(b.sealed, f)
			keep[segment.FileName(f.seg.Base(), "")] = true
		}
	}
	entries, err := b.root.ReadDir(b.log.name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	for _, e := range entries {
		if snapshotOffset(e.Name()) < 0 && keep[e.Name()[:min(20, len(e.Name()))]] {
			continue
		}
		if err := b.root.Remove(b.path(e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (b *logBackup) path(file string) string { return b.log.path(file) }

// copySealed links or copies a segment that does not change.
func (b *logBackup) copySealed(ctx context.Context, seg *segment.Segment) error {
	for _, f := range b.sealed {
		if f.seg == seg {
			b.bytes += f.size
			return nil
		}
	}
	file := b.path(segment.FileName(seg.Base(), ".log"))
	if seg.File() != file {
		return errMoved
	}
	f := &sealedFiles{seg: seg, size: seg.Size()}
	if b.link {
		err := vfs.LinkTo(b.log.fs, file, b.root, file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return errMoved
		case errors.Is(err, vfs.ErrUnsupported):
			b.link = false
		case err != nil:
			return err
		default:
			f.linked = true
		}
		if _, counted := vfs.Links(b.root, file); f.linked && counted != nil { // then nobody can tell that it is shared
			b.link, f.linked = false, false
			if err := b.root.Remove(file); err != nil {
				return err
			}
		}
	}
	if err := b.copyIndexes(ctx, seg); err != nil {
		return err
	}
	if f.linked {
		b.tell("link", file)
		if err := b.checkLength(file, f.size); err != nil {
			return err
		}
	} else if err := b.copyBytes(ctx, seg, f.size); err != nil {
		return err
	}
	b.bytes += f.size
	b.sealed = append(b.sealed, f)
	return nil
}

func (b *logBackup) checkLength(file string, size int64) error {
	info, err := b.root.Stat(file)
	if err != nil {
		return err
	}
	if info.Size() != size {
		return &CorruptError{File: file, Position: min(size, info.Size()), Offset: -1, Intact: [2]int64{-1, -1},
			Err: fmt.Errorf("it has %d bytes, the log knows %d", info.Size(), size)}
	}
	return nil
}

// copyIndexes copies what belongs to a segment beside its .log. A missing one is made anew by whoever opens the backup, but
// for the index of aborted transactions, which most segments do not have: it must not be missing only because a swap, which is
// then taken back, has it under another name.
func (b *logBackup) copyIndexes(ctx context.Context, seg *segment.Segment) error {
	if b.at.unlock == nil {
		release, err := b.log.holdSwaps(ctx)
		if err != nil {
			return err
		}
		defer release()
	}
	for _, kind := range []string{".index", ".timeindex", ".txnindex"} {
		name := b.path(segment.FileName(seg.Base(), kind))
		if _, err := vfs.Copy(b.log.fs, name, b.root, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// copyBytes copies the first size bytes of a .log, and reads the copy back.
func (b *logBackup) copyBytes(ctx context.Context, seg *segment.Segment, size int64) error {
	file := b.path(segment.FileName(seg.Base(), ".log"))
	if err := copyLogFile(ctx, b.log.fs, seg.File(), b.root, file, size, func(done int64) { b.tellAt("copy", file, b.bytes+done) }); err != nil {
		return err
	}
	o := b.log.cfg().segOpts
	o.FS, o.ReadOnly, o.Whole, o.Budget, o.Preallocate = b.root, true, true, nil, false
	return scanCopy(ctx, b.log.name, seg.Base(), o, func(done, _ int64) { b.tellAt("check", file, b.bytes+done) })
}

// copyLogFile copies the first size bytes of a .log, with its modification time.
func copyLogFile(ctx context.Context, from vfs.FS, name string, to vfs.FS, newName string, size int64, told func(done int64)) (err error) {
	src, err := from.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := from.Stat(name)
	if err != nil {
		return err
	}
	if exists(to, newName) {
		if err := to.Remove(newName); err != nil { // it may be a link
			return err
		}
	}
	dst, err := to.OpenFile(newName, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, dst.Close()); err == nil {
			_ = to.Chtimes(newName, info.ModTime()) // what retention goes by where batches have no time
		}
	}()
	err = vfs.CopyRange(src, dst, size, func(done int64) error {
		told(done)
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("copy %s: %w", name, err)
	}
	return dst.Sync()
}

// scanCopy reads every batch of a copied segment.
func scanCopy(ctx context.Context, folder string, base int64, o segment.Options, told func(done, total int64)) error {
	seg, err := segment.Open(folder, base, o)
	if err != nil {
		return err
	}
	defer seg.Abandon()
	s, err := seg.Scan(ctx, segment.ScanOptions{Progress: told, Evict: true})
	switch {
	case err != nil:
		return segments{seg}.explain(err)
	case s.Verdict != segment.Clean && o.Whole: // else whoever opens the copy cuts it
		return segments{seg}.explain(s.FirstBad)
	}
	return nil
}

// copyActive copies the active segment up to the captured end, and closes the copy as a clean stop does.
func (b *logBackup) copyActive(ctx context.Context, c *capture) error {
	seg := c.segs.active()
	if err := b.copyIndexes(ctx, seg); err != nil {
		return err
	}
	if err := b.copyBytes(ctx, seg, c.size); err != nil {
		return err
	}
	o := b.log.cfg().segOpts
	o.FS, o.Budget, o.Preallocate = b.root, nil, false
	cut, err := segment.Open(b.log.name, seg.Base(), o)
	if err != nil {
		return err
	}
	mtime := seg.Info().ModTime
	if _, err = cut.Truncate(c.o.LogEnd); err != nil { // of the indexes alone
		return errors.Join(err, cut.Abandon())
	}
	if end, err := cut.NextOffset(); err != nil || end != c.o.LogEnd {
		return errors.Join(err, cut.Abandon(), fmt.Errorf("the copy ends at offset %d, the log at %d", end, c.o.LogEnd))
	}
	if err := cut.Seal(ctx); err != nil {
		return errors.Join(err, cut.Abandon())
	}
	if err := errors.Join(cut.Sync(), cut.Close()); err != nil {
		return err
	}
	_ = b.root.Chtimes(b.path(segment.FileName(seg.Base(), ".log")), mtime)
	b.bytes += c.size
	return nil
}

// copyState writes what the folder holds beside the segments.
func (b *logBackup) copyState(c *capture) error {
	l := b.log
	if err := checkpoint.WriteEpochs(b.root, l.path(checkpoint.LeaderEpochs), c.epochs); err != nil {
		return err
	}
	if err := writeTopicID(b.root, l.name, c.id); err != nil {
		return err
	}
	if err := copyMetadataSnapshots(l.fs, l.name, b.root, l.name); err != nil {
		return err
	}
	entries, err := l.fs.ReadDir(l.name)
	if err != nil {
		return err
	}
	for _, e := range entries {
		at := snapshotOffset(e.Name())
		if i := c.segs.floor(at); at < 0 || i < 0 || at != c.segs[i].Base() && at != c.o.LogEnd {
			continue // a load would remove it
		}
		err := copySmall(l.fs, l.path(e.Name()), b.root)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if c.o.LogEnd == 0 || exists(b.root, l.path(segment.FileName(c.o.LogEnd, ".snapshot"))) {
		return nil
	}
	return c.snapshot.Write(b.root, l.name)
}

// count puts the partition into the report.
func (b *logBackup) count(c *capture) {
	for _, f := range b.sealed {
		if f.linked {
			b.report.Linked += f.size
		} else {
			b.report.Copied += f.size
		}
	}
	b.report.Copied += c.size
	b.report.Partitions = append(b.report.Partitions, CopiedPartition{TopicPartition: b.log.tp,
		LogStart: c.o.LogStart, HighWatermark: c.o.HighWatermark, LogEnd: c.o.LogEnd, Segments: len(c.segs), Bytes: b.bytes})
}

func (b *logBackup) tell(phase, file string) { b.tellAt(phase, file, b.bytes) }

func (b *logBackup) tellAt(phase, file string, done int64) {
	if b.told != nil {
		b.told(CopyProgress{b.log.tp, phase, file, done, b.at.segs[:len(b.at.segs)-1].bytes() + b.at.size})
	}
}
