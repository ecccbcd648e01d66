package log

import (
	"bytes"
	"cmp"
	"context"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// checkRecords compares everything a reader gives with what a real consumer got.
func checkRecords(t *testing.T, name string, start int64, batches func(yield func(record.Batch, error) bool)) {
	t.Helper()
	want := golden.MustRecords(t, name)
	dec := record.NewDecoder(record.Limits{})
	i := 0
	for b, err := range batches {
		require.NoError(t, err)
		if b.Control() {
			continue
		}
		for r, err := range b.Records(dec) {
			require.NoError(t, err)
			if r.Offset < start {
				continue
			}
			require.Less(t, i, len(want), "more records than the consumer got: offset %d", r.Offset)
			w := want[i]
			require.Equal(t, w.Offset, r.Offset)
			require.Equal(t, w.Timestamp, r.Timestamp, "offset %d", r.Offset)
			require.True(t, w.MatchesKey(r.Key), "key of %d", r.Offset)
			require.True(t, w.MatchesValue(r.Value), "value of %d", r.Offset)
			require.Len(t, r.Headers, len(w.Headers), "headers of %d", r.Offset)
			for h := range w.Headers {
				require.Equal(t, w.Headers[h].Key, r.Headers[h].Key)
				require.Equal(t, w.Headers[h].Value == nil, r.Headers[h].Value == nil)
				require.True(t, bytes.Equal(w.Headers[h].Value, r.Headers[h].Value))
			}
			i++
		}
	}
	require.Equal(t, len(want), i, "fewer records than the consumer got")
}

// contents is every byte below a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		out[p] = string(b)
		return err
	}))
	return out
}

func TestReaderGivesWhatARealConsumerGotAndChangesNoByte(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			root := golden.Copy(t, name)
			dir, err := golden.PartitionDir(root)
			require.NoError(t, err)
			before := contents(t, root)
			r, err := OpenReader(dir, ReaderOptions{})
			require.NoError(t, err)
			o := r.Offsets()
			checkRecords(t, name, o.LogStart, r.Batches(t.Context(), o.LogStart))
			opened := golden.About(t, name).AsOpened
			require.Equal(t, opened.LogStartOffset, o.LogStart)
			require.Equal(t, opened.LogEndOffset, o.LogEnd)
			require.NoError(t, r.Close())
			require.Equal(t, before, contents(t, root))
		})
	}
}

func TestOpenedFolderSaysWhatKafkaSays(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			root := golden.Copy(t, name)
			about := golden.About(t, name)
			kafka := about.AsOpened
			c, err := ParseConfig(about.TopicConfig)
			require.NoError(t, err)
			snapshots := snapshotFiles(t, root)
			l := openedAt(t, root, c, about.OpenedAtMs)
			o := l.Offsets()
			checkRecords(t, name, o.LogStart, l.Batches(t.Context(), o.LogStart))
			require.Equal(t, kafka.LogStartOffset, o.LogStart)
			require.Equal(t, kafka.LogEndOffset, o.LogEnd)
			require.Equal(t, kafka.HighWatermark, o.HighWatermark)
			require.Equal(t, kafka.RecoveryPoint, o.RecoveryPoint)
			require.Equal(t, kafka.OpenedClean, l.Recovery().Clean)
			epochs := []golden.EpochFacts{}
			for _, e := range l.Epochs() {
				epochs = append(epochs, golden.EpochFacts{Epoch: e.Epoch, StartOffset: e.Start})
			}
			require.Equal(t, kafka.LeaderEpochs, epochs)
			infos := l.SegmentInfos()
			require.Len(t, infos, len(kafka.Segments))
			for i, want := range kafka.Segments {
				require.Equal(t, want.BaseOffset, infos[i].Base)
				require.Equal(t, want.Size, infos[i].Bytes)
				require.Equal(t, want.IndexEntries, infos[i].IndexEntries, "index of %d", want.BaseOffset)
				require.Equal(t, want.TimeIndexEntries, infos[i].TimeIndexEntries, "time index of %d", want.BaseOffset)
			}
			require.Equal(t, kafka.LastStableOffset, o.LastStable)
			require.Equal(t, sortedProducers(kafka.Producers, kafka.OpenedClean), producerFacts(l, kafka.OpenedClean))
			require.Equal(t, kafka.AbortedTransactions, abortedFacts(t, l))
			require.NoError(t, l.Close())
			if kafka.OpenedClean {
				require.Equal(t, snapshots, snapshotFiles(t, root))
			}
		})
	}
}

// openedAt opens the single partition of a root as it was at that time.
func openedAt(t *testing.T, root string, c Config, ms int64) *Log {
	t.Helper()
	d, err := OpenDir(root, DirConfig{Now: func() time.Time { return time.UnixMilli(ms) }})
	require.NoError(t, err)
	l, err := d.openLone(root, c)
	require.NoError(t, err)
	return l
}

// snapshotFiles are those that Kafka keeps when it opens the folder.
func snapshotFiles(t *testing.T, root string) map[string]string {
	all := contents(t, root)
	dir, err := golden.PartitionDir(root)
	require.NoError(t, err)
	fsys, err := vfs.OSReadOnly(root)
	require.NoError(t, err)
	offsets, err := producerstate.List(fsys, filepath.Base(dir))
	require.NoError(t, err)
	bases, err := segment.List(fsys, filepath.Base(dir))
	require.NoError(t, err)
	for _, stray := range producerstate.Strays(offsets, bases) {
		delete(all, filepath.Join(dir, producerstate.FileName(stray)))
	}
	maps.DeleteFunc(all, func(name, _ string) bool { return !strings.HasSuffix(name, ".snapshot") })
	return all
}

// sortedProducers are Kafka's facts by id. cached is left out unless asked for: how many batches are remembered depends on
// where a recovery begins.
func sortedProducers(facts []golden.ProducerFacts, cached bool) []golden.ProducerFacts {
	all := append([]golden.ProducerFacts{}, facts...)
	slices.SortFunc(all, func(a, b golden.ProducerFacts) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
	for i := range all {
		if !cached {
			all[i].CachedBatches = 0
		}
	}
	return all
}

func producerFacts(l *Log, cached bool) []golden.ProducerFacts {
	all := []golden.ProducerFacts{}
	_ = l.write.lock(context.Background())
	defer l.write.unlock()
	for _, e := range l.producers.state.Producers() {
		f := golden.ProducerFacts{ProducerID: e.ProducerID, Epoch: e.Epoch, LastSequence: e.LastSequence, LastOffset: e.LastOffset,
			LastTimestamp: e.Timestamp, CoordinatorEpoch: e.CoordinatorEpoch, TxnFirstOffset: e.TxnFirstOffset}
		if cached {
			f.CachedBatches = l.producers.state.Batches(e.ProducerID)
		}
		all = append(all, f)
	}
	return all
}

func abortedFacts(t *testing.T, l *Log) []golden.AbortedTransaction {
	all := []golden.AbortedTransaction{}
	for _, seg := range *l.list.Load() {
		found, _, err := seg.Aborted(0, math.MaxInt64)
		require.NoError(t, err)
		for _, a := range found {
			all = append(all, golden.AbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset, LastOffset: a.LastOffset, LastStableOffset: a.LastStable})
		}
	}
	return all
}
