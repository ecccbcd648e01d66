package log

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// swapConfig makes one group of all closed segments of a small log.
var swapConfig = Config{Cleanup: Compact | Delete, RetentionTime: Forever, IndexIntervalBytes: EveryBatch,
	Compaction: CompactionConfig{MinDirtyRatio: AnyDirt, DeleteRetention: time.Hour}}

// swapBed is a log whose compaction stops in the middle of its swap.
type swapBed struct {
	*bed
	disk    *vfstest.Fault
	fails   atomic.Int64 // so many calls of the swap, from the one that hangs on, fail
	release func()       // the swap goes on
	ended   chan error   // of the compaction
}

var last = strings.Repeat("1", 400)

// fillForSwap makes three closed segments with an aborted transaction in one, and an active one.
func fillForSwap(b *bed) {
	b.put("a", "1", "b", "1")
	require.NoError(b.t, b.Roll(ctx))
	p := b.Producer(7, 0)
	require.NoError(b.t, p.Begin())
	require.NoError(b.t, errOf(p.Append(ctx, record.Record{Key: []byte("a"), Value: []byte("aborted")})))
	require.NoError(b.t, p.Abort(ctx))
	b.put("a", "2")
	require.NoError(b.t, b.Roll(ctx))
	b.put("c", "1", "c", "2", "e", "1")
	require.NoError(b.t, b.Roll(ctx))
	b.put("d", last)
	require.NoError(b.t, b.Sync(ctx)) // or the recovery point, too, would need the files
}

// ofSwap says that a call gives files of a swap their names, or makes names durable.
func ofSwap(op vfstest.Op) bool {
	if op.Kind == vfstest.OpSyncDir {
		return op.Name == "t-0"
	}
	for _, suffix := range []string{".swap", ".cleaned", ".deleted"} {
		if strings.HasSuffix(op.Name, suffix) || strings.HasSuffix(op.To, suffix) {
			return !strings.Contains(op.Name, ".snapshot")
		}
	}
	return false
}

// swapSteps lists the calls of a swap.
func swapSteps(t *testing.T, c Config) (steps []vfstest.Op) {
	disk := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, disk, c)
	fillForSwap(b)
	disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRename, vfstest.OpSyncDir}, Times: vfstest.Always, Hook: func(op vfstest.Op) error {
		if ofSwap(op) && (len(steps) > 0 || op.Kind == vfstest.OpRename) {
			steps = append(steps, op)
		}
		return nil
	}})
	require.Equal(t, 1, b.compact(CompactOptions{Force: true}).Groups)
	return steps
}

// stopInSwap opens a log, begins to compact it and returns when the swap has come to its n-th call, which hangs.
func stopInSwap(t *testing.T, c Config, n int) *swapBed {
	disk := vfstest.NewFault(vfs.Mem())
	b := &swapBed{bed: newBedOn(t, disk, c), disk: disk, ended: make(chan error, 1)}
	fillForSwap(b.bed)
	require.NotEmpty(t, b.committed()) // the files are open
	gate, reached := make(chan struct{}), make(chan struct{})
	b.release = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(b.release)
	var mu sync.Mutex
	seen := 0
	disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRename, vfstest.OpSyncDir}, Times: vfstest.Always, Hook: func(op vfstest.Op) error {
		mu.Lock()
		if !ofSwap(op) || seen == 0 && op.Kind != vfstest.OpRename {
			mu.Unlock()
			return nil
		}
		seen++
		here := seen == n+1
		mu.Unlock()
		if here {
			close(reached)
			<-gate
		}
		if b.fails.Add(-1) >= 0 {
			return syscall.EIO
		}
		return nil
	}})
	go func(l *Log) { b.ended <- errOf(l.Compact(ctx, CompactOptions{Force: true})) }(b.Log)
	select {
	case <-reached:
	case <-time.After(10 * time.Second):
		t.Fatal("the swap did not come that far")
	}
	return b
}

// goOn lets the swap end.
func (b *swapBed) goOn(t *testing.T) error {
	t.Helper()
	b.release()
	return within(t, b.ended)
}

// soon is the error of a call that does not hang.
func soon(t *testing.T, what string, call func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-time.After(10 * time.Second):
		t.Fatalf("%s hangs", what)
		return nil
	}
}

// Appends, rolls and what else works at the log's end go on while a swap hangs at any of its calls, and what they did is there
// behind it, and after a crash at that moment. Readers go on, too, where it is a sync of the directory that hangs.
func TestAppendsGoOnWhileASwapHangs(t *testing.T) {
	steps := swapSteps(t, swapConfig)
	require.Greater(t, len(steps), 15)
	for n, step := range steps {
		t.Run(fmt.Sprint(n, " ", step), func(t *testing.T) {
			t.Parallel()
			b := stopInSwap(t, swapConfig, n)
			for i := range 3 {
				key := fmt.Sprint("new", i)
				require.NoError(t, soon(t, "an append", func() error {
					return errOf(b.Append(ctx, record.Record{Key: []byte(key), Value: []byte("1")}))
				}))
				require.NoError(t, soon(t, "a roll", func() error { return b.Roll(ctx) }))
			}
			require.NoError(t, soon(t, "a transaction", func() error {
				p := b.Producer(8, 0)
				return errors.Join(p.Begin(), errOf(p.Append(ctx, record.Record{Key: []byte("txn"), Value: []byte("1")})), p.Commit(ctx))
			}))
			require.NoError(t, soon(t, "a sync", func() error { return b.Sync(ctx) }))
			require.NoError(t, soon(t, "a new epoch", func() error { return b.AssignEpoch(3) }))
			require.NoError(t, soon(t, "the deletion of records", func() error { return b.DeleteRecords(ctx, 1) }))
			want := map[string]string{"a": "2", "b": "1", "c": "2", "d": last, "e": "1", "new0": "1", "new1": "1", "new2": "1", "txn": "1"}
			if step.Kind == vfstest.OpSyncDir {
				require.NoError(t, soon(t, "reading", func() error {
					require.Equal(t, want, b.committed())
					return nil
				}))
			}
			crashed := &bed{t: t, fs: vfs.Overlay(b.disk), cfg: b.cfg, clock: b.clock}
			crashed.open()
			require.Equal(t, want, crashed.committed())
			crashed.silentAtRest()

			require.NoError(t, b.goOn(t))
			require.Equal(t, want, b.committed())
			require.Len(t, b.SegmentInfos(), 5)
			b.silent()
			b.silentAtRest()
			b.open()
			require.Equal(t, want, b.committed())
		})
	}
}

// A swap that fails at any of its calls, and is taken back or not, while appends go on: what was acknowledged stays, and a
// log whose swap could be neither finished nor taken back says so.
func TestAppendsBesideASwapThatFails(t *testing.T) {
	for n, step := range swapSteps(t, swapConfig) {
		for _, fails := range []int64{1, 1000} {
			t.Run(fmt.Sprint(n, " ", step, ": ", fails), func(t *testing.T) {
				t.Parallel()
				b := stopInSwap(t, swapConfig, n)
				want := map[string]string{"a": "2", "b": "1", "c": "2", "d": last, "e": "1"}
				add := func(key string) {
					require.NoError(t, errOf(b.Append(ctx, record.Record{Key: []byte(key), Value: []byte("1")})))
					want[key] = "1"
				}
				add("before")
				require.NoError(t, b.Roll(ctx))
				add("behind")
				b.fails.Store(fails)
				err := b.goOn(t)
				b.fails.Store(0)
				if fails > 1 {
					require.ErrorIs(t, err, compaction.ErrUnsettled)
					require.ErrorIs(t, b.Err(), ErrFailed)
					require.ErrorIs(t, errOf(b.Append(ctx, record.Record{})), ErrFailed)
					_ = b.dir.Close()
				} else {
					require.ErrorIs(t, err, syscall.EIO)
					require.NoError(t, b.Err())
					add("later")
					require.Equal(t, want, b.committed())
					b.silent()
					b.silentAtRest()
				}
				b.open()
				require.Equal(t, want, b.committed())
				b.compact(CompactOptions{Force: true})
				require.Equal(t, want, b.committed())
				b.silentAtRest()
			})
		}
	}
}

// whileSwapping are the calls that need the names of sealed segments' files, or would change them.
var whileSwapping = []struct {
	name string
	c    func(c *Config)
	call func(ctx context.Context, b *swapBed) error
	ends bool // the log
}{
	{"a truncation in what is swapped", nil, func(ctx context.Context, b *swapBed) error { return errOf(b.Truncate(ctx, 5)) }, false},
	{"a truncation behind it", nil, func(ctx context.Context, b *swapBed) error { return errOf(b.Truncate(ctx, 8)) }, false},
	{"a reset", nil, func(ctx context.Context, b *swapBed) error { return b.ResetTo(ctx, 100) }, false},
	{"retention", func(c *Config) { c.RetentionBytes = 1 }, func(ctx context.Context, b *swapBed) error { return errOf(b.Retain(ctx)) }, false},
	{"retention below the log start", nil, func(ctx context.Context, b *swapBed) error {
		return errors.Join(b.DeleteRecords(context.Background(), 5), errOf(b.Retain(ctx)))
	}, false},
	{"an append to a full log", func(c *Config) { c.MaxBytes, c.WhenFull = 1000, DropOldest },
		func(ctx context.Context, b *swapBed) error {
			return errOf(b.Append(ctx, record.Record{Key: []byte("big"), Value: make([]byte, 300)}))
		}, false},
	{"verify", nil, func(ctx context.Context, b *swapBed) error {
		for f, err := range b.Log.Verify(ctx) {
			if err != nil {
				return err
			}
			return fmt.Errorf("%+v", f)
		}
		return nil
	}, false},
	{"a backup", nil, func(ctx context.Context, b *swapBed) error { return backUp(ctx, b, false) }, false},
	{"a backup of copies", nil, func(ctx context.Context, b *swapBed) error { return backUp(ctx, b, true) }, false},
	{"a move", nil, func(ctx context.Context, b *swapBed) error {
		to, err := OpenDir("to", DirConfig{FS: vfs.Mem(), Manual: true})
		if err != nil {
			return err
		}
		defer to.Close()
		if err := b.dir.Move(ctx, b.TopicPartition(), to); err != nil {
			return err
		}
		moved, _ := to.Get(b.TopicPartition())
		if got := offsetsIn(0, moved.Offsets().LogEnd); len(got) != 9 {
			return fmt.Errorf("the moved log ends at %d", len(got))
		}
		return nil
	}, true},
	{"a deletion", nil, func(ctx context.Context, b *swapBed) error { return b.dir.Delete(ctx, b.TopicPartition()) }, true},
	{"closing the log", nil, func(_ context.Context, b *swapBed) error { return b.Log.Close() }, true},
}

func backUp(ctx context.Context, b *swapBed, copies bool) error {
	to := vfs.Mem()
	if _, err := b.Log.Backup(ctx, "backup", BackupOptions{FS: to, Copy: copies}); err != nil {
		return err
	}
	sub, err := vfs.Sub(to, "backup")
	if err != nil {
		return err
	}
	copied := &bed{t: b.t, fs: sub, cfg: b.cfg, clock: b.clock}
	copied.open()
	defer copied.dir.Close()
	require.Equal(b.t, b.committed(), copied.committed())
	copied.silent()
	return nil
}

// Whoever needs the names of the files waits for the swap, each under its own context, and finds the log as the swap leaves
// it.
func TestWhoNeedsTheNamesOfFilesWaitsForASwap(t *testing.T) {
	for _, w := range whileSwapping {
		c := swapConfig
		if w.c != nil {
			w.c(&c)
		}
		steps := swapSteps(t, c)
		for n, step := range steps {
			if step.Kind != vfstest.OpSyncDir && (testing.Short() || !strings.Contains(step.Name, ".log") && !strings.Contains(step.Name, ".txnindex")) {
				continue // like its neighbours
			}
			t.Run(fmt.Sprint(w.name, ": ", n, " ", step), func(t *testing.T) {
				t.Parallel()
				b := stopInSwap(t, c, n)
				if step.Kind == vfstest.OpSyncDir && w.name != "closing the log" { // else an open may hang in a rename, too
					limited, stop := context.WithTimeout(ctx, time.Millisecond)
					require.ErrorIs(t, soon(t, w.name, func() error { return w.call(limited, b) }), context.DeadlineExceeded)
					stop()
					require.NoError(t, b.Err())
				}
				done := make(chan error, 1)
				go func() { done <- w.call(ctx, b) }()
				time.Sleep(time.Millisecond)
				select {
				case err := <-done:
					t.Fatalf("it did not wait: %v", err)
				default:
				}
				switch err := b.goOn(t); {
				case err == nil:
				case errors.Is(err, ErrClosed) && w.ends, errors.Is(err, ErrCleaningAborted) && strings.Contains(w.name, "trunc"), errors.Is(err, ErrCleaningAborted) && w.name == "a reset":
				default:
					require.NoError(t, err)
				}
				require.NoError(t, within(t, done))
				switch w.name {
				case "a deletion", "a move":
					require.Empty(t, folderOf(b.disk, "t-0"))
					return
				case "closing the log":
					var err error
					b.Log, err = b.dir.Open(ctx, TopicPartition{"t", 0}, c)
					require.NoError(t, err)
				}
				o := b.Offsets()
				var want []int64
				for _, at := range []int64{1, 4, 6, 7, 8, 9} {
					if at >= o.LogStart && at < o.LogEnd {
						want = append(want, at)
					}
				}
				var got []int64
				for r, err := range b.Records(ctx, o.LogStart, WithIsolation(ReadCommitted)) {
					require.NoError(t, err)
					got = append(got, r.Offset)
				}
				require.Equal(t, want, got, "%+v", o)
				b.silent()
				b.silentAtRest()
				b.open()
				require.Equal(t, o.LogEnd, b.Offsets().LogEnd)
				require.Equal(t, o.LogStart, b.Offsets().LogStart)
			})
		}
	}
}

func folderOf(fsys vfs.FS, name string) (files []string) {
	entries, _ := fsys.ReadDir(name)
	for _, e := range entries {
		files = append(files, e.Name())
	}
	slices.Sort(files)
	return files
}
