package log

import (
	"bytes"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// Invariants R2, R3, B2. B177.
func TestAnySplitOfAReadGivesTheSameBytesAndRecords(t *testing.T) {
	fsys, err := vfs.OS(t.TempDir())
	require.NoError(t, err)
	b := newBedOn(t, fsys, Config{SegmentBytes: 3000, Durability: Buffered})
	var want []byte
	for i := range 60 {
		_, err := b.Append(ctx, values(1+i%5, 10+i%7*30)...)
		require.NoError(t, err)
	}
	for got, err := range b.Batches(ctx, 0) {
		require.NoError(t, err)
		want = append(want, got.Bytes()...)
	}
	end := b.Offsets().LogEnd
	for _, size := range []int64{1, 61, 100, 500, 1000, 2999, 3000, 1 << 20, 0} {
		var whole []byte
		var seen []int64
		for o := int64(0); o < end; {
			f, err := b.Fetch(ctx, o, FetchOptions{MaxBytes: size})
			require.NoError(t, err)
			require.Positive(t, f.Len())
			first := int64(-1)
			var batches []byte
			for got, err := range f.Batches() {
				require.NoError(t, err)
				if first < 0 {
					first = int64(got.Size())
				}
				batches = append(batches, got.Bytes()...)
			}
			if size > 0 {
				require.LessOrEqual(t, f.Len(), max(size, first))
			}
			var sent bytes.Buffer
			n, err := f.WriteTo(&sent)
			require.NoError(t, err)
			require.Equal(t, f.Len(), n)
			read := make([]byte, f.Len())
			_, err = f.ReadAt(read, 0)
			require.NoError(t, err)
			require.Equal(t, read, sent.Bytes())
			require.True(t, bytes.HasPrefix(read, batches))
			require.Equal(t, sendThroughSocket(t, f), read)
			_, err = f.ReadAt(make([]byte, 1), f.Len())
			require.Equal(t, io.EOF, err)
			whole = append(whole, batches...)
			got, err := offsetsOf(f.Records())
			require.NoError(t, err)
			seen = append(seen, got...)
			next, err := f.NextOffset()
			require.NoError(t, err)
			require.Greater(t, next, o, "progress")
			o = next
			require.NoError(t, f.Close())
		}
		require.Equal(t, want, whole)
		require.Equal(t, offsetsIn(0, end), seen)
		if size == 1 {
			size = 0
		}
	}
	require.Zero(t, b.Stats().Pinned)
}

func sendThroughSocket(t *testing.T, f *Fetched) []byte {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	got := make(chan []byte)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			got <- nil
			return
		}
		raw, _ := io.ReadAll(c)
		c.Close()
		got <- raw
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	_, err = f.WriteTo(c)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	return <-got
}

func TestAFetchWaitsForEnoughBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Config{SegmentBytes: 1000})
		size := int64(len(batchOf(0, 0, record.None, "x")))
		fetch := func(at, atLeast int64, wait time.Duration) (*Fetched, time.Duration) {
			began := time.Now()
			f, err := b.Fetch(ctx, at, FetchOptions{MinBytes: atLeast, MaxWait: wait})
			require.NoError(t, err)
			require.NoError(t, f.Close())
			return f, time.Since(began)
		}
		_, took := fetch(0, 1, time.Second)
		require.Equal(t, time.Second, took, "nothing came")
		_, took = fetch(0, 0, time.Second)
		require.Zero(t, took, "nothing asked for")
		go func() {
			for range 3 {
				time.Sleep(100 * time.Millisecond)
				b.add("x")
			}
		}()
		f, err := b.Fetch(ctx, 0, FetchOptions{MinBytes: 2 * size, MaxWait: time.Second})
		require.NoError(t, err)
		require.Equal(t, 2*size, f.Len())
		require.Equal(t, int64(2), f.Offsets().LogEnd, "the marks of the read that answered")
		require.NoError(t, f.Close())
		time.Sleep(time.Second)
		_, took = fetch(0, 100*size, time.Second)
		require.Equal(t, time.Second, took)
		began := time.Now()
		f, err = b.Fetch(ctx, 0, FetchOptions{MinBytes: 1 << 30, MaxBytes: size, MaxWait: time.Hour})
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		require.Equal(t, size, f.Len(), "more than MaxBytes is never waited for")
		require.NoError(t, f.Close())
		require.NoError(t, b.Roll(ctx))
		_, took = fetch(0, 100*size, time.Second)
		require.Zero(t, took, "the bound is in a later segment: this one will not grow")
		_, took = fetch(1, min(2*size, 1<<20), time.Second)
		require.Zero(t, took)

		c, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		_, err = b.Fetch(c, 3, FetchOptions{MinBytes: 1, MaxWait: time.Hour})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		late := make(chan error, 3)
		wait := func() { _, err := b.Fetch(ctx, 3, FetchOptions{MinBytes: 1, MaxWait: time.Hour}); late <- err }
		go wait()
		synctest.Wait()
		require.Equal(t, 1, b.Stats().Followers)
		_, err = b.Truncate(ctx, 1)
		require.NoError(t, err)
		require.ErrorIs(t, <-late, ErrOffsetOutOfRange, "the log is shorter now")
		b.add("x", "y")
		go wait()
		synctest.Wait()
		require.NoError(t, b.Close())
		require.ErrorIs(t, <-late, ErrClosed)
		require.Zero(t, b.Stats().Pinned)
	})
}

func TestAFetchBelowAnOlderBoundStillWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Config{Visibility: External})
		b.add("0", "1")
		b.add("2")
		require.NoError(t, b.Roll(ctx))
		b.add("3")
		_, err := b.SetHighWatermark(2)
		require.NoError(t, err)
		began := time.Now()
		f, err := b.Fetch(ctx, 0, FetchOptions{MinBytes: 1000, MaxWait: time.Second})
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.Equal(t, time.Second, time.Since(began), "this segment still has more to show")
	})
}

// KIP-320 and §9.4 step 2.
func TestADivergedReaderIsToldWhereToTruncate(t *testing.T) {
	b := newBed(t, Config{})
	for i, epoch := range []int32{1, 1, 4, 4, 7} {
		_, err := b.follow(batchOf(int64(i), epoch, record.None, "x"))
		require.NoError(t, err)
	}
	at := func(offset int64, last int32) (*Fetched, error) {
		return b.Fetch(ctx, offset, FetchOptions{LastFetchedEpoch: &last, MinBytes: 1 << 20, MaxWait: time.Nanosecond})
	}
	for _, row := range []struct {
		offset int64
		last   int32
		want   *EpochEnd
	}{
		{2, 1, nil}, {1, 1, nil}, {0, 1, nil}, {4, 4, nil}, {5, 7, nil}, {4, 7, nil},
		{3, 1, &EpochEnd{1, 2}}, {9, 4, &EpochEnd{4, 4}}, {4, 5, &EpochEnd{4, 4}}, {3, 3, &EpochEnd{1, 2}}, {2, 0, &EpochEnd{0, 0}}, {6, 7, &EpochEnd{7, 5}},
	} {
		f, err := at(row.offset, row.last)
		require.NoError(t, err, "%+v", row)
		got, diverged := f.Diverging()
		require.Equal(t, row.want != nil, diverged, "%+v", row)
		if diverged {
			require.Equal(t, *row.want, got)
			require.Zero(t, f.Len())
		}
		require.NoError(t, f.Close())
	}
	for _, unknown := range []int32{8, -1} {
		_, err := at(2, unknown)
		require.ErrorIs(t, err, ErrOffsetOutOfRange)
	}
	require.NoError(t, b.DeleteRecords(ctx, 3))
	_, err := at(2, 1)
	require.ErrorIs(t, err, ErrOffsetOutOfRange, "below the start comes before divergence")
}

func TestATruncationUnderAFetchedIsSaid(t *testing.T) {
	b := newBed(t, Config{})
	b.add("a", "b")
	b.add("c")
	f, err := b.Fetch(ctx, 0, FetchOptions{})
	require.NoError(t, err)
	_, err = b.Truncate(ctx, 2)
	require.NoError(t, err)
	b.add("other")
	_, err = f.ReadAt(make([]byte, 10), 0)
	require.ErrorIs(t, err, ErrTruncated)
	_, err = f.WriteTo(io.Discard)
	require.ErrorIs(t, err, ErrTruncated)
	require.NoError(t, f.Close())
	_, err = f.WriteTo(io.Discard)
	require.ErrorIs(t, err, ErrClosed)
	_, err = f.ReadAt(make([]byte, 10), 0)
	require.ErrorIs(t, err, ErrClosed)
	_, err = offsetsOf(f.Records())
	require.ErrorIs(t, err, ErrClosed)
}

// WholeBatches ends where a batch does, wherever MaxBytes falls and however sparse the index is.
func TestAFetchOfWholeBatchesHoldsNoPieceOfOne(t *testing.T) {
	for _, interval := range []int64{EveryBatch, 500, 1 << 20} {
		b := newBed(t, Config{IndexIntervalBytes: interval})
		for i := range 30 {
			b.add(strings.Repeat("x", 10+7*i), "y")
		}
		f, err := b.Fetch(ctx, 0, FetchOptions{})
		require.NoError(t, err)
		all := f.Len()
		require.NoError(t, f.Close())
		ends := []int64{}
		at := int64(0)
		for batch, err := range b.Batches(ctx, 0) {
			require.NoError(t, err)
			at += int64(batch.Size())
			ends = append(ends, at)
		}
		for most := int64(1); most <= all+10; most += 3 {
			want := ends[0]
			for _, end := range ends {
				if end <= most {
					want = end
				}
			}
			f, err := b.Fetch(ctx, 0, FetchOptions{MaxBytes: most, WholeBatches: true})
			require.NoError(t, err)
			require.Equal(t, want, f.Len(), "%d bytes, index interval %d", most, interval)
			require.NoError(t, f.Close())
		}
	}
}

func TestFetchOptionsWithoutMeaningAreRefused(t *testing.T) {
	b := newBed(t, Config{})
	b.add("a")
	for field, o := range map[string]FetchOptions{
		"FetchOptions.Isolation": {Isolation: 9}, "FetchOptions.MaxBytes": {MaxBytes: -1},
		"FetchOptions.MinBytes": {MinBytes: -1}, "FetchOptions.MaxWait": {MinBytes: 1, MaxWait: -1},
	} {
		_, err := b.Fetch(ctx, 0, o)
		c := (*ConfigError)(nil)
		require.ErrorAs(t, err, &c)
		require.Equal(t, field, c.Field)
		require.NotContains(t, err.Error(), "Config.")
	}
}

// Who reads where compaction has left nothing is told how far: up to the next batch, or to where it may see.
func TestAFetchThatFindsNothingSaysWhereItGoesOn(t *testing.T) {
	b := newBed(t, Config{Visibility: External})
	_, err := b.follow(batchOf(0, 0, 0, "a", "b"), batchOf(5, 0, 0, "c", "d"))
	require.NoError(t, err)
	require.NoError(t, b.FollowEnd(ctx, 9))
	for _, c := range []struct {
		hw, from  int64
		isolation Isolation
		next      int64
	}{
		{0, 2, LogEnd, 7}, {0, 7, LogEnd, 9}, {0, 8, LogEnd, 9}, {0, 9, LogEnd, 9}, {0, 0, LogEnd, 7},
		{4, 2, ReadUncommitted, 4}, {4, 3, ReadCommitted, 4}, {4, 4, ReadUncommitted, 4}, {4, 5, ReadUncommitted, 5},
		{6, 2, ReadUncommitted, 5}, {6, 5, ReadUncommitted, 5}, // the batch at 5 reaches beyond
		{8, 7, ReadUncommitted, 8}, {9, 7, ReadCommitted, 9}, {7, 2, ReadUncommitted, 7},
	} {
		_, err := b.SetHighWatermark(c.hw)
		require.NoError(t, err)
		f, err := b.Fetch(ctx, c.from, FetchOptions{Isolation: c.isolation, WholeBatches: true})
		require.NoError(t, err)
		next, err := f.NextOffset()
		require.NoError(t, err)
		require.Equal(t, c.next, next, "%+v", c)
		require.NoError(t, f.Close())
	}
}
