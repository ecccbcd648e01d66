//go:build linux || darwin || freebsd

package vfs

import (
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func mapped(t testing.TB, fsys FS, content []byte) (File, Mapping) {
	t.Helper()
	if !canMap {
		t.Skip("no mappings on this platform")
	}
	f, err := fsys.OpenFile("m", os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	_, err = f.WriteAt(content, 0)
	require.NoError(t, err)
	m, err := f.Map(int64(len(content)))
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return f, m
}

func TestFaultsEndEveryKindOfAccess(t *testing.T) {
	page := os.Getpagesize()
	for name, access := range map[string]func(b []byte){
		"load":         func(b []byte) { sink = int(b[2*page]) },
		"last byte":    func(b []byte) { sink = int(b[len(b)-1]) },
		"copy":         func(b []byte) { sink = copy(make([]byte, len(b)), b) },
		"conversion":   func(b []byte) { text = string(b) },
		"across pages": func(b []byte) { sink = copy(make([]byte, page), b[page/2:]) },
	} {
		t.Run(name, func(t *testing.T) {
			f, m := mapped(t, osTree(t), make([]byte, 4*page))
			require.NoError(t, f.Truncate(int64(page)))
			after := false
			require.ErrorIs(t, m.Read(func(b []byte) { access(b); after = true }), ErrFault)
			require.False(t, after, "the callback went on after the fault")
			require.NoError(t, m.Read(func(b []byte) { sink = int(b[page-1]) }), "what is still there can be read")
		})
	}
}

var (
	sink int
	text string
)

func TestFaultElsewhereIsNotSwallowed(t *testing.T) {
	fsys := osTree(t)
	f, outer := mapped(t, fsys, make([]byte, 4*os.Getpagesize()))
	inner, err := f.Map(outer.Len())
	require.NoError(t, err)
	defer inner.Close()
	require.NoError(t, f.Truncate(0))
	require.Panics(t, func() {
		_ = outer.Read(func([]byte) { guarded(inner.(*osMapping).b[:1], func([]byte) { sink = int(inner.(*osMapping).b[1]) }) })
	}, "the fault is in another mapping than either guard's bytes")
	require.NoError(t, outer.Close(), "the reader that panicked is counted out")
}

func TestGuardRestoresThePreviousSetting(t *testing.T) {
	f, m := mapped(t, osTree(t), make([]byte, 4*os.Getpagesize()))
	require.NoError(t, f.Truncate(0))
	for _, before := range []bool{false, true} {
		old := debug.SetPanicOnFault(before)
		require.ErrorIs(t, m.Read(func(b []byte) { sink = int(b[0]) }), ErrFault)
		require.Equal(t, before, debug.SetPanicOnFault(old))
	}
}

func TestGoexitInsideAReadLeavesNoReaderBehind(t *testing.T) {
	_, m := mapped(t, osTree(t), []byte("content"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = m.Read(func([]byte) { runtime.Goexit() })
	}()
	<-done
	require.NoError(t, m.Close())
}

func TestCloseWaitsForRunningReads(t *testing.T) {
	for name, fsys := range map[string]FS{"OS": osTree(t), "Mem": Mem()} {
		t.Run(name, func(t *testing.T) {
			_, m := mapped(t, fsys, []byte("content"))
			inside, leave, closed := make(chan struct{}), make(chan struct{}), make(chan error)
			go func() {
				_ = m.Read(func(b []byte) {
					close(inside)
					<-leave
					sink = int(b[6])
				})
			}()
			<-inside
			go func() { closed <- m.Close() }()
			for m.Read(func([]byte) {}) == nil {
				runtime.Gosched()
			}
			require.ErrorIs(t, m.Read(func([]byte) {}), fs.ErrClosed, "no new reads once closing")
			select {
			case <-closed:
				t.Fatal("closed under a reader")
			case <-time.After(10 * time.Millisecond):
			}
			close(leave)
			require.NoError(t, <-closed)
		})
	}
}

func TestReadsAndClosesMayRace(t *testing.T) {
	fsys := osTree(t)
	for range 50 {
		_, m := mapped(t, fsys, []byte("0123456789"))
		var wg sync.WaitGroup
		var wrong atomic.Int64
		for range 4 {
			wg.Go(func() {
				for m.Read(func(b []byte) {
					if string(b) != "0123456789" {
						wrong.Add(1)
					}
				}) == nil {
				}
			})
		}
		wg.Go(func() { m.Close() })
		wg.Go(func() { m.Close() })
		wg.Wait()
		require.Zero(t, wrong.Load())
	}
}

func TestReadingAMappingAllocatesNothing(t *testing.T) {
	_, m := mapped(t, osTree(t), []byte("content"))
	f := func(b []byte) { sink = int(b[0]) }
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = m.Read(f) }))
}

func TestPositionalIOAllocatesNothing(t *testing.T) {
	fsys := osTree(t)
	f, err := fsys.OpenFile("f", os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(t, err)
	defer f.Close()
	b := make([]byte, 100)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, _ = f.WriteAt(b, 0)
		_, _ = f.ReadAt(b, 0)
	}))
}

func BenchmarkMappingRead(b *testing.B) {
	_, m := mapped(b, osTree(b), []byte("content"))
	f := func(b []byte) { sink = int(b[0]) }
	b.ReportAllocs()
	for b.Loop() {
		_ = m.Read(f)
	}
}
