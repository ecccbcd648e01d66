package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// storm runs loops beside each other until it is told to stop.
type storm struct {
	t    *testing.T
	all  sync.WaitGroup
	done chan struct{}
}

func (s *storm) loop(seed uint64, f func(r *rand.Rand) error) {
	s.all.Go(func() {
		r := rand.New(rand.NewPCG(seed, 9))
		for {
			select {
			case <-s.done:
				return
			default:
			}
			if err := f(r); err != nil {
				if !errors.Is(err, ErrClosed) {
					s.t.Error(err)
				}
				return
			}
		}
	})
}

func (s *storm) stop() {
	close(s.done)
	s.all.Wait()
}

// scanOnce reads the log once as a committed reader: offsets ascend, the values of a key ascend, nothing aborted is seen.
func scanOnce(l *Log, aborts bool) error {
	last, values := int64(-1), map[string]int{}
	for r, err := range l.Records(ctx, l.Offsets().LogStart, WithIsolation(ReadCommitted)) {
		switch {
		case err != nil:
			return err
		case r.Offset <= last:
			return fmt.Errorf("offset %d after %d", r.Offset, last)
		case aborts && strings.HasPrefix(string(r.Value), "aborted"):
			return fmt.Errorf("offset %d is of an aborted transaction", r.Offset)
		}
		last = r.Offset
		if v, err := strconv.Atoi(string(r.Value)); err == nil && aborts {
			if v <= values[string(r.Key)] {
				return fmt.Errorf("offset %d: %s is %d after %d", r.Offset, r.Key, v, values[string(r.Key)])
			}
			values[string(r.Key)] = v
		}
	}
	return nil
}

var stormConfig = Config{Cleanup: Compact | Delete, SegmentBytes: 3000, Durability: Buffered, RetentionTime: Forever, FileDeleteDelay: Immediately,
	IndexIntervalBytes: 200, Compaction: CompactionConfig{MinDirtyRatio: AnyDirt, DeleteRetention: Immediately}}

// Everything that compaction runs beside runs at once, and the partition moves away at the end: the last committed value of
// each key stays, every reader sees what it must, and nothing is left running.
func TestCompactionInAStorm(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	busy := DirConfig{InitialDelay: Immediately, CleanerBackoff: 3 * time.Millisecond, RetentionInterval: 5 * time.Millisecond, CheckpointInterval: 4 * time.Millisecond, CleanerThreads: 2}
	busy.FS = vfs.Mem()
	d, err := OpenDir("a", busy)
	require.NoError(t, err)
	busy.FS = vfs.Mem()
	to, err := OpenDir("b", busy)
	require.NoError(t, err)
	tp := TopicPartition{"t", 0}
	l, err := d.Open(ctx, tp, stormConfig)
	require.NoError(t, err)

	var mu sync.Mutex
	want := map[string]string{} // the last committed value of each key, "" if it is a tombstone
	s := &storm{t: t, done: make(chan struct{})}
	for w := range uint64(2) {
		n := 0
		s.loop(w, func(r *rand.Rand) error {
			n++
			k := fmt.Sprintf("p%d-%d", w, r.IntN(20))
			rec := record.Record{Key: []byte(k), Value: []byte(strconv.Itoa(n))}
			if r.IntN(5) == 0 {
				rec.Value = nil
			}
			_, err := l.Append(ctx, rec)
			if err == nil {
				mu.Lock()
				want[k] = string(rec.Value)
				mu.Unlock()
			}
			return err
		})
	}
	for w := range uint64(2) {
		n, p := 0, l.Producer(int64(w+1), 0)
		s.loop(10+w, func(r *rand.Rand) error {
			n++
			if err := p.Begin(); err != nil {
				return err
			}
			commit := r.IntN(2) == 0
			changes := map[string]string{}
			for range 1 + r.IntN(4) {
				k := fmt.Sprintf("t%d-%d", w, r.IntN(20))
				if _, again := changes[k]; again {
					continue
				}
				v := strconv.Itoa(n)
				if !commit {
					v = "aborted" + v
				}
				if _, err := p.Append(ctx, record.Record{Key: []byte(k), Value: []byte(v)}); err != nil {
					return err
				}
				changes[k] = v
			}
			if !commit {
				return p.Abort(ctx)
			}
			err := p.Commit(ctx)
			if err == nil {
				mu.Lock()
				for k, v := range changes {
					want[k] = v
				}
				mu.Unlock()
			}
			return err
		})
	}
	for w := range uint64(2) {
		s.loop(20+w, func(*rand.Rand) error { return scanOnce(l, true) })
	}
	s.loop(30, func(r *rand.Rand) error {
		c, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(3000))*time.Microsecond)
		defer cancel()
		_, err := l.Compact(c, CompactOptions{Force: true, MapBytes: int64(200 + r.IntN(3000))})
		if isContext(err) || errors.Is(err, ErrCleaningAborted) {
			return nil
		}
		return err
	})
	s.loop(31, func(r *rand.Rand) error {
		defer l.PinRemoval("slow", r.Int64N(l.Offsets().LogEnd+1))()
		_, err := l.PlanCompaction(time.Now())
		return errors.Join(err, errOf(l.Retain(ctx)))
	})
	time.Sleep(1500 * time.Millisecond)
	s.stop()
	check := func(l *Log, how string) {
		got := map[string]string{}
		for r, err := range l.Records(ctx, 0, WithReset(Earliest), WithIsolation(ReadCommitted)) {
			require.NoError(t, err)
			got[string(r.Key)] = string(r.Value)
		}
		for k, v := range want {
			require.Equal(t, v, got[k], "%s: %s", how, k) // a tombstone may be gone
		}
		o := l.Offsets()
		require.Equal(t, o.LogEnd, o.LastStable, how)
		for f, err := range l.Verify(ctx) {
			require.NoError(t, err)
			require.Fail(t, how, "%+v", f)
		}
	}
	check(l, "behind the storm")
	require.NoError(t, errOf(l.Compact(ctx, CompactOptions{Force: true})))
	check(l, "compacted")
	require.NoError(t, d.Move(ctx, tp, to))
	moved, ok := to.Get(tp)
	require.True(t, ok)
	check(moved, "moved")
	require.NoError(t, errOf(moved.Compact(ctx, CompactOptions{Force: true})))
	require.NoError(t, to.Close())
	to, err = OpenDir("b", busy)
	require.NoError(t, err)
	moved, err = to.Open(ctx, tp, stormConfig)
	require.NoError(t, err)
	check(moved, "opened again")
	require.NoError(t, to.Close())
	require.NoError(t, d.Close())
	for range 2000 {
		if runtime.NumGoroutine() <= goroutines {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d goroutines are left", runtime.NumGoroutine()-goroutines)
}

// The log is cut at both ends, emptied, moved, deleted and closed while it is compacted and read.
func TestCompactionOfALogThatIsPulledToPieces(t *testing.T) {
	for seed := range uint64(3) {
		root := DirConfig{FS: vfs.Mem(), InitialDelay: Immediately, CleanerBackoff: time.Millisecond, RetentionInterval: time.Millisecond, CheckpointInterval: time.Millisecond}
		d, err := OpenDir("a", root)
		require.NoError(t, err)
		root.FS = vfs.Mem()
		to, err := OpenDir("b", root)
		require.NoError(t, err)
		tp := TopicPartition{"t", 0}
		l, err := d.Open(ctx, tp, stormConfig)
		require.NoError(t, err)
		passing := func(err error) error {
			var gone *OffsetRangeError
			if errors.As(err, &gone) || errors.Is(err, ErrTruncated) || errors.Is(err, ErrCleaningAborted) || isContext(err) || errors.Is(err, ErrTxnState) ||
				errors.Is(err, ErrOutOfOrder) || errors.Is(err, ErrFenced) {
				return nil
			}
			return err
		}
		s := &storm{t: t, done: make(chan struct{})}
		for w := range uint64(2) {
			s.loop(seed*100+w, func(r *rand.Rand) error {
				return passing(errOf(l.Append(ctx, record.Record{Key: fmt.Appendf(nil, "k%d", r.IntN(30)), Value: make([]byte, r.IntN(200))})))
			})
		}
		id := int64(0)
		s.loop(seed*100+5, func(r *rand.Rand) error {
			id++
			p := l.Producer(id%5, int16(id/5))
			err := p.Begin()
			if err == nil {
				_, err = p.Append(ctx, record.Record{Key: []byte("txn"), Value: []byte("v")})
			}
			if err == nil && r.IntN(2) == 0 {
				err = p.Commit(ctx)
			} else if err == nil {
				err = p.Abort(ctx)
			}
			return passing(err)
		})
		for w := range uint64(2) {
			s.loop(seed*100+10+w, func(*rand.Rand) error { return passing(scanOnce(l, false)) })
		}
		s.loop(seed*100+20, func(r *rand.Rand) error {
			return passing(errOf(l.Compact(ctx, CompactOptions{Force: true})))
		})
		s.loop(seed*100+30, func(r *rand.Rand) error {
			time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
			o := l.Offsets()
			switch r.IntN(12) {
			case 0:
				return passing(l.ResetTo(ctx, o.LogEnd+int64(r.IntN(5))))
			case 1, 2, 3, 4:
				return passing(errOf(l.Truncate(ctx, max(0, o.LogEnd-r.Int64N(60)))))
			case 5, 6, 7:
				return passing(l.DeleteRecords(ctx, min(o.HighWatermark, o.LogStart+r.Int64N(40))))
			default:
				return passing(errOf(l.Retain(ctx)))
			}
		})
		time.Sleep(500 * time.Millisecond)
		var moved *Log
		switch seed {
		case 0:
			require.NoError(t, d.Move(ctx, tp, to))
			moved, _ = to.Get(tp)
		case 1:
			require.NoError(t, d.Delete(ctx, tp))
		case 2:
			require.NoError(t, l.Close())
			moved, err = d.Open(ctx, tp, stormConfig)
			require.NoError(t, err)
		}
		s.stop()
		if moved != nil {
			require.NoError(t, scanOnce(moved, false))
			for f, err := range moved.Verify(ctx) {
				require.NoError(t, err)
				require.Fail(t, "verify", "%d: %+v", seed, f)
			}
		}
		for _, dir := range []*Dir{d, to} {
			for _, f := range dir.Stats().Failing {
				require.ErrorIs(t, f.Err, fs.ErrClosed, "%+v", f)
			}
			require.NoError(t, dir.Close())
		}
	}
}
