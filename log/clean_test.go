package log

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// put appends one batch of key=value records; an empty value is a tombstone.
func (b *bed) put(pairs ...string) {
	b.t.Helper()
	recs := make([]record.Record, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		r := record.Record{Key: []byte(pairs[i])}
		if pairs[i+1] != "" {
			r.Value = []byte(pairs[i+1])
		}
		recs = append(recs, r)
	}
	_, err := b.Append(ctx, recs...)
	require.NoError(b.t, err)
}

// table is what a reader from the start makes of the log: the last value of each key.
func (b *bed) table() map[string]string {
	b.t.Helper()
	m := map[string]string{}
	for r, err := range b.Records(ctx, 0, WithReset(Earliest)) {
		require.NoError(b.t, err)
		if r.Value == nil {
			delete(m, string(r.Key))
		} else {
			m[string(r.Key)] = string(r.Value)
		}
	}
	return m
}

func (b *bed) offsets() (all []int64) {
	b.t.Helper()
	for r, err := range b.Records(ctx, 0, WithReset(Earliest)) {
		require.NoError(b.t, err)
		all = append(all, r.Offset)
	}
	return all
}

func (b *bed) compact(o CompactOptions) compaction.Result {
	b.t.Helper()
	res, err := b.Compact(ctx, o)
	require.NoError(b.t, err)
	return res
}

var compacting = Config{Cleanup: Compact, Compaction: CompactionConfig{MinDirtyRatio: AnyDirt, DeleteRetention: time.Hour}}

func TestCompactKeepsTheLastValueOfEachKeyBelowTheActiveSegment(t *testing.T) {
	b := newBed(t, compacting)
	b.put("a", "1", "b", "1")
	require.NoError(t, b.Roll(ctx))
	b.put("a", "2", "c", "1")
	require.NoError(t, b.Roll(ctx))
	b.put("b", "2")
	require.NoError(t, b.Roll(ctx))
	b.put("c", "2")

	plan, err := b.PlanCompaction(b.clock.now())
	require.NoError(t, err)
	require.True(t, plan.Due)
	require.EqualValues(t, 5, plan.Uncleanable)
	res := b.compact(CompactOptions{})
	require.EqualValues(t, 5, res.FirstDirty)
	require.Equal(t, []int64{2, 3, 4, 5}, b.offsets(), "the active segment is not looked at")
	require.Equal(t, map[string]string{"a": "2", "b": "2", "c": "2"}, b.table())
	require.Len(t, b.SegmentInfos(), 2)

	at, err := checkpoint.ReadOffsets(b.fs, checkpoint.CleanerOffsets)
	require.NoError(t, err)
	require.EqualValues(t, 5, at[checkpoint.Partition{Topic: "t", Partition: 0}])
	b.reopen()
	require.Equal(t, []int64{2, 3, 4, 5}, b.offsets())
	require.Empty(t, b.folder(".deleted"))
	plan, err = b.PlanCompaction(b.clock.now())
	require.NoError(t, err)
	require.False(t, plan.Due, "all but the active segment is clean")
}

// Scenario: G007
func TestCompactIsRefusedWhereThePolicyLacksIt(t *testing.T) {
	b := newBed(t, Config{})
	_, err := b.Compact(ctx, CompactOptions{})
	require.ErrorIs(t, err, ErrPolicy)
	require.NoError(t, b.Close())
	_, err = b.Compact(ctx, CompactOptions{})
	require.ErrorIs(t, err, ErrClosed)
	_, err = b.PlanCompaction(time.Now())
	require.ErrorIs(t, err, ErrClosed)
}

// A tombstone that no run has seen must not go with a later one: what was truncated and written again is dirty again.
// Scenario: G009. Report: B066
func TestWhatIsWrittenAfterATruncationIsDirty(t *testing.T) {
	b := newBed(t, compacting)
	b.put("k", "old")
	require.NoError(t, b.Roll(ctx))
	b.put("x", "1", "y", "1", "z", "1")
	require.NoError(t, b.Roll(ctx))
	b.put("n", "1")
	require.EqualValues(t, 4, b.compact(CompactOptions{}).FirstDirty)

	_, err := b.Truncate(ctx, 1)
	require.NoError(t, err)
	b.reopen()
	b.put("k", "") // at an offset that was clean
	b.put("x", "2")
	require.NoError(t, b.Roll(ctx))
	b.put("n", "2")
	require.EqualValues(t, 3, b.compact(CompactOptions{}).FirstDirty)
	b.clock.advance(2 * time.Hour)
	b.put("m", "1")
	require.NoError(t, b.Roll(ctx))
	b.put("m", "2")
	b.compact(CompactOptions{})
	require.NotContains(t, b.table(), "k", "a deleted key came back")
}

func TestPinnedTombstonesOutliveTheirRetention(t *testing.T) {
	b := newBed(t, compacting)
	roll := func(key string) {
		b.put(key, "v")
		require.NoError(t, b.Roll(ctx))
	}
	b.put("k", "1", "k", "")
	require.NoError(t, b.Roll(ctx))
	roll("a")
	release := b.PinRemoval("slow reader", 1)
	b.compact(CompactOptions{})
	b.clock.advance(2 * time.Hour)
	roll("b")
	b.compact(CompactOptions{})
	require.Contains(t, b.offsets(), int64(1))
	release()
	release()
	roll("c")
	b.compact(CompactOptions{})
	require.NotContains(t, b.offsets(), int64(1))
}

func TestADryRunChangesNothing(t *testing.T) {
	b := newBed(t, compacting)
	b.put("a", "1", "a", "2")
	require.NoError(t, b.Roll(ctx))
	b.put("a", "3")
	before := b.folder("")
	res := b.compact(CompactOptions{DryRun: true})
	require.EqualValues(t, 1, res.Superseded)
	require.Equal(t, before, b.folder(""))
	require.Equal(t, []int64{0, 1, 2}, b.offsets())
	require.EqualValues(t, 1, b.compact(CompactOptions{}).Superseded)
}

// Readers that run through cleanings see every surviving record once and in order, appenders and a truncating replica go
// on, and Close ends a cleaning.
func TestCleaningBesideReadersAppendersAndRetention(t *testing.T) {
	c := compacting
	c.Cleanup, c.SegmentBytes, c.Durability, c.RetentionTime = Compact|Delete, 2000, Buffered, Forever
	c.FileDeleteDelay = Immediately
	b := newBed(t, c)
	stop := make(chan struct{})
	var all sync.WaitGroup
	loop := func(f func(*rand.Rand)) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(len(stop))))
			for {
				select {
				case <-stop:
					return
				default:
					f(r)
				}
			}
		})
	}
	loop(func(r *rand.Rand) {
		_, err := b.Append(ctx, record.Record{Key: fmt.Appendf(nil, "k%d", r.IntN(40)), Value: make([]byte, 100)})
		if err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	loop(func(*rand.Rand) {
		if _, err := b.Compact(ctx, CompactOptions{}); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if _, err := b.Retain(ctx); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	for range 2 {
		loop(func(*rand.Rand) {
			last := int64(-1)
			for r, err := range b.Records(ctx, 0, WithReset(Earliest)) {
				switch {
				case errors.Is(err, ErrClosed):
					return
				case err != nil:
					t.Error(err)
					return
				case r.Offset <= last:
					t.Errorf("offset %d after %d", r.Offset, last)
					return
				}
				last = r.Offset
			}
		})
	}
	time.Sleep(700 * time.Millisecond)
	want := b.table()
	close(stop)
	require.NoError(t, b.dir.Close())
	all.Wait()
	b.open()
	require.Subset(t, keysOf(b.table()), keysOf(want))
	require.Positive(t, b.Offsets().LogEnd)
}

func keysOf(m map[string]string) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

func TestCloseEndsACleaning(t *testing.T) {
	c := compacting
	c.Compaction.BytesPerSecond = 1
	b := newBed(t, c)
	b.put("a", "1")
	require.NoError(t, b.Roll(ctx))
	b.put("a", "2")
	done := make(chan error)
	go func() {
		_, err := b.Compact(context.Background(), CompactOptions{})
		done <- err
	}()
	for !b.cleaner.snapshot().Running {
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, b.dir.Close())
	require.ErrorIs(t, <-done, ErrClosed)
}

func TestAMoveEndsACleaningOfTheSource(t *testing.T) {
	c := compacting
	c.Compaction.BytesPerSecond = 1
	b := newBed(t, c)
	b.put("a", "1")
	require.NoError(t, b.Roll(ctx))
	b.put("a", "2")
	done := make(chan error, 1)
	go func() {
		_, err := b.Compact(ctx, CompactOptions{})
		done <- err
	}()
	for !b.cleaner.snapshot().Running {
		time.Sleep(time.Millisecond)
	}
	to, err := OpenDir("to", DirConfig{FS: vfs.Mem(), Manual: true})
	require.NoError(t, err)
	require.NoError(t, b.dir.Move(ctx, b.TopicPartition(), to))
	select {
	case err := <-done:
		require.ErrorIs(t, err, ErrClosed)
	default:
		t.Fatal("the compaction goes on")
	}
	require.NoError(t, to.Close())
}
