package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
)

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

// choose lists the partitions that are asked for; all if want is nil. The log of a cluster's metadata counts where it is
// named, or alone: so a backup of it is restored, and what else a broker has in its root is not taken along.
func (a *atRest) choose(want []TopicPartition) ([]TopicPartition, error) {
	all, _, err := Folders(a.fs)
	if err == nil && (len(all) == 0 || slices.Contains(want, clusterMetadata)) && exists(a.fs, clusterMetadata.String()) {
		all = append(all, clusterMetadata)
	}
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
	verify := o.Partitions
	if slices.Contains(tps, clusterMetadata) {
		verify = tps // without names Verify passes it over
	}
	return tps, verifyRoot(ctx, a.fs, a.path, verify, o.Config, o.Progress)
}

// keptUnder is what of c says how the files of a log at rest came to be as they are.
func keptUnder(c Config) Config {
	return Config{IndexIntervalBytes: c.IndexIntervalBytes, ProducerExpiry: c.ProducerExpiry}
}

// verifyRoot is nil if Verify finds nothing.
func verifyRoot(ctx context.Context, fsys vfs.FS, path string, tps []TopicPartition, c Config, told func(CopyProgress)) error {
	bad := &UnsoundError{Path: path}
	o := VerifyOptions{Partitions: tps, IndexInterval: c.IndexIntervalBytes, ProducerExpiry: c.ProducerExpiry, Progress: func(p VerifyProgress) {
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
