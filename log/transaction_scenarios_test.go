package log

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// markerAt is the encoded end of a transaction, to be appended as by a follower.
func markerAt(base int64, commit bool, p record.Producer, coordinator int32) []byte {
	m := record.Marker(commit, p, coordinator, time.UnixMilli(epoch2023))
	m.SetBaseOffset(base)
	m.SetLeaderEpoch(0)
	return bytes.Clone(m.Bytes())
}

// readable says from which offsets of [0, end) a read-committed fetch gives anything.
func (b *bed) readable() (from []int64) {
	b.t.Helper()
	for offset := range b.Offsets().LogEnd + 1 {
		f, err := b.Fetch(ctx, offset, FetchOptions{Isolation: ReadCommitted})
		require.NoError(b.t, err)
		if f.Len() > 0 {
			from = append(from, offset)
		}
		require.NoError(b.t, f.Close())
	}
	return from
}

// Scenario: U007
func TestCommittedReadsGiveDataBelowTheLastStableOffsetAndNothingAboveIt(t *testing.T) {
	b := newBed(t, Config{Visibility: External})
	replicate := func() { _, err := b.SetHighWatermark(b.Offsets().LogEnd); require.NoError(t, err) }
	stable := func(offset int64) {
		t.Helper()
		require.Equal(t, offset, b.Offsets().LastStable)
		require.Equal(t, offsetsIn(0, offset), b.readable())
	}
	b.mustSend(inTxn(as(1, 0, 0)), 5)
	_, err := b.Append(ctx, values(3, 10)...)
	require.NoError(t, err)
	b.mustSend(inTxn(as(2, 0, 0)), 2)
	b.mustSend(inTxn(as(1, 0, 5)), 4)
	_, err = b.Append(ctx, values(2, 10)...)
	require.NoError(t, err)
	b.mustSend(inTxn(as(1, 0, 9)), 10)
	replicate()
	stable(0)
	b.mustEnd(as(1, 0, 0), true, 0)
	stable(0)
	replicate()
	stable(8)
	b.mustEnd(as(2, 0, 0), false, 0)
	stable(8)
	replicate()
	stable(28)
}

// Report: B089
func TestATransactionWhoseMarkerIsNotReplicatedIsNotReadable(t *testing.T) {
	b := newBed(t, Config{Visibility: External})
	_, err := b.Append(ctx, values(10, 10)...)
	require.NoError(t, err)
	b.mustSend(inTxn(as(1, 0, 0)), 10)
	require.Equal(t, int64(20), b.mustEnd(as(1, 0, 0), true, 0).Base)
	for _, at := range []struct{ replicated, stable int64 }{{15, 10}, {20, 10}, {21, 21}} {
		_, err := b.SetHighWatermark(at.replicated)
		require.NoError(t, err)
		require.Equal(t, at.stable, b.Offsets().LastStable, "high watermark %d", at.replicated)
		require.Equal(t, offsetsIn(0, at.stable), b.readable())
	}
}

// Report: B093, B095
func TestAbortedRecordsAreSkippedInEveryCodec(t *testing.T) {
	for codec := record.None; codec <= record.Zstd; codec++ {
		t.Run(codec.String(), func(t *testing.T) {
			b := newBed(t, Config{})
			put := func(p *record.Producer, texts ...string) {
				builder := record.NewBuilder(record.BuilderOptions{Producer: p, Codec: codec})
				for _, text := range texts {
					require.NoError(t, builder.Add(record.Record{Timestamp: epoch2023, Value: []byte(text)}))
				}
				batch, err := builder.Finish()
				require.NoError(t, err)
				_, err = b.AppendBatches(ctx, bytes.Clone(batch.Bytes()), AppendOptions{})
				require.NoError(t, err)
			}
			aborted, kept := inTxn(as(1, 0, 0)), inTxn(as(2, 0, 0))
			put(nil, "plain")
			put(&aborted, "aborted", "aborted", "aborted")
			put(&kept, "committed", "committed")
			b.mustEnd(as(1, 0, 0), false, 0)
			b.mustEnd(as(2, 0, 0), true, 0)
			require.Equal(t, []int64{0, 4, 5}, b.readAll(0, WithIsolation(ReadCommitted)))
			require.Equal(t, []int64{0, 1, 2, 3, 4, 5}, b.readAll(0), "who does not ask for committed ones sees the others too")
			for batch, err := range b.Batches(ctx, 0) {
				require.NoError(t, err)
				require.True(t, batch.Control() || batch.Codec() == codec)
			}
			for _, isolation := range []Isolation{ReadUncommitted, ReadCommitted} {
				f, err := b.Fetch(ctx, 1, FetchOptions{Isolation: isolation})
				require.NoError(t, err)
				next, err := f.NextOffset()
				require.NoError(t, err)
				require.Equal(t, int64(8), next, "both go on at the same offset")
				require.NoError(t, f.Close())
			}
		})
	}
}

// Report: B091
func TestMarkersOfTransactionsWithoutRecordsLeaveNothingInTheIndex(t *testing.T) {
	const markers = 100_000
	b := newBed(t, Config{Durability: Buffered, SegmentBytes: 4 << 20})
	var raw []byte
	for at := range int64(markers) {
		raw = append(raw, markerAt(at, at%2 == 0, as(at%10, 0, 0), 0)...)
		if len(raw) > 500_000 || at == markers-1 {
			_, err := b.follow(raw)
			require.NoError(t, err)
			raw = raw[:0]
		}
	}
	require.Greater(t, len(b.bases()), 1)
	b.stopUncleanly(t, 0)
	b.open()
	require.Equal(t, int64(markers), b.Offsets().LogEnd)
	require.Equal(t, int64(markers), b.Offsets().LastStable)
	all, err := b.AbortedTxns()
	require.NoError(t, err)
	require.Empty(t, all)
	require.Empty(t, b.folder(".txnindex"))
	require.Len(t, b.Producers(), 10)
	require.Empty(t, b.readAll(0, WithIsolation(ReadCommitted)))
}

// Scenario: S016, R029, R030, R031. A recovery finds where aborted transactions began, also if that is in a segment it does not read.
func TestLostIndexesOfAbortedTransactionsAreRebuiltByARecovery(t *testing.T) {
	for _, lost := range []struct {
		name      string
		from      int64 // the recovery point
		indexes   int   // of how many segments, from the last
		snapshots bool
	}{{"all", 0, 3, false}, {"the last", 1, 1, false}, {"the last and the snapshots", 1, 1, true}, {"all and the snapshots", 0, 3, true}} {
		t.Run(lost.name, func(t *testing.T) {
			b := newBed(t, Config{})
			b.mustSend(inTxn(as(1, 0, 0)), 5)
			b.mustSend(inTxn(as(2, 0, 0)), 3)
			b.mustEnd(as(1, 0, 0), false, 0)
			require.NoError(t, b.Roll(ctx))
			b.mustSend(inTxn(as(1, 0, 5)), 5)
			b.mustSend(inTxn(as(3, 0, 0)), 1)
			b.mustEnd(as(1, 0, 0), true, 0)
			require.NoError(t, b.Roll(ctx))
			b.mustSend(inTxn(as(2, 0, 3)), 2)
			b.mustEnd(as(2, 0, 0), false, 0) // begun at 5
			b.mustEnd(as(3, 0, 0), false, 0)
			want, err := b.AbortedTxns()
			require.NoError(t, err)
			require.Equal(t, []AbortedTxn{{ProducerID: 1, LastOffset: 8, LastStable: 5}, {ProducerID: 2, FirstOffset: 5, LastOffset: 18, LastStable: 14}, {ProducerID: 3, FirstOffset: 14, LastOffset: 19, LastStable: 20}}, want)
			bases, readable := b.bases(), b.readAll(0, WithIsolation(ReadCommitted))
			b.stopUncleanly(t, bases[2]*lost.from)
			for _, base := range bases[len(bases)-lost.indexes:] {
				for _, kind := range []string{".txnindex", ".index", ".timeindex"} {
					require.NoError(t, removeIfThere(b.fs, inFolder(segment.FileName(base, kind))))
				}
			}
			if lost.snapshots {
				require.NoError(t, producerstate.Remove(b.fs, b.name, b.snapshots()))
			}
			b.open()
			got, err := b.AbortedTxns()
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Equal(t, readable, b.readAll(0, WithIsolation(ReadCommitted)))
			require.NoError(t, checkProducers(b.Log))
		})
	}
}

// Report: B192. Whoever reads committed records beside rolls, deletions and a close sees each transaction whole, or is told
// that the offset or the log is gone.
func TestIndexesOfAbortedTransactionsAreReadBesideEverythingThatClosesThem(t *testing.T) {
	b := newBed(t, Config{Durability: Buffered, FileDeleteDelay: Immediately, RetentionTime: Forever})
	wrong := make(chan error, 3)
	for range cap(wrong) {
		go func() {
			for {
				f, err := b.Fetch(ctx, b.Offsets().LogStart, FetchOptions{Isolation: ReadCommitted, MaxBytes: 2000})
				switch {
				case err == nil:
				case isGone(err):
					continue
				default:
					wrong <- unless(err, ErrClosed)
					return
				}
				for r, err := range f.Records() {
					if errors.Is(err, ErrClosed) {
						wrong <- nil
						return
					}
					if err != nil || string(r.Value) != "committed" {
						wrong <- fmt.Errorf("record %d is %q: %w", r.Offset, r.Value, err)
						return
					}
				}
				if err := f.Close(); err != nil {
					wrong <- err
					return
				}
			}
		}()
	}
	for i := range int32(300) {
		commit := i%3 == 0
		text := map[bool]string{true: "committed", false: "aborted"}[commit]
		_, err := b.AppendBatches(ctx, produced(inTxn(as(1, 0, i)), record.Record{Timestamp: epoch2023, Value: []byte(text)}), AppendOptions{})
		require.NoError(t, err)
		b.mustEnd(as(1, 0, 0), commit, 0)
		if i%5 == 4 {
			require.NoError(t, b.Roll(ctx))
		}
		if i%20 == 19 {
			require.NoError(t, b.DeleteRecords(ctx, b.Offsets().LogEnd-15))
			b.retain()
		}
	}
	require.NoError(t, b.dir.Close())
	for range cap(wrong) {
		require.NoError(t, <-wrong)
	}
}

// Report: B192. A reader that was in a segment when retention took it, and the one with the marker too.
func TestAReaderKnowsWhatWasAbortedInSegmentsThatAreGone(t *testing.T) {
	b := newBed(t, Config{RetentionTime: Forever, FileDeleteDelay: Immediately})
	b.mustSend(inTxn(as(1, 0, 0)), 2)
	require.NoError(t, b.Roll(ctx))
	b.mustEnd(as(1, 0, 0), false, 0)
	b.add("plain")
	require.NoError(t, b.Roll(ctx))
	b.add("last")
	own := *b.list.Load()
	require.NoError(t, b.DeleteRecords(ctx, 4))
	require.Equal(t, 2, b.retain().Dropped)
	require.Empty(t, b.folder(".txnindex"))
	got, err := b.view.aborted(own, 0, 4)
	require.NoError(t, err)
	require.Equal(t, []AbortedTxn{{ProducerID: 1, LastOffset: 2, LastStable: 3}}, got)
	got, err = b.view.aborted(*b.list.Load(), 4, 5)
	require.NoError(t, err)
	require.Empty(t, got)
}

// A Reader has no part in what the writer deletes: the index of aborted transactions goes while it reads the segment, whose
// .log it has open. No index is not an index without entries.
func TestAReaderBesideAWriterShowsNothingAbortedOfASegmentThatGoes(t *testing.T) {
	b := newBed(t, Config{FileDeleteDelay: Immediately, RetentionBytes: 1})
	for range 40 {
		b.add("plain")
	}
	b.mustSend(inTxn(as(1, 0, 0)), 2)
	b.mustEnd(as(1, 0, 0), false, 0)
	for range 2 {
		b.add("plain")
		require.NoError(t, b.Roll(ctx))
	}
	b.add("plain")
	require.NoError(t, b.Sync(ctx))
	r, err := OpenReader("t-0", ReaderOptions{FS: b.fs})
	require.NoError(t, err)
	defer r.Close()
	for rec, err := range r.Records(ctx, 0, WithIsolation(ReadCommitted)) {
		if err != nil {
			require.ErrorIs(t, err, ErrOffsetOutOfRange)
			break
		}
		require.NotContains(t, []int64{40, 41}, rec.Offset)
		if rec.Offset == 3 {
			require.Equal(t, 2, b.retain().Dropped)
		}
	}
}
