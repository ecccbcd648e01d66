package log

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Invariant R6.
func TestAFollowerSeesEveryRecordOnceAndWakesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Config{SegmentBytes: 300})
		var got []int64
		var end error
		c, cancel := context.WithCancel(ctx)
		go func() { got, end = offsetsOf(b.Follow(c, 0)) }()
		for i := range int64(20) {
			synctest.Wait()
			require.Equal(t, 1, b.Stats().Followers, "it waits, and polls nothing")
			b.add("x", "y")
			synctest.Wait()
			_ = i
		}
		cancel()
		synctest.Wait()
		require.ErrorIs(t, end, context.Canceled)
		require.Equal(t, offsetsIn(0, 40), got)
		require.Zero(t, b.Stats().Followers)
		require.Zero(t, b.Stats().Pinned)
	})
}

func TestFollowersEndWithTheLog(t *testing.T) {
	for name, end := range map[string]func(b *bed) error{
		"close":    func(b *bed) error { return b.Close() },
		"truncate": func(b *bed) error { _, err := b.Truncate(ctx, 0); return err },
		"reset":    func(b *bed) error { return b.ResetTo(ctx, 50) },
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, Config{})
			b.add("a", "b")
			var wg sync.WaitGroup
			ended := make([]error, 8)
			for i := range ended {
				wg.Go(func() { _, ended[i] = offsetsOf(b.Follow(ctx, 1)) })
			}
			synctest.Wait()
			require.NoError(t, end(b))
			wg.Wait()
			for _, err := range ended {
				if name == "close" {
					require.ErrorIs(t, err, ErrClosed)
					continue
				}
				require.ErrorIs(t, err, ErrOffsetOutOfRange, name)
			}
		})
	}
}

func TestAFollowerWaitsForAllOfABatchThatTheBoundCutsInTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Config{Visibility: External})
		b.add("0", "1", "2")
		b.add("3", "4", "5")
		var got []int64
		c, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { got, _ = offsetsOf(b.Follow(c, 1)); _ = got }()
		seen := func(hw int64) {
			_, err := b.SetHighWatermark(hw)
			require.NoError(t, err)
			synctest.Wait()
		}
		next, stop := pull(b.Follow(c, 1))
		defer stop()
		seen(2)
		done := make(chan int64, 9)
		go func() {
			for range 5 {
				done <- next()
			}
		}()
		synctest.Wait()
		require.Empty(t, done, "half a batch is not shown")
		seen(3)
		require.Len(t, done, 2)
		seen(4)
		seen(5)
		require.Len(t, done, 2)
		seen(6)
		require.Len(t, done, 5)
		cancel()
		synctest.Wait()
	})
}

// D2: in a durable log readers see only what is on the device.
func TestADurableLogShowsOnlyWhatIsOnTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		fault := vfstest.NewFault(vfs.Mem())
		b := newBedOn(t, fault, Config{})
		b.add("a")
		fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "*.log", Block: block})
		var wg sync.WaitGroup
		wg.Go(func() { b.add("b") })
		synctest.Wait()
		o := b.Offsets()
		require.Equal(t, [3]int64{2, 1, 1}, [3]int64{o.LogEnd, o.Durable, o.HighWatermark})
		require.Equal(t, []int64{0}, b.readAll(0))
		require.Equal(t, []int64{0, 1}, b.readAll(0, WithIsolation(LogEnd)))
		require.Equal(t, int64(1), b.Stats().Unsynced)
		wg.Go(func() { require.NoError(t, b.Wait(ctx, MarkHighWatermark, 2)) })
		synctest.Wait()
		close(block)
		wg.Wait()
		require.Equal(t, []int64{0, 1}, b.readAll(0))
	})
}

func TestABufferedAppendInADurableLogIsShownByTheNextSync(t *testing.T) {
	b := newBed(t, Config{})
	buffered := AppendOptions{Durability: Buffered}
	_, err := b.AppendBatches(ctx, batchOf(0, -1, record.None, "a"), buffered)
	require.NoError(t, err)
	require.Empty(t, b.readAll(0))
	require.Equal(t, Offsets{LogEnd: 1}, b.Offsets())
	b.add("b")
	require.Equal(t, []int64{0, 1}, b.readAll(0), "the group commit covers it")
	_, err = b.AppendBatches(ctx, batchOf(0, -1, record.None, "c"), buffered)
	require.NoError(t, err)
	require.NoError(t, b.Sync(ctx))
	require.Equal(t, []int64{0, 1, 2}, b.readAll(0))
	require.Equal(t, int64(3), b.Offsets().RecoveryPoint)
}

func TestABufferedLogShowsAndSyncsAsItsSettingsSay(t *testing.T) {
	b := newBed(t, Config{Durability: Buffered, FlushMessages: 5})
	for i := range int64(4) {
		b.add("x")
		require.Equal(t, i+1, b.Offsets().HighWatermark)
		require.Zero(t, b.Offsets().Durable)
	}
	b.add("x")
	require.Equal(t, int64(5), b.Offsets().Durable)
	require.Equal(t, int64(5), b.Offsets().RecoveryPoint)
	timed := newBed(t, Config{Durability: Buffered, FlushInterval: time.Minute})
	timed.add("x")
	timed.clock.advance(time.Minute - time.Millisecond)
	timed.add("x")
	require.Zero(t, timed.Offsets().Durable)
	timed.clock.advance(time.Millisecond)
	timed.add("x")
	require.Equal(t, int64(3), timed.Offsets().Durable)
	timed.add("x")
	require.Equal(t, int64(3), timed.Offsets().Durable)
	eager := newBed(t, Config{Durability: Buffered, FlushInterval: Immediately})
	eager.add("x")
	require.Equal(t, int64(1), eager.Offsets().Durable)
	mixed := newBed(t, Config{Durability: Buffered})
	_, err := mixed.AppendBatches(ctx, batchOf(0, -1, record.None, "a"), AppendOptions{Durability: Durable})
	require.NoError(t, err)
	require.Equal(t, int64(1), mixed.Offsets().Durable)
	written := newBed(t, Config{Visibility: WhenWritten})
	_, err = written.AppendBatches(ctx, batchOf(0, -1, record.None, "a"), AppendOptions{Durability: Buffered})
	require.NoError(t, err)
	require.Equal(t, []int64{0}, written.readAll(0))
}

// D20: whoever arrives during a sync shares the next one.
func TestConcurrentDurableAppendsShareSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault := vfstest.NewFault(vfs.Mem())
		trace := vfstest.NewTrace(fault)
		b := newBedOn(t, trace, Config{})
		fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "*.log", Delay: time.Millisecond, Times: vfstest.Always})
		trace.Reset()
		began := time.Now()
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 10 {
					base, err := b.Append(ctx, record.Record{})
					require.NoError(t, err)
					require.Greater(t, b.Offsets().Durable, base, "acknowledged means on the device")
				}
			})
		}
		wg.Wait()
		syncs := trace.Count(vfstest.OpSyncData)
		require.LessOrEqual(t, syncs, 40, "160 appends")
		require.Equal(t, time.Duration(syncs)*time.Millisecond, time.Since(began), "one round at a time")
		require.Equal(t, int64(syncs), b.Stats().Syncs)
		require.Equal(t, int64(160), b.Offsets().Durable)
	})
}

// Invariant O6.
func TestConcurrentAppendsGetDisjointContiguousRanges(t *testing.T) {
	b := newBed(t, Config{Durability: Buffered, SegmentBytes: 2000})
	var mu sync.Mutex
	owner := map[int64]string{}
	won := 0
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 50 {
				name := fmt.Sprint(w, "/", i)
				n := int64(1 + (w+i)%3)
				base, err := b.Append(ctx, values2records([]string{name, name, name}[:n])...)
				require.NoError(t, err)
				end := base + n
				_, err = b.AppendBatches(ctx, batchOf(0, -1, record.None, "expected"), AppendOptions{ExpectedOffset: &end})
				mu.Lock()
				for o := base; o < end; o++ {
					owner[o] = name
				}
				if err == nil {
					owner[end] = "expected"
					won++
				} else {
					require.ErrorIs(t, err, ErrUnexpectedOffset)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, owner, int(b.Offsets().LogEnd))
	for r, err := range b.Records(ctx, 0) {
		require.NoError(t, err)
		require.Equal(t, owner[r.Offset], string(r.Value))
	}
}

// D16.
func TestAnUnconfirmedAppendIsFinishedByWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		fault := vfstest.NewFault(vfs.Mem())
		b := newBedOn(t, fault, Config{})
		fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "*.log", Block: block})
		go func() { _, _ = b.Append(ctx, record.Record{Value: []byte("leads")}) }()
		synctest.Wait()
		c, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := b.Append(c, record.Record{Value: []byte("waits")})
		var u *UnconfirmedError
		require.ErrorAs(t, err, &u)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, [2]int64{1, 1}, [2]int64{u.Base, u.Last})
		require.Equal(t, int64(2), b.Offsets().LogEnd, "it is in the log: appending again would double it")
		go func() { time.Sleep(time.Second); close(block) }()
		require.NoError(t, b.Wait(ctx, MarkDurable, u.Last+1))
		require.Equal(t, []int64{0, 1}, b.readAll(0))
	})
}

func TestWaitKnowsEveryMarkAndTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Config{})
		for _, m := range []Mark{MarkEnd, MarkDurable, MarkHighWatermark, MarkLastStable} {
			end := b.Offsets().LogEnd
			require.NoError(t, b.Wait(ctx, m, end))
			require.NoError(t, b.Wait(ctx, m, -5))
			c, cancel := context.WithTimeout(ctx, time.Second)
			require.ErrorIs(t, b.Wait(c, m, end+1), context.DeadlineExceeded)
			cancel()
			var got error
			done := false
			go func() { got, done = b.Wait(ctx, m, end+3), true }()
			synctest.Wait()
			b.add("1")
			b.add("2")
			synctest.Wait()
			require.False(t, done)
			_, err := b.AppendBatches(ctx, batchOf(0, -1, record.None, "3"), AppendOptions{Durability: Buffered})
			require.NoError(t, err)
			synctest.Wait()
			require.True(t, done, "Wait syncs what it needs")
			require.NoError(t, got)
		}
		late := make(chan error, 1)
		go func() { late <- b.Wait(ctx, MarkEnd, 1000) }()
		synctest.Wait()
		require.NoError(t, b.Close())
		require.ErrorIs(t, <-late, ErrClosed)
	})
}

func TestWaitSaysWhenWhatWasAwaitedIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Config{Visibility: External})
		b.add("a", "b", "c")
		gone, future := make(chan error, 1), make(chan error, 1)
		go func() { gone <- b.Wait(ctx, MarkHighWatermark, 3) }()
		go func() { future <- b.Wait(ctx, MarkHighWatermark, 5) }()
		synctest.Wait()
		_, err := b.Truncate(ctx, 0)
		require.NoError(t, err)
		require.ErrorIs(t, <-gone, ErrTruncated)
		for range 5 {
			b.add("other")
		}
		_, err = b.SetHighWatermark(5)
		require.NoError(t, err)
		require.NoError(t, <-future, "that offset never was there before")
	})
}

// An append that was cut off before it was confirmed is not in the log, and does not claim to be.
func TestATruncationDuringACommitIsNoUnconfirmedAppend(t *testing.T) {
	for range 30 { // who comes first behind the round is chance
		synctest.Test(t, truncateDuringCommit)
	}
}

func truncateDuringCommit(t *testing.T) {
	block := make(chan struct{})
	fault := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, fault, Config{})
	b.add("a")
	fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "*.log", Block: block})
	errs := make(chan error, 3)
	for range 3 {
		go func() { _, err := b.Append(ctx, record.Record{}); errs <- err }()
	}
	synctest.Wait()
	cut := make(chan error, 1)
	go func() { _, err := b.Truncate(ctx, 1); cut <- err }()
	synctest.Wait()
	close(block)
	require.NoError(t, <-cut)
	for range 3 {
		err := <-errs
		require.False(t, errors.As(err, new(*UnconfirmedError)), "%v", err)
		if err != nil {
			require.ErrorIs(t, err, ErrTruncated)
		}
	}
	require.Equal(t, []int64{0}, b.readAll(0))
}

// Close waits for the appends that run: each is confirmed or was never written.
func TestCloseConfirmsWhatWasWritten(t *testing.T) {
	for range 20 {
		b := newBed(t, Config{})
		var mu sync.Mutex
		acked := int64(0)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					_, err := b.Append(ctx, record.Record{})
					if err != nil {
						require.ErrorIs(t, err, ErrClosed)
						require.False(t, errors.As(err, new(*UnconfirmedError)), "%v", err)
						return
					}
					mu.Lock()
					acked++
					mu.Unlock()
				}
			})
		}
		time.Sleep(time.Millisecond)
		require.NoError(t, b.dir.Close())
		wg.Wait()
		b.open()
		require.Equal(t, acked, b.Offsets().LogEnd)
		require.NoError(t, b.dir.Close())
	}
}

// A truncation is announced before anything is cut: a reader that comes in its middle must not take the missing bytes for a
// gap and go on behind them.
func TestReadersInTheMiddleOfATruncationSeeWhatWillBeLeft(t *testing.T) {
	fault := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, fault, Config{SegmentBytes: 300})
	for range 10 {
		b.add("x", "y")
	}
	looked := 0
	_, remove := fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpTruncate, vfstest.OpRename, vfstest.OpSyncDir}, Times: vfstest.Always, Hook: func(o vfstest.Op) error {
		if !o.Match("t-0/*") && o.Name != "t-0" {
			return nil
		}
		looked++
		require.Equal(t, int64(4), b.Offsets().LogEnd)
		require.Equal(t, offsetsIn(0, 4), b.readAll(0, WithIsolation(LogEnd)))
		return nil
	}})
	end, err := b.Truncate(ctx, 4)
	remove()
	require.NoError(t, err)
	require.Equal(t, int64(4), end)
	require.Greater(t, looked, 3)
}
