package log

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

const (
	year    = 365 * 24 * time.Hour
	longest = math.MaxInt64 / time.Millisecond * time.Millisecond
)

// jumps are what a wall clock does that somebody sets, or that has lost its battery. Whatever waits for something began to
// before the first of them.
var jumps = []struct {
	name string
	by   []time.Duration
}{
	{"back an hour", []time.Duration{-time.Hour}},
	{"back ten years", []time.Duration{-10 * year}},
	{"back to before 1970", []time.Duration{-60 * year}},
	{"back an hour, again and again", []time.Duration{-time.Hour, -time.Hour, -time.Hour}},
	{"ahead ten years and back", []time.Duration{10 * year, -10 * year}},
	{"ahead 200 years and back in two steps", []time.Duration{200 * year, -100 * year, -100 * year}},
}

// each jump is followed by a look at what is due, at once.
func (b *rootBed) jump(by []time.Duration) {
	b.t.Helper()
	for _, d := range by {
		b.after(d)
	}
}

func back(by []time.Duration) bool { return by[0] < 0 }

// timely: a leader takes no records with times before 1970.
func timely(by []time.Duration) bool { return by[0] > -50*year }

// The files of a deleted partition, and of dropped segments, wait no shorter than file.delete.delay.ms when the clock only went
// back, and no longer than that once it is right, whatever it did.
func TestJumpsOfTheClockNeitherHastenNorHoldUpTheRemovalOfFiles(t *testing.T) {
	for _, j := range jumps {
		t.Run(j.name, func(t *testing.T) {
			b := newRootBed(t, vfs.Mem(), DirConfig{Defaults: Config{SegmentBytes: 200, RetentionBytes: 100, RetentionTime: Forever, FileDeleteDelay: 10 * time.Minute}})
			add(t, b.log("gone", 0, Config{}), "a")
			kept := b.log("kept", 0, Config{})
			b.after(time.Minute) // every task has run once
			add(t, kept, "1", "2", "3", "4", "5", "6")
			if !back(j.by) {
				b.after(j.by[0]) // it is put right with the files waiting
			}
			require.NoError(t, errOf(kept.Retain(ctx)))
			require.NoError(t, b.Delete(ctx, TopicPartition{"gone", 0}))
			dropped := kept.Stats().Deleting
			require.Positive(t, dropped)
			rest := j.by
			if !back(j.by) {
				rest = rest[1:]
			}
			b.jump(rest)
			b.after(20 * time.Second)
			require.Equal(t, dropped, kept.Stats().Deleting)
			require.Len(t, b.folders(), 2)
			b.after(9 * time.Minute)
			require.Equal(t, dropped, kept.Stats().Deleting)
			require.Len(t, b.folders(), 2)
			b.after(2 * time.Minute)
			require.Zero(t, kept.Stats().Deleting)
			require.Equal(t, []string{"kept-0"}, b.folders())
		})
	}
}

// Retention goes by the times of the records: with a clock that went back nothing is too old, and once it is right the old ones
// go, at the next look.
func TestJumpsOfTheClockMakeNoRecordTooOldAndNoneStay(t *testing.T) {
	for _, j := range jumps {
		if !timely(j.by) {
			continue
		}
		t.Run(j.name, func(t *testing.T) {
			b := newRootBed(t, vfs.Mem(), DirConfig{Defaults: Config{SegmentBytes: 200, RetentionTime: time.Hour}})
			l := b.log("t", 0, Config{})
			b.addNow(l, 6)
			if back(j.by) {
				b.jump(j.by)
				b.addNow(l, 6)
				require.Zero(t, l.Offsets().LogStart)
				require.Len(t, valuesOf(t, l), 12)
			}
			b.clock.ms.Store(epoch2023)
			b.after(2 * time.Hour)
			require.Equal(t, l.Offsets().LogEnd, l.Offsets().LogStart, "all are older than an hour")
			b.addNow(l, 1)
			b.after(10 * time.Minute)
			require.Len(t, valuesOf(t, l), 1)
		})
	}
}

// addNow appends records with the time of the clock.
func (b *rootBed) addNow(l *Log, n int) {
	b.t.Helper()
	for i := range n {
		_, err := l.Append(ctx, record.Record{Timestamp: b.clock.ms.Load(), Key: fmt.Append(nil, i), Value: []byte("v")})
		require.NoError(b.t, err)
	}
}

// A segment without times rolls by the clock: never early because it went back, and again after segment.ms.
func TestJumpsOfTheClockHoldUpNoRoll(t *testing.T) {
	for _, j := range jumps {
		t.Run(j.name, func(t *testing.T) {
			b := newRootBed(t, vfs.Mem(), DirConfig{Defaults: Config{SegmentAge: time.Hour, RetentionTime: Forever}})
			if !back(j.by) {
				b.clock.advance(j.by[0]) // the segment is made when the clock is wrong
			}
			l := b.log("t", 0, Config{})
			timeless := func() {
				t.Helper()
				o := l.Offsets()
				_, err := l.AppendBatches(ctx, legacy(0, o.LogEnd, "v"), AppendOptions{As: Follower})
				require.NoError(t, err)
			}
			timeless()
			rest := j.by
			if !back(j.by) {
				rest = rest[1:]
			}
			for _, by := range rest {
				b.after(by)
				timeless()
				require.Len(t, l.SegmentInfos(), 1)
			}
			b.after(59 * time.Minute)
			timeless()
			require.Len(t, l.SegmentInfos(), 1)
			b.after(2 * time.Minute)
			timeless()
			require.Len(t, l.SegmentInfos(), 2)
		})
	}
}

// Producers are not forgotten early, and not remembered for ever.
func TestJumpsOfTheClockForgetNoProducerEarlyAndKeepNone(t *testing.T) {
	for _, j := range jumps {
		t.Run(j.name, func(t *testing.T) {
			b := newRootBed(t, vfs.Mem(), DirConfig{Defaults: Config{ProducerExpiry: time.Hour}})
			l := b.log("t", 0, Config{})
			if !back(j.by) {
				b.jump(j.by)
			}
			rec := record.Record{Timestamp: b.clock.ms.Load(), Value: []byte("v")}
			_, err := l.AppendBatches(ctx, produced(record.Producer{ID: 7}, rec), AppendOptions{})
			require.NoError(t, err)
			if back(j.by) {
				b.jump(j.by)
				require.Len(t, l.Producers(), 1)
			}
			b.clock.ms.Store(epoch2023)
			b.after(30 * time.Minute)
			require.Len(t, l.Producers(), 1)
			b.after(40 * time.Minute)
			require.Empty(t, l.Producers())
		})
	}
}

// Compaction by age, and the time that a tombstone stays: none goes early because the clock went back, and once it is right it
// goes. A tombstone that was stamped while the clock was ahead stays until the time that its batch names: so it is written, and
// a broker goes by it.
func TestJumpsOfTheClockTakeNoTombstoneEarly(t *testing.T) {
	for _, j := range jumps {
		if !back(j.by) || !timely(j.by) {
			continue
		}
		t.Run(j.name, func(t *testing.T) {
			b := newRootBed(t, vfs.Mem(), DirConfig{CleanerBackoff: Forever})
			l := b.log("t", 0, Config{Cleanup: Compact, Compaction: CompactionConfig{MinDirtyRatio: 1, MinLag: time.Minute, MaxLag: time.Hour, DeleteRetention: time.Hour}})
			put := func(value []byte) {
				t.Helper()
				_, err := l.Append(ctx, record.Record{Timestamp: b.clock.ms.Load(), Key: []byte("k"), Value: value})
				require.NoError(t, err)
				require.NoError(t, l.Roll(ctx))
			}
			compact := func() int {
				t.Helper()
				require.NoError(t, errOf(l.Compact(ctx, CompactOptions{Force: true})))
				return len(valuesOf(t, l))
			}
			put([]byte("v"))
			put(nil)
			b.after(2 * time.Minute)
			require.Equal(t, 1, compact(), "the tombstone is stamped")
			b.jump(j.by)
			plan, err := l.PlanCompaction(b.clock.now())
			require.NoError(t, err)
			require.False(t, plan.Due)
			put([]byte("w")) // so that there is something to do
			put(nil)
			require.GreaterOrEqual(t, compact(), 1)
			require.Empty(t, tableOf(must(lifeOf("", l)).recs))
			b.clock.ms.Store(epoch2023)
			b.after(3 * time.Hour)
			_, err = l.Append(ctx, record.Record{Timestamp: b.clock.ms.Load(), Key: []byte("l"), Value: []byte("v")})
			require.NoError(t, err)
			require.NoError(t, l.Roll(ctx))
			b.after(2 * time.Hour)
			compact()
			b.after(2 * time.Hour)
			_, err = l.Append(ctx, record.Record{Timestamp: b.clock.ms.Load(), Key: []byte("l"), Value: []byte("w")})
			require.NoError(t, err)
			require.NoError(t, l.Roll(ctx))
			b.after(time.Hour)
			compact()
			require.Equal(t, []string{"w"}, valuesOf(t, l))
		})
	}
}

// Clocks and timestamps at the ends of what a number can hold: no panic, no endless loop, nothing that is not due goes.
func TestTimesAtTheEndsOfTheirRangeHarmNothing(t *testing.T) {
	times := []int64{-1, 0, 1, epoch2023, math.MaxInt64 - 1, math.MaxInt64}
	clocks := []int64{-1 << 53, -1, 0, epoch2023, 1 << 53, 9_000_000_000_000_000}
	settings := []Config{
		{RetentionTime: time.Hour, SegmentAge: time.Hour, Cleanup: Compact | Delete, TimestampAfter: Forever,
			Compaction: CompactionConfig{MinLag: time.Hour, MaxLag: 2 * time.Hour, DeleteRetention: Immediately, MinDirtyRatio: AnyDirt}},
		{RetentionTime: longest, SegmentAge: longest, Cleanup: Compact | Delete, TimestampAfter: Forever, FileDeleteDelay: longest,
			Compaction: CompactionConfig{MinLag: time.Hour, MaxLag: longest, DeleteRetention: longest, MinDirtyRatio: AnyDirt}},
	}
	for n, c := range settings {
		for _, first := range times {
			b := newRootBed(t, vfs.Mem(), DirConfig{Defaults: c})
			l := b.log("t", 0, Config{})
			for i, ts := range append([]int64{first}, times...) {
				bl := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: int64(i)}})
				value := []byte("v")
				if i%2 == 1 {
					value = nil
				}
				require.NoError(t, bl.AddAt(record.Record{Offset: 0, Timestamp: ts, Key: []byte("k"), Value: value}))
				batch, err := bl.Finish()
				require.NoError(t, err)
				batch.SetBaseOffset(l.Offsets().LogEnd)
				_, err = l.AppendBatches(ctx, append([]byte(nil), batch.Bytes()...), AppendOptions{As: Follower})
				require.NoError(t, err, "%d", ts)
				if i%2 == 1 {
					require.NoError(t, l.Roll(ctx))
				}
			}
			for _, now := range append(clocks, clocks[0], epoch2023) {
				b.clock.ms.Store(now)
				require.NoError(t, b.RunOnce(ctx, b.clock.now()), "settings %d, first %d, clock %d", n, first, now)
				require.NoError(t, errOf(l.PlanCompaction(b.clock.now())))
				require.NoError(t, errOf(l.Compact(ctx, CompactOptions{Force: true})))
				l.PlanRetention(b.clock.now())
				if _, err := l.OffsetForTime(ctx, b.clock.now()); err != nil {
					require.ErrorIs(t, err, ErrNotFound)
				}
				b.Dir.Stats()
			}
			require.Empty(t, b.Dir.Stats().Failing)
			b.reopen()
			l = b.log("t", 0, Config{})
			for f, err := range l.Verify(ctx) {
				require.NoError(t, err)
				if f.Kind == FindingSnapshot || f.Kind == FindingProducers {
					continue // it cannot know the clocks that had producers forgotten
				}
				require.Fail(t, "verify", "settings %d, first %d: %+v", n, first, f)
			}
		}
	}
}
