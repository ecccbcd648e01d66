package compaction

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// last is the state a consumer makes of a log: the last value of each key, "-" for a tombstone.
func last(segs []*segment.Segment) (map[string]string, error) {
	v, err := viewOf(segs)
	state := map[string]string{}
	for _, r := range v.records {
		rec := r.record()
		if rec.Key == nil {
			continue
		}
		if state[string(rec.Key)] = "=" + string(rec.Value); rec.Value == nil {
			delete(state, string(rec.Key))
		}
	}
	return state, err
}

// Whatever a broker left can be compacted, its own compactions included: the last values stay, offsets do not move, and
// the segments are sound.
func TestFoldersOfABroker(t *testing.T) {
	for _, name := range golden.Cases() {
		if slices.Contains([]string{"empty", "killed-bad-crc", "killed-torn-body", "killed-torn-header", "killed-zero-tail"}, name) {
			continue // there is nothing to compact, or the active segment cannot be read before it is recovered
		}
		t.Run(name, func(t *testing.T) {
			root := golden.Copy(t, name)
			dir, err := golden.PartitionDir(root)
			require.NoError(t, err)
			fsys, err := vfs.OS(root)
			require.NoError(t, err)
			about := golden.About(t, name)
			part := filepath.Base(dir)
			o := segment.Options{FS: fsys}
			open := func() (segs []*segment.Segment) {
				bases, err := segment.List(fsys, part)
				require.NoError(t, err)
				for _, base := range bases {
					s, err := segment.Open(part, base, o)
					require.NoError(t, err)
					segs = append(segs, s)
				}
				return segs
			}
			shut := func(segs []*segment.Segment) {
				for _, s := range segs {
					s.Abandon()
				}
			}
			segs := open()
			before, err := last(segs)
			require.NoError(t, err)
			all, err := viewOf(segs)
			require.NoError(t, err)
			producers := map[int64]LastBatch{}
			for _, p := range about.AsOpened.Producers {
				producers[p.ProducerID] = LastBatch{Offset: p.LastOffset, Epoch: p.Epoch}
			}
			plan := Config{}.Plan(State{LogStart: about.AsOpened.LogStartOffset, LogEnd: about.AsOpened.LogEndOffset,
				LastStable: about.AsOpened.LastStableOffset, Segments: must(Config{}.Measure(segs, true))}, GroupLimits{}, time.Now())
			for range 2 {
				_, err := Run(context.Background(), Input{Dir: part, Options: o, Segments: segs, Bounds: plan.Bounds, Now: time.Now(), Producers: producers})
				require.NoError(t, err)
				shut(segs)
				segs = open()
			}
			defer shut(segs)
			after, err := last(segs)
			require.NoError(t, err)
			aborted := len(about.AsOpened.AbortedTransactions) > 0
			if !aborted {
				require.Equal(t, before, after)
			}
			have, err := viewOf(segs)
			require.NoError(t, err)
			for _, r := range have.records {
				require.Contains(t, all.records, r)
			}
			for _, s := range segs {
				scan, err := s.Scan(context.Background(), segment.ScanOptions{})
				require.NoError(t, err)
				require.Equal(t, segment.Clean, scan.Verdict)
			}
			for id, last := range producers {
				found := false
				for _, s := range segs {
					for b, err := range s.Batches(0) {
						require.NoError(t, err)
						pid, _, _ := b.Producer()
						found = found || pid == id && b.LastOffset() == last.Offset
					}
				}
				require.True(t, found || last.Offset < 0, "producer %d", id)
			}
		})
	}
}
