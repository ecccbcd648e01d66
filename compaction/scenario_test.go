package compaction

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// Scenario: C001
func TestOnlyTheLastRecordOfAKeyStays(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(plain(0, "a=1", "b=1"), plain(2, "a=2", "c=1"))
	w.add(plain(4, "a=3", "d=1"), plain(6, "b=2"))
	w.add(plain(7, "a=9"))
	var sizes int64
	for _, s := range w.segs[:2] {
		sizes += s.Size()
	}
	out := w.mustClean()
	require.Equal(t, []string{"3:c=1", "4:a=3", "5:d=1", "6:b=2", "7:a=9"}, w.kvs())
	require.Equal(t, []int64{0, 7}, w.bases())
	require.EqualValues(t, 7, out.FirstDirty)
	require.Equal(t, Count{Batches: 4, Records: 7, Bytes: sizes}, out.Read)
	require.Equal(t, out.Read, out.Mapped)
	require.Equal(t, Count{Batches: 3, Records: 4, Bytes: w.segs[0].Size()}, out.Written)
	require.EqualValues(t, []int64{3, 4, sizes, w.segs[0].Size()}, []int64{out.Superseded, int64(out.Keys), out.Before, out.After})
}

// What stays whole is not written again, and a segment of which nothing goes is not touched.
func TestCleaningTwiceIsCleaningOnce(t *testing.T) {
	fsys := vfs.Mem()
	w := newWorld(t, fsys)
	w.add(plain(0, "a=1", "b=1"), plain(2, "a=2", "c=1"))
	w.add(plain(4, "z=1"))
	w.mustClean()
	before, err := vfs.ReadFile(fsys, folder+"/00000000000000000000.log", 1<<20)
	require.NoError(t, err)
	w.dirty = 0
	out := w.mustClean(func(in *Input) { in.Keep = func(context.Context, Group) error { t.Error("swapped"); return nil } })
	require.Zero(t, out.Written)
	require.Equal(t, []int{0, 1}, []int{out.Groups, out.Unchanged})
	after, err := vfs.ReadFile(fsys, folder+"/00000000000000000000.log", 1<<20)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// Scenario: C004, C021
func TestTheLastBatchOfAProducerStaysIfOnlyItsHeader(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.producers = map[int64]LastBatch{1: {Offset: 2}, 2: {Offset: 5}, 3: {Offset: 7}}
	w.add(by(1, 0, 0, "1=a", "2=a", "3=a"), by(2, 0, 3, "3=b", "1=b", "4=b"), by(3, 0, 6, "1=c", "4=c"))
	w.add(plain(8, "x=1"))
	w.mustClean()
	require.Equal(t, []string{"1:2=a", "3:3=b", "6:1=c", "7:4=c", "8:x=1"}, w.kvs())
	require.Equal(t, []int64{2, 5, 7}, w.lasts())
	require.Equal(t, []string{"0-2 a=0x0 n=1 p=1/0/0", "3-5 a=0x0 n=1 p=2/0/0", "6-7 a=0x0 n=2 p=3/0/0"}, w.lines()[:3])

	w.add(by(4, 0, 9, "2=d"))
	w.producers[4] = LastBatch{Offset: 9}
	w.add(plain(10, "y=1"))
	w.mustClean()
	require.Equal(t, []string{"3:3=b", "6:1=c", "7:4=c", "8:x=1", "9:2=d", "10:y=1"}, w.kvs())
	require.Equal(t, []int64{2, 5, 7, 8, 9}, w.lasts())
	require.Equal(t, "0-2 a=0x0 n=0 p=1/0/0", w.lines()[0])

	w.producers[1] = LastBatch{Offset: 10} // it has written again
	w.dirty = 0
	w.mustClean()
	require.Equal(t, []int64{5, 7, 8, 9}, w.lasts())
}

// Scenario: C006
func TestAbortedDataGoesAndCommittedStays(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.producers = map[int64]LastBatch{1: {Offset: 8}, 2: {Offset: 3}}
	w.add(tx(1, 0, 0, "1=a", "2=a"), tx(2, 0, 2, "2=b", "3=b"), tx(1, 2, 4, "3=c", "4=c"), end(false, 1, 6), end(true, 2, 7),
		tx(1, 4, 8, "2=d"), end(true, 1, 9))
	w.aborted(0, 1, 0, 6, 2)
	w.add(plain(10, "x=1"))
	before := w.indexed(0)
	out := w.mustClean()
	require.Equal(t, []string{"3:3=b", "8:2=d", "10:x=1"}, w.kvs())
	require.Equal(t, []int64{3, 6, 7, 8, 9}, w.lasts())
	require.Equal(t, before, w.indexed(0))
	require.EqualValues(t, 4, out.Aborted)
}

// Scenario: C010, C016. An ABORT stays, and stays in the index, while data of its transaction is there; then it needs a
// cleaning that stamps it and one behind the horizon.
func TestAnAbortMarkerGoesTwoCleaningsAfterItsData(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.producers = map[int64]LastBatch{1: {Offset: 1}, 2: {Offset: 4}}
	w.c.DeleteRetention = time.Hour
	w.add(tx(1, 0, 0, "1=a", "2=a"), end(false, 1, 2), plain(3, "5=a"))
	w.aborted(0, 1, 0, 2, 3)
	w.add(by(2, 0, 4, "6=a"))

	w.mustClean() // the header stays for the producer's sake, and so does the marker
	require.Equal(t, []string{"0-1 a=0x10 n=0 p=1/0/0", "2-2 a=0x30 n=1 p=1/0/-1", "3-3 a=0x0 n=1"}, w.lines()[:3])
	require.Len(t, w.indexed(0), 1)

	w.producers[1] = LastBatch{Offset: 5} // it has written since
	w.dirty = 0
	w.mustClean() // the header goes: the marker was met before it was known that nothing is left of its transaction
	require.Equal(t, []string{"2-2 a=0x30 n=1 p=1/0/-1", "3-3 a=0x0 n=1"}, w.lines()[:2])
	require.Len(t, w.indexed(0), 1)

	w.dirty = 0
	w.mustClean()
	require.Equal(t, []string{"2-2 a=0x70 n=1 p=1/0/-1", "3-3 a=0x0 n=1"}, w.lines()[:2])
	require.Empty(t, w.indexed(0))
	require.NotContains(t, strings.Join(w.files(), " "), ".txnindex")

	w.dirty, w.now = 0, w.now.Add(time.Hour-time.Millisecond)
	w.mustClean()
	require.Equal(t, "2-2 a=0x70 n=1 p=1/0/-1", w.lines()[0])
	w.dirty, w.now = 0, w.now.Add(time.Millisecond)
	out := w.mustClean()
	require.Equal(t, "3-3 a=0x0 n=1", w.lines()[0])
	require.EqualValues(t, 1, out.Markers)
}

// A producer whose last word was a marker keeps it, if only as a header.
func TestAMarkerThatIsAProducersLastEntryStaysAsAHeader(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.c.DeleteRetention = Immediately
	w.producers = map[int64]LastBatch{1: {Offset: -1, Epoch: 0}}
	w.add(tx(1, 0, 0, "1=a"), end(false, 1, 1), plain(2, "5=a"))
	w.aborted(0, 1, 0, 1, 2)
	w.add(plain(3, "6=a"))
	for range 3 {
		w.dirty = 0
		w.mustClean()
	}
	require.Equal(t, "1-1 a=0x30 n=0 p=1/0/-1", w.lines()[0])
	raw, err := vfs.ReadFile(w.fs, w.segs[0].File(), 1000)
	require.NoError(t, err)
	b, _, err := record.Next(raw)
	require.NoError(t, err)
	require.Equal(t, []int64{61, -1}, []int64{int64(b.Size()), b.BaseTimestamp()})
	w.dirty = 0
	out := w.mustClean()
	require.Zero(t, out.Written, "the same header is not written again")
}

// Scenario: C010. A COMMIT goes the same way once nothing of its transaction is left.
func TestACommitMarkerGoesTwoCleaningsAfterItsData(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.c.DeleteRetention = time.Hour
	w.add(tx(1, 0, 0, "1=a"), end(true, 1, 1), plain(2, "1=b"))
	w.add(plain(3, "6=a"))
	again := func() string { w.dirty = 0; w.mustClean(); return w.lines()[0] }
	require.Equal(t, "1-1 a=0x30 n=1 p=1/0/-1", again(), "its data was still there")
	require.Equal(t, "1-1 a=0x70 n=1 p=1/0/-1", again())
	require.Equal(t, "1-1 a=0x70 n=1 p=1/0/-1", again())
	w.now = w.now.Add(time.Hour)
	require.Equal(t, "2-2 a=0x0 n=1", again())
}

// A transaction index that knows a transaction of which nothing is left is made anew with its segment, although no batch of
// it changes.
func TestAnIndexThatSaysTooMuchIsRewritten(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.c.DeleteRetention = Forever
	w.add(plain(0, "a=1"), end(false, 1, 1), plain(2, "b=1"))
	w.aborted(0, 1, 0, 1, 2)
	w.add(plain(3, "x=1"))
	w.mustClean()
	require.Equal(t, []string{"0-0 a=0x0 n=1", "1-1 a=0x30 n=1 p=1/0/-1", "2-2 a=0x0 n=1", "3-3 a=0x0 n=1"}, w.lines())
	require.Empty(t, w.indexed(0))
	w.dirty = 0
	require.Zero(t, w.mustClean().Written)
}

// Scenario: C012, C013
func TestTransactionsOverSegments(t *testing.T) {
	t.Run("committed", func(t *testing.T) {
		w := newWorld(t, vfs.Mem())
		w.c.DeleteRetention = Immediately
		w.add(tx(1, 0, 0, "1=a"))
		w.add(end(true, 1, 1), plain(2, "5=a"))
		w.add(plain(3, "6=a"))
		for range 3 {
			w.dirty = 0
			w.mustClean()
			require.Equal(t, []string{"0:1=a", "2:5=a", "3:6=a"}, w.kvs())
			require.Equal(t, []int64{0, 1, 2}, w.lasts())
		}
	})
	t.Run("aborted", func(t *testing.T) {
		w := newWorld(t, vfs.Mem())
		w.c.DeleteRetention = Immediately
		w.producers = map[int64]LastBatch{1: {Offset: 0}}
		w.add(tx(1, 0, 0, "1=a"))
		w.add(end(false, 1, 1), plain(2, "5=a"))
		w.aborted(1, 1, 0, 1, 2)
		w.add(plain(3, "6=a"))
		w.now = time.UnixMilli(math.MaxInt64 / 2)
		for range 3 {
			w.dirty = 0
			w.mustClean()
			require.Equal(t, []string{"0-0 a=0x10 n=0 p=1/0/0", "1-1 a=0x30 n=1 p=1/0/-1", "2-2 a=0x0 n=1"}, w.lines()[:3])
		}
	})
	t.Run("aborted in the active segment", func(t *testing.T) {
		w := newWorld(t, vfs.Mem())
		w.add(plain(0, "1=old"), tx(1, 0, 1, "1=never"))
		w.add(end(false, 1, 2), plain(3, "5=a"))
		w.aborted(1, 1, 1, 2, 3)
		w.mustClean()
		require.Equal(t, []string{"0:1=old", "3:5=a"}, w.kvs(), "the abort counts, although the marker is not cleaned yet")
		require.Equal(t, []int64{0, 1}, w.lasts(), "the last batch of the range stays as a header")
	})
}

// Scenario: C022
func TestLastBatchOfAnAbortedTransaction(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.producers = map[int64]LastBatch{1: {Offset: 2}}
	w.add(tx(1, 0, 0, "1=a", "2=a"), tx(1, 2, 2, "3=a"), end(false, 1, 3))
	w.aborted(0, 1, 0, 3, 4)
	w.add(plain(4, "x=1"))
	w.mustClean()
	require.Equal(t, []int64{2, 3}, w.lasts())
	w.producers[1] = LastBatch{Offset: 5}
	w.add(tx(1, 3, 5, "1=b"))
	w.add(end(true, 1, 6))
	w.mustClean()
	require.Equal(t, []int64{3, 4, 5}, w.lasts())
}

// Scenario: C023
func TestAKeyLikeAMarkersIsAKey(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(tx(1, 0, 0, "\x00\x00\x00\x01=a"), end(true, 1, 1), plain(2, "x=1"))
	w.add(plain(3, "y=1"))
	w.mustClean()
	require.Equal(t, []int64{0, 1, 2}, w.lasts())
	require.Equal(t, "0:\x00\x00\x00\x01=a", w.kvs()[0])
}

// Scenario: C019, C040
func TestTombstones(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.c.DeleteRetention = time.Hour
	w.add(plain(0, "a=1", "b=1", "c=1"))
	w.add(plain(3, "a", "c=2"), plain(5, "b"))
	w.add(plain(6, "x=1"))
	w.now = w.now.Add(1000 * time.Hour) // their own timestamps are long past
	w.mustClean()
	require.Equal(t, []string{"3:a", "4:c=2", "5:b", "6:x=1"}, w.kvs(), "the tombstones stay")
	require.Equal(t, []string{"3-4 a=0x40 n=2", "5-5 a=0x40 n=1"}, w.lines()[:2])
	require.Equal(t, at0.UnixMilli()+3, w.view().records[0].ts)

	w.dirty, w.now = 0, w.now.Add(time.Hour-1)
	require.Zero(t, w.mustClean().Written)
	w.dirty, w.now = 0, w.now.Add(1)
	out := w.mustClean()
	require.Equal(t, []string{"4:c=2", "6:x=1"}, w.kvs())
	require.Equal(t, []string{"3-4 a=0x40 n=1", "5-5 a=0x0 n=0"}, w.lines()[:2], "a horizon outlives its tombstone; the last batch stays")
	require.EqualValues(t, 2, out.Tombstones)
}

// Report: B077. The horizon comes from the first cleaning that saw the tombstone, however many follow.
func TestTheHorizonIsNotRenewed(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(plain(0, "k=1"), plain(1, "k"))
	w.add(plain(2, "x=0"))
	next := int64(3)
	hours := 0
	for ; hours < 30; hours++ {
		w.mustClean()
		if w.view().records[0].kv != "k" {
			break
		}
		w.now = w.now.Add(time.Hour)
		w.add(plain(next, "x=1"))
		next++
	}
	require.Equal(t, 24, hours)
}

// A horizon means nothing to whoever has not been told: replicas that are away hold tombstones and markers back.
func TestNothingIsRemovedAboveTheCeiling(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.c.DeleteRetention = Immediately
	w.add(plain(0, "a=1"), plain(1, "a"), tx(1, 0, 2, "1=a"), end(false, 1, 3), plain(4, "b"), plain(5, "c=1"))
	w.aborted(0, 1, 2, 3, 4)
	w.add(plain(6, "x=1"))
	ceiling := int64(3)
	hold := func(in *Input) { in.Bounds.Removal = &ceiling }
	for range 4 {
		w.dirty = 0
		w.mustClean(hold)
	}
	require.Equal(t, []string{"4:b", "5:c=1", "6:x=1"}, w.kvs())
	require.Equal(t, []int64{3, 4, 5}, w.lasts())
	ceiling = 0
	w.dirty = 0
	w.mustClean(hold)
	require.Equal(t, []int64{3, 4, 5}, w.lasts())
	ceiling = 5
	w.dirty = 0
	w.mustClean(hold)
	require.Equal(t, []int64{5}, w.lasts())
}

func TestDeleteRetentionForeverStampsAndRemovesNothing(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.c.DeleteRetention = Immediately
	w.add(plain(0, "a"), plain(1, "b=1"))
	w.add(plain(2, "x=1"))
	w.mustClean() // stamped
	w.c.DeleteRetention = Forever
	w.add(plain(3, "c"))
	w.add(plain(4, "y=1"))
	w.now = w.now.Add(1e6 * time.Hour)
	w.dirty = 0
	w.mustClean()
	require.Equal(t, []string{"0:a", "1:b=1", "2:x=1", "3:c", "4:y=1"}, w.kvs())
	require.Equal(t, "3-3 a=0x0 n=1", w.lines()[3])
}

// Scenario: C020
func TestCountsWithASmallMap(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.c.MapBytes, w.c.MapLoad = 3*slotBytes, 1
	w.add(plain(0, "0=a"), plain(1, "1=a"), plain(2, "0=b"), plain(3, "1=b"), plain(4, "0=c"))
	w.add(plain(5, "x=1"))
	w.dirty = 2
	out := w.mustClean()
	require.EqualValues(t, 5, out.FirstDirty)
	require.EqualValues(t, []int64{5, 2, 0}, []int64{out.Read.Records, out.Written.Records, out.Unkeyed})
	require.Equal(t, []string{"3:1=b", "4:0=c", "5:x=1"}, w.kvs())
}

// Scenario: C024
// Report: B068, B072
func TestAMapOfOneKeyGetsOnKeyByKey(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.c.MapBytes, w.c.MapLoad = slotBytes, 1
	w.add(plain(0, "k=1", "l=1"), plain(2, "k=2", "l=2", "m=1"))
	w.add(plain(5, "x=1"))
	for i, want := range [][]string{
		{"0:k=1", "1:l=1", "2:k=2", "3:l=2", "4:m=1"},
		{"0:k=1", "1:l=1", "2:k=2", "3:l=2", "4:m=1"},
		{"1:l=1", "2:k=2", "3:l=2", "4:m=1"},
		{"2:k=2", "3:l=2", "4:m=1"},
		{"2:k=2", "3:l=2", "4:m=1"},
	} {
		out := w.mustClean()
		require.EqualValues(t, i+1, out.FirstDirty)
		require.Equal(t, i < 4, out.MapFull)
		require.Equal(t, append(want, "5:x=1"), w.kvs())
	}
}

// Scenario: C036
func TestAFullMapStopsInsideABatch(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.c.MapBytes, w.c.MapLoad = 2*slotBytes, 1
	w.add(plain(0, "a=1", "b=1"), plain(2, "c=1", "a=2"), plain(4, "a=3"))
	w.add(plain(5, "x=1"))
	out := w.mustClean()
	require.True(t, out.MapFull)
	require.EqualValues(t, []int64{2, 2, 3}, []int64{out.FirstDirty, int64(out.Keys), out.Mapped.Records})
	require.Equal(t, []string{"0:a=1", "1:b=1", "2:c=1", "3:a=2", "4:a=3", "5:x=1"}, w.kvs())
}

func TestAMapWithoutRoomForAKey(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(plain(0, "a=1"))
	w.add(plain(1, "x=1"))
	w.c.MapBytes = 10
	_, err := w.clean()
	require.ErrorIs(t, err, ErrMapTooSmall)
	w.c.MapBytes, w.c.ExactKeys = 30, true
	out, err := w.clean()
	require.ErrorIs(t, err, ErrMapTooSmall)
	require.Zero(t, out.FirstDirty)
}

// Scenario: C025
func TestNothingAboveTheBoundIsTouched(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(plain(0, "a=1"), plain(1, "b=1"))
	w.add(plain(2, "a=2"), plain(3, "b=2"))
	w.add(plain(4, "a=3"))
	for _, bound := range []int64{2, 3} {
		w.dirty = 0
		w.mustClean(func(in *Input) { in.Bounds.Uncleanable = bound })
		require.Equal(t, []string{"0:a=1", "1:b=1", "2:a=2", "3:b=2", "4:a=3"}, w.kvs())
	}
	w.dirty = 0
	w.mustClean(func(in *Input) { in.Bounds.Uncleanable = math.MaxInt64 })
	require.Equal(t, []string{"2:a=2", "3:b=2", "4:a=3"}, w.kvs(), "the active segment stays, and is not in the map")
}

// Scenario: C027
func TestRecordsWithoutAKeyGo(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(plain(0, "=1", "a=1", "=2"), plain(3, "=3"), plain(4, "b=1"))
	w.add(plain(5, "=x"))
	out := w.mustClean()
	require.Equal(t, []string{"1:a=1", "4:b=1", "5:=x"}, w.kvs())
	require.EqualValues(t, 3, out.Unkeyed)
}

// Scenario: C028
func TestTheContextEndsARunWithoutATrace(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(plain(0, "a=1"), plain(1, "a=2"))
	w.add(plain(2, "x=1"))
	files := w.files()
	for _, phase := range []Phase{Mapping, Rewriting} {
		ctx, cancel := context.WithCancel(context.Background())
		in := w.input()
		in.Progress = func(p Progress) {
			if p.Phase == phase {
				cancel()
			}
		}
		_, err := Run(ctx, in)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, files, w.files())
	}
}

// Scenario: C029
func TestAllKeysDeleted(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.c.DeleteRetention = Immediately
	w.add(plain(0, "a=1", "b=1"))
	w.add(plain(2, "a"), plain(3, "b"))
	w.add(plain(4, "x=1"))
	w.mustClean()
	w.dirty = 0
	w.mustClean()
	require.Equal(t, []string{"3-3 a=0x0 n=0", "4-4 a=0x0 n=1"}, w.lines())
	require.Equal(t, []int64{0, 4}, w.bases())
}

// Scenario: C034, C035, C041
func TestTheMapSpeaksForGaps(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(plain(0, "a=1"), plain(7206178, "b=1"))
	w.addAt(7206200, plain(7206201, "a=2"))
	w.addAt(7206300, plain(7206300, "x=1"))
	out := w.mustClean()
	require.EqualValues(t, []int64{7206300, 2}, []int64{out.FirstDirty, int64(out.Keys)})
	require.Equal(t, []string{"7206178:b=1", "7206201:a=2", "7206300:x=1"}, w.kvs())
}

// Scenario: C017
// Report: B060
func TestABatchLargerThanAnyBuffer(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.o.MaxBytes = 64 << 10 // lowered since
	big := strings.Repeat("v", 2<<20)
	w.add(plain(0, "a="+big, "b=1"), plain(2, "c="+big))
	w.add(plain(3, "a=2"))
	w.add(plain(4, "x=1"))
	w.mustClean()
	require.Equal(t, []string{"1:b=1", "2:c=" + big, "3:a=2", "4:x=1"}, w.kvs())
}

// Scenario: I001
func TestEveryCodecIsKept(t *testing.T) {
	for codec := record.None; codec <= record.Zstd; codec++ {
		for _, kind := range []record.TimestampType{record.CreateTime, record.LogAppendTime} {
			t.Run(codec.String()+" "+kind.String(), func(t *testing.T) {
				w := newWorld(t, vfs.Mem())
				o := record.BuilderOptions{Codec: codec, TimestampType: kind, Now: func() time.Time { return at0.Add(time.Minute) }}
				w.add(batchOf(0, o, "a=1", "b=1", "c"), batchOf(3, o, "a=2", "d=1"))
				w.add(plain(5, "x=1"))
				before := w.view()
				w.mustClean()
				after := w.view()
				require.Equal(t, []rec{before.records[1], before.records[2], before.records[3], before.records[4], before.records[5]}, after.records)
				for b, err := range w.segs[0].Batches(0) {
					require.NoError(t, err)
					require.Equal(t, codec, b.Codec())
					require.Equal(t, kind, b.TimestampType())
					require.EqualValues(t, 3, b.LeaderEpoch())
				}
			})
		}
	}
}

// Scenario: C030, C031, C032, C033
func TestGroups(t *testing.T) {
	ten := func(bytes, index, time int64) (all []Fact) {
		for i := range int64(10) {
			all = append(all, Fact{Base: i * 10, Bytes: bytes, IndexBytes: index, TimeIndexBytes: time})
		}
		return all
	}
	sizes := func(rs []Range) (out []int) {
		for _, r := range rs {
			out = append(out, r.Last-r.First+1)
		}
		return out
	}
	ones := []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
	require.Equal(t, []int{10}, sizes(groups(ten(100, 8, 12), 100, 100, GroupLimits{})))
	require.Equal(t, ones, sizes(groups(ten(100, 8, 12), 100, 100, GroupLimits{SegmentBytes: 1})))
	require.Equal(t, ones, sizes(groups(ten(100, 8, 12), 100, 100, GroupLimits{IndexBytes: 1})))
	require.Equal(t, []int{3, 3, 3, 1}, sizes(groups(ten(100, 8, 12), 100, 100, GroupLimits{SegmentBytes: 300})))
	require.Equal(t, []int{3, 3, 3, 1}, sizes(groups(ten(100, 8, 0), 100, 100, GroupLimits{IndexBytes: 24})))
	require.Equal(t, []int{3, 3, 3, 1}, sizes(groups(ten(100, 0, 12), 100, 100, GroupLimits{IndexBytes: 36})))
	require.Equal(t, []int{5}, sizes(groups(ten(100, 8, 12), 45, 100, GroupLimits{})), "only up to the end of the map")

	far := int64(math.MaxInt32)
	sparse := []Fact{{Base: 0, Bytes: 1}, {Base: far, Bytes: 1}, {Base: 2 * far, Bytes: 1}}
	require.Equal(t, []int{1, 1, 1}, sizes(groups(sparse, 3*far, 3*far, GroupLimits{})))
	sparse[1].Bytes = 0
	require.Equal(t, []int{2, 1}, sizes(groups(sparse, 3*far, 3*far, GroupLimits{})), "an empty one has no offset to tell")
	at := []Fact{{Base: 0, Bytes: 1}, {Base: 100, Bytes: 1}, {Base: far + 1, Bytes: 1}, {Base: far + 50, Bytes: 1}}
	require.Equal(t, []int{2, 2}, sizes(groups(at, far+100, far+100, GroupLimits{})), "the second ends at 2^31-1")
	at[2].Base++
	require.Equal(t, []int{1, 3}, sizes(groups(at, far+100, far+100, GroupLimits{})), "and here it may end behind")
}

// Scenario: C031
// Report: B067
func TestEmptySegmentsOfALongRangeMerge(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	const far = int64(1) << 31
	for i := range int64(10) {
		w.add(plain(i*far, "k=1"))
	}
	w.add(plain(10*far, "k=2"))
	w.add(plain(11*far, "x=1"))
	w.mustClean()
	require.Len(t, w.bases(), 12)
	w.dirty = 0
	w.mustClean()
	require.Equal(t, []int64{0, 10 * far, 11 * far}, w.bases())
	require.Zero(t, w.segs[0].Size())
	w.dirty = 0
	require.Zero(t, w.mustClean().Written)
}

// Scenario: C037
// Report: B059
func TestAnOverflowedSegmentIsSplit(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(plain(0, "a=1", "b=1"))
	w.producers = map[int64]LastBatch{1: {Offset: 1<<31 + 102}}
	w.aborted(0, 1, 1<<31+102, 1<<31+103, 1<<31+104)
	w.add(plain(1<<40, "x=1"))
	raw := append(append(plain(2, "a=2", "c=1"), plain(1<<31+100, "d=1", "b=2")...), tx(1, 0, 1<<31+102, "a=never")...)
	raw = append(append(raw, end(false, 1, 1<<31+103)...), plain(1<<32, "e=1")...)
	f, err := w.fs.OpenFile(w.segs[0].File(), 2, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(raw, w.segs[0].Size())
	require.NoError(t, err)
	require.NoError(t, f.Close())
	w.reopen()
	out := w.mustClean()
	require.EqualValues(t, int64(1)<<40, out.FirstDirty)
	require.Equal(t, []string{"2:a=2", "3:c=1", "2147483748:d=1", "2147483749:b=2", "4294967296:e=1", "1099511627776:x=1"}, w.kvs())
	require.Equal(t, []int64{0, 1<<31 + 100, 1 << 40}, w.bases())
	require.Empty(t, w.indexed(0))
	require.Len(t, w.indexed(1), 1, "the index is with the marker")
	for _, s := range w.segs {
		_, err := s.NextOffset()
		require.NoError(t, err)
	}
}

// Report: B071
func TestNewSegmentsAreNotPreallocated(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.o.Preallocate, w.o.MaxBytes = true, 1<<20
	w.add(plain(0, "a=1"), plain(1, "a=2"))
	w.add(plain(2, "x=1"))
	w.mustClean()
	info, err := w.fs.Stat(folder + "/00000000000000000000.log")
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(200))
}

func TestNewFilesAreAsOldAsTheNewestOfTheOld(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(plain(0, "a=1"))
	w.add(plain(1, "a=2"))
	w.add(plain(2, "x=1"))
	for i, s := range w.segs[:2] {
		require.NoError(t, w.fs.Chtimes(s.File(), at0.Add(time.Duration(i)*time.Hour)))
	}
	w.mustClean()
	for _, kind := range kinds[:3] {
		info, err := w.fs.Stat(fileName(folder, 0, kind, ""))
		require.NoError(t, err)
		require.Equal(t, at0.Add(time.Hour).UnixMilli(), info.ModTime().UnixMilli())
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(plain(0, "a=1", "b=1"), plain(2, "a=2"))
	w.add(plain(3, "b=2"))
	w.add(plain(4, "x=1"))
	files, before := w.files(), w.view()
	dry, err := w.clean(func(in *Input) { in.DryRun = true })
	require.NoError(t, err)
	require.Equal(t, files, w.files())
	require.Equal(t, before, w.view())
	w.dirty = 0
	require.Equal(t, w.mustClean(), dry)
}

func TestReadersGoOnWithWhatTheyHold(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(plain(0, "a=1"), plain(1, "a=2"))
	w.add(plain(2, "a=3"))
	w.add(plain(3, "x=1"))
	before := w.view()
	old := w.segs
	var live []*segment.Segment
	in := w.input()
	in.Keep = func(_ context.Context, g Group) (err error) {
		live, err = Swap(folder, w.o, g.Old, g.New)
		return err
	}
	_, err := Run(context.Background(), in)
	require.NoError(t, err)
	for range 2 {
		got, err := viewOf(old)
		require.NoError(t, err)
		require.Equal(t, before, got)
		for _, s := range old[:2] {
			require.Contains(t, s.File(), ".deleted")
			require.NoError(t, s.Park()) // found again under the new name
		}
	}
	got, err := viewOf(live)
	require.NoError(t, err)
	require.Equal(t, []rec{before.records[2]}, got.records)

	// A second swap of the same base, before the files of the first are gone.
	in.Segments = []*segment.Segment{live[0], old[2]}
	in.Bounds.FirstDirty = 0
	again := live[0]
	bases := []int64{0}
	o := w.o
	o.Suffix = cleaned
	s, err := segment.Create(folder, 0, o)
	require.NoError(t, err)
	require.NoError(t, s.Seal(context.Background()))
	require.NoError(t, s.Sync())
	require.NoError(t, s.Close())
	live, err = Swap(folder, w.o, []*segment.Segment{again}, bases)
	require.NoError(t, err)
	require.NotEqual(t, old[0].File(), again.File())
	got, err = viewOf(old)
	require.NoError(t, err)
	require.Equal(t, before, got)
	require.NoError(t, live[0].Abandon())
	require.NoError(t, again.Abandon())
}

// Old followers could leave a log that begins inside a batch.
func TestALogThatBeginsInsideABatchIsCleaned(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.addAt(2, plain(0, "a=0", "b=1", "c=2", "a=3"), plain(4, "b=4"))
	w.add(plain(5, "a=5"))
	w.add(plain(6, "x=6"))
	w.dirty = 2
	out := w.mustClean()
	require.EqualValues(t, 6, out.FirstDirty)
	require.Equal(t, []string{"2:c=2", "4:b=4", "5:a=5", "6:x=6"}, w.kvs())
	require.Equal(t, []int64{2, 6}, w.bases())
	require.Zero(t, w.mustClean(func(in *Input) { in.Bounds.FirstDirty = 2 }).Groups)
}
