package log

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
)

// points are the root's four offset checkpoints: recovery points, log start offsets, high watermarks, and how far logs are
// compacted. One file holds all partitions, so one owner writes it.
type points struct {
	fs      vfs.FS
	now     func() time.Time
	written atomic.Int64 // when all files were last written, or found to be true, Unix ms

	// writing admits one writer of the files; it is held across the I/O. mu is taken under it.
	writing gate

	// mu guards the maps, never across I/O. Only marks.mu may be taken under it. A log changes no entry but its own.
	mu    sync.Mutex
	files map[string]map[checkpoint.Partition]int64 // by file name
	lost  map[string]error                          // files that could not be read, and why
	dirty map[string]bool                           // files that say something else than the maps
	// stale are, by file, partitions that it may say something of and the map does not.
	stale   map[string]map[checkpoint.Partition]struct{}
	onDisk  map[checkpoint.Partition]int64 // the recovery points in their file, never changed; durable hints are valid under those
	waiting int                            // partitions that were closed or set aside since the files were written
}

var pointFiles = []string{checkpoint.RecoveryPoints, checkpoint.LogStarts, checkpoint.HighWatermarks, checkpoint.CleanerOffsets}

// readPoints reads what there is. A malformed file is remembered as lost; an unreadable one is an error.
func readPoints(fsys vfs.FS, now func() time.Time) (*points, error) {
	p := &points{fs: fsys, now: now, writing: newGate(), files: map[string]map[checkpoint.Partition]int64{}, lost: map[string]error{}, dirty: map[string]bool{}, stale: map[string]map[checkpoint.Partition]struct{}{}}
	p.written.Store(now().UnixMilli())
	for _, name := range pointFiles {
		entries, err := checkpoint.ReadOffsets(fsys, name)
		if format := (*checkpoint.FormatError)(nil); errors.As(err, &format) {
			p.lost[name], entries, err = err, nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		if entries == nil {
			entries = map[checkpoint.Partition]int64{}
		}
		p.files[name], p.stale[name] = entries, map[checkpoint.Partition]struct{}{}
	}
	p.onDisk = maps.Clone(p.files[checkpoint.RecoveryPoints])
	return p, nil
}

// keep forgets the partitions that are not there any more: a crash while one was deleted can leave entries of it, which would
// be those of a folder that somebody puts there later. The next write of the files carries it.
func (p *points) keep(there func(TopicPartition) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, entries := range p.files {
		for key := range entries {
			if !there(TopicPartition(key)) {
				p.deleteLocked(name, key)
			}
		}
	}
}

// get is a partition's entry. ok is false if it has none; lost says that the file was there and could not be read.
func (p *points) get(name string, tp TopicPartition) (offset int64, ok bool, lost error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	offset, ok = p.files[name][checkpoint.Partition(tp)]
	return offset, ok, p.lost[name]
}

// set changes an entry in memory; the next write of that file carries it.
func (p *points) set(name string, tp TopicPartition, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setLocked(name, tp, offset)
}

func (p *points) setLocked(name string, tp TopicPartition, offset int64) {
	key := checkpoint.Partition(tp)
	if old, ok := p.files[name][key]; !ok || old != offset || p.lost[name] != nil {
		p.files[name][key], p.dirty[name] = offset, true
	}
}

// drop removes a partition's entry in memory.
func (p *points) drop(name string, tp TopicPartition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := checkpoint.Partition(tp)
	if _, ok := p.files[name][key]; ok || p.lost[name] != nil {
		p.deleteLocked(name, key)
	}
}

// deleteLocked removes an entry that the file may have.
func (p *points) deleteLocked(name string, key checkpoint.Partition) {
	delete(p.files[name], key)
	p.dirty[name], p.stale[name][key] = true, struct{}{}
}

// store makes one entry durable. After an error the entry in memory is the old one; the file may say either. ctx is heard
// until writing begins.
func (p *points) store(ctx context.Context, name string, tp TopicPartition, offset int64) error {
	return p.storeWith(turn{ctx}, name, tp, offset)
}

// storeWith is store for who may not want to wait for others that write the files.
func (p *points) storeWith(w turn, name string, tp TopicPartition, offset int64) error {
	if err := w.take(&p.writing); err != nil {
		return err
	}
	defer p.writing.unlock()
	old, had, _ := p.get(name, tp)
	p.set(name, tp, offset)
	err := p.write(name)
	if err == nil {
		return nil
	}
	if had {
		p.set(name, tp, old)
	} else {
		p.drop(name, tp)
	}
	return err
}

// idle waits until nobody writes, so that what is done next under the context's caller begins at once.
func (p *points) idle(ctx context.Context) error {
	if err := p.writing.lock(ctx); err != nil {
		return err
	}
	p.writing.unlock()
	return nil
}

// forget removes what the root remembers of a partition that is not there any more, durably. In memory it is gone even if
// a file cannot be written.
func (p *points) forget(ctx context.Context, tp TopicPartition) error {
	had := p.takeOutAll(tp)
	var errs []error
	for _, name := range had {
		errs = append(errs, p.persist(ctx, name))
	}
	return errors.Join(errs...)
}

// takeOutAll removes a partition's entries in memory, and says which files may have them.
func (p *points) takeOutAll(tp TopicPartition) (had []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := checkpoint.Partition(tp)
	for _, name := range pointFiles {
		if _, ok := p.files[name][key]; ok {
			p.deleteLocked(name, key)
		}
		if _, ok := p.stale[name][key]; ok {
			had = append(had, name)
		}
	}
	return had
}

// mostShare is how much of a root may wait for its checkpoints to be written, as one part in so many of its partitions.
const mostShare = 16

// soon has the files written for one more partition that was closed or set aside. They list all partitions: in a large root they
// are written for several at once, which makes it no more than mostShare times for all that there are. What waits can wait for ever:
// a partition that was closed is opened after a crash from its older recovery point, and of one that is gone the entries are
// taken out before another of its name is made (forget). The next checkpoint of the root has it in any case.
func (p *points) soon(ctx context.Context) error {
	p.mu.Lock()
	p.waiting++
	due := p.waiting*mostShare >= len(p.files[checkpoint.RecoveryPoints])
	p.mu.Unlock()
	if !due {
		return nil
	}
	return p.writeAll(ctx)
}

// vouch sees to it that the file has the partition's recovery point of the map, which the next durable hints are taken under. If
// it cannot be written these are merely not believed after a crash.
func (p *points) vouch(ctx context.Context, tp TopicPartition) {
	p.mu.Lock()
	key := checkpoint.Partition(tp)
	same := p.onDisk[key] == p.files[checkpoint.RecoveryPoints][key]
	p.mu.Unlock()
	if !same {
		_ = p.persist(ctx, checkpoint.RecoveryPoints)
	}
}

// persist makes one file durable as it stands in memory.
func (p *points) persist(ctx context.Context, name string) error {
	if err := p.writing.lock(ctx); err != nil {
		return err
	}
	defer p.writing.unlock()
	return p.write(name)
}

// write writes a file if it says something else than the map; writing is held.
func (p *points) write(name string) error {
	p.mu.Lock()
	if !p.dirty[name] {
		p.mu.Unlock()
		if exists(p.fs, name) {
			return nil
		}
		p.mu.Lock()
	}
	entries := maps.Clone(p.files[name])
	gone := make([]checkpoint.Partition, 0, len(p.stale[name]))
	for key := range p.stale[name] {
		if _, ok := entries[key]; !ok {
			gone = append(gone, key)
		}
	}
	p.dirty[name] = false // what changes from here on is for the next write
	p.mu.Unlock()
	err := checkpoint.WriteOffsets(p.fs, name, entries)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.dirty[name] = true
		return fmt.Errorf("write %s: %w", name, err)
	}
	delete(p.lost, name)
	for _, key := range gone {
		delete(p.stale[name], key)
	}
	if name == checkpoint.RecoveryPoints {
		p.onDisk = entries
	}
	return nil
}

// writeAll makes durable what is not yet, and sees to it that all four files exist, as in every broker's root.
func (p *points) writeAll(ctx context.Context) error {
	p.mu.Lock()
	p.waiting = 0
	p.mu.Unlock()
	for _, name := range pointFiles {
		if err := p.persist(ctx, name); err != nil {
			return err
		}
	}
	p.written.Store(p.now().UnixMilli())
	return nil
}

// setAll notes all marks of a log. Kafka's file of start offsets names only logs that start above their first segment.
func (p *points) setAll(tp TopicPartition, o Offsets, firstBase int64) {
	p.set(checkpoint.RecoveryPoints, tp, o.RecoveryPoint)
	p.set(checkpoint.HighWatermarks, tp, o.HighWatermark)
	if o.LogStart > firstBase {
		p.set(checkpoint.LogStarts, tp, o.LogStart)
	} else {
		p.drop(checkpoint.LogStarts, tp)
	}
}
