package log

import (
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/record"
)

// asCommitted compares offsets and values with what a real read-committed consumer got.
func asCommitted(t *testing.T, name, how string, seq iter.Seq2[record.Record, error]) {
	t.Helper()
	want := golden.MustCommitted(t, name)
	i := 0
	for r, err := range seq {
		require.NoError(t, err, how)
		require.Less(t, i, len(want), "%s: more records than the consumer got: offset %d", how, r.Offset)
		require.Equal(t, want[i].Offset, r.Offset, how)
		require.True(t, want[i].MatchesKey(r.Key) && want[i].MatchesValue(r.Value), "%s: offset %d", how, r.Offset)
		i++
	}
	require.Equal(t, len(want), i, how)
}

// unpacked are the records of batches at or above start.
func unpacked(start int64, batches iter.Seq2[record.Batch, error]) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		dec := record.NewDecoder(record.Limits{})
		for b, err := range batches {
			if err != nil {
				yield(record.Record{}, err)
				return
			}
			for r, err := range b.Records(dec) {
				if r.Offset >= start && !yield(r, err) {
					return
				}
			}
		}
	}
}

// fetching reads by Fetch, a little at a time.
func fetching(start int64, fetch func(offset int64) (*Fetched, error)) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		for next := start; ; {
			f, err := fetch(next)
			if err != nil {
				yield(record.Record{}, err)
				return
			}
			for r, err := range f.Records() {
				if !yield(r, err) {
					f.Close()
					return
				}
			}
			at, err := f.NextOffset()
			f.Close()
			if err != nil || at == next {
				if err != nil {
					yield(record.Record{}, err)
				}
				return
			}
			next = at
		}
	}
}

func TestReadCommittedGivesWhatARealConsumerGot(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			root := golden.Copy(t, name)
			dir, err := golden.PartitionDir(root)
			require.NoError(t, err)
			small := FetchOptions{Isolation: ReadCommitted, MaxBytes: 500}
			r, err := OpenReader(dir, ReaderOptions{})
			require.NoError(t, err)
			start := r.Offsets().LogStart
			asCommitted(t, name, "Reader.Records", r.Records(ctx, start, WithIsolation(ReadCommitted)))
			asCommitted(t, name, "Reader.Batches", unpacked(start, r.Batches(ctx, start, WithIsolation(ReadCommitted))))
			asCommitted(t, name, "Reader.Fetch", fetching(start, func(o int64) (*Fetched, error) { return r.Fetch(ctx, o, small) }))
			about := golden.About(t, name)
			require.Equal(t, about.AsOpened.LastStableOffset, r.Offsets().LastStable)
			require.NoError(t, r.Close())
			c, err := ParseConfig(about.TopicConfig)
			require.NoError(t, err)
			l := openedAt(t, root, c, about.OpenedAtMs)
			asCommitted(t, name, "Log.Records", l.Records(ctx, start, WithIsolation(ReadCommitted)))
			asCommitted(t, name, "Log.Batches", unpacked(start, l.Batches(ctx, start, WithIsolation(ReadCommitted))))
			asCommitted(t, name, "Log.Fetch", fetching(start, func(o int64) (*Fetched, error) { return l.Fetch(ctx, o, small) }))
			require.NoError(t, l.Close())
		})
	}
}

// Scenario: U110
func TestAFetchListsTheAbortedTransactionsOfItsRange(t *testing.T) {
	b := newBed(t, Config{})
	b.mustSend(inTxn(as(1, 0, 0)), 2)
	b.add("plain")
	require.NoError(t, b.Roll(ctx))
	b.mustSend(inTxn(as(1, 0, 2)), 2)
	b.mustEnd(as(1, 0, 0), false, 0)
	b.add("behind")
	for _, from := range []int64{0, 3} {
		f, err := b.Fetch(ctx, from, FetchOptions{Isolation: ReadCommitted})
		require.NoError(t, err)
		require.Equal(t, []AbortedTxn{{ProducerID: 1, FirstOffset: 0, LastOffset: 5, LastStable: 6}}, f.Aborted())
		require.NoError(t, f.Close())
	}
	f, err := b.Fetch(ctx, 6, FetchOptions{Isolation: ReadCommitted})
	require.NoError(t, err)
	require.Empty(t, f.Aborted())
	require.NoError(t, f.Close())
	require.Equal(t, []int64{2, 6}, b.readAll(0, WithIsolation(ReadCommitted)))
	require.Equal(t, []int64{0, 1, 2, 3, 4, 6}, b.readAll(0))
}

func TestAReaderBesideAWriterSeesTransactionsEnd(t *testing.T) {
	b := newBed(t, Config{Durability: Buffered})
	b.add("plain")
	r, err := OpenReader("t-0", ReaderOptions{FS: b.fs})
	require.NoError(t, err)
	defer r.Close()
	committed := func() []int64 {
		got, err := offsetsOf(r.Records(ctx, 0, WithIsolation(ReadCommitted)))
		require.NoError(t, err)
		return got
	}
	require.Equal(t, []int64{0}, committed())
	b.mustSend(inTxn(as(1, 0, 0)), 2)
	b.mustSend(inTxn(as(2, 0, 0)), 1)
	require.Equal(t, []int64{0}, committed())
	b.mustEnd(as(1, 0, 0), false, 0)
	require.NoError(t, r.Refresh())
	require.Equal(t, int64(3), r.Offsets().LastStable)
	require.Equal(t, []int64{0}, committed())
	require.NoError(t, b.Roll(ctx))
	b.mustEnd(as(2, 0, 0), true, 0)
	require.Equal(t, []int64{0, 3}, committed())
	require.NoError(t, r.Refresh())
	require.Equal(t, int64(6), r.Offsets().LastStable)
	b.truncate(5)
	require.Equal(t, []int64{0}, committed(), "the transaction is open again")
}

// Scenario: U117
func TestReadCommittedNeverShowsDataOfAnOpenOrAbortedTransaction(t *testing.T) {
	b := newBed(t, Config{Visibility: External, Durability: Buffered, SegmentBytes: 2000})
	var done atomic.Bool
	stopped := make(chan error, 2)
	go func() { // replication
		for !done.Load() {
			if _, err := b.SetHighWatermark(b.Offsets().LogEnd); err != nil {
				stopped <- err
				return
			}
		}
		stopped <- nil
	}()
	go func() {
		next := int64(0)
		for !done.Load() {
			for r, err := range b.Records(ctx, next, WithIsolation(ReadCommitted)) {
				if err != nil || !strings.HasPrefix(string(r.Value), "committed") {
					stopped <- fmt.Errorf("record %d is %q: %w", r.Offset, r.Value, err)
					return
				}
				next = r.Offset + 1
			}
		}
		stopped <- nil
	}()
	for i := range int32(300) {
		text := "aborted"
		if i%3 == 0 {
			text = "committed"
		}
		_, err := b.AppendBatches(ctx, produced(inTxn(as(1, 0, i)), record.Record{Timestamp: epoch2023, Value: []byte(text)}), AppendOptions{})
		require.NoError(t, err)
		b.mustEnd(as(1, 0, 0), i%3 == 0, 0)
	}
	done.Store(true)
	require.NoError(t, <-stopped)
	require.NoError(t, <-stopped)
	_, err := b.SetHighWatermark(b.Offsets().LogEnd)
	require.NoError(t, err)
	require.Len(t, b.readAll(0, WithIsolation(ReadCommitted)), 100)
}

func TestFollowReadCommittedWaitsForTheEndOfATransaction(t *testing.T) {
	b := newBed(t, Config{Durability: Buffered})
	got := make(chan int64, 10)
	go func() {
		for r, err := range b.Follow(ctx, 0, WithIsolation(ReadCommitted)) {
			if err != nil {
				close(got)
				return
			}
			got <- r.Offset
		}
	}()
	b.mustSend(inTxn(as(1, 0, 0)), 1)
	b.mustEnd(as(1, 0, 0), false, 0)
	b.mustSend(inTxn(as(1, 0, 1)), 1)
	b.add("behind")
	b.mustEnd(as(1, 0, 0), true, 0)
	require.Equal(t, int64(2), <-got)
	require.Equal(t, int64(3), <-got)
	require.NoError(t, b.dir.Close())
	_, open := <-got
	require.False(t, open)
}
