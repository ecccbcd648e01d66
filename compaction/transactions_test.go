package compaction

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

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
