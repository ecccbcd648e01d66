package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// written is what a log was given, by offset: all that may be in it. Of each key the last above the log start must be, unless a
// truncation took a later one away: then it may have been compacted away for that.
type written struct {
	whole sync.RWMutex // held exclusively by a truncation until it is noted, shared by appends
	mu    sync.Mutex
	at    map[int64]record.Record
	maybe map[int64]bool
}

func (w *written) append(l *Log, recs ...record.Record) error {
	w.whole.RLock()
	defer w.whole.RUnlock()
	base, err := l.Append(ctx, recs...)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, r := range recs {
		w.at[base+int64(i)] = r
	}
	return nil
}

// cut notes what a truncation or a reset left.
func (w *written) cut(l *Log, how func() error) error {
	w.whole.Lock()
	defer w.whole.Unlock()
	err := how()
	end := l.Offsets().LogEnd
	if l.Offsets().LogStart == end {
		clear(w.at)
	}
	taken := map[string]bool{}
	for at, r := range w.at {
		if at >= end {
			taken[string(r.Key)] = true
			delete(w.at, at)
			delete(w.maybe, at)
		}
	}
	for at, r := range w.at {
		if taken[string(r.Key)] {
			w.maybe[at] = true
		}
	}
	return err
}

// check compares a log that nobody works on with it.
func (w *written) check(t *testing.T, l *Log, how string) {
	t.Helper()
	o := l.Offsets()
	last := map[string]int64{}
	for at, r := range w.at {
		if at >= o.LogStart {
			last[string(r.Key)] = max(last[string(r.Key)], at)
		}
	}
	before := int64(-1)
	for r, err := range l.Records(ctx, o.LogStart) {
		require.NoError(t, err, how)
		require.Greater(t, r.Offset, before, how)
		before = r.Offset
		want, ok := w.at[r.Offset]
		require.True(t, ok, "%s: nothing was written at %d", how, r.Offset)
		require.Equal(t, string(want.Key)+"="+string(want.Value), string(r.Key)+"="+string(r.Value), "%s: %d", how, r.Offset)
		if last[string(r.Key)] == r.Offset {
			delete(last, string(r.Key))
		}
	}
	for key, at := range last {
		if w.maybe[at] {
			continue
		}
		require.Failf(t, "lost", "%s: %s at %d; %+v", how, key, at, o)
	}
	for f, err := range l.Verify(ctx) {
		require.NoError(t, err, how)
		require.Fail(t, "verify", "%s: %+v", how, f)
	}
}

// Swaps that take their time beside all else that wants the files, or the end of the log: no record is lost or comes back, no
// reader is told of damage, nobody waits forever.
func TestSlowSwapsBesideAllElse(t *testing.T) {
	for name, c := range map[string]Config{
		"kept by size":    {RetentionBytes: 20000},
		"full":            {MaxBytes: 20000, WhenFull: DropOldest},
		"nothing dropped": {},
	} {
		t.Run(name, func(t *testing.T) {
			c.Cleanup, c.SegmentBytes, c.RetentionTime, c.FileDeleteDelay, c.IndexIntervalBytes = Compact|Delete, 2000, Forever, Immediately, 200
			c.Compaction = CompactionConfig{MinDirtyRatio: AnyDirt, DeleteRetention: Forever}
			disk := vfstest.NewFault(vfs.Mem())
			disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRename, vfstest.OpSyncDir}, Times: vfstest.Always, Hook: func(op vfstest.Op) error {
				if ofSwap(op) {
					time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
				}
				return nil
			}})
			b := newBedOn(t, disk, c)
			w := &written{at: map[int64]record.Record{}, maybe: map[int64]bool{}}
			passing := func(err error) error {
				if errors.Is(err, ErrOffsetOutOfRange) || errors.Is(err, ErrTruncated) || errors.Is(err, ErrCleaningAborted) {
					return nil
				}
				return err
			}
			s := &storm{t: t, done: make(chan struct{})}
			for n := range uint64(3) {
				value := 0
				s.loop(n, func(r *rand.Rand) error {
					var recs []record.Record
					for range 1 + r.IntN(3) {
						value++
						recs = append(recs, record.Record{Key: fmt.Appendf(nil, "%d-%d", n, r.IntN(30)), Value: append(strconv.AppendInt(nil, int64(value), 10), make([]byte, r.IntN(90))...)})
					}
					if len(recs) == 1 {
						time.Sleep(time.Duration(r.IntN(200)) * time.Microsecond)
					}
					return w.append(b.Log, recs...)
				})
			}
			for range 2 {
				s.loop(10, func(*rand.Rand) error {
					time.Sleep(time.Millisecond)
					return passing(scanOnce(b.Log, false))
				})
			}
			var groups atomic.Int64
			s.loop(20, func(*rand.Rand) error {
				res, err := b.Compact(ctx, CompactOptions{Force: true})
				if groups.Add(int64(res.Groups)); res.Groups == 0 {
					time.Sleep(time.Millisecond)
				}
				return passing(err)
			})
			s.loop(21, func(r *rand.Rand) error {
				time.Sleep(time.Duration(r.IntN(4000)) * time.Microsecond)
				o := b.Offsets()
				switch n := r.IntN(80); {
				case n == 0:
					return w.cut(b.Log, func() error { return b.ResetTo(ctx, o.LogEnd+r.Int64N(5)) })
				case n < 16:
					return w.cut(b.Log, func() error { return errOf(b.Truncate(ctx, max(0, o.LogEnd-r.Int64N(40)))) })
				case n < 18:
					return w.cut(b.Log, func() error { return errOf(b.Truncate(ctx, o.LogStart+(o.LogEnd-o.LogStart)/2)) })
				case n < 45:
					return passing(b.DeleteRecords(ctx, min(o.HighWatermark, o.LogStart+r.Int64N(20))))
				case n < 60:
					return passing(b.Roll(ctx))
				default:
					return errOf(b.Retain(ctx))
				}
			})
			s.loop(22, func(r *rand.Rand) error {
				time.Sleep(time.Duration(r.IntN(5000)) * time.Microsecond)
				if r.IntN(2) == 0 {
					for f, err := range b.Log.Verify(ctx) {
						if err == nil {
							err = fmt.Errorf("verify: %+v", f)
						}
						return passing(err)
					}
					return nil
				}
				to := vfs.Mem()
				if _, err := b.Log.Backup(ctx, "backup", BackupOptions{FS: to, Copy: r.IntN(2) == 0}); err != nil {
					return err
				}
				return nil // it was verified
			})
			for began := time.Now(); groups.Load() < 8 && time.Since(began) < 5*time.Second; {
				time.Sleep(5 * time.Millisecond)
			}
			s.stop()
			require.Positive(t, groups.Load())
			w.check(t, b.Log, "behind it")
			b.reopen()
			w.check(t, b.Log, "opened again")
			b.compact(CompactOptions{Force: true})
			w.check(t, b.Log, "compacted")
			t.Logf("%d groups, %d records, %+v", groups.Load(), len(w.at), b.Offsets())
		})
	}
}
