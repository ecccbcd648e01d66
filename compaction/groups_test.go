package compaction

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

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
	longest := int64(0)
	lengths := vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpTruncate, vfstest.OpAllocate}, Times: vfstest.Always, Hook: func(op vfstest.Op) error {
		if strings.HasSuffix(op.Name, ".log"+cleaned) {
			longest = max(longest, op.Off+op.Len)
		}
		return nil
	}}
	w := newWorld(t, vfstest.NewFault(vfs.Mem(), lengths))
	w.o.Preallocate, w.o.MaxBytes = true, 1<<20
	w.add(plain(0, "a=1"), plain(1, "a=2"))
	w.add(plain(2, "x=1"))
	w.mustClean()
	require.Less(t, longest, int64(200), "nor for a while")
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
