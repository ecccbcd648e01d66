package log

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/record"
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
			l, err := Open(root, c)
			require.NoError(t, err)
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
			require.NoError(t, l.Close())
		})
	}
}
