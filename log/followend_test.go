package log

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// What a compacted leader has no record of at its end a follower takes over as a gap.
func TestAFollowersLogEndRisesOverAGap(t *testing.T) {
	for _, empty := range []bool{false, true} {
		b := newBed(t, Config{Visibility: External})
		_, err := b.Append(ctx, record.Record{Key: []byte("a")}, record.Record{Key: []byte("b")})
		require.NoError(t, err)
		if empty {
			require.NoError(t, b.Roll(ctx)) // the active segment has no record
		}
		require.NoError(t, b.FollowEnd(ctx, 5))
		require.NoError(t, b.FollowEnd(ctx, 4), "it never falls")
		require.Equal(t, int64(5), b.Offsets().LogEnd)
		for _, wrong := range []int64{-1, math.MinInt64, math.MaxInt64} {
			require.ErrorIs(t, b.FollowEnd(ctx, wrong), ErrOffsetOutOfRange)
		}
		require.NoError(t, b.Sync(ctx))
		require.Equal(t, int64(5), b.Offsets().Durable)
		b.reopen()
		require.Equal(t, int64(5), b.Offsets().LogEnd)
		at, err := b.Append(ctx, record.Record{Key: []byte("c")})
		require.NoError(t, err)
		require.Equal(t, int64(5), at)
		b.reopen()
		require.Equal(t, int64(6), b.Offsets().LogEnd)
		require.NoError(t, b.FollowEnd(ctx, 9))
		end, err := b.Truncate(ctx, 8)
		require.NoError(t, err)
		require.Equal(t, int64(8), end)
		require.Equal(t, int64(8), b.Offsets().Durable)
		b.reopen()
		require.Equal(t, int64(8), b.Offsets().LogEnd)
		require.Empty(t, b.Recovery().Findings)
		require.NoError(t, b.ResetTo(ctx, 9))
		require.Equal(t, int64(9), b.Offsets().LogEnd)
	}
}

func TestAGapMayReachToTheLastOffsetThereIs(t *testing.T) {
	b := newBed(t, Config{})
	require.NoError(t, b.FollowEnd(ctx, math.MaxInt64-1))
	b.reopen()
	require.Equal(t, int64(math.MaxInt64-1), b.Offsets().LogEnd)
	_, err := b.Append(ctx, record.Record{Value: []byte("one")}, record.Record{Value: []byte("two")})
	require.ErrorIs(t, err, ErrInvalidRecord, "no offset is left behind it")
	require.Empty(t, b.Recovery().Findings)
	require.NoError(t, b.ResetTo(ctx, 3))
	require.Equal(t, int64(3), b.add("one"))
}

func TestFollowEndOfALogThatIsOverIsRefused(t *testing.T) {
	b := newBed(t, Config{})
	gone, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, b.FollowEnd(gone, 5), context.Canceled)
	require.Zero(t, b.Offsets().LogEnd)
	require.NoError(t, b.dir.Close())
	require.ErrorIs(t, b.FollowEnd(ctx, 5), ErrClosed)
}

// Whatever fails, the log is as it was, or has failed for good; a log that goes on takes the next record where it ended.
func TestFollowEndThatFailsLeavesTheLogAsItWas(t *testing.T) {
	for at := 1; ; at++ {
		fault := vfstest.NewFault(vfs.Mem())
		b := newBedOn(t, fault, Config{Durability: Buffered})
		b.add("a", "b")
		hits, remove := fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpCreate, vfstest.OpWrite, vfstest.OpSync, vfstest.OpSyncData, vfstest.OpSyncDir, vfstest.OpTruncate},
			Name: "t-0/*", Nth: at, Err: errors.New("broken")})
		err := b.FollowEnd(ctx, 5)
		remove()
		if hits() == 0 {
			require.Greater(t, at, 4)
			return
		}
		if err == nil { // an index entry that can wait
			require.Equal(t, int64(5), b.Offsets().LogEnd, "fault %d", at)
			b.reopen()
			require.Equal(t, int64(5), b.Offsets().LogEnd, "fault %d", at)
			continue
		}
		require.Equal(t, int64(2), b.Offsets().LogEnd, "fault %d: %v", at, err)
		if !errors.Is(err, ErrFailed) {
			require.Equal(t, int64(2), b.add("c"), "fault %d: %v", at, err)
			require.NoError(t, b.FollowEnd(ctx, 5))
			require.Equal(t, int64(5), b.add("d"))
			b.reopen()
			require.Equal(t, []int64{0, 1, 2, 5}, b.readAll(0))
			continue
		}
		_ = b.dir.Close()
		b.open()
		require.Contains(t, []int64{2, 5}, b.Offsets().LogEnd)
	}
}

// Beside appends, rolls, retention, compaction and readers that wait at the end: every record is read once, in order, and nothing
// calls the gaps damage. FollowEnd is a follower's call; that a leader's user makes it costs offsets, no more.
func TestGapsAtTheEndBesideEverythingElse(t *testing.T) {
	b := newBed(t, Config{SegmentBytes: 2000, Cleanup: Delete | Compact, Durability: Buffered, RetentionBytes: 1 << 20,
		Compaction: CompactionConfig{MinDirtyRatio: AnyDirt, DeleteRetention: Immediately}})
	const writers, each = 4, 40
	var mu sync.Mutex
	var appended []int64
	var all, rest sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				at, err := b.Append(ctx, record.Record{Key: fmt.Appendf(nil, "%d-%d", w, i), Value: make([]byte, 50)})
				if i%10 == 5 && err == nil {
					err = b.FollowEnd(ctx, b.Offsets().LogEnd+3)
				}
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				appended = append(appended, at)
				mu.Unlock()
			}
		})
	}
	for _, do := range []func() error{
		func() error { return b.Roll(ctx) },
		func() error { return errOf(b.Retain(ctx)) },
		func() error { return errOf(b.Compact(ctx, CompactOptions{Force: true})) },
		func() error { return b.Sync(ctx) },
	} {
		rest.Go(func() {
			for range each {
				assert.NoError(t, do())
			}
		})
	}
	var seen []int64
	reading, stop := context.WithTimeout(ctx, time.Minute)
	rest.Go(func() {
		for r, err := range b.Follow(reading, 0) {
			if err != nil {
				assert.ErrorIs(t, err, context.Canceled)
				return
			}
			if seen = append(seen, r.Offset); len(seen) == writers*each {
				return
			}
		}
	})
	all.Wait()
	rest.Wait()
	stop()
	slices.Sort(appended)
	require.Equal(t, appended, seen)
	end := b.Offsets().LogEnd
	require.Greater(t, end, int64(writers*each))
	require.NoError(t, b.Roll(ctx))
	require.NoError(t, b.FollowEnd(ctx, end+10))
	require.NoError(t, b.Sync(ctx))
	require.NoError(t, b.DeleteRecords(ctx, end+5))
	require.NoError(t, b.dir.Close())
	for f, err := range Verify(ctx, b.fs, VerifyOptions{}) {
		require.NoError(t, err)
		t.Errorf("%+v", f)
	}
	b.open()
	require.Empty(t, b.Recovery().Findings)
	require.Equal(t, [2]int64{end + 5, end + 10}, [2]int64{b.Offsets().LogStart, b.Offsets().LogEnd})
	at, err := b.Append(ctx, record.Record{Key: []byte("k")})
	require.NoError(t, err)
	require.Equal(t, end+10, at)
}
