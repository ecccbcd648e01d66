package log

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// What speed rests on: how often the operating system is asked. Times differ from machine to machine, these do not.

func tracedBed(t *testing.T, c Config) (*bed, *vfstest.Trace) {
	trace := vfstest.NewTrace(vfs.Mem())
	b := newBedOn(t, trace, c)
	b.add("the first batch opens what it needs")
	trace.Reset()
	return b, trace
}

func TestABufferedAppendIsOneWrite(t *testing.T) {
	b, trace := tracedBed(t, Config{Durability: Buffered})
	for n := 1; n <= 200; n++ {
		b.add("value")
		require.Equal(t, n, trace.Count(), trace.String())
		require.Len(t, trace.Filter("t-0/*.log", vfstest.OpWrite), n)
	}
	raw := timed(epoch2023)
	_, err := b.AppendBatches(context.Background(), raw, AppendOptions{})
	require.NoError(t, err)
	require.Equal(t, 201, trace.Count())
}

// Index entries reach their file by the page: 512 of the one, 341 of the other.
func TestIndexesAreWrittenByThePage(t *testing.T) {
	b, trace := tracedBed(t, Config{Durability: Buffered, IndexIntervalBytes: EveryBatch})
	const appends = 1100
	for i := range int64(appends) {
		_, err := b.AppendBatches(context.Background(), timed(epoch2023+i), AppendOptions{})
		require.NoError(t, err)
	}
	require.Len(t, trace.Filter("t-0/*.log", vfstest.OpWrite), appends)
	require.Len(t, trace.Filter("t-0/*.index", vfstest.OpWrite), appends/512)
	require.Len(t, trace.Filter("t-0/*.timeindex", vfstest.OpWrite), appends/341)
	require.Equal(t, appends+appends/512+appends/341, trace.Count(), "nothing else was asked")
}

// A durable append is a write and one data sync; beside them goes the hint, unsynced.
func TestADurableAppendIsOneWriteOneSyncAndTheHint(t *testing.T) {
	b, trace := tracedBed(t, Config{})
	for n := 1; n <= 20; n++ {
		b.add("value")
		require.Len(t, trace.Filter("t-0/*.log", vfstest.OpWrite), n, trace.String())
		require.Equal(t, n, trace.Count(vfstest.OpSyncData))
		require.Zero(t, trace.Count(vfstest.OpSync, vfstest.OpSyncDir))
		require.Equal(t, 3*n, trace.Count(), trace.String())
	}
}

// Reading to the end again and again asks for no byte twice, in pieces that grow.
func TestAScanReadsEveryByteOnceInLargePieces(t *testing.T) {
	b, trace := tracedBed(t, Config{Durability: Buffered})
	for range 400 {
		b.add(strings.Repeat("v", 5000))
	}
	size := b.Stats().Bytes
	trace.Reset()
	for _, err := range b.Records(context.Background(), 0) {
		require.NoError(t, err)
	}
	read := int64(0)
	for _, op := range trace.Ops() {
		require.Equal(t, vfstest.OpRead, op.Kind, trace.String())
		read += op.Done
	}
	require.Equal(t, size, read)
	require.LessOrEqual(t, trace.Count(), int(size/(256<<10))+6)
}

// Opening after a clean stop costs about the same for each segment, however many there are and whatever they hold.
func TestACleanOpenAsksAFewThingsOfEachSegment(t *testing.T) {
	cost := func(segments, batches int) int {
		b, trace := tracedBed(t, Config{Durability: Buffered})
		for range segments {
			for range batches {
				b.add("value")
			}
			require.NoError(t, b.Roll(context.Background()))
		}
		require.NoError(t, b.dir.Close())
		trace.Reset()
		b.open()
		require.True(t, b.Recovery().Clean)
		return trace.Count()
	}
	ten, hundred := cost(10, 1), cost(100, 1)
	require.LessOrEqual(t, float64(hundred-ten)/90, 3.0, "calls for a segment more")
	require.InDelta(t, ten, cost(10, 50), 3)
}

// One record out of a log with large batches costs one read.
func TestOneRecordOutOfALargeBatchIsOneRead(t *testing.T) {
	b, trace := tracedBed(t, Config{Durability: Buffered})
	for range 30 {
		recs := make([]record.Record, 100)
		for i := range recs {
			recs[i].Value = make([]byte, 116)
		}
		_, err := b.Append(context.Background(), recs...)
		require.NoError(t, err)
	}
	for _, offset := range []int64{1201, 1275, 1300} {
		trace.Reset()
		for r, err := range b.Records(context.Background(), offset) {
			require.NoError(t, err)
			require.Equal(t, offset, r.Offset)
			break
		}
		require.Equal(t, 1, trace.Count(), trace.String())
	}
}
