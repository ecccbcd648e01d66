package log

import (
	"errors"
	"fmt"
	"sync"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
)

// points are the root's three offset checkpoints that belong to open logs: recovery points, log start offsets and high
// watermarks. One file holds all partitions, so one owner writes it (cleaner-offset-checkpoint is kept as it is).
type points struct {
	fs vfs.FS

	// mu guards the maps and orders the writes; it is held across them. Only marks.mu may be taken under it.
	mu    sync.Mutex
	files map[string]map[checkpoint.Partition]int64 // by file name
	lost  map[string]error                          // files that could not be read, and why
	dirty map[string]bool                           // files that say something else than the maps
}

var pointFiles = []string{checkpoint.RecoveryPoints, checkpoint.LogStarts, checkpoint.HighWatermarks}

// readPoints reads what there is. A malformed file is remembered as lost; an unreadable one is an error.
func readPoints(fsys vfs.FS) (*points, error) {
	p := &points{fs: fsys, files: map[string]map[checkpoint.Partition]int64{}, lost: map[string]error{}, dirty: map[string]bool{}}
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
		p.files[name] = entries
	}
	return p, nil
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
	p.dropLocked(name, tp)
}

func (p *points) dropLocked(name string, tp TopicPartition) {
	key := checkpoint.Partition(tp)
	if _, ok := p.files[name][key]; ok || p.lost[name] != nil {
		delete(p.files[name], key)
		p.dirty[name] = true
	}
}

// store makes one entry durable. After an error the entry in memory is the old one; the file may say either.
func (p *points) store(name string, tp TopicPartition, offset int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := checkpoint.Partition(tp)
	old, had := p.files[name][key]
	p.setLocked(name, tp, offset)
	err := p.persistLocked(name)
	if err == nil {
		return nil
	}
	p.dirty[name] = true
	if had {
		p.files[name][key] = old
	} else {
		delete(p.files[name], key)
	}
	return err
}

// forget durably removes what the root remembers of a partition that is not there any more.
func (p *points) forget(tp TopicPartition) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range pointFiles {
		if _, ok := p.files[name][checkpoint.Partition(tp)]; !ok {
			continue
		}
		p.dropLocked(name, tp)
		if err := p.persistLocked(name); err != nil {
			return err
		}
	}
	return nil
}

// persist makes one file durable as it stands in memory.
func (p *points) persist(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.persistLocked(name)
}

func (p *points) persistLocked(name string) error {
	if !p.dirty[name] && exists(p.fs, name) {
		return nil
	}
	if err := checkpoint.WriteOffsets(p.fs, name, p.files[name]); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	delete(p.dirty, name)
	delete(p.lost, name)
	return nil
}

// writeAll makes durable what is not yet, and sees to it that cleaner-offset-checkpoint exists, as in every broker's root.
func (p *points) writeAll() error {
	for _, name := range pointFiles {
		if err := p.persist(name); err != nil {
			return err
		}
	}
	if exists(p.fs, checkpoint.CleanerOffsets) {
		return nil
	}
	return checkpoint.WriteOffsets(p.fs, checkpoint.CleanerOffsets, nil)
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
