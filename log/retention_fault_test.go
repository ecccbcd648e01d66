package log

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Report: B153
func TestAFileThatWillNotGoKeepsNothingFromOpening(t *testing.T) {
	fault := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, fault, Config{RetentionTime: time.Second})
	b.inSegments(1, 1, epoch2023)
	require.Equal(t, 2, b.retain().Waiting)
	_, remove := fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRemove}, Name: "*.deleted", Times: vfstest.Always, Err: syscall.EBUSY})
	require.NoError(t, b.dir.Close())
	b.open()
	require.NotEmpty(t, b.Recovery().Findings)
	require.NotEmpty(t, b.folder(".deleted"))
	require.Equal(t, offsetsIn(10, 15), b.readAll(10))
	_, err := b.Retain(ctx)
	require.ErrorIs(t, err, syscall.EBUSY)
	remove()
	require.Zero(t, b.retain().Waiting)
	require.Empty(t, b.folder(".deleted"))
}

func TestAReaderFinishesTheSegmentThatGoesUnderIt(t *testing.T) {
	for _, mem := range []bool{true, false} {
		fsys := vfs.Mem()
		if !mem {
			var err error
			fsys, err = vfs.OS(t.TempDir())
			require.NoError(t, err)
		}
		b := newBedOn(t, fsys, Config{RetentionTime: time.Second, FileDeleteDelay: Immediately})
		b.inSegments(1, 1, epoch2023)
		b.reopen()
		fetched, err := b.Fetch(ctx, 0, FetchOptions{})
		require.NoError(t, err)
		require.Equal(t, 2, b.retain().Dropped)
		require.Empty(t, b.folder(".deleted"))
		var got []int64
		for batch, err := range fetched.Batches() {
			require.NoError(t, err)
			got = append(got, batch.BaseOffset())
		}
		require.Equal(t, []int64{0}, got[:1])
		require.NoError(t, fetched.Close())
		_, err = offsetsOf(b.Records(ctx, 0))
		require.ErrorIs(t, err, ErrOffsetOutOfRange)
		require.Equal(t, offsetsIn(10, 15), b.readAll(10))
	}
}

func TestRetentionFreesADiskThatIsFull(t *testing.T) {
	for _, n := range []int{3, 20} { // one by one, and under a log start that cannot be written
		fault := vfstest.NewFault(vfs.Mem())
		b := newBedOn(t, fault, Config{RetentionTime: time.Second})
		b.inSegments(append(same(n, 1), epoch2023)...)
		fault.SetQuota(0)
		_, err := b.Append(ctx, record.Record{Value: []byte("x")})
		require.ErrorIs(t, err, ErrNoSpace)
		r := b.retain()
		require.Equal(t, n, r.Dropped)
		require.Zero(t, r.Waiting, "space is what is wanted now")
		require.Empty(t, b.folder(".deleted"))
		fault.SetQuota(-1)
		require.EqualValues(t, n*5+5, b.add("room again"))
		b.reopen()
		require.Equal(t, offsetsIn(int64(n)*5, int64(n)*5+6), b.readAll(int64(n)*5))
	}
}

func TestAFullDirectoryLosesTheFilesAtOnce(t *testing.T) {
	fault := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, fault, Config{RetentionTime: time.Second})
	b.inSegments(1, 1, epoch2023)
	fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRename}, Name: "*.deleted", Times: vfstest.Always, Err: syscall.ENOSPC})
	fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRename}, Name: "*.log", Times: vfstest.Always, Err: syscall.ENOSPC})
	require.Equal(t, 2, b.retain().Dropped)
	require.Empty(t, b.folder(".deleted"))
	require.Len(t, b.folder(".log"), 1)
	require.Equal(t, offsetsIn(10, 15), b.readAll(10))
}

func TestAnActiveSegmentThatCannotBeRolledKeepsTheOthersFromNothing(t *testing.T) {
	fault := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, fault, Config{RetentionTime: time.Second})
	b.inSegments(same(3, 1)...)
	_, remove := fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpCreate}, Name: "*.log", Times: vfstest.Always, Err: syscall.ENOSPC})
	r, err := b.Retain(ctx)
	require.ErrorIs(t, err, ErrNoSpace)
	require.Equal(t, 2, r.Dropped)
	require.Zero(t, r.Waiting)
	require.Equal(t, []int64{10}, b.bases())
	require.NoError(t, b.Err())
	remove()
	require.Equal(t, 1, b.retain().Dropped)
	require.Equal(t, []int64{15}, b.bases())

	once := newBedOn(t, vfstest.NewFault(vfs.Mem(), vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpCreate}, Name: segment.FileName(15, ".log"), Times: 1, Err: syscall.ENOSPC}), Config{RetentionTime: time.Second})
	once.inSegments(same(3, 1)...)
	require.Equal(t, 3, once.retain().Dropped, "the files of the others made room")
}

func TestAFailedDirectorySyncStopsTheLog(t *testing.T) {
	fault := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, fault, Config{RetentionTime: time.Second})
	b.inSegments(1, 1, epoch2023)
	_, remove := fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncDir}, Name: "t-0", Times: vfstest.Always, Err: syscall.EIO})
	r, err := b.Retain(ctx)
	require.ErrorIs(t, err, ErrFailed)
	require.Zero(t, r.Dropped)
	require.Zero(t, b.Offsets().LogStart, "nobody is told of what may come back")
	require.ErrorIs(t, b.dir.Close(), ErrFailed)
	remove()
	b.open()
	require.Equal(t, offsetsIn(0, 15), b.readAll(0))
}

// A failed rename leaves the log as it was, with what went before.
func TestAFailedRenameStopsAtItsSegment(t *testing.T) {
	fault := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, fault, Config{RetentionTime: time.Second})
	b.inSegments(1, 1, 1, epoch2023)
	_, remove := fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRename}, Name: segment.FileName(5, ".log"), Times: vfstest.Always, Err: syscall.EIO})
	r, err := b.Retain(ctx)
	require.ErrorIs(t, err, syscall.EIO)
	require.Equal(t, 1, r.Dropped)
	require.NoError(t, b.Err())
	require.Equal(t, []int64{5, 10, 15}, b.bases())
	require.Equal(t, offsetsIn(5, 20), b.readAll(5))
	remove()
	require.Equal(t, 2, b.retain().Dropped)
	b.reopen()
	require.Equal(t, offsetsIn(15, 20), b.readAll(15))
}

func TestRetainHearsItsContext(t *testing.T) {
	b := newBed(t, Config{RetentionTime: time.Second})
	b.inSegments(1, 1, epoch2023)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err := b.Retain(ended)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, b.write.lock(ctx))
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err = b.Retain(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	b.write.unlock()
	require.Equal(t, 2, b.retain().Dropped)
}

// Report: B185, B194
func TestReadersAppendsTruncationsAndDropsRunTogether(t *testing.T) {
	b := newBed(t, Config{RetentionBytes: 400, RetentionTime: Forever, SegmentBytes: 300, FileDeleteDelay: Immediately, Durability: Buffered})
	stop := make(chan struct{})
	var all sync.WaitGroup
	again := func(f func() error) {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 2 {
		again(func() error {
			_, err := b.Retain(ctx)
			return err
		})
	}
	again(func() error {
		start := b.Offsets().LogStart
		next := int64(-1)
		for r, err := range b.Records(ctx, start) {
			if errors.Is(err, ErrOffsetOutOfRange) {
				return nil
			}
			if err != nil {
				return err
			}
			if next >= 0 && r.Offset != next || string(r.Value) != fmt.Sprint(r.Offset) {
				return fmt.Errorf("record %d holds %q, %d was next", r.Offset, r.Value, next)
			}
			next = r.Offset + 1
		}
		return nil
	})
	again(func() error {
		b.PlanRetention(b.now())
		b.Stats()
		b.SegmentInfos()
		return nil
	})
	again(func() error { return b.Sync(ctx) })
	for i := range 400 {
		require.EqualValues(t, i, b.add(fmt.Sprint(i)))
		if i%50 == 49 {
			require.NoError(t, b.DeleteRecords(ctx, int64(i)))
			o := b.Offsets()
			require.GreaterOrEqual(t, o.LogEnd, int64(i+1), "what was appended meanwhile stays")
		}
	}
	close(stop)
	all.Wait()
	b.retain()
	require.LessOrEqual(t, b.Stats().Bytes, int64(400+300))
	start := b.Offsets().LogStart
	b.reopen()
	require.Equal(t, offsetsIn(start, 400), b.readAll(start))
}
