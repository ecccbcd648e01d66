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
}

var pointFiles = []string{checkpoint.RecoveryPoints, checkpoint.LogStarts, checkpoint.HighWatermarks}

// readPoints reads what there is. A malformed file is remembered as lost; an unreadable one is an error.
func readPoints(fsys vfs.FS) (*points, error) {
	p := &points{fs: fsys, files: map[string]map[checkpoint.Partition]int64{}, lost: map[string]error{}}
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
	p.files[name][checkpoint.Partition(tp)] = offset
}

// drop removes a partition's entry in memory.
func (p *points) drop(name string, tp TopicPartition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.files[name], checkpoint.Partition(tp))
}

// persist makes one file durable as it stands in memory.
func (p *points) persist(name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := checkpoint.WriteOffsets(p.fs, name, p.files[name]); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	delete(p.lost, name)
	return nil
}

// writeAll makes all files durable and sees to it that cleaner-offset-checkpoint exists, as in every broker's root.
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

// persistRecoveryPoint writes a log's recovery point. It may only be called once everything below it is on the device.
func (d *Dir) persistRecoveryPoint(l *Log) error {
	d.points.set(checkpoint.RecoveryPoints, l.tp, l.load().RecoveryPoint)
	return d.points.persist(checkpoint.RecoveryPoints)
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
