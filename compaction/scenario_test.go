package compaction

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
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
