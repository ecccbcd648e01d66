package log

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Scenario: K006, K010. The background does each of its tasks at its interval, by itself.
func TestTheBackgroundWorksByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := vfs.Mem()
		d, err := OpenDir("root", DirConfig{FS: fsys, Defaults: Config{SegmentBytes: 200}})
		require.NoError(t, err)
		read := func(name string) string {
			b, _ := vfs.ReadFile(fsys, name, 1<<20)
			return string(b)
		}
		old, err := d.Open(ctx, TopicPartition{"old", 0}, Config{RetentionTime: time.Hour})
		require.NoError(t, err)
		add(t, old, "1", "2", "3", "4", "5")
		flushed, err := d.Open(ctx, TopicPartition{"flushed", 0}, Config{Durability: Buffered, FlushInterval: 40 * time.Second})
		require.NoError(t, err)
		add(t, flushed, "a", "b")
		gone, err := d.Open(ctx, TopicPartition{"gone", 0}, Config{})
		require.NoError(t, err)
		add(t, gone, "x")
		require.NoError(t, d.Delete(ctx, gone.TopicPartition()))
		moved, err := d.Open(ctx, TopicPartition{"external", 0}, Config{Visibility: External})
		require.NoError(t, err)
		add(t, moved, "p", "q")

		time.Sleep(31 * time.Second) // the initial delay is over
		synctest.Wait()
		require.Equal(t, "0\n2\nexternal 0 2\nold 0 5\n", read(checkpoint.RecoveryPoints), "all others are at 0")
		require.Contains(t, read(checkpoint.HighWatermarks), "old 0 5\n")
		require.Equal(t, int64(5), old.Offsets().RecoveryPoint)
		require.Zero(t, flushed.Offsets().Durable)
		_, err = moved.SetHighWatermark(1)
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Contains(t, read(checkpoint.HighWatermarks), "external 0 1\n")
		time.Sleep(50 * time.Second)
		synctest.Wait()
		require.Equal(t, int64(2), flushed.Offsets().Durable)
		require.Equal(t, 2, len(foldersOf(t, fsys, "old", "flushed")))
		require.Empty(t, foldersOf(t, fsys, "gone"))

		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, int64(5), old.Offsets().LogStart, "all of it is too old")
		require.Positive(t, old.Stats().Freed)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Zero(t, old.Stats().Deleting)
		require.Empty(t, d.Stats().Failing)
		require.Less(t, d.Stats().CheckpointAge, 2*time.Minute)
		require.NoError(t, d.Close())
	}) // which fails if a goroutine is left
}

func foldersOf(t *testing.T, fsys vfs.FS, topics ...string) (found []string) {
	entries, err := fsys.ReadDir(".")
	require.NoError(t, err)
	for _, e := range entries {
		for _, topic := range topics {
			if e.IsDir() && strings.HasPrefix(e.Name(), topic) {
				found = append(found, e.Name())
			}
		}
	}
	return found
}

func TestTheNumberOfGoroutinesDoesNotGrowWithTheLogs(t *testing.T) {
	before := runtime.NumGoroutine()
	d, err := OpenDir("root", DirConfig{FS: vfs.Mem(), InitialDelay: Immediately, CheckpointInterval: time.Millisecond, HighWatermarkInterval: time.Millisecond, Defaults: Config{FlushInterval: time.Millisecond}})
	require.NoError(t, err)
	for n := range int32(300) {
		l, err := d.Open(ctx, TopicPartition{"t", n}, Config{})
		require.NoError(t, err)
		add(t, l, "a")
	}
	most := 0
	for range 100 {
		most = max(most, runtime.NumGoroutine()-before)
		time.Sleep(time.Millisecond / 2)
	}
	require.Less(t, most, 2*16+8)
	require.NoError(t, d.Close())
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d goroutines are left", runtime.NumGoroutine()-before)
}

func TestAManualDirAndALoneLogStartNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	b := newRootBed(t, vfs.Mem(), DirConfig{})
	add(t, b.log("t", 0, Config{}), "a")
	l, err := Open(t.TempDir(), Config{})
	require.NoError(t, err)
	add(t, l, "a")
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
	require.NoError(t, l.Close())
}

// A device that hangs under one log holds up neither the others nor the other tasks, and Stats says so.
func TestALogThatHangsHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.NewFault(vfs.Mem())
		d, err := OpenDir("root", DirConfig{FS: disk, InitialDelay: Immediately, FlushScheduler: time.Second, Defaults: Config{Durability: Buffered, FlushInterval: time.Second}})
		require.NoError(t, err)
		var logs []*Log
		for n := range int32(20) {
			l, err := d.Open(ctx, TopicPartition{"t", n}, Config{})
			require.NoError(t, err)
			logs = append(logs, l)
		}
		block := make(chan struct{})
		disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "t-3/*.log", Times: vfstest.Always, Block: block})
		for i := range 5 {
			for n, l := range logs {
				if i == 0 || n != 3 { // its flush.ms is over: an append would wait for the device too
					add(t, l, "a")
				}
			}
			time.Sleep(30 * time.Second)
			synctest.Wait()
			for n, l := range logs {
				require.Equal(t, n != 3, l.Offsets().Durable == l.Offsets().LogEnd, "%d", n)
			}
		}
		require.Equal(t, []Failure{{TopicPartition{"t", 3}, "flush", errStuck, d.Stats().Failing[0].Since, d.Stats().Failing[0].Times}}, d.Stats().Failing)
		require.Less(t, d.Stats().CheckpointAge, 2*time.Minute)
		close(block)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Empty(t, d.Stats().Failing)
		require.Equal(t, int64(1), logs[3].Offsets().Durable)
		require.NoError(t, d.Close())
	})
}

// Report: B040. One bad log stops no other, is tried again, and is seen.
func TestOneBadLogStopsNoOther(t *testing.T) {
	disk := vfstest.NewFault(vfs.Mem())
	type told struct {
		tp  TopicPartition
		err error
	}
	var events []told
	b := newRootBed(t, disk, DirConfig{Events: &Events{Failed: func(tp TopicPartition, err error) { events = append(events, told{tp, err}) }}})
	var logs []*Log
	for n := range int32(5) {
		logs = append(logs, b.log("t", n, Config{IndexIntervalBytes: EveryBatch}))
		add(t, logs[n], "a", "b")
	}
	_, remove := disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpWrite}, Name: "t-2/*index", Times: vfstest.Always, Err: syscall.ENOSPC})
	b.clock.advance(time.Minute)
	err := b.RunOnce(ctx, b.clock.now())
	require.ErrorIs(t, err, ErrNoSpace)
	for n, l := range logs {
		require.Equal(t, n != 2, l.Offsets().RecoveryPoint == 2, "%d", n)
	}
	require.Equal(t, "checkpoint", logs[2].Stats().Failing[0].Task)
	require.Len(t, events, 1)
	require.Equal(t, TopicPartition{"t", 2}, events[0].tp)
	remove()
	b.after(time.Minute)
	require.Equal(t, int64(2), logs[2].Offsets().RecoveryPoint)
	require.Empty(t, b.Stats().Failing)
}

func TestRunOnceIsStoppedByItsContextAndByClose(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{})
	gone, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, b.RunOnce(gone, b.clock.now()), context.Canceled)
	require.NoError(t, b.Dir.Close())
	require.ErrorIs(t, b.RunOnce(ctx, b.clock.now()), ErrClosed)
	var d Dir
	require.ErrorIs(t, d.RunOnce(ctx, b.clock.now()), ErrClosed)
	require.Equal(t, DirStats{Free: -1}, d.Stats())
}

// Report: B135. A clock that is put back delays nothing by more than one interval.
func TestAClockThatIsPutBackStopsNothing(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{})
	l := b.log("t", 0, Config{})
	b.after(time.Hour)
	b.after(-24 * time.Hour)
	add(t, l, "a")
	b.after(time.Minute)
	require.Equal(t, int64(1), l.Offsets().RecoveryPoint)
}

// Buffered logs are not synced for a checkpoint: it takes what their rolls made durable, as Kafka does.
func TestACheckpointSyncsNoRecordsOfABufferedLog(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{})
	l := b.log("t", 0, Config{Durability: Buffered, SegmentBytes: 200})
	add(t, l, "1", "2", "3", "4", "5")
	active := l.SegmentInfos()[len(l.SegmentInfos())-1].Base
	require.Positive(t, active)
	b.after(time.Minute)
	require.Equal(t, active, l.Offsets().RecoveryPoint)
	require.Contains(t, b.content(checkpoint.RecoveryPoints), fmt.Sprintf("t 0 %d\n", active))
	require.Less(t, l.Offsets().Durable, int64(5))
}

// Scenario: K018. The start offset goes into the checkpoint, and out again once a segment begins there.
func TestTheSweepKeepsOnlyStartOffsetsInsideSegments(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{})
	l := b.log("t", 0, Config{SegmentBytes: 200, RetentionTime: Forever})
	add(t, l, "1", "2", "3", "4", "5", "6")
	inside := l.SegmentInfos()[1].Base
	require.NoError(t, l.DeleteRecords(ctx, inside+1))
	require.Equal(t, fmt.Sprintf("0\n1\nt 0 %d\n", inside+1), b.content(checkpoint.LogStarts))
	next := l.SegmentInfos()[2].Base
	require.NoError(t, l.DeleteRecords(ctx, next))
	b.after(5 * time.Minute)
	b.after(time.Minute)
	require.Equal(t, next, l.SegmentInfos()[0].Base)
	require.Equal(t, "0\n0\n", b.content(checkpoint.LogStarts))
}

// Whatever a power loss leaves while checkpoints of several logs are written beside appends, truncations and deletions, no
// recovery point vouches for what is not there.
func TestTheSweepSurvivesEveryCrash(t *testing.T) {
	disk := vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock})
	fault := vfstest.NewFault(disk)
	b := newRootBed(t, fault, DirConfig{Defaults: Config{SegmentBytes: crashSegment}})
	first, second := b.log("t", 0, Config{}), b.log("t", 1, Config{})
	for i := range 5 {
		add(t, first, fmt.Sprint(i))
		add(t, second, fmt.Sprint(i))
	}
	disk.Mark()
	// What happens to a log while the sweep has found where its point may go, but not yet written it.
	fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpCreate, vfstest.OpOpen}, Name: checkpoint.RecoveryPoints + ".tmp", Hook: func(vfstest.Op) error {
		done := make(chan error, 1)
		go func() {
			_, err := first.Truncate(ctx, 2)
			if err == nil {
				_, err = first.AppendBatches(ctx, batchOf(0, 0, 0, "x"), AppendOptions{Durability: Buffered})
			}
			done <- err
		}()
		t.Cleanup(func() { require.NoError(t, <-done) })
		return nil
	}})
	b.after(time.Minute)
	for first.Offsets().LogEnd != 3 {
		time.Sleep(time.Millisecond)
	}
	disk.Note("cut")
	add(t, first, "y", "z")
	add(t, second, "5")
	disk.Note("appended")
	b.after(time.Minute)
	require.Equal(t, int64(5), first.Offsets().RecoveryPoint)
	for _, kill := range []bool{false, true} {
		for d := range disk.Disks(vfstest.DiskOptions{Kill: kill, Limit: 16, Samples: 8, Cuts: 1}) {
			require.NoError(t, checkSweep(d), "%v", d.Describe())
		}
	}
}

func checkSweep(disk *vfstest.Disk) error {
	d, err := OpenDir("root", DirConfig{FS: disk.FS(), Manual: true, Now: crashClock, Defaults: Config{SegmentBytes: crashSegment}})
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.OpenAll(ctx, OpenAllOptions{}); err != nil {
		return err
	}
	least := [][2]int64{{2, 5}, {2, 5}, {5, 6}}[len(disk.Notes())]
	for tp, l := range d.Logs() {
		if end := l.Offsets().LogEnd; end < least[tp.Partition] {
			return fmt.Errorf("%v ends at %d, want %v after %v", tp, end, least, disk.Notes())
		}
		for _, f := range l.Recovery().Findings {
			if f.Kind != FindingTail {
				return fmt.Errorf("finding of %v: %v", tp, f)
			}
		}
		for f, err := range l.Verify(ctx) {
			if err == nil {
				err = fmt.Errorf("finding of %v: %v", tp, f)
			}
			return err
		}
	}
	return nil
}

// What a log does between the two steps of a sweep, and what is half done when it comes, is respected.
func TestTheSweepGivesWayToTruncationsAndDeletions(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{})
	l := b.log("t", 0, Config{})
	add(t, l, "1", "2", "3", "4", "5")
	f, err := l.standOn(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(5), f.end)
	_, err = l.Truncate(ctx, 2)
	require.NoError(t, err)
	_, err = l.AppendBatches(ctx, batchOf(0, 0, 0, "a", "b", "c", "d"), AppendOptions{Durability: Buffered})
	require.NoError(t, err)
	require.NoError(t, b.points.sweep(ctx, []*Log{l}, []footing{f}))
	require.LessOrEqual(t, l.Offsets().RecoveryPoint, int64(2))
	stored, _, _ := b.points.get(checkpoint.RecoveryPoints, l.tp)
	require.LessOrEqual(t, stored, int64(2), "what is there now is not what was synced")

	require.NoError(t, l.Sync(ctx))
	require.NoError(t, l.DeleteRecords(ctx, 1))
	b.points.set(checkpoint.LogStarts, l.tp, 2) // another DeleteRecords has stored it, and is about to show it
	require.NoError(t, b.points.sweep(ctx, []*Log{l}, nil))
	stored, _, _ = b.points.get(checkpoint.LogStarts, l.tp)
	require.Equal(t, int64(2), stored)
	require.NoError(t, b.Delete(ctx, l.tp))
	require.NoError(t, b.points.sweep(ctx, []*Log{l}, []footing{f}))
	_, known, _ := b.points.get(checkpoint.HighWatermarks, l.tp)
	require.False(t, known, "it is gone")
}

func TestEventsTellWhatHappens(t *testing.T) {
	disk := vfstest.NewFault(vfs.Mem())
	var told []string
	say := func(tp TopicPartition, what string, detail any) {
		told = append(told, strings.TrimSpace(fmt.Sprintf("%s %s %v", tp, what, detail)))
	}
	var b *rootBed
	b = newRootBed(t, disk, DirConfig{SlowSync: 50 * time.Millisecond, Events: &Events{
		Recovered:    func(tp TopicPartition, r RecoveryReport) { say(tp, "recovered", r.Clean) },
		Rolled:       func(tp TopicPartition, i SegmentInfo) { say(tp, "rolled", []any{i.Base, i.Next, i.Sealed}) },
		Retained:     func(tp TopicPartition, r RetentionReport) { say(tp, "retained", r.Dropped) },
		SlowSync:     func(tp TopicPartition, took time.Duration) { say(tp, "slow", took >= 50*time.Millisecond) },
		Backpressure: func(tp TopicPartition, err error) { say(tp, "pressed", errors.Is(err, ErrFull)) },
		Failed: func(tp TopicPartition, err error) {
			say(tp, "failed", errors.Is(err, ErrFailed))
			l, _ := b.Get(tp)
			add(t, b.log("u", 0, Config{}), "an event may call the Dir")
			say(tp, "stopped", l.Stats().LastError != nil)
		},
	}})
	l := b.log("t", 0, Config{SegmentBytes: 200, RetentionBytes: 60})
	add(t, l, "1", "2", "3")
	require.NoError(t, b.RunOnce(ctx, b.clock.now().Add(time.Hour)))
	full := b.log("t", 1, Config{MaxBytes: 10})
	_, err := full.Append(ctx, siteRecord(0))
	require.ErrorIs(t, err, ErrFull)
	disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "t-0/*.log", Delay: 60 * time.Millisecond})
	add(t, l, "4")
	disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "t-0/*.log", Err: syscall.EIO})
	_, err = l.Append(ctx, siteRecord(0))
	require.ErrorIs(t, err, ErrFailed)
	want := []string{"t-0 recovered true", "t-0 rolled [0 2 true]", "t-0 retained 1", "t-1 recovered true", "t-1 pressed true",
		"t-0 slow true", "t-0 failed true", "u-0 recovered true", "t-0 stopped true"}
	got := told[:0:0]
	for _, line := range told {
		if !strings.Contains(line, "t-0 recovered false") {
			got = append(got, strings.ReplaceAll(line, "recovered false", "recovered true"))
		}
	}
	require.Subset(t, got, want[1:])
}

// Report: B040. A panic in a host's function ends nothing.
func TestAPanicInAnEventIsCounted(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{Events: &Events{Recovered: func(TopicPartition, RecoveryReport) { panic("ouch") }}})
	add(t, b.log("t", 0, Config{}), "a")
	add(t, b.log("t", 1, Config{}), "a")
	require.Equal(t, int64(2), b.Stats().EventPanics)
}

// Events of one log come one at a time.
func TestEventsOfOneLogAreNeverConcurrent(t *testing.T) {
	var inside, calls atomic.Int32
	b := newRootBed(t, vfs.Mem(), DirConfig{Events: &Events{Rolled: func(TopicPartition, SegmentInfo) {
		if inside.Add(1) > 1 {
			t.Error("two at a time")
		}
		time.Sleep(time.Millisecond)
		calls.Add(1)
		inside.Add(-1)
	}}})
	l := b.log("t", 0, Config{SegmentBytes: 100})
	done := make(chan struct{})
	for range 4 {
		go func() {
			for range 5 {
				_, err := l.Append(ctx, siteRecord(0))
				if err != nil {
					t.Error(err)
				}
			}
			done <- struct{}{}
		}()
	}
	for range 4 {
		<-done
	}
	require.NoError(t, b.Dir.Close())
	require.Equal(t, int32(19), calls.Load())
}

func TestWhatDropOldestTakesIsToldAndCounted(t *testing.T) {
	var reports []RetentionReport
	b := newRootBed(t, vfs.Mem(), DirConfig{Manual: true, Events: &Events{Retained: func(_ TopicPartition, r RetentionReport) { reports = append(reports, r) }}})
	l := b.log("t", 0, Config{MaxBytes: 1000, SegmentBytes: 300, WhenFull: DropOldest})
	for range 30 {
		add(t, l, "some value of thirty characters")
	}
	require.NotEmpty(t, reports)
	freed, start := int64(0), int64(0)
	for _, r := range reports {
		require.Equal(t, r.Dropped, len(r.Plan.Drop))
		for _, d := range r.Plan.Drop {
			require.Equal(t, start, d.Base)
			start = d.End
		}
		require.Equal(t, start, r.Plan.NewStart)
		freed += r.Freed
	}
	require.Equal(t, l.Offsets().LogStart, start)
	require.Equal(t, freed, l.Stats().Freed)
}
