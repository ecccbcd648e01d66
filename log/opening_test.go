package log

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/epoch"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// closedLog is a root in memory that was stopped cleanly, with n full segments and an empty one.
func closedLog(t *testing.T, n int) vfs.FS {
	b := newBed(t, Config{Durability: Buffered})
	for range n {
		b.add("v")
		require.NoError(t, b.Roll(ctx))
	}
	require.NoError(t, b.dir.Close())
	return b.fs
}

// traceOpen opens and gives the calls that took.
func traceOpen(t *testing.T, fsys vfs.FS) *vfstest.Trace {
	trace, found := traceOpening(t, fsys)
	require.Empty(t, found)
	return trace
}

// traceOpening is traceOpen of what need not be in order.
func traceOpening(t *testing.T, fsys vfs.FS) (*vfstest.Trace, []Finding) {
	trace := vfstest.NewTrace(fsys)
	d, err := OpenDir("mem", DirConfig{FS: trace})
	require.NoError(t, err)
	l, err := d.Open(ctx, TopicPartition{"t", 0}, Config{})
	require.NoError(t, err)
	require.True(t, l.Recovery().Clean)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return trace, l.Recovery().Findings
}

func TestACleanOpenListsTheFolderOnceAndAsksForNoMoreIfThereAreManySegments(t *testing.T) {
	few := traceOpen(t, closedLog(t, 3))
	require.Len(t, few.Filter("t-0", vfstest.OpReadDir), 1, few.String())
	require.Empty(t, few.Filter("t-0/*", vfstest.OpStat), few.String())
	require.Empty(t, few.Filter("t-0/*.txnindex"), few.String())
	require.Empty(t, few.Filter("t-0/"+checkpoint.Metadata), "it is not there")
	opened, closed := few.Count(vfstest.OpOpen), few.Count(vfstest.OpClose)
	require.Equal(t, opened, closed, "nothing stays open: "+few.String())
	calls := few.Count()
	many := traceOpen(t, closedLog(t, 60))
	require.Equal(t, calls, many.Count(), many.String())
}

// A broker that deleted records inside of a segment leaves epochs that begin there, and at every open of such a log the batch
// below is looked up to tell whether epochs are lost.
func TestAnOpenOfALogWhoseEpochsBeginInsideOfASegmentReadsLittleOfIt(t *testing.T) {
	b := newBed(t, Config{Durability: Buffered})
	require.NoError(t, b.AssignEpoch(3))
	for range 4000 {
		b.add(strings.Repeat("v", 500))
	}
	require.NoError(t, b.Roll(ctx))
	b.add("v")
	size := b.Stats().Bytes
	require.NoError(t, b.dir.Close())
	require.NoError(t, checkpoint.WriteEpochs(b.fs, "t-0/"+checkpoint.LeaderEpochs, []epoch.Entry{{Epoch: 3, StartOffset: 3900}}))
	trace := traceOpen(t, b.fs)
	read := int64(0)
	for _, op := range trace.Filter("t-0/*", vfstest.OpRead) {
		read += op.Done
	}
	require.Less(t, read, size/20, "of %d bytes: %v", size, trace)
	require.Equal(t, trace.Count(vfstest.OpOpen), trace.Count(vfstest.OpClose), "nothing stays open: "+trace.String())
	epochs, err := checkpoint.ReadEpochs(b.fs, "t-0/"+checkpoint.LeaderEpochs)
	require.NoError(t, err)
	require.Equal(t, []epoch.Entry{{Epoch: 3, StartOffset: 3900}}, epochs)
}

func TestAnIdlePartitionHoldsNoFileAndLittleMemory(t *testing.T) {
	if _, err := os.ReadDir("/proc/self/fd"); err != nil {
		t.Skip("no /proc")
	}
	const partitions = 400
	root := fleet(t, partitions)
	files, maps, before := open(t), mappings(t), heap()
	d, err := OpenDir(root, DirConfig{})
	require.NoError(t, err)
	for i := range int32(partitions) {
		l, err := d.Open(ctx, TopicPartition{"t", i}, Config{})
		require.NoError(t, err)
		require.True(t, l.Recovery().Clean)
		require.Equal(t, int64(1), l.Offsets().LogEnd)
	}
	each := (heap() - before) / partitions
	t.Logf("%d bytes", each)
	require.Less(t, each, int64(6<<10))
	require.LessOrEqual(t, open(t), files+6, "those of the root")
	require.Equal(t, maps, mappings(t))
	l, _ := d.Get(TopicPartition{"t", 0})
	require.NoError(t, errOf(l.Append(ctx, record.Record{Value: []byte("v")})), "and it wakes up")
	require.NoError(t, d.Close())
}

// fleet is a root with many partitions of one record each that was stopped cleanly.
func fleet(t *testing.T, n int32) (root string) {
	root = t.TempDir()
	d, err := OpenDir(root, DirConfig{})
	require.NoError(t, err)
	l, err := d.Open(ctx, TopicPartition{"t", 0}, Config{})
	require.NoError(t, err)
	require.NoError(t, errOf(l.Append(ctx, record.Record{Value: []byte("v")})))
	require.NoError(t, d.Close())
	entries, err := os.ReadDir(filepath.Join(root, "t-0"))
	require.NoError(t, err)
	points := map[checkpoint.Partition]int64{}
	for i := range n {
		tp := TopicPartition{"t", i}
		points[checkpoint.Partition(tp)] = 1
		require.NoError(t, os.MkdirAll(filepath.Join(root, tp.String()), 0o755))
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(root, "t-0", e.Name()))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(root, tp.String(), e.Name()), b, 0o644))
		}
	}
	text, err := checkpoint.AppendOffsets(nil, points)
	require.NoError(t, err)
	for _, name := range []string{checkpoint.RecoveryPoints, checkpoint.HighWatermarks} {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), text, 0o644))
	}
	return root
}

func TestOrphansAreToldByTheirWholeName(t *testing.T) {
	fsys := closedLog(t, 1)
	for _, name := range []string{"7.index", "00000000000000000009.timeindex", "x.txnindex", "00000000000000000000.note", "x-0.log"} {
		write(t, fsys, "t-0/"+name)
	}
	trace, found := traceOpening(t, fsys)
	require.Len(t, found, 1)
	require.Equal(t, "t-0/x-0.log", found[0].File)
	var removed []string
	for _, op := range trace.Filter("t-0/*", vfstest.OpRemove) {
		removed = append(removed, strings.TrimPrefix(op.Name, "t-0/"))
	}
	require.ElementsMatch(t, []string{"7.index", "00000000000000000009.timeindex", "x.txnindex"}, removed)
}

func write(t *testing.T, fsys vfs.FS, name string) {
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}
