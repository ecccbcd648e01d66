package log

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/internal/txnindex"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// at is a fixed time.
func at(ms int64) func() time.Time { return func() time.Time { return time.UnixMilli(ms) } }

func whenOpened(t *testing.T, folder string) func() time.Time {
	return at(golden.About(t, folder).OpenedAtMs)
}

func TestVerifyFindsProducersAndTransactionsOfABrokerAsTheyShouldBe(t *testing.T) {
	for _, name := range golden.Cases() {
		if strings.HasPrefix(name, "killed-") {
			continue
		}
		for _, now := range []func() time.Time{whenOpened(t, name), at(0), at(1 << 45)} {
			require.Empty(t, sayFindings(verifyAll(t, verifyFS(t, golden.Copy(t, name)), VerifyOptions{Now: now})), name)
		}
	}
}

// resnap writes a snapshot anew, with a right checksum, after f changed its producers.
func (g *garbler) resnap(name string, f func(all []producerstate.Entry) []producerstate.Entry) {
	g.t.Helper()
	g.change(name, func(b []byte) []byte {
		all, err := producerstate.Decode(name, b)
		g.must(err)
		return producerstate.Append(nil, f(all))
	})
}

// reindex writes a transaction index anew after f changed its entries.
func (g *garbler) reindex(name string, f func(all []txnindex.Entry) []txnindex.Entry) {
	g.t.Helper()
	g.change(name, func(b []byte) []byte {
		var all []txnindex.Entry
		for ; len(b) > 0; b = b[txnindex.EntrySize:] {
			e, _ := txnindex.Decode(b)
			all = append(all, e)
		}
		var out []byte
		for _, e := range f(all) {
			var raw [txnindex.EntrySize]byte
			e.Put(raw[:])
			out = append(out, raw[:]...)
		}
		return out
	})
}

const (
	snap47, snap82, snap87, snap122 = "00000000000000000047.snapshot", "00000000000000000082.snapshot", "00000000000000000087.snapshot", "00000000000000000122.snapshot"
	txn0, txn47                     = "00000000000000000000.txnindex", "00000000000000000047.txnindex"
	idem, aborts3                   = "idempotent", "txn-commit-abort"
)

// changed gives one producer of a snapshot another value.
func changed(i int, f func(e *producerstate.Entry)) func([]producerstate.Entry) []producerstate.Entry {
	return func(all []producerstate.Entry) []producerstate.Entry { f(&all[i]); return all }
}

func changedTxn(i int, f func(e *txnindex.Entry)) func([]txnindex.Entry) []txnindex.Entry {
	return func(all []txnindex.Entry) []txnindex.Entry { f(&all[i]); return all }
}

// derivedDamage are damages of what is derived from producers and transactions. Each row must give exactly this finding.
var derivedDamage = []struct {
	name     string
	folder   string
	garble   func(g *garbler)
	kind     string
	file     string
	position int64
	offset   int64
	says     string
}{
	{"a garbled snapshot", idem, func(g *garbler) { g.change(snap82, flip(30)) }, FindingSnapshot, snap82, 2, 82, "CRC is"},
	{"a snapshot cut short", idem, func(g *garbler) { g.change(snap82, cut(50)) }, FindingSnapshot, snap82, 2, 82, "CRC is"},
	{"an empty snapshot file", idem, func(g *garbler) { g.change(snap122, func([]byte) []byte { return nil }) }, FindingSnapshot, snap122, 0, 122, "too short"},
	{"another sequence", idem, func(g *garbler) {
		g.resnap(snap82, changed(1, func(e *producerstate.Entry) { e.LastSequence = 20 }))
	}, FindingSnapshot, snap82, 10 + 46, 82, "producer 1 has sequence 20 at offset 81, where its batch has 22"},
	{"another producer's sequence", idem, func(g *garbler) {
		g.resnap(snap82, func(all []producerstate.Entry) []producerstate.Entry {
			all[0].LastSequence = all[1].LastSequence
			return all
		})
	}, FindingSnapshot, snap82, 10, 82, "producer 0 has sequence 22 at offset 74, where its batch has 37"},
	{"an older batch", idem, func(g *garbler) {
		g.resnap(snap122, changed(2, func(e *producerstate.Entry) { e.LastOffset, e.LastSequence = 66, 20 }))
	}, FindingSnapshot, snap122, 10 + 2*46, 122, "producer 2 ends at offset 66, but has written up to 121"},
	{"a later batch than there is", idem, func(g *garbler) {
		g.resnap(snap82, changed(0, func(e *producerstate.Entry) { e.LastOffset++ }))
	}, FindingSnapshot, snap82, 10, 82, "producer 0 ends at offset 75, but its last batch ends at 74"},
	{"another length of the batch", idem, func(g *garbler) {
		g.resnap(snap82, changed(1, func(e *producerstate.Entry) { e.OffsetDelta = 2 }))
	}, FindingSnapshot, snap82, 56, 82, "producer 1 has a last batch from offset 79, which begins at 76"},
	{"another time", idem, func(g *garbler) {
		g.resnap(snap82, changed(1, func(e *producerstate.Entry) { e.Timestamp-- }))
	}, FindingSnapshot, snap82, 56, 82, "producer 1 has time"},
	{"another epoch", idem, func(g *garbler) {
		g.resnap(snap82, changed(1, func(e *producerstate.Entry) { e.Epoch = 9 }))
	}, FindingSnapshot, snap82, 56, 82, "producer 1 has epoch 9, by its batches it is 0"},
	{"a missing producer", idem, func(g *garbler) {
		g.resnap(snap82, func(all []producerstate.Entry) []producerstate.Entry { return all[1:] })
	}, FindingSnapshot, snap82, -1, 82, "producer 0 is not there, but wrote up to offset 74"},
	{"no producers at all", idem, func(g *garbler) {
		g.resnap(snap122, func([]producerstate.Entry) []producerstate.Entry { return nil })
	}, FindingSnapshot, snap122, -1, 122, "(and 2 more producers of this file)"},
	{"a producer nobody knows", idem, func(g *garbler) {
		g.resnap(snap82, func(all []producerstate.Entry) []producerstate.Entry {
			return append(all, producerstate.Entry{ProducerID: 77, LastOffset: 5, Timestamp: all[0].Timestamp, CoordinatorEpoch: -1, TxnFirstOffset: -1})
		})
	}, FindingSnapshot, snap82, 10 + 3*46, 82, "producer 77 is there with a batch that ends at offset 5, but the log has none of it"},
	{"a producer twice", idem, func(g *garbler) {
		g.resnap(snap82, func(all []producerstate.Entry) []producerstate.Entry { return append(all, all[2]) })
	}, FindingSnapshot, snap82, 10 + 3*46, 82, "producer 2 is there twice"},
	{"the snapshot of another offset", idem, func(g *garbler) { g.copy(snap82, snap122) }, FindingSnapshot, snap122, 10, 122, "producer 0 ends at offset 74, but has written up to 115"},
	{"a snapshot of a later offset", idem, func(g *garbler) { g.copy(snap122, snap82) }, FindingSnapshot, snap82, 10, 82, "producer 0 speaks of offset 115, but the snapshot covers offsets below 82"},
	{"a snapshot within a batch", idem, func(g *garbler) { g.copy(snap82, "00000000000000000083.snapshot") }, FindingSnapshot, "00000000000000000083.snapshot", -1, 83, "lies within a batch"},
	{"a snapshot beyond the end", idem, func(g *garbler) { g.copy(snap122, "00000000000000000500.snapshot") }, FindingSnapshot, "00000000000000000500.snapshot", -1, 500, "the log ends at 122"},
	{"no snapshot after a clean stop", idem, func(g *garbler) { g.remove(snap82); g.remove(snap122) }, FindingSnapshot, snap122, -1, 122, "no snapshot is there, but the log has 3 producers"},
	{"an open transaction is not there", aborts3, func(g *garbler) {
		g.resnap(snap47, changed(0, func(e *producerstate.Entry) { e.TxnFirstOffset = -1 }))
	}, FindingSnapshot, snap47, 10, 47, "producer 3 has no transaction, but one is open since offset 12: read-committed readers would be shown its records"},
	{"a transaction is open that is over", aborts3, func(g *garbler) {
		g.resnap(snap87, changed(1, func(e *producerstate.Entry) { e.TxnFirstOffset = 30 }))
	}, FindingSnapshot, snap87, 10 + 46, 87, "producer 4 has a transaction open since offset 30, which is over"},
	{"a transaction begins elsewhere", aborts3, func(g *garbler) {
		g.resnap(snap47, changed(2, func(e *producerstate.Entry) { e.TxnFirstOffset = 40 }))
	}, FindingSnapshot, snap47, 10 + 2*46, 47, "producer 5 has a transaction open since offset 40, which began at 42"},
	{"another coordinator", aborts3, func(g *garbler) {
		g.resnap(snap87, changed(2, func(e *producerstate.Entry) { e.CoordinatorEpoch = 4 }))
	}, FindingSnapshot, snap87, 10 + 2*46, 87, "producer 5 has coordinator epoch 4, its last marker has 0"},

	{"an entry missing in front", aborts3, func(g *garbler) {
		g.reindex(txn0, func(all []txnindex.Entry) []txnindex.Entry { return all[1:] })
	}, FindingTxnIndex, txn0, 0, 11, "producer 3 aborted its transaction from offset 4 at offset 11, but no entry says so"},
	{"an entry missing at the end", aborts3, func(g *garbler) { g.change(txn47, cut(34)) }, FindingTxnIndex, txn47, 3 * 34, 86, "producer 5 aborted its transaction from offset 74 at offset 86"},
	{"the index missing", aborts3, func(g *garbler) { g.remove(txn0) }, FindingTxnIndex, txn0, 0, 11, "(and 2 more transactions of this file)"},
	{"an entry of another producer", aborts3, func(g *garbler) {
		g.reindex(txn0, changedTxn(1, func(e *txnindex.Entry) { e.ProducerID = 4 }))
	}, FindingTxnIndex, txn0, 34, 25, "it says that producer 4 aborted a transaction at offset 25, but it was producer 5"},
	{"an entry that begins too late", aborts3, func(g *garbler) {
		g.reindex(txn0, changedTxn(0, func(e *txnindex.Entry) { e.FirstOffset = 6 }))
	}, FindingTxnIndex, txn0, 0, 11, "begins at offset 4, by the entry at 6: read-committed readers are shown records of it"},
	{"an entry that begins too early", aborts3, func(g *garbler) {
		g.reindex(txn0, changedTxn(2, func(e *txnindex.Entry) { e.FirstOffset = 3 }))
	}, FindingTxnIndex, txn0, 68, 31, "begins at offset 26, by the entry at 3: committed records may be hidden"},
	{"a last stable offset too high", aborts3, func(g *garbler) {
		g.reindex(txn47, changedTxn(0, func(e *txnindex.Entry) { e.LastStableOffset = 68 }))
	}, FindingTxnIndex, txn47, 0, 67, "the last stable offset behind it is 12, by the entry 68: readers may stop looking"},
	{"a last stable offset too low", aborts3, func(g *garbler) {
		g.reindex(txn47, changedTxn(3, func(e *txnindex.Entry) { e.LastStableOffset = 80 }))
	}, FindingTxnIndex, txn47, 3 * 34, 86, "the last stable offset behind it is 87, by the entry 80"},
	{"an entry too many, at a commit", aborts3, func(g *garbler) {
		g.reindex(txn0, func(all []txnindex.Entry) []txnindex.Entry {
			return slices.Insert(all, 2, txnindex.Entry{ProducerID: 3, FirstOffset: 12, LastOffset: 27, LastStableOffset: 12})
		})
	}, FindingTxnIndex, txn0, 68, 27, "it says that producer 3 aborted offsets 12 to 27, but the log has no marker there"},
	{"an entry behind the segment", aborts3, func(g *garbler) {
		g.reindex(txn0, func(all []txnindex.Entry) []txnindex.Entry {
			return append(all, txnindex.Entry{ProducerID: 3, FirstOffset: 12, LastOffset: 50, LastStableOffset: 12})
		})
	}, FindingTxnIndex, txn0, 3 * 34, 50, "ends at offset 50, but the segment ends at 47"},
	{"entries out of order", aborts3, func(g *garbler) {
		g.reindex(txn0, func(all []txnindex.Entry) []txnindex.Entry { all[0], all[1] = all[1], all[0]; return all })
	}, FindingTxnIndex, txn0, 34, 0, "not behind the one before it"},
	{"the index of another segment", aborts3, func(g *garbler) { g.copy(txn0, txn47) }, FindingTxnIndex, txn47, 0, 47, "before the segment's 47"},
}

func TestVerifyNamesWhatIsWrongWithSnapshotsAndAbortedTransactions(t *testing.T) {
	for _, row := range derivedDamage {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := newGarbler(t, row.folder)
			row.garble(g)
			got := verifyAll(t, verifyFS(t, g.root), VerifyOptions{Now: whenOpened(t, row.folder)})
			require.Len(t, got, 1, sayFindings(got))
			f := got[0]
			require.Equal(t, Finding{File: row.folder + "-0/" + row.file, Position: row.position, Offset: row.offset, Kind: row.kind, Detail: f.Detail}, f)
			require.Contains(t, f.Detail, row.says)
		})
	}
}

// A commit marker with an entry that calls it an abort: the records of a committed transaction would be hidden.
func TestVerifyFindsACommittedTransactionAmongTheAborted(t *testing.T) {
	b := newBed(t, Config{})
	b.mustSend(inTxn(as(1, 0, 0)), 2)
	b.mustEnd(as(1, 0, 0), true, 0)
	require.NoError(t, b.list.Load().active().AppendAborted(abortedOf(producerstate.Completed{ProducerID: 1, FirstOffset: 0, LastOffset: 2, LastStable: 3})))
	for f, err := range b.Verify(ctx) {
		require.NoError(t, err)
		require.Equal(t, FindingTxnIndex, f.Kind)
		require.Contains(t, f.Detail, "where the marker is a commit: committed records are hidden")
		return
	}
	t.Fatal("nothing was found")
}

// A follower of Kafka's takes for the last stable offset behind an abort the first offset of the next transaction that came with
// the same fetch. Nothing is wrong with that unless one begins below.
func TestVerifyTakesTheLastStableOffsetsThatAFollowerNotes(t *testing.T) {
	for says, right := range map[int64]bool{3: true, 4: true, 6: true, 7: false, 12: false} {
		b := newBed(t, Config{})
		b.mustSend(inTxn(as(1, 0, 0)), 2) // 0, 1
		b.mustEnd(as(1, 0, 0), false, 0)  // 2
		b.mustSend(as(5, 0, 0), 3)        // 3 to 5
		b.mustSend(inTxn(as(1, 0, 2)), 2) // 6, 7
		b.mustEnd(as(1, 0, 0), false, 0)  // 8
		require.NoError(t, b.list.Load().active().SetAborted([]segment.AbortedTxn{{ProducerID: 1, FirstOffset: 0, LastOffset: 2, LastStable: says},
			{ProducerID: 1, FirstOffset: 6, LastOffset: 8, LastStable: max(9, says)}}))
		var got []Finding
		for f, err := range b.Verify(ctx) {
			require.NoError(t, err)
			got = append(got, f)
		}
		if right {
			require.Empty(t, got, says)
			continue
		}
		require.Len(t, got, 1)
		require.Equal(t, FindingTxnIndex, got[0].Kind)
		require.Contains(t, got[0].Detail, fmt.Sprintf("the last stable offset behind it is 3, by the entry %d: readers may stop looking", says))
		require.Equal(t, says == 12, strings.Contains(got[0].Detail, "and 1 more entry"), got[0].Detail)
	}
}

// What a log knows while it runs is compared too.
func TestVerifyComparesWhatARunningLogKnowsWithItsBatches(t *testing.T) {
	find := func(b *bed) (all []Finding) {
		for f, err := range b.Verify(ctx) {
			require.NoError(t, err)
			all = append(all, f)
		}
		return all
	}
	fill := func() *bed {
		b := newBed(t, Config{})
		b.mustSend(as(1, 0, 0), 3)
		b.mustSend(inTxn(as(2, 0, 0)), 2)
		require.NoError(t, b.Roll(ctx))
		b.mustSend(inTxn(as(3, 0, 0)), 2)
		b.mustEnd(as(3, 0, 0), false, 0)
		require.Empty(t, find(b))
		return b
	}
	rows := map[string]struct {
		spoil func(b *bed)
		says  string
	}{
		"a producer is unknown to it": {func(b *bed) {
			s := producerstate.New(producerstate.Config{}, 0)
			b.producers.state = s
		}, "producer 1 is not there, but wrote up to offset 2"},
		"it knows one more": {func(b *bed) {
			b.producers.state.Replay(atEnd(t, b, as(9, 0, 0)))
		}, "producer 9 is there with a batch that ends at offset"},
		"its last stable offset is too high": {func(b *bed) { b.update(func(o *Offsets) { o.LastStable = o.LogEnd }) }, "read-committed readers are shown an open transaction"},
		"its last stable offset is too low":  {func(b *bed) { b.update(func(o *Offsets) { o.LastStable = 1 }) }, "read-committed readers wait for a transaction that is over"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			b := fill()
			row.spoil(b)
			got := find(b)
			require.NotEmpty(t, got)
			require.Equal(t, FindingProducers, got[0].Kind)
			require.Contains(t, got[0].Detail, row.says)
		})
	}
}

// atEnd is a batch as it could stand at the end of the log.
func atEnd(t *testing.T, b *bed, p record.Producer) record.Batch {
	raw := produced(p, values(1, 10)...)
	batch, err := record.View(raw)
	require.NoError(t, err)
	batch.SetBaseOffset(b.Offsets().LogEnd)
	return batch
}

// Everything legal that makes snapshots and indexes say less, or more, than the batches that are left.
func TestVerifyBlamesNobodyForProducersThatMayBeForgotten(t *testing.T) {
	quiet := func(t *testing.T, b *bed) {
		t.Helper()
		require.NoError(t, b.dir.Close())
		require.Empty(t, sayFindings(verifyAll(t, b.fs, VerifyOptions{Now: b.clock.now, ProducerExpiry: b.cfg.ProducerExpiry})))
		b.open()
		for f, err := range b.Verify(ctx) {
			require.NoError(t, err)
			t.Error(f)
		}
	}
	t.Run("they are old", func(t *testing.T) {
		b := newBed(t, Config{ProducerExpiry: time.Hour})
		b.mustSend(as(1, 0, 0), 3)
		b.mustSend(inTxn(as(2, 0, 0)), 2)
		b.mustEnd(as(2, 0, 0), false, 0)
		b.clock.advance(2 * time.Hour)
		require.NoError(t, b.Roll(ctx))
		b.mustSend(as(2, 0, 2), 1)
		require.Len(t, b.Producers(), 1)
		quiet(t, b)
	})
	t.Run("their records are deleted", func(t *testing.T) {
		b := newBed(t, Config{})
		b.mustSend(as(1, 0, 0), 3)
		b.mustSend(inTxn(as(2, 0, 0)), 2)
		b.mustSend(inTxn(as(3, 0, 0)), 2)
		require.NoError(t, b.Roll(ctx))
		b.mustEnd(as(3, 0, 0), false, 0)
		b.mustSend(inTxn(as(2, 0, 2)), 2)
		require.NoError(t, b.DeleteRecords(ctx, 4))
		quiet(t, b)
		b.mustEnd(as(2, 0, 0), false, 0)
		require.NoError(t, b.DeleteRecords(ctx, 8))
		b.reopen()
		quiet(t, b)
	})
	t.Run("the first segments are gone", func(t *testing.T) {
		b := newBed(t, Config{})
		b.mustSend(as(1, 0, 0), 3)
		b.mustSend(inTxn(as(2, 0, 0)), 2)
		b.mustSend(inTxn(as(3, 0, 0)), 2)
		require.NoError(t, b.Roll(ctx))
		b.mustEnd(as(3, 0, 0), false, 4)
		b.mustSend(inTxn(as(2, 0, 2)), 2)
		b.mustEnd(as(2, 0, 0), false, 4)
		require.NoError(t, b.dir.Close())
		for _, ext := range []string{".log", ".index", ".timeindex"} {
			require.NoError(t, b.fs.Remove("t-0/00000000000000000000"+ext))
		}
		b.open()
		quiet(t, b)
	})
	t.Run("a batch is truncated", func(t *testing.T) {
		b := newBed(t, Config{})
		b.mustSend(as(1, 0, 0), 3)
		b.mustSend(inTxn(as(2, 0, 0)), 2)
		require.NoError(t, b.Roll(ctx))
		b.mustEnd(as(2, 0, 0), false, 0)
		b.truncate(5)
		quiet(t, b)
		b.mustSend(as(1, 0, 3), 1)
		b.truncate(3)
		quiet(t, b)
	})
}

// The check follows a bounded number of producers, and what it gave up it does not judge.
func TestVerifyBoundsTheProducersItFollows(t *testing.T) {
	g := newGarbler(t, idem)
	require.Empty(t, sayFindings(verifyFew(t, g, 2)))
	g.resnap(snap82, changed(1, func(e *producerstate.Entry) { e.LastSequence = 20 }))
	require.Empty(t, sayFindings(verifyFew(t, g, 2)))
	require.NotEmpty(t, verifyFew(t, g, 3))
}

func verifyFew(t *testing.T, g *garbler, most int) (all []Finding) {
	v := &verifier{ctx: t.Context(), fs: verifyFS(t, g.root), most: most, o: VerifyOptions{Now: whenOpened(t, idem)}, yield: func(f Finding, err error) bool {
		require.NoError(t, err)
		all = append(all, f)
		return true
	}}
	v.root()
	return all
}

// The promise at Config.ProducerExpiry: at most 300 bytes for a producer, in a log as it is used.
func TestAHundredThousandProducersCostALogAtMost300BytesEach(t *testing.T) {
	const many = 100_000
	fsys, err := vfs.OS(t.TempDir())
	require.NoError(t, err)
	b := newBedOn(t, fsys, Config{Durability: Buffered})
	before := usedHeap()
	for from := int64(0); from < many; from += 1000 {
		var set []byte
		for id := from; id < from+1000; id++ {
			batch, err := record.View(produced(as(id, 0, 0), values(1, 10)...))
			require.NoError(t, err)
			batch.SetBaseOffset(id)
			set = append(set, batch.Bytes()...)
		}
		_, err := b.AppendBatches(ctx, set, AppendOptions{As: Follower})
		require.NoError(t, err)
	}
	require.Equal(t, many, len(b.Producers()))
	grown := (usedHeap() - before) / many
	t.Logf("%d bytes a producer", grown)
	require.LessOrEqual(t, grown, int64(300))
	b.reopen()
	require.Equal(t, many, len(b.Producers()))
	again := (usedHeap() - before) / many
	t.Logf("%d bytes a producer after an open", again)
	require.LessOrEqual(t, again, int64(300))
	runtime.KeepAlive(b)
}

func usedHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Whatever producers did, and whatever was cut, deleted, expired and reopened meanwhile: what a log leaves and what it knows
// is never blamed.
func TestVerifyBelievesEveryLogThatWasWrittenAsItShould(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 7))
		b := newBed(t, Config{ProducerExpiry: time.Hour, SegmentBytes: 2000, Durability: Buffered})
		quiet := func(step int, found iter.Seq2[Finding, error]) {
			for f, err := range found {
				require.NoError(t, err)
				require.Fail(t, "found", "seed %d, step %d: %s", seed, step, sayFindings([]Finding{f}))
			}
		}
		epochs := map[int64]int16{}
		for step := range 150 {
			id := r.Int64N(5)
			p := b.Producer(id, epochs[id])
			o := b.Offsets()
			switch n := r.IntN(30); {
			case n < 12:
				_, _ = p.Append(ctx, values(1+r.IntN(3), 30)...)
			case n < 18:
				if p.Begin() == nil {
					_, _ = p.Append(ctx, values(1+r.IntN(2), 20)...)
				}
			case n < 22:
				open := b.OpenTransactions()
				if len(open) > 0 {
					x := open[r.IntN(len(open))]
					_, _ = b.EndTxn(ctx, as(x.ProducerID, x.Epoch, 0), r.IntN(2) == 0, EndTxnOptions{CoordinatorEpoch: 1})
				}
			case n == 22:
				epochs[id]++
				_, _ = b.EndTxn(ctx, as(id, epochs[id], 0), false, EndTxnOptions{CoordinatorEpoch: 1})
			case n == 23:
				require.NoError(t, b.Roll(ctx))
			case n == 24:
				b.clock.advance(time.Duration(r.IntN(40)) * time.Minute)
			case n == 25 && r.IntN(2) == 0:
				b.truncate(max(o.LogStart, o.LogEnd-r.Int64N(12)))
			case n == 26 && r.IntN(3) == 0:
				require.NoError(t, b.DeleteRecords(ctx, o.LogStart+r.Int64N(o.HighWatermark-o.LogStart+1)))
			case n == 27:
				require.NoError(t, b.dir.Close())
				quiet(step, Verify(ctx, b.fs, VerifyOptions{Now: b.clock.now, ProducerExpiry: time.Hour}))
				b.open()
				epochs = map[int64]int16{}
				for _, known := range b.Producers() {
					epochs[known.ID] = known.Epoch
				}
			case n == 28:
				quiet(step, b.Verify(ctx))
			}
		}
		quiet(-1, b.Verify(ctx))
		require.NoError(t, b.dir.Close())
		quiet(-1, Verify(ctx, b.fs, VerifyOptions{Now: b.clock.now, ProducerExpiry: time.Hour}))
	}
}
