package log

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
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

// The snapshot at the first segment's base knows of it, as the writer does.
func TestAReaderKnowsOfATransactionThatIsOpenSinceSegmentsThatAreGone(t *testing.T) {
	for _, clean := range []bool{false, true} {
		b := newBed(t, Config{})
		b.mustSend(inTxn(as(1, 2, 0)), 3)
		require.NoError(t, b.Roll(ctx))
		b.add("plain")
		require.NoError(t, b.Sync(ctx))
		require.NoError(t, b.DeleteRecords(ctx, 3))
		b.retain()
		require.Equal(t, []int64{3}, b.bases())
		require.Equal(t, int64(3), b.Offsets().LastStable)
		require.NoError(t, b.dir.Close())
		if !clean {
			require.NoError(t, b.fs.Remove(".kafka_cleanshutdown"))
		}
		r, err := OpenReader("t-0", ReaderOptions{FS: b.fs})
		require.NoError(t, err)
		require.Equal(t, int64(4), r.Offsets().LogEnd)
		require.Equal(t, int64(3), r.Offsets().LastStable, "stopped cleanly: %v", clean)
		require.NoError(t, r.Close())
		b.open()
		require.Equal(t, int64(3), b.Offsets().LastStable)
	}
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

// What a client must know to read what it got, and not a transaction more (a broker gives some more).
func TestAFetchListsExactlyTheAbortedTransactionsOfWhatItGives(t *testing.T) {
	for name, c := range map[string]Config{"sparse index": {}, "dense index": {IndexIntervalBytes: 1}} {
		t.Run(name, func(t *testing.T) {
			c.SegmentBytes = 1500
			b := newBed(t, c)
			var all []AbortedTxn
			size := map[int64]int64{} // by base offset
			for i := range int32(30) {
				first := b.mustSend(inTxn(as(int64(i%3), 0, 2*(i/3))), 2).Base
				b.add("plain")
				if marker := b.mustEnd(as(int64(i%3), 0, 0), i%4 == 0, 0); i%4 != 0 {
					all = append(all, AbortedTxn{ProducerID: int64(i % 3), FirstOffset: first, LastOffset: marker.Base, LastStable: marker.Base + 1})
				}
			}
			for batch, err := range b.Batches(ctx, 0) {
				require.NoError(t, err)
				size[batch.BaseOffset()] = int64(batch.Size())
			}
			r, err := OpenReader("t-0", ReaderOptions{FS: b.fs})
			require.NoError(t, err)
			defer r.Close()
			for _, max := range []int64{1, 100, 300, 700, 1 << 20} {
				for from := range b.Offsets().LogEnd {
					for _, fetch := range []func(context.Context, int64, FetchOptions) (*Fetched, error){b.Fetch, r.Fetch} {
						f, err := fetch(ctx, from, FetchOptions{Isolation: ReadCommitted, MaxBytes: max})
						require.NoError(t, err)
						next, err := f.NextOffset()
						require.NoError(t, err)
						want := []AbortedTxn{}
						for _, x := range all {
							if x.LastOffset >= from && x.FirstOffset < next {
								want = append(want, x)
							}
						}
						got := append([]AbortedTxn{}, f.Aborted()...)
						slices.SortFunc(got, func(x, y AbortedTxn) int { return cmp.Compare(x.FirstOffset, y.FirstOffset) })
						require.Equal(t, want, got, "from %d, at most %d bytes", from, max)
						require.NoError(t, f.Close())
					}
				}
			}
		})
	}
}

// The index of aborted transactions is derived: where it cannot be right, readers find out from the batches.
func TestReadersDoWithoutADamagedIndexOfAbortedTransactions(t *testing.T) {
	for _, folder := range []string{"txn-commit-abort", "txn-open"} {
		for name, spoil := range map[string]func([]byte) []byte{
			"an unknown version":                              func(b []byte) []byte { b[0] = 1; return b },
			"a last entry of no version":                      func(b []byte) []byte { b[len(b)-34] = 9; return b },
			"a first offset behind the last":                  func(b []byte) []byte { b[10] = 1; return b },
			"an offset below the segment":                     func(b []byte) []byte { clear(b[18:26]); return b },
			"garbage":                                         func(b []byte) []byte { return bytes.Repeat([]byte{7}, 200) },
			"a wrong first entry, and a second of no version": func(b []byte) []byte { b[9], b[34] = 4, 1; return b },
			"out of order":                                    func(b []byte) []byte { return append(b, b[:34]...) },
		} {
			t.Run(folder+"/"+name, func(t *testing.T) {
				g := newGarbler(t, folder)
				sound, err := OpenReader(golden.Copy(t, folder)+"/"+folder+"-0", ReaderOptions{})
				require.NoError(t, err)
				defer sound.Close()
				want, err := offsetsOf(sound.Records(ctx, 0, WithIsolation(ReadCommitted)))
				require.NoError(t, err)
				g.change("00000000000000000000.txnindex", spoil)
				before := contents(t, g.root)
				r, err := OpenReader(g.dir, ReaderOptions{})
				require.NoError(t, err)
				defer r.Close()
				for range 2 {
					got, err := offsetsOf(r.Records(ctx, 0, WithIsolation(ReadCommitted)))
					require.NoError(t, err)
					require.Equal(t, want, got)
				}
				for from := range sound.Offsets().LastStable {
					a, err := sound.Fetch(ctx, from, FetchOptions{Isolation: ReadCommitted})
					require.NoError(t, err)
					b, err := r.Fetch(ctx, from, FetchOptions{Isolation: ReadCommitted})
					require.NoError(t, err)
					require.Equal(t, a.Aborted(), b.Aborted(), from)
					require.NoError(t, errors.Join(a.Close(), b.Close()))
				}
				require.Equal(t, before, contents(t, g.root), "nothing was written")
			})
		}
	}
}

// A log whose index is spoiled while it runs goes on too.
func TestALogDoesWithoutAnIndexOfAbortedTransactionsThatIsSpoiledUnderIt(t *testing.T) {
	b := newBed(t, Config{})
	send := func(i int32, commit bool) {
		b.mustSend(inTxn(as(1, 0, 2*i)), 2)
		b.mustEnd(as(1, 0, 0), commit, 0)
	}
	send(0, false)
	send(1, true)
	f, err := b.fs.OpenFile("t-0/00000000000000000000.txnindex", os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{9}, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Equal(t, []int64{3, 4}, b.readAll(0, WithIsolation(ReadCommitted)))
	send(2, false)
	send(3, true)
	require.Equal(t, []int64{3, 4, 9, 10}, b.readAll(0, WithIsolation(ReadCommitted)))
	all, err := b.AbortedTxns()
	require.NoError(t, err)
	require.Len(t, all, 2)
	b.truncate(8)
	b.mustEnd(as(1, 0, 0), true, 0)
	require.Equal(t, []int64{3, 4, 6, 7}, b.readAll(0, WithIsolation(ReadCommitted)))
	b.reopen()
	require.Equal(t, []int64{3, 4, 6, 7}, b.readAll(0, WithIsolation(ReadCommitted)))
}

// A follower reads an entry of the index once, and not all of them for each transaction that comes.
func TestAFollowerReadsEachAbortedTransactionOnce(t *testing.T) {
	disk := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, disk, Config{Durability: Buffered})
	for i := range int32(2000) {
		b.mustSend(inTxn(as(1, 0, i)), 1)
		b.mustEnd(as(1, 0, 0), false, 0)
	}
	a := aborts{v: &b.view}
	step := func(i int32) {
		at := b.mustSend(inTxn(as(1, 0, i)), 1)
		b.mustEnd(as(1, 0, 0), i%2 == 0, 0)
		for batch, err := range b.Batches(ctx, at.Base) {
			require.NoError(t, err)
			hides, err := a.hides(batch, nil)
			require.NoError(t, err)
			require.Equal(t, batch.Control() || i%2 != 0, hides)
		}
		require.LessOrEqual(t, len(a.list), 2, "what it is past is forgotten")
	}
	step(2000)
	reads := 0
	disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRead}, Name: "*.txnindex", Times: vfstest.Always, Hook: func(vfstest.Op) error {
		reads++
		return nil
	}})
	for i := range int32(100) {
		step(2001 + i)
	}
	require.Positive(t, reads)
	require.LessOrEqual(t, reads, 300, "all entries are 17 reads")
}

// A fetch needs the few transactions of its range: it does not read what an index has about all that was before.
func TestAFetchLooksItsAbortedTransactionsUp(t *testing.T) {
	b, trace := tracedBed(t, Config{Durability: Buffered})
	for i := range int32(2000) {
		b.mustSend(inTxn(as(1, 0, i)), 1)
		b.mustEnd(as(1, 0, 0), false, 0)
	}
	fetch := func(from int64) {
		f, err := b.Fetch(ctx, from, FetchOptions{Isolation: ReadCommitted, MaxBytes: 400})
		require.NoError(t, err)
		require.NotEmpty(t, f.Aborted())
		require.LessOrEqual(t, len(f.Aborted()), 3)
		require.NoError(t, f.Close())
	}
	fetch(1)
	for from := int64(101); from < 4000; from += 500 {
		trace.Reset()
		fetch(from)
		read := int64(0)
		for _, op := range trace.Filter("*.txnindex") {
			read += op.Done
		}
		require.Less(t, read, int64(14<<10), "all of them are 68,000 bytes: %v", trace)
	}
}

// A follower of Kafka's that gets several transactions of a producer with one fetch notes, as the last stable offset behind each,
// where another producer's transaction begins. A reader that believes it stops before it knows of all that were aborted.
func TestAbortedTransactionsOfAProducerAreAllKnownWhateverAFollowerNoted(t *testing.T) {
	b := newBed(t, Config{})
	var noted []segment.AbortedTxn
	for i := range int64(4) {
		b.mustSend(inTxn(as(1, 0, int32(2*i))), 2)
		b.mustEnd(as(1, 0, 0), false, 0)
		noted = append(noted, segment.AbortedTxn{ProducerID: 1, FirstOffset: 3 * i, LastOffset: 3*i + 2, LastStable: 12})
	}
	b.mustSend(inTxn(as(2, 0, 0)), 2) // at 12
	b.mustEnd(as(2, 0, 0), true, 0)
	require.NoError(t, b.list.Load().active().SetAborted(noted))
	r, err := OpenReader("t-0", ReaderOptions{FS: b.fs})
	require.NoError(t, err)
	for maxBytes := int64(100); maxBytes < 2000; maxBytes += 100 {
		o := FetchOptions{Isolation: ReadCommitted, MaxBytes: maxBytes}
		for name, fetch := range map[string]func(int64) (*Fetched, error){
			"log":    func(at int64) (*Fetched, error) { return b.Fetch(ctx, at, o) },
			"reader": func(at int64) (*Fetched, error) { return r.Fetch(ctx, at, o) },
		} {
			var got []int64
			for rec, err := range fetching(0, fetch) {
				require.NoError(t, err)
				got = append(got, rec.Offset)
			}
			require.Equal(t, []int64{12, 13}, got, "%s, %d bytes", name, maxBytes)
		}
	}
	require.NoError(t, r.Close())
}
