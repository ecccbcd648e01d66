package log

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// census counts what is open: files and mappings.
type census struct {
	vfs.FS
	files, maps atomic.Int64
}

func (c *census) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := c.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	c.files.Add(1)
	return &censusFile{File: f, c: c}, nil
}

type censusFile struct {
	vfs.File
	c      *census
	closed atomic.Bool
}

func (f *censusFile) Close() error {
	if f.closed.CompareAndSwap(false, true) {
		f.c.files.Add(-1)
	}
	return f.File.Close()
}

func (f *censusFile) Map(n int64) (vfs.Mapping, error) {
	m, err := f.File.Map(n)
	if err != nil {
		return nil, err
	}
	f.c.maps.Add(1)
	return &censusMapping{Mapping: m, c: f.c}, nil
}

type censusMapping struct {
	vfs.Mapping
	c      *census
	closed atomic.Bool
}

func (m *censusMapping) Close() error {
	if m.closed.CompareAndSwap(false, true) {
		m.c.maps.Add(-1)
	}
	return m.Mapping.Close()
}

// After a long life with a disk that fails now and then nothing is open, mapped or running; and meanwhile no more than the
// budgets allow, beside a few files of the root.
func TestNothingIsLeftOpenAfterALongLife(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	const files, maps, spare = 8, 6, 8
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 7))
		c := &census{FS: vfs.Mem()}
		faulty := vfstest.NewFault(c)
		clock := &clock{}
		clock.ms.Store(epoch2023)
		require.NoError(t, c.MkdirAll("r0", 0o755))
		require.NoError(t, c.MkdirAll("r1", 0o755))
		var dirs [2]*Dir
		dir := func(i int) *Dir {
			if dirs[i] == nil {
				dirs[i], _ = OpenDir("root", DirConfig{FS: below{faulty, fmt.Sprint("r", i)}, Now: clock.now, Manual: seed%2 == 0, MaxOpenFiles: files, MaxMappings: maps,
					Defaults: Config{Cleanup: Compact | Delete, SegmentBytes: 400, IndexIntervalBytes: EveryBatch, RetentionBytes: 1500, FileDeleteDelay: Immediately,
						Durability: []Durability{Durable, Buffered}[seed%2], Compaction: CompactionConfig{MinDirtyRatio: AnyDirt}}})
			}
			return dirs[i]
		}
		backups, most := 0, int64(0)
		for step := range 400 {
			clock.advance(time.Duration(r.IntN(200)) * time.Second)
			remove := func() {}
			if r.IntN(3) == 0 {
				_, remove = faulty.Add(vfstest.Rule{Nth: 1 + r.IntN(12), Err: []error{syscall.ENOSPC, syscall.EIO, syscall.EMFILE}[r.IntN(3)]})
			}
			i := r.IntN(2)
			if d := dir(i); d != nil {
				tp := TopicPartition{"t", int32(r.IntN(6))}
				l, _ := d.Open(ctx, tp, Config{})
				switch op := r.IntN(14); {
				case op == 0:
					_ = d.Close()
					dirs[i] = nil
				case op == 1:
					_ = d.Delete(ctx, tp)
				case op == 2 && dir(1-i) != nil:
					_ = d.Move(ctx, tp, dir(1-i))
				case op == 3:
					backups++
					_, _ = d.Backup(ctx, fmt.Sprint("bk", backups), BackupOptions{FS: faulty, Copy: r.IntN(2) == 0})
				case op == 4:
					_ = d.RunOnce(ctx, clock.now())
				case l == nil:
				case op == 5:
					_ = l.Close()
				case op == 6:
					_, _ = l.Compact(ctx, CompactOptions{Force: true})
				case op == 7:
					_, _ = l.Retain(ctx)
				case op == 8:
					_, _ = l.Truncate(ctx, max(0, l.Offsets().LogEnd-3))
				case op == 9:
					for f, err := range l.Verify(ctx) {
						if _ = f; err != nil || r.IntN(2) == 0 {
							break
						}
					}
				case op < 12:
					n := 0
					for _, err := range l.Records(ctx, 0, WithReset(Earliest)) {
						if n++; err != nil || n == 3 && op == 10 {
							break
						}
					}
				default:
					for range 6 {
						_, _ = l.Append(ctx, record.Record{Timestamp: clock.ms.Load(), Key: fmt.Append(nil, r.IntN(5)), Value: make([]byte, 60)})
					}
				}
			}
			remove()
			most = max(most, c.files.Load())
			if seed%2 == 0 { // nobody is at work now
				require.LessOrEqual(t, c.files.Load(), int64(2*files+spare), "seed %d, step %d", seed, step)
				require.LessOrEqual(t, c.maps.Load(), int64(2*maps), "seed %d, step %d", seed, step)
			}
		}
		for _, d := range dirs {
			if d != nil {
				_ = d.Close()
			}
		}
		require.Greater(t, most, int64(files/2), "it had work to do")
		require.Zero(t, c.files.Load(), "seed %d: files are open", seed)
		require.Zero(t, c.maps.Load(), "seed %d: mappings are left", seed)
	}
	for range 1000 {
		if runtime.NumGoroutine() <= goroutines {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d goroutines are left", runtime.NumGoroutine()-goroutines)
}
