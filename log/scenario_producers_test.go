package log

import (
	"io/fs"
	"math"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Scenario: U008
func TestWhatALogSaysOfItsProducers(t *testing.T) {
	b := newBed(t, Config{})
	b.mustSend(inTxn(as(1, 0, 0)), 5)
	b.mustSend(as(2, 0, 0), 3)
	open := ProducerInfo{ID: 1, LastSequence: 4, LastOffset: 4, LastTimestamp: epoch2023, CoordinatorEpoch: -1, TxnStart: 0, Batches: 1}
	plain := ProducerInfo{ID: 2, LastSequence: 2, LastOffset: 7, LastTimestamp: epoch2023, CoordinatorEpoch: -1, TxnStart: -1, Batches: 1}
	require.Equal(t, []ProducerInfo{open, plain}, b.Producers())
	b.mustEnd(as(1, 0, 0), true, 15)
	open.CoordinatorEpoch, open.TxnStart = 15, -1
	require.Equal(t, []ProducerInfo{open, plain}, b.Producers())
}

// A rewrite that made one segment of two takes the snapshot between them along.
// Scenario: U096
func TestMergedSegmentsLeaveOnlyTheSnapshotsOfTheBasesThatAreLeft(t *testing.T) {
	b := newBed(t, Config{})
	for i := range int32(3) {
		b.mustSend(as(1, 0, i), 1)
		require.NoError(t, b.Roll(ctx))
	}
	require.NoError(t, b.Sync(ctx))
	require.Equal(t, []int64{1, 2, 3}, b.snapshots())
	require.NoError(t, b.dir.Close())
	var merged []byte
	for _, base := range []int64{0, 1} {
		raw, err := vfs.ReadFile(b.fs, "t-0/"+segment.FileName(base, ".log"), math.MaxInt32)
		require.NoError(t, err)
		merged = append(merged, raw...)
	}
	f, err := b.fs.OpenFile("t-0/"+segment.FileName(0, ".log.swap"), os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(t, err)
	_, err = f.WriteAt(merged, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	b.open()
	require.Equal(t, []int64{2, 3}, b.snapshots())
	require.Len(t, b.SegmentInfos(), 3)
	require.Equal(t, []int64{0, 1, 2}, b.readAll(0))
	res := b.mustSend(as(1, 0, 2), 1)
	require.True(t, res.Duplicate)
}

// Kafka resolves the high watermark to a position when offsets are asked for; here a read to it ends where it stands.
// Scenario: U118
func TestAReadToTheHighWatermarkEndsAtItsPosition(t *testing.T) {
	b := newBed(t, Config{Visibility: External})
	for range 3 {
		b.add("a", "b")
	}
	_, err := b.SetHighWatermark(4)
	require.NoError(t, err)
	require.Equal(t, int64(4), b.Offsets().HighWatermark)
	f, err := b.Fetch(ctx, 0, FetchOptions{})
	require.NoError(t, err)
	defer f.Close()
	next, err := f.NextOffset()
	require.NoError(t, err)
	require.Equal(t, int64(4), next)
	at, err := b.list.Load().active().Find(4)
	require.NoError(t, err)
	require.Equal(t, at.Pos, f.Len(), "whole batches up to it and not a byte more")
	require.Equal(t, int64(4), f.Offsets().HighWatermark)
}

// A log whose index of aborted transactions cannot be written, nor its marker be taken back, takes nothing more. Kafka
// refuses reads too; here what was shown before can still be read.
// Scenario: U123
func TestALogThatCannotWriteItsAbortedTransactionsTakesNothingMore(t *testing.T) {
	fault := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, fault, Config{})
	b.add("before")
	b.mustSend(inTxn(as(1, 0, 0)), 10)
	eio := &fs.PathError{Op: "write", Path: "x", Err: syscall.EIO}
	fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpWrite, vfstest.OpCreate}, Name: "*.txnindex", Err: eio, Times: vfstest.Always})
	fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpTruncate}, Name: "*.log", Err: eio, Times: vfstest.Always})
	_, err := b.EndTxn(ctx, as(1, 0, 0), false, EndTxnOptions{})
	require.ErrorIs(t, err, ErrFailed)
	_, err = b.Append(ctx, values(1, 1)...)
	require.ErrorIs(t, err, ErrFailed)
	_, err = b.send(inTxn(as(1, 0, 10)), 1)
	require.ErrorIs(t, err, ErrFailed)
	_, err = b.EndTxn(ctx, as(1, 0, 0), false, EndTxnOptions{})
	require.ErrorIs(t, err, ErrFailed)
	require.Equal(t, int64(1), b.Offsets().LastStable)
	require.Equal(t, []int64{0}, b.readAll(0, WithIsolation(ReadCommitted)))
	require.ErrorIs(t, b.Err(), ErrFailed)
}

// Scenario: P018, P032
func TestSnapshotsGoOneByOne(t *testing.T) {
	fsys := vfs.Mem()
	require.NoError(t, fsys.MkdirAll("t-0", 0o755))
	for _, offset := range []int64{2, 3} {
		require.NoError(t, producerstate.WriteSnapshot(fsys, "t-0/"+producerstate.FileName(offset), nil))
	}
	left := func() []int64 {
		all, err := producerstate.List(fsys, "t-0")
		require.NoError(t, err)
		return all
	}
	require.NoError(t, producerstate.Remove(fsys, "t-0", []int64{2}))
	require.Equal(t, []int64{3}, left())
	require.NoError(t, fsys.Rename("t-0/"+producerstate.FileName(3), "t-0/"+producerstate.FileName(3)+".deleted"))
	require.Empty(t, left(), "one that is marked is not known any more")
	require.NoError(t, producerstate.Remove(fsys, "t-0", []int64{3}), "gone already")
}

// Scenario: P037
func TestASnapshotComesBackAsItWasWritten(t *testing.T) {
	want := []producerstate.Entry{
		{ProducerID: 1, Epoch: 2, LastSequence: 7, LastOffset: 30, OffsetDelta: 3, Timestamp: 1000, CoordinatorEpoch: 4, TxnFirstOffset: 27},
		{ProducerID: 2, Epoch: 0, LastSequence: -1, LastOffset: -1, Timestamp: 5, CoordinatorEpoch: 1, TxnFirstOffset: -1},
		{ProducerID: 3, Epoch: -1, LastSequence: 9, LastOffset: 31, Timestamp: -1, CoordinatorEpoch: -1, TxnFirstOffset: -1},
	}
	fsys := vfs.Mem()
	require.NoError(t, producerstate.WriteSnapshot(fsys, "a.snapshot", want))
	got, err := producerstate.ReadSnapshot(fsys, "a.snapshot")
	require.NoError(t, err)
	require.Equal(t, want, got)
}
