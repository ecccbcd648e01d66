package segment

import (
	"math/rand/v2"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/vfs/vfstest"
)

// budgeted makes n segments, one a thousand offsets, that share a budget of so many open files.
func budgeted(t testing.TB, n, files int, o Options) []*Segment {
	o.Budget = index.NewBudget(0)
	o.Budget.LimitFiles(files)
	all := make([]*Segment, n)
	for i := range all {
		all[i] = create(t, int64(i)*1000, o)
	}
	return all
}

// mostOpen is how many files were open at the worst moment, and how many are still.
func mostOpen(ops []vfstest.Op) (most, now int) {
	for _, op := range ops {
		switch {
		case op.Err != nil:
		case op.Kind == vfstest.OpOpen || op.Kind == vfstest.OpCreate:
			now++
		case op.Kind == vfstest.OpClose:
			now--
		}
		most = max(most, now)
	}
	return most, now
}

func TestNoMoreFilesAreOpenThanTheBudgetAllows(t *testing.T) {
	const files, inUse = 8, 3 // an append has the .log and, at its first time, both indexes in hand
	for _, synced := range []bool{true, false} {
		trace := vfstest.NewTrace(memFS(t))
		all := budgeted(t, 60, files, Options{FS: trace, IndexIntervalBytes: EveryBatch})
		r := rand.New(rand.NewPCG(1, 1))
		have := make([]int64, len(all))
		for range 600 {
			i := r.IntN(len(all))
			fill(t, all[i], 1)
			if have[i]++; synced {
				require.NoError(t, all[i].SyncData())
			}
			i = r.IntN(len(all))
			require.Len(t, mustOffsets(t, all[i]), int(have[i]))
			require.LessOrEqual(t, all[i].o.Budget.Files(), files)
		}
		most, now := mostOpen(trace.Ops())
		require.LessOrEqual(t, most, files+inUse)
		require.LessOrEqual(t, now, files)
		require.Greater(t, trace.Count(vfstest.OpOpen), 200, "they came and went")
		for _, s := range all {
			require.NoError(t, s.Close())
		}
		_, now = mostOpen(trace.Ops())
		require.Zero(t, now)
		require.Zero(t, all[0].o.Budget.Files())
	}
}

// A sync through another descriptor would not be told what the device did with the bytes.
func TestAFileWithUnsyncedBytesIsSyncedBeforeItIsClosed(t *testing.T) {
	trace := vfstest.NewTrace(memFS(t))
	all := budgeted(t, 40, 4, Options{FS: trace})
	r := rand.New(rand.NewPCG(2, 2))
	for range 400 {
		s := all[r.IntN(len(all))]
		switch r.IntN(10) {
		case 0:
			require.NoError(t, s.SyncData())
		case 1:
			require.NoError(t, s.Park())
		case 2:
			_, err := s.Truncate(s.Base() + 2)
			require.NoError(t, err)
		default:
			fill(t, s, 1)
		}
	}
	dirty, closed := map[string]bool{}, 0
	for _, op := range trace.Ops() {
		if path.Ext(op.Name) != logSuffix {
			continue
		}
		switch op.Kind {
		case vfstest.OpWrite, vfstest.OpTruncate:
			dirty[op.Name] = true
		case vfstest.OpSyncData, vfstest.OpSync:
			dirty[op.Name] = false
		case vfstest.OpClose:
			closed++
			require.False(t, dirty[op.Name], op.Name)
		}
	}
	require.Greater(t, closed, 100)
}

func TestRecentlyUsedFilesStayOpen(t *testing.T) {
	trace := vfstest.NewTrace(memFS(t))
	all := budgeted(t, 30, 10, Options{FS: trace})
	for _, s := range all {
		require.NoError(t, s.SyncData())
	}
	hot := all[0]
	fill(t, hot, 1)
	require.NoError(t, hot.SyncData())
	trace.Reset()
	for _, s := range all[1:] {
		require.Empty(t, mustOffsets(t, s))
		fill(t, s, 1)
		require.NoError(t, s.SyncData())
		require.Len(t, mustOffsets(t, hot), 1)
	}
	require.LessOrEqual(t, len(trace.Filter(hot.File(), vfstest.OpOpen)), 1, "all were used when the hand came first")
}

func TestAReaderOfADeletedSegmentKeepsItsFileWhateverTheBudget(t *testing.T) {
	all := budgeted(t, 20, 2, Options{FS: osFS(t)})
	for _, s := range all {
		fill(t, s, 3)
		require.NoError(t, s.Sync())
	}
	s := all[0]
	require.True(t, s.Retain())
	require.NoError(t, s.Abandon())
	require.NoError(t, s.Delete())
	for range 3 {
		for _, other := range all[1:] {
			require.Len(t, mustOffsets(t, other), 3)
		}
		require.Len(t, mustOffsets(t, s), 3)
	}
	s.Release()
	require.LessOrEqual(t, s.o.Budget.Files(), 2)
}

// But for its index of aborted transactions, if it has one: readers of the segment before it may ask for that yet.
func TestADeletedSegmentThatNobodyReadsIsNotOpenedAgain(t *testing.T) {
	for _, aborts := range []int{0, 1} {
		trace := vfstest.NewTrace(memFS(t))
		s := create(t, 0, Options{FS: trace})
		fill(t, s, 3)
		want := []AbortedTxn{{1, 0, 2, 0}}[:aborts]
		for _, a := range want {
			require.NoError(t, s.AppendAborted(a))
		}
		require.NoError(t, s.Close())
		trace.Reset()
		require.NoError(t, s.Delete())
		require.Equal(t, aborts, trace.Count(vfstest.OpOpen), trace.String())
		left, err := trace.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
		got := []AbortedTxn{}
		_, _, err = s.AbortedFrom(0, 10, func(a AbortedTxn) { got = append(got, a) })
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// Who makes room by syncing another segment does not pay for its failure; that one's next sync does.
func TestASyncThatFailsWhileRoomIsMadeIsTheOtherSegments(t *testing.T) {
	fault := vfstest.NewFault(memFS(t))
	all := budgeted(t, 3, 2, Options{FS: fault})
	fault.Add(vfstest.Rule{Name: file(0, ".log"), Ops: []vfstest.Kind{vfstest.OpSyncData}, Err: syscall.EIO})
	for range 3 {
		for _, s := range all[1:] {
			fill(t, s, 1)
		}
	}
	require.ErrorIs(t, all[0].SyncData(), ErrBroken)
	_, err := all[0].Append(one(t, 0))
	require.ErrorIs(t, err, ErrBroken)
	for _, s := range all[1:] {
		require.NoError(t, s.Sync())
		require.Len(t, mustOffsets(t, s), 3)
	}
	require.ErrorIs(t, all[0].Close(), ErrBroken)
}

func TestAProcessOutOfDescriptorsClosesWhatItDoesNotUse(t *testing.T) {
	fault := vfstest.NewFault(memFS(t))
	all := budgeted(t, 10, 100, Options{FS: fault})
	for _, s := range all {
		require.NoError(t, s.Sync())
	}
	require.Greater(t, all[0].o.Budget.Files(), 10)
	require.NoError(t, all[9].Park())
	fault.Add(vfstest.Rule{Name: file(9000, ".log"), Ops: []vfstest.Kind{vfstest.OpOpen}, Err: syscall.EMFILE, Times: 1})
	fill(t, all[9], 1)
	require.LessOrEqual(t, all[0].o.Budget.Files(), 3)
	for _, s := range all {
		fill(t, s, 1)
	}
}

func TestAppendsReadsAndSyncsShareFewFiles(t *testing.T) {
	all := budgeted(t, 12, 2, Options{FS: osFS(t), IndexIntervalBytes: EveryBatch})
	var stop atomic.Bool
	var wg sync.WaitGroup
	time.AfterFunc(time.Second, func() { stop.Store(true) })
	for i, s := range all { // one that appends to each
		wg.Go(func() {
			for n := int64(0); !stop.Load(); n++ {
				if _, err := s.Append(one(t, s.Base()+n)); err != nil {
					t.Error(err)
					return
				}
				var err error
				switch (n + int64(i)) % 7 {
				case 0:
					err = s.SyncData()
				case 3:
					err = s.Sync()
				case 5:
					err = s.Park()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for seed := range uint64(4) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, 3))
			for !stop.Load() {
				s := all[r.IntN(len(all))]
				want := s.Base()
				for b, err := range s.Batches(0) {
					if err != nil || b.BaseOffset() != want {
						t.Errorf("at %d: %v", want, err)
						return
					}
					want++
				}
			}
		})
	}
	wg.Wait()
	for _, s := range all {
		require.NoError(t, s.Close())
	}
	require.Zero(t, all[0].o.Budget.Files())
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		for _, f := range open {
			name, _ := os.Readlink("/proc/self/fd/" + f.Name())
			require.False(t, strings.HasSuffix(name, logSuffix), name)
		}
	}
}

func TestCloseSyncsOnlyWhatWasWrittenSinceTheLastSync(t *testing.T) {
	trace := vfstest.NewTrace(memFS(t))
	s := create(t, 0, Options{FS: trace})
	fill(t, s, 3)
	require.NoError(t, s.Sync())
	require.False(t, s.Rested(), "the last time index entry is to come")
	trace.Reset()
	require.NoError(t, s.Close())
	require.Empty(t, trace.Filter(file(0, ".log"), vfstest.OpSync), trace.String())
	require.Empty(t, trace.Filter(file(0, ".index"), vfstest.OpSync), trace.String())
	require.Len(t, trace.Filter(file(0, ".timeindex"), vfstest.OpSync), 1, trace.String())

	s = open(t, 0, Options{FS: trace})
	require.Len(t, mustOffsets(t, s), 3)
	require.True(t, s.Rested())
	trace.Reset()
	require.NoError(t, s.Close())
	require.Zero(t, trace.Count(vfstest.OpSync, vfstest.OpWrite, vfstest.OpTruncate), trace.String())

	s = open(t, 0, Options{FS: trace})
	fill(t, s, 1)
	require.NoError(t, s.SyncData())
	fill(t, s, 1)
	trace.Reset()
	require.NoError(t, s.Close())
	require.Len(t, trace.Filter(file(0, ".log"), vfstest.OpSync), 1, trace.String())
}
