package log

import (
	"context"
	"errors"
	"fmt"

	"github.com/partlog/partlog/vfs"
)

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
