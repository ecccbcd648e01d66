package compaction

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// However few segments are taken together, a marker stays as long as anything of its transaction, and hides it.
// Report: B081
func TestOpenTransactionsAreKnownFromOneGroupToTheNext(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.c.DeleteRetention = Immediately
	w.producers = map[int64]LastBatch{1: {Offset: 1}}
	w.add(tx(1, 0, 0, "a=1"))
	w.add(tx(1, 1, 1, "b=1"))
	w.add(plain(2, "c=1"))
	w.add(plain(3, "d=1"))
	w.add(plain(4, "e=1"), end(false, 1, 5), plain(6, "f=1"))
	w.aborted(4, 1, 0, 5, 6)
	w.add(plain(7, "x=1"))
	size := w.segs[0].Size() + w.segs[1].Size()
	for range 4 {
		w.dirty = 0
		out := w.mustClean(func(in *Input) { in.Options.MaxBytes = size })
		require.Greater(t, out.Groups+out.Unchanged, 1)
		require.Equal(t, []string{"2:c=1", "3:d=1", "4:e=1", "6:f=1", "7:x=1"}, w.kvs())
		lines := strings.Join(w.lines(), "\n")
		require.Contains(t, lines, "1-1 a=0x10 n=0 p=1/0/1", "the producer's last batch, without its record")
		require.Contains(t, lines, "5-5 a=0x30 n=1 p=1/0/-1", "and so the marker")
	}
	w.producers[1] = LastBatch{Offset: 8} // it has written again
	for range 4 {
		w.dirty, w.now = 0, w.now.Add(time.Hour)
		w.mustClean(func(in *Input) { in.Options.MaxBytes = size })
	}
	require.NotContains(t, strings.Join(w.lines(), "\n"), "p=1/")
}

// A segment is split between the records of a transaction and its marker.
// Report: B083
func TestTheIndexOfAbortedTransactionsGoesWithTheMarkersWhereASegmentIsSplit(t *testing.T) {
	const far = int64(1) << 31
	w := newWorld(t, vfs.Mem())
	w.producers = map[int64]LastBatch{1: {Offset: 1}, 2: {Offset: far + 1}}
	w.add(tx(1, 0, 0, "a=0", "b=0"), end(false, 1, 2), tx(1, 2, 3, "a=1"), plain(4, "k=1"))
	w.aborted(0, 1, 0, 2, 3)
	w.aborted(0, 1, 3, far, far+1)
	w.aborted(0, 2, far+1, far+2, far+3)
	w.add(plain(1<<40, "x=1"))
	raw := append(end(false, 1, far), tx(2, 0, far+1, "a=2")...)
	raw = append(append(raw, end(false, 2, far+2)...), plain(far+3, "l=1")...)
	f := must(w.fs.OpenFile(w.segs[0].File(), 2, 0))
	must(f.WriteAt(raw, w.segs[0].Size()))
	require.NoError(t, f.Close())
	w.reopen()
	w.mustClean()
	require.Equal(t, []int64{0, far, 1 << 40}, w.bases())
	require.Equal(t, []string{"4:k=1", "2147483651:l=1", "1099511627776:x=1"}, w.kvs())
	first, second := w.indexed(0), w.indexed(1)
	require.Len(t, first, 1)
	require.EqualValues(t, 2, first[0].LastOffset)
	require.Len(t, second, 2)
	require.EqualValues(t, []int64{3, far, far + 1, far + 2}, []int64{second[0].FirstOffset, second[0].LastOffset, second[1].FirstOffset, second[1].LastOffset})
	w.dirty = 0
	w.mustClean()
	require.Equal(t, []string{"4:k=1", "2147483651:l=1", "1099511627776:x=1"}, w.kvs())
}

// An aborted record hides no committed one, wherever the two and the marker are.
// Report: B086
func TestAnAbortedRecordHidesNoCommittedOne(t *testing.T) {
	for name, add := range map[string]func(w *world){
		"in one segment": func(w *world) { w.add(tx(1, 0, 0, "k=1"), end(true, 1, 1), tx(1, 1, 2, "k=2"), end(false, 1, 3)) },
		"in segments of their own": func(w *world) {
			w.add(tx(1, 0, 0, "k=1"), end(true, 1, 1))
			w.add(tx(1, 1, 2, "k=2"))
			w.add(end(false, 1, 3))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, vfs.Mem())
			add(w)
			w.aborted(len(w.segs)-1, 1, 2, 3, 4)
			w.add(plain(4, "x=1"))
			for range 3 {
				w.dirty = 0
				w.mustClean()
				require.Equal(t, []string{"0:k=1", "4:x=1"}, w.kvs())
			}
		})
	}
}

// A control batch without its record is passed over by whoever comes next.
// Report: B085
func TestAnEmptiedControlBatchIsTakenByTheNextCleaning(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.c.DeleteRetention = Immediately
	w.producers = map[int64]LastBatch{1: {Offset: -1}}
	w.add(tx(1, 0, 0, "1=a"), end(true, 1, 1), tx(1, 1, 2, "2=a"), end(false, 1, 3))
	w.aborted(0, 1, 2, 3, 4)
	w.add(plain(4, "1=b"), plain(5, "2=b"))
	w.add(plain(6, "x=1"))
	for range 5 {
		w.dirty = 0
		w.mustClean()
		require.Equal(t, []string{"4:1=b", "5:2=b", "6:x=1"}, w.kvs())
	}
	require.Equal(t, []string{"1-1 a=0x30 n=0 p=1/0/-1", "3-3 a=0x30 n=0 p=1/0/-1"}, w.lines()[:2])
	require.Empty(t, w.indexed(0))
}

// Records keep the format they were written in, so that none grows, however full its segment is.
// Report: B169
func TestOldFormatsFitWhereTheyWere(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	big := strings.Repeat("v", 5000)
	w.add(
		entry(0, 0, "a="+big), entry(0, 1, "b="+big),
		entry(1, 2, "c="+big),
		wrapper(1, 4, 0, 4, entryAt(1, 0, 0, 3, "a=1"), entryAt(1, 1, 0, 4, "d="+big)),
		plain(5, "e="+big),
	)
	before := w.segs[0].Size()
	w.o.MaxBytes = before
	w.add(plain(6, "f="+big))
	w.add(plain(7, "x=1"))
	formats := func() (all []int8) {
		for b, err := range w.segs[0].Batches(0) {
			require.NoError(t, err)
			all = append(all, b.Magic())
		}
		return all
	}
	for range 2 {
		w.dirty = 0
		w.mustClean(func(in *Input) { in.Options.MaxBytes = before })
		require.Equal(t, []int8{0, 1, 1, 2}, formats()[:4])
		require.LessOrEqual(t, w.segs[0].Size(), before)
		require.Len(t, w.view().records, 7)
	}
}

// A cleaning that meets an error at any read gives back what it holds.
// Report: B181
func TestAFailedCleaningHoldsNoSegment(t *testing.T) {
	failed := 0
	for nth := 1; ; nth++ {
		fault := vfstest.NewFault(vfs.Mem())
		w := newWorld(t, fault)
		w.add(plain(0, "a=1"), plain(1, "b=1"))
		w.add(plain(2, "a=2"), plain(3, "c=1"))
		w.add(plain(4, "x=1"))
		w.reopen()
		hits, _ := fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRead, vfstest.OpOpen}, Nth: nth, Err: syscall.EIO})
		_, err := Run(context.Background(), w.input())
		for _, s := range w.segs {
			require.Zero(t, s.Pins(), "read %d: %v", nth, err)
		}
		if hits() == 0 {
			require.NoError(t, err)
			break
		}
		if err != nil {
			failed++
			for _, name := range w.files() {
				require.False(t, strings.HasSuffix(name, cleaned), "read %d leaves %s", nth, name)
			}
		}
	}
	require.Positive(t, failed)
}
