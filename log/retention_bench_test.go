package log

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/timeindex"
	"github.com/partlog/partlog/vfs"
)

// manySegments is a root with one partition of n segments of one batch each, as a clean stop left it.
func manySegments(t testing.TB, n int) (root string) {
	root = t.TempDir()
	folder := filepath.Join(root, "t-0")
	require.NoError(t, os.Mkdir(folder, 0o755))
	fsys, err := vfs.OS(root)
	require.NoError(t, err)
	for i := range int64(n) {
		raw := batchOf(2*i, 0, record.None, "a", "b")
		require.NoError(t, os.WriteFile(filepath.Join(folder, segment.FileName(2*i, ".log")), raw, 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(folder, segment.FileName(2*i, ".index")), nil, 0o644))
		b, err := record.View(raw)
		require.NoError(t, err)
		x, err := timeindex.Create("t-0/"+segment.FileName(2*i, ".timeindex"), 2*i, index.Options{FS: fsys})
		require.NoError(t, err)
		require.NoError(t, x.AppendLast(timeindex.Entry{Timestamp: b.MaxTimestamp(), Offset: 2*i + 1}))
		require.NoError(t, x.Close())
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, checkpoint.CleanMarker), nil, 0o644))
	return root
}

// BenchmarkRetention decides about 10,000 segments that nobody has used yet, drops all, and removes their files.
func BenchmarkRetention(b *testing.B) {
	for range b.N {
		b.StopTimer()
		root := manySegments(b, 10_000)
		d, err := OpenDir(root, DirConfig{Manual: true})
		require.NoError(b, err)
		l, err := d.Open(ctx, TopicPartition{"t", 0}, Config{RetentionTime: time.Hour, FileDeleteDelay: Immediately})
		require.NoError(b, err)
		b.StartTimer()
		began := time.Now()
		plan := l.PlanRetention(time.Now())
		planned := time.Now()
		r, err := l.Retain(ctx)
		require.NoError(b, err)
		b.ReportMetric(planned.Sub(began).Seconds()*1000, "plan-ms")
		b.ReportMetric(time.Since(planned).Seconds()*1000, "retain-ms")
		b.StopTimer()
		require.Len(b, plan.Drop, 10_000)
		require.Zero(b, r.Waiting)
		require.NoError(b, d.Close())
	}
}
