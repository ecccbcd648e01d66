package log

import (
	"context"
	"errors"
	"fmt"
)

// SettleMoves finishes or undoes the moves between these Dirs that a crash cut short, by Kafka's rule: the copy of a
// partition (a -future folder) that has no live twin in any of the roots is made live, and one that has is removed. Give it
// all roots of the host: a twin that it is not shown is one too many. Call it before the partitions are opened; Dir.Open
// refuses those in question with ErrMoving. Copies of moves that are under way are left alone.
//
// The error joins what could not be settled: ErrPartitionExists for a copy with its twin in the same root, where a broker
// would not start either, and for two copies of one partition.
func SettleMoves(ctx context.Context, dirs ...*Dir) error {
	var errs []error
	for _, d := range dirs {
		if d == nil || d.fs == nil {
			return ErrClosed
		}
		for _, f := range d.Marked() {
			if f.State != FolderFuture || d.moving(f.TopicPartition) {
				continue
			}
			if err := d.settleMove(ctx, f, dirs); err != nil {
				errs = append(errs, fmt.Errorf("settle %s: %w", f.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (d *Dir) moving(tp TopicPartition) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.moves[tp]
}

func (d *Dir) settleMove(ctx context.Context, f MarkedFolder, dirs []*Dir) error {
	tp := f.TopicPartition
	if exists(d.fs, tp.String()) {
		return fmt.Errorf("%w: %s, in the same root", ErrPartitionExists, tp)
	}
	for _, other := range dirs {
		if other != d && exists(other.fs, tp.String()) {
			return errors.Join(d.discardFuture(f.Name), d.forget(ctx, tp))
		}
	}
	for _, other := range dirs {
		for _, twin := range other.Marked() {
			if twin.State == FolderFuture && twin.TopicPartition == tp && (other != d || twin.Name != f.Name) {
				return fmt.Errorf("%w: %s is another copy of it", ErrPartitionExists, twin.Name)
			}
		}
	}
	return d.comeAlive(ctx, f.Name, tp, untouched)
}
