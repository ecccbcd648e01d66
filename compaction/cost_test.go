package compaction

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Nothing is allocated for a record: two logs that differ in the number of their records only cost the same.
func TestRecordsAllocateNothing(t *testing.T) {
	cost := func(records int) float64 {
		w := newWorld(t, vfs.Mem())
		b := record.NewBuilder(record.BuilderOptions{})
		offset := int64(0)
		batch := func() []byte {
			b.Reset()
			b.SetBaseOffset(offset)
			for range records {
				require.NoError(t, b.AddAt(record.Record{Offset: offset, Timestamp: 1, Key: fmt.Appendf(nil, "key %d", offset%50), Value: make([]byte, 20)}))
				offset++
			}
			return bytes.Clone(must(b.Finish()).Bytes())
		}
		w.add(batch(), batch(), batch(), batch())
		w.add(batch())
		in := w.input()
		in.DryRun = true
		return testing.AllocsPerRun(20, func() {
			_, err := Run(context.Background(), in)
			require.NoError(t, err)
		})
	}
	few, many := cost(50), cost(5000)
	require.LessOrEqual(t, many, few+30, "buffers that double a few times, no more") // 20,000 records
}

// Beside the map there are buffers, whatever the size of the segments.
func TestMemoryDoesNotGrowWithTheSegments(t *testing.T) {
	fsys, err := vfs.OS(t.TempDir())
	require.NoError(t, err)
	w := newWorld(t, fsys)
	w.o.MaxBytes = 1 << 30
	b := record.NewBuilder(record.BuilderOptions{})
	value := make([]byte, 8<<10)
	offset := int64(0)
	s, err := segment.Create(folder, 0, w.o)
	require.NoError(t, err)
	for range 96 { // MiB
		b.Reset()
		b.SetBaseOffset(offset)
		for range 128 {
			require.NoError(t, b.AddAt(record.Record{Offset: offset, Key: fmt.Appendf(nil, "key %d", offset/2), Value: value}))
			offset++
		}
		_, err := s.Append(must(b.Finish()).Bytes())
		require.NoError(t, err)
	}
	require.NoError(t, s.Seal(context.Background()))
	w.segs = append(w.segs, s)
	w.add(plain(offset, "x=1"))
	b, value = nil, nil
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak atomic.Uint64
	in := w.input()
	in.Progress = func(Progress) {
		runtime.ReadMemStats(&now)
		peak.Store(max(peak.Load(), now.HeapAlloc))
	}
	out, err := Run(context.Background(), in)
	require.NoError(t, err)
	require.Greater(t, out.Before, int64(90<<20))
	require.Less(t, int64(peak.Load())-int64(before.HeapAlloc), int64(32<<20))
	runtime.ReadMemStats(&now)
	require.Less(t, now.TotalAlloc-before.TotalAlloc, uint64(64<<20))
}

func TestARateIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, vfs.Mem())
		var batches [][]byte
		for i := range int64(100) {
			batches = append(batches, plain(i, fmt.Sprintf("k%d=%0900d", i%50, i)))
		}
		w.add(batches...)
		w.add(plain(100, "x=1"))
		w.c.BytesPerSecond = 10_000
		moved := 2*w.segs[0].Size() + w.segs[0].Size()/2 // read twice, and half of it written
		began := time.Now()
		w.mustClean()
		want := time.Duration(moved) * time.Second / 10_000
		require.InDelta(t, want.Seconds(), time.Since(began).Seconds(), 2)
	})
}

func TestTheContextEndsTheWaitForTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, vfs.Mem())
		w.add(plain(0, fmt.Sprintf("a=%09000d", 1)), plain(1, "a=2"))
		w.add(plain(2, "x=1"))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		in := w.input()
		in.Config.BytesPerSecond = 10
		began := time.Now()
		_, err := Run(ctx, in)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
	})
}

// While others wait for the disk what is written is synced in pieces; else it is synced once, at its end.
func TestOthersGoFirst(t *testing.T) {
	for _, others := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			trace := vfstest.NewTrace(vfs.Mem())
			w := newWorld(t, trace)
			var batches [][]byte
			for i := range int64(60) {
				batches = append(batches, plain(i, fmt.Sprintf("k%d=%050000d", i%50, i)))
			}
			w.add(batches...)
			w.add(plain(60, "x=1"))
			w.c.BytesPerSecond = 1 << 20 // time stands still but for this
			trace.Reset()
			called := 0
			w.mustClean(func(in *Input) {
				in.StandBack = func(context.Context) bool { called++; return others }
			})
			require.Greater(t, called, 50, "whenever time has passed")
			var writes, syncs int
			unsynced := int64(0)
			for _, op := range trace.Filter("*/*.log.cleaned", vfstest.OpWrite, vfstest.OpSyncData) {
				if op.Kind == vfstest.OpSyncData {
					syncs, unsynced = syncs+1, 0
					continue
				}
				writes++
				unsynced += op.Done
				if others {
					require.LessOrEqual(t, unsynced, int64(gatherAside))
				}
			}
			if !others {
				require.Equal(t, []int{3, 0}, []int{writes, syncs})
				return
			}
			require.GreaterOrEqual(t, writes, 50*50_000/gatherAside)
			require.InDelta(t, writes, syncs, 1)
		})
	}
}

func TestTheContextEndsARunThatStandsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, vfs.Mem())
		w.add(plain(0, fmt.Sprintf("a=%09000d", 1)), plain(1, "a=2"))
		w.add(plain(2, "x=1"))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		in := w.input()
		in.Config.BytesPerSecond = 1000
		in.StandBack = func(ctx context.Context) bool { <-ctx.Done(); return true }
		began := time.Now()
		_, err := Run(ctx, in)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(began))
	})
}

func TestProgressIsTold(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(plain(0, "a=1"), plain(1, "a=2"))
	w.add(plain(2, "x=1"))
	var told []Progress
	w.mustClean(func(in *Input) { in.Progress = func(p Progress) { told = append(told, p) } })
	require.Equal(t, Progress{Phase: Mapping, Total: 140}, told[0])
	require.Equal(t, Progress{Phase: Rewriting, Done: 140, Total: 140}, told[len(told)-1])
}
