package log

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

func rootOf(t testing.TB, fsys vfs.FS) *Dir {
	t.Helper()
	d, err := OpenDir("root", DirConfig{Manual: true, FS: fsys})
	require.NoError(t, err)
	return d
}

// Scenario: U130. Kafka answers a proposal that changes nothing with none; here the mark comes back.
func TestProposalsForTheHighWatermarkAreBounded(t *testing.T) {
	b := newBed(t, Config{Visibility: External})
	b.add(strings.Split(strings.Repeat("x", 100), "")...)
	for _, p := range [][2]int64{{99, 99}, {99, 99}, {100, 100}, {100, 100}, {101, 100}} {
		got, err := b.SetHighWatermark(p[0])
		require.NoError(t, err)
		require.Equal(t, []int64{p[1], p[1]}, []int64{got, b.Offsets().HighWatermark})
	}
}

// Scenario: U125. The file of the topic's id is a broker's: nothing here rewrites it.
func TestTheTopicIDOutlivesTheLog(t *testing.T) {
	b := newBed(t, Config{})
	metadata := b.path(checkpoint.Metadata)
	f, err := b.fs.OpenFile(metadata, os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(t, err)
	text := []byte("version: 0\ntopic_id: 2vJ5aVRVQqyYJ-RNNXnkdg\n")
	_, err = f.WriteAt(text, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	b.reopen()
	id := b.topicID
	require.NotZero(t, id)
	b.add("a")
	b.reopen()
	require.Equal(t, id, b.topicID)
	kept, err := vfs.ReadFile(b.fs, metadata, 1000)
	require.NoError(t, err)
	require.Equal(t, text, kept)
}

// Scenario: U131. Kafka says "infinite" for an empty segment.
func TestTheFirstTimestampOfASegmentIsKnown(t *testing.T) {
	b := newBed(t, Config{})
	b.addTimes(epoch2023 + 1000)
	require.NoError(t, b.Roll(context.Background()))
	b.addTimes(epoch2023 + 2000)
	require.NoError(t, b.Roll(context.Background()))
	var first []int64
	for _, seg := range *b.list.Load() {
		ts, err := seg.FirstTimestamp()
		require.NoError(t, err)
		first = append(first, ts)
	}
	require.Equal(t, []int64{epoch2023 + 1000, epoch2023 + 2000, -1}, first)
}

// Scenario: L009. A reset leaves one empty segment at the offset, whatever there was.
func TestAResetLeavesOneEmptySegmentThere(t *testing.T) {
	for _, records := range []int{0, 13} {
		b := newBed(t, Config{})
		for i := range records {
			if i > 0 && i%3 == 0 {
				require.NoError(t, b.Roll(context.Background()))
			}
			b.add("v")
		}
		require.NoError(t, b.ResetTo(context.Background(), 10))
		infos := b.SegmentInfos()
		require.Len(t, infos, 1)
		require.Equal(t, []int64{10, 0, 10}, []int64{infos[0].Base, infos[0].Bytes, b.Offsets().LogEnd})
		bases, err := segment.List(b.fs, b.name)
		require.NoError(t, err)
		require.Equal(t, []int64{10}, bases)
		require.Equal(t, int64(10), b.add("v"))
	}
}

// Scenario: L019, H002. Kafka passes over a folder or a root that has vanished; here whoever asked for durability is told.
func TestASyncInAFolderThatIsGoneIsAnErrorAndEnds(t *testing.T) {
	root := t.TempDir()
	l, err := Open(filepath.Join(root, "r"), Config{Durability: Buffered})
	require.NoError(t, err)
	_, err = l.Append(context.Background(), record.Record{Value: []byte("v")})
	require.NoError(t, err)
	if err := os.RemoveAll(filepath.Join(root, "r")); err != nil {
		t.Skip("this system does not remove open files")
	}
	require.ErrorIs(t, l.Sync(context.Background()), os.ErrNotExist)
	_, err = l.Append(context.Background(), record.Record{Value: []byte("v")})
	require.ErrorIs(t, err, ErrFailed)
	require.Error(t, l.Close())
}

// Scenario: R019
func TestCompressedBatchesFarFromTheBaseRollAlikeEachTime(t *testing.T) {
	b := newBed(t, Config{})
	require.NoError(t, b.ResetTo(context.Background(), 0))
	b.add("first")
	for _, base := range []int64{1<<31 + 1, 1<<31 + 3, 1<<31 + 5} {
		_, err := b.follow(batchOf(base, 0, record.Gzip, "a", "b"))
		require.NoError(t, err)
	}
	bases := func() (all []int64) {
		for _, s := range b.SegmentInfos() {
			all = append(all, s.Base)
		}
		return all
	}
	want := bases()
	require.Len(t, want, 2)
	require.NoError(t, b.fs.Remove(b.name+"/"+segment.FileName(want[1], ".index")))
	b.reopen()
	require.Equal(t, want, bases())
	require.Equal(t, int64(1<<31+7), b.Offsets().LogEnd)
	var got []int64
	for r, err := range b.Records(context.Background(), 1) {
		require.NoError(t, err)
		got = append(got, r.Offset)
	}
	require.Equal(t, []int64{1<<31 + 1, 1<<31 + 2, 1<<31 + 3, 1<<31 + 4, 1<<31 + 5, 1<<31 + 6}, got)
}

// Scenario: K001, K005
func TestAPartitionHasAFolderOnceItIsOpenedAndNotBefore(t *testing.T) {
	disk := vfs.Mem()
	d := rootOf(t, disk)
	_, ok := d.Get(TopicPartition{Topic: "orders", Partition: 3})
	require.False(t, ok)
	require.False(t, exists(disk, "orders-3"))
	l, err := d.Open(context.Background(), TopicPartition{Topic: "orders", Partition: 3}, Config{})
	require.NoError(t, err)
	require.True(t, exists(disk, "orders-3"))
	again, ok := d.Get(TopicPartition{Topic: "orders", Partition: 3})
	require.True(t, ok)
	require.Same(t, l, again)
	require.NoError(t, d.Close())
}

// Scenario: K020
func TestCloseReportsEveryPartitionThatFails(t *testing.T) {
	faulty := vfstest.NewFault(vfs.Mem())
	d := rootOf(t, faulty)
	for n := range int32(3) {
		l, err := d.Open(context.Background(), TopicPartition{"t", n}, Config{Durability: Buffered})
		require.NoError(t, err)
		_, err = l.Append(context.Background(), record.Record{Value: []byte("v")})
		require.NoError(t, err)
	}
	faulty.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync}, Name: "t-0/*", Err: syscall.EIO})
	faulty.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync}, Name: "t-2/*", Err: syscall.EIO})
	err := d.Close()
	require.ErrorContains(t, err, "t-0")
	require.ErrorContains(t, err, "t-2")
	require.NotContains(t, err.Error(), "t-1")
}

// Report: B008
func TestRebuiltIndexesOfOldSegmentsAreAsLongAsTheirEntries(t *testing.T) {
	b := newBed(t, Config{IndexIntervalBytes: EveryBatch})
	for range 50 {
		b.add(strings.Repeat("v", 100))
		b.add(strings.Repeat("v", 100))
		require.NoError(t, b.Roll(context.Background()))
	}
	require.NoError(t, b.dir.Close())
	bases, err := segment.List(b.fs, b.name)
	require.NoError(t, err)
	for _, base := range bases {
		require.NoError(t, b.fs.Remove(b.name+"/"+segment.FileName(base, ".timeindex")))
	}
	b.open()
	for _, err := range b.Records(context.Background(), 0) {
		require.NoError(t, err)
	}
	_, err = b.OffsetForTime(context.Background(), time.UnixMilli(epoch2023))
	require.NoError(t, err)
	require.NoError(t, b.dir.Close())
	for _, base := range bases {
		info, err := b.fs.Stat(b.name + "/" + segment.FileName(base, ".timeindex"))
		if err == nil {
			require.LessOrEqual(t, info.Size(), int64(24), "segment %d", base)
		}
	}
	b.open()
}

// Report: B057
func TestRefusedOpensLeaveNoFileOpen(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("counts open files where the system shows them")
	}
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	root := t.TempDir()
	l, err := Open(root, Config{})
	require.NoError(t, err)
	before := open()
	for range 300 {
		_, err := Open(root, Config{})
		require.ErrorIs(t, err, ErrLocked)
	}
	require.LessOrEqual(t, open(), before+5)
	require.NoError(t, l.Close())
}

// Report: B145, B150
func TestTheEarliestOffsetLeadsToTheFirstRecordThereIs(t *testing.T) {
	b := newBed(t, Config{})
	_, err := b.follow(batchOf(100, 0, record.None, "a"))
	require.NoError(t, err)
	for range 2 {
		for r, err := range b.Records(context.Background(), b.Offsets().LogStart) {
			require.NoError(t, err)
			require.Equal(t, int64(100), r.Offset)
		}
		b.reopen()
	}
	require.NoError(t, b.DeleteRecords(context.Background(), 101))
	require.Equal(t, []int64{101, 101}, []int64{b.Offsets().LogStart, b.Offsets().LogEnd})
	for range b.Records(context.Background(), 101) {
		t.Fatal("a record behind the end")
	}
	for _, err := range b.Records(context.Background(), 100) {
		require.ErrorIs(t, err, ErrOffsetOutOfRange)
	}
}

// Report: B153. The leftover is in the way of nothing, but nobody may believe that it is gone: the open says so and the next
// one goes on.
func TestALeftoverThatCannotBeRemovedIsNamedAndGoesTheNextTime(t *testing.T) {
	b := newBed(t, Config{})
	b.add("a")
	require.NoError(t, b.dir.Close())
	left := b.name + "/" + segment.FileName(7, ".log") + ".deleted"
	f, err := b.fs.OpenFile(left, os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	faulty := vfstest.NewFault(b.fs, vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRemove}, Name: "*.deleted", Nth: 1, Err: syscall.EBUSY})
	d := rootOf(t, faulty)
	_, err = d.Open(context.Background(), b.tp, Config{})
	if err != nil {
		require.ErrorIs(t, err, syscall.EBUSY)
	}
	require.NoError(t, d.Close())
	b.open()
	require.False(t, exists(b.fs, left))
	require.Equal(t, int64(1), b.Offsets().LogEnd)
}

// Report: B159. What bounds a batch is its bytes.
func TestABatchOfVeryManyRecordsIsOneBatch(t *testing.T) {
	const n = 140_000
	builder := record.NewBuilder(record.BuilderOptions{})
	for i := range int64(n) {
		require.NoError(t, builder.AddAt(record.Record{Offset: i, Timestamp: epoch2023}))
	}
	batch, err := builder.Finish()
	require.NoError(t, err)
	b := newBed(t, Config{MaxMessageBytes: 8 << 20})
	_, err = b.AppendBatches(context.Background(), bytes.Clone(batch.Bytes()), AppendOptions{})
	require.NoError(t, err)
	b.reopen()
	seen := int64(0)
	for r, err := range b.Records(context.Background(), 0) {
		require.NoError(t, err)
		require.Equal(t, seen, r.Offset)
		seen++
	}
	require.Equal(t, int64(n), seen)
}
