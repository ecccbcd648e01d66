package log

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// A thousand followers, coming and going, each sees everything once.
func TestAThousandFollowers(t *testing.T) {
	b := newBed(t, Config{Durability: Buffered})
	const followers, records = 1000, 60
	var all sync.WaitGroup
	for i := range followers {
		all.Go(func() {
			mine, stop := context.WithCancel(ctx)
			defer stop()
			next, until := int64(0), int64(records)
			if i%3 == 0 {
				until = int64(i % records)
			}
			for r, err := range b.Follow(mine, 0) {
				if errors.Is(err, context.Canceled) && next >= until {
					return
				}
				if err != nil || r.Offset != next {
					t.Errorf("follower %d at %d got %d, %v", i, next, r.Offset, err)
					return
				}
				if next++; next >= until {
					stop()
				}
			}
		})
	}
	for range records {
		b.add("v")
	}
	all.Wait()
	require.Zero(t, b.Stats().Followers)
	require.Zero(t, b.Stats().Pinned)
	require.Zero(t, b.SegmentInfos()[0].Pins)
}

// A log that is open with a thousand closed segments takes little memory.
func TestAThousandSegmentsTakeLittleMemory(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, "t-0")
	require.NoError(t, os.Mkdir(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, checkpoint.CleanMarker), nil, 0o644))
	const segments = 1000
	for i := range int64(segments) {
		name := filepath.Join(folder, segment.FileName(2*i, ".log"))
		require.NoError(t, os.WriteFile(name, batchOf(2*i, 0, record.None, "a", "b"), 0o644))
	}
	before := heap()
	l, err := Open(root, Config{})
	require.NoError(t, err)
	require.NoError(t, errOf(l.Append(ctx, record.Record{})))
	opened := heap() - before
	t.Logf("%d KiB", opened>>10)
	require.Equal(t, segments+1, l.Stats().Segments)
	require.Less(t, opened, int64(2<<20))
	require.NoError(t, l.Close())
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Opening and closing leaves no descriptor, goroutine or mapping behind, also when it fails.
func TestOpeningAndClosingLeaksNothing(t *testing.T) {
	if _, err := os.ReadDir("/proc/self/fd"); err != nil {
		t.Skip("no /proc")
	}
	root := t.TempDir()
	use := func(n int) {
		l, err := Open(root, Config{SegmentBytes: 500})
		require.NoError(t, err)
		if n%10 == 0 {
			require.NoError(t, errOf(l.Append(ctx, values(2, 100)...)))
			require.NoError(t, errOf(offsetsOf(l.Records(ctx, l.Offsets().LogStart))))
			require.NoError(t, errOf(l.Truncate(ctx, max(0, l.Offsets().LogEnd-20))))
		}
		_, err = Open(root, Config{})
		require.ErrorIs(t, err, ErrLocked)
		r, err := OpenReader(filepath.Join(root, "log-0"), ReaderOptions{})
		require.NoError(t, err)
		require.NoError(t, errOf(offsetsOf(r.Records(ctx, r.Offsets().LogStart))))
		require.NoError(t, r.Close())
		_, err = OpenReader(filepath.Join(root, "none-0"), ReaderOptions{})
		require.Error(t, err)
		require.NoError(t, l.Close())
		_, err = Open(filepath.Join(root, "log-0"), Config{})
		require.ErrorIs(t, err, ErrNotLog)
	}
	for n := range 20 {
		use(n)
	}
	fds, goroutines, maps := open(t), runtime.NumGoroutine(), mappings(t)
	for n := range 100 {
		use(n)
	}
	// Nothing here may wait for the collector: descriptors are few.
	require.LessOrEqual(t, open(t), fds+2)
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+2)
	require.LessOrEqual(t, mappings(t), maps+20)
}

func open(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

func mappings(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Count(string(b), "index\n")
}
