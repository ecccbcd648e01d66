package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Offsets end at 2^63-1: appends are refused there, and nothing overflows.
func TestOffsetsEndWhereInt64Ends(t *testing.T) {
	for _, left := range []int64{0, 1, 2, 5, 1 << 31, 1<<62 + 3} {
		b := newBed(t, Config{})
		start := math.MaxInt64 - left
		require.NoError(t, b.ResetTo(ctx, start))
		n := int64(0)
		for ; n < min(left, 4); n++ {
			require.Equal(t, start+n, b.add("x"))
		}
		if left < 5 {
			_, err := b.Append(ctx, record.Record{})
			require.ErrorIs(t, err, ErrInvalidRecord, left)
			_, err = b.Append(ctx, values(9, 1)...)
			require.ErrorIs(t, err, ErrInvalidRecord, left)
			_, err = b.AppendBatches(ctx, timed(1, 2), AppendOptions{})
			require.ErrorIs(t, err, ErrInvalidRecord)
		}
		_, err := b.follow(batchOf(math.MaxInt64-1, 0, record.None, "a", "b", "c")) // its last offset wraps
		require.Error(t, err)
		_, err = b.follow(batchOf(math.MaxInt64, 0, record.None, "a"))
		require.Error(t, err)
		for range 2 {
			require.Equal(t, start+n, b.Offsets().LogEnd)
			require.Len(t, b.readAll(start), int(n))
			require.Empty(t, b.readAll(start+n))
			_, err = offsetsOf(b.Records(ctx, math.MaxInt64))
			require.True(t, err == nil || errors.Is(err, ErrOffsetOutOfRange))
			short, stop := context.WithTimeout(ctx, time.Millisecond)
			_, err = offsetsOf(b.Follow(short, start+n))
			require.True(t, err == nil || errors.Is(err, context.DeadlineExceeded), err)
			stop()
			f, err := b.Fetch(ctx, start+n, FetchOptions{})
			require.NoError(t, err)
			require.NoError(t, f.Close())
			b.reopen()
		}
		require.NoError(t, b.Roll(ctx))
		end, err := b.Truncate(ctx, math.MaxInt64)
		require.NoError(t, err)
		require.Equal(t, start+n, end)
		require.NoError(t, b.DeleteRecords(ctx, ToHighWatermark))
		b.reopen()
		require.Equal(t, start+n, b.Offsets().LogStart)
	}
}

// A batch that holds the last offset of all has no offset behind it: it is no batch, wherever it is met.
func TestABatchAtTheLastOffsetOfAllIsNone(t *testing.T) {
	for _, base := range []int64{math.MaxInt64, math.MaxInt64 - 3} {
		s := newSite(t, Config{})
		require.NoError(t, s.log.ResetTo(ctx, base))
		s.stop()
		s.write(logFile(base), batchOf(math.MaxInt64, 0, record.None, "v"))
		for _, clean := range []bool{true, false} {
			if !clean {
				require.NoError(t, removeIfThere(s.disk, checkpoint.CleanMarker))
			}
			r, err := OpenReader("t-0", ReaderOptions{FS: s.disk})
			if err == nil {
				_, _ = offsetsOf(r.Records(ctx, base))
				require.GreaterOrEqual(t, r.Offsets().LogEnd, int64(0))
				require.NoError(t, r.Close())
			}
			err = s.tryOpen()
			if err != nil {
				require.ErrorIs(t, err, ErrCorrupt)
				continue
			}
			require.Equal(t, base, s.log.Offsets().LogEnd)
			_, err = offsetsOf(s.log.Records(ctx, base))
			require.NoError(t, err)
			s.stop()
			s.write(logFile(base), batchOf(math.MaxInt64, 0, record.None, "v"))
		}
	}
}

// What has not been opened says that it is closed.
func TestZeroValuesAreClosed(t *testing.T) {
	for name, call := range map[string]func() error{
		"Append":         func() error { return errOf(new(Log).Append(ctx, record.Record{})) },
		"Append nothing": func() error { return errOf(new(Log).Append(ctx)) },
		"AppendBatches":  func() error { return errOf(new(Log).AppendBatches(ctx, timed(1), AppendOptions{})) },
		"Sync":           func() error { return new(Log).Sync(ctx) },
		"Roll":           func() error { return new(Log).Roll(ctx) },
		"FollowEnd":      func() error { return new(Log).FollowEnd(ctx, 1) },
		"Wait":           func() error { return new(Log).Wait(ctx, MarkEnd, 1) },
		"Truncate":       func() error { return errOf(new(Log).Truncate(ctx, 1)) },
		"ResetTo":        func() error { return new(Log).ResetTo(ctx, 1) },
		"DeleteRecords":  func() error { return new(Log).DeleteRecords(ctx, 1) },
		"AssignEpoch":    func() error { return new(Log).AssignEpoch(1) },
		"Records":        func() error { return errOf(offsetsOf(new(Log).Records(ctx, 0))) },
		"Follow":         func() error { return errOf(offsetsOf(new(Log).Follow(ctx, 0))) },
		"Fetch":          func() error { return errOf(new(Log).Fetch(ctx, 0, FetchOptions{})) },
		"OffsetForTime":  func() error { return errOf(new(Log).OffsetForTime(ctx, time.Now())) },
		"Close":          func() error { return new(Log).Close() },
		"Reader.Records": func() error { return errOf(offsetsOf(new(Reader).Records(ctx, 0))) },
		"Reader.Follow":  func() error { return errOf(offsetsOf(new(Reader).Follow(ctx, 0))) },
		"Reader.Fetch":   func() error { return errOf(new(Reader).Fetch(ctx, 0, FetchOptions{})) },
		"Reader.Refresh": func() error { return new(Reader).Refresh() },
		"Reader.Time":    func() error { return errOf(new(Reader).OffsetForTime(ctx, time.Now())) },
		"Reader.MaxTime": func() error { return errOf(new(Reader).OffsetOfMaxTime(ctx)) },
		"Reader.Close":   func() error { return new(Reader).Close() },
		"Dir.Open":       func() error { return errOf(new(Dir).Open(ctx, TopicPartition{"t", 0}, Config{})) },
		"Dir.Close":      func() error { return new(Dir).Close() },
	} {
		t.Run(name, func(t *testing.T) { require.ErrorIs(t, call(), ErrClosed) })
	}
	for _, look := range []func(){
		func() { new(Log).Offsets() }, func() { new(Log).Stats() }, func() { new(Log).SegmentInfos() }, func() { new(Log).Epochs() },
		func() { new(Log).EndOfEpoch(1) }, func() { _ = new(Log).Err() }, func() { new(Log).Recovery() },
		func() { new(Reader).Offsets() }, func() { new(Reader).SegmentInfos() }, func() { new(Dir).Logs() },
		func() { new(Dir).Get(TopicPartition{}) }, func() { new(Dir).CleanShutdown() }, func() { _, _, _ = new(Dir).Folders() },
		func() { _ = new(Fetched).Len() }, func() { _ = new(Fetched).Close() }, func() { _, _ = new(Fetched).NextOffset() },
		func() {
			for range new(Fetched).Records() {
				return
			}
		},
	} {
		require.NotPanics(t, look)
	}
}

// A panic in the body of a loop passes through, and leaves nothing held.
func TestAPanicInALoopLeavesNothingBehind(t *testing.T) {
	b := newBed(t, Config{SegmentBytes: 300})
	for range 10 {
		b.add("a", "b")
	}
	r, err := OpenReader("t-0", ReaderOptions{FS: b.fs})
	require.NoError(t, err)
	f, err := b.Fetch(ctx, 0, FetchOptions{})
	require.NoError(t, err)
	for name, loop := range map[string]func(){
		"Records": func() {
			for range b.Records(ctx, 3) {
				panic("mine")
			}
		},
		"Follow": func() {
			for range b.Follow(ctx, 3) {
				panic("mine")
			}
		},
		"Batches": func() {
			for range b.Batches(ctx, 3) {
				panic("mine")
			}
		},
		"Reader.Records": func() {
			for range r.Records(ctx, 3) {
				panic("mine")
			}
		},
		"Reader.Follow": func() {
			for range r.Follow(ctx, 3) {
				panic("mine")
			}
		},
		"Fetched.Batches": func() {
			for range f.Batches() {
				panic("mine")
			}
		},
		"Fetched.Records": func() {
			for range f.Records() {
				panic("mine")
			}
		},
		"Dir.Logs": func() {
			for range b.dir.Logs() {
				panic("mine")
			}
		},
	} {
		require.PanicsWithValue(t, "mine", loop, name)
	}
	require.NoError(t, f.Close())
	require.NoError(t, r.Close())
	require.Zero(t, b.Stats().Followers)
	require.Zero(t, b.Stats().Pinned)
	for _, s := range b.SegmentInfos() {
		require.Zero(t, s.Pins)
	}
	b.add("c")
	require.NoError(t, errOf(b.Truncate(ctx, 1)))
	b.reopen()
}

// A full disk where only the index or a checkpoint has no room is said so, and is over once there is room.
func TestNoRoomForAnIndexOrACheckpointIsNoFailure(t *testing.T) {
	for name, rule := range map[string]vfstest.Rule{
		"index":          {Ops: []vfstest.Kind{vfstest.OpWrite}, Name: "t-0/*.index"},
		"time index":     {Ops: []vfstest.Kind{vfstest.OpWrite}, Name: "t-0/*.timeindex"},
		"recovery point": {Ops: []vfstest.Kind{vfstest.OpWrite}, Name: checkpoint.RecoveryPoints + ".tmp"},
		"new checkpoint": {Ops: []vfstest.Kind{vfstest.OpCreate}, Name: checkpoint.RecoveryPoints + ".tmp"},
	} {
		t.Run(name, func(t *testing.T) {
			fault := vfstest.NewFault(vfs.Mem())
			b := newBedOn(t, fault, Config{IndexIntervalBytes: EveryBatch})
			for i := range int64(5) {
				b.addTimes(epoch2023 + i)
			}
			rule.Err, rule.Times = syscall.ENOSPC, vfstest.Always
			_, remove := fault.Add(rule)
			for range 3 {
				require.ErrorIs(t, b.Sync(ctx), ErrNoSpace)
				require.NoError(t, b.Err())
			}
			b.addTimes(epoch2023 + 9)
			if strings.Contains(name, "index") {
				require.ErrorIs(t, b.Roll(ctx), ErrNoSpace)
			}
			b.addTimes(epoch2023 + 10)
			remove()
			require.NoError(t, b.Sync(ctx))
			require.NoError(t, b.Roll(ctx))
			b.addTimes(epoch2023 + 11)
			require.Len(t, b.readAll(0), 8)
			b.reopen()
			require.True(t, b.Recovery().Clean)
			require.Len(t, b.readAll(0), 8)
		})
	}
}

// The folder goes away under an open log: errors, no panic, and every call ends.
func TestAFolderThatGoesAwayIsAnErrorNotAPanic(t *testing.T) {
	for name, harm := range map[string]func(root string) error{
		"partition removed": func(root string) error { return os.RemoveAll(filepath.Join(root, "log-0")) },
		"partition renamed": func(root string) error { return os.Rename(filepath.Join(root, "log-0"), filepath.Join(root, "log-0x")) },
		"root removed":      os.RemoveAll,
		"root renamed":      func(root string) error { return os.Rename(root, root+"x") },
		"a file instead": func(root string) error {
			return errors.Join(os.RemoveAll(filepath.Join(root, "log-0")), os.WriteFile(filepath.Join(root, "log-0"), nil, 0o644))
		},
		"segments emptied": func(root string) error {
			files, _ := filepath.Glob(filepath.Join(root, "log-0", "*"))
			for _, f := range files {
				if err := os.Truncate(f, 0); err != nil {
					return err
				}
			}
			return nil
		},
		"segments filled with garbage": func(root string) error {
			files, _ := filepath.Glob(filepath.Join(root, "log-0", "*"))
			for _, f := range files {
				if err := os.WriteFile(f, []byte(strings.Repeat("garbage ", 100)), 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			l, err := Open(root, Config{SegmentBytes: 3000})
			require.NoError(t, err)
			for range 5 {
				require.NoError(t, errOf(l.Append(ctx, values(2, 1000)...)))
			}
			r, err := OpenReader(filepath.Join(root, "log-0"), ReaderOptions{})
			require.NoError(t, err)
			require.NoError(t, errOf(offsetsOf(r.Records(ctx, 0))))
			f, err := l.Fetch(ctx, 0, FetchOptions{})
			require.NoError(t, err)
			if err := harm(root); err != nil {
				t.Fatal(err)
			}
			for range 5 {
				_, _ = l.Append(ctx, values(2, 1000)...)
				_, _ = offsetsOf(l.Records(ctx, 0))
				_ = l.Roll(ctx)
				_ = l.Sync(ctx)
				_, _ = offsetsOf(r.Records(ctx, 0))
				_, _ = l.OffsetForTime(ctx, time.UnixMilli(epoch2023))
				_, _ = l.OffsetOfMaxTime(ctx)
				_, _ = r.OffsetForTime(ctx, time.UnixMilli(epoch2023))
				_, _ = f.NextOffset()
				l.SegmentInfos()
				r.SegmentInfos()
				l.Stats()
			}
			_ = l.AssignEpoch(7)
			_ = l.DeleteRecords(ctx, 3)
			_, _ = l.Truncate(ctx, 5)
			_ = l.ResetTo(ctx, 50)
			_ = f.Close()
			_ = r.Close()
			_ = l.Close()
			require.ErrorIs(t, l.Close(), ErrClosed)
			_ = os.RemoveAll(root + "x")
		})
	}
}

// The clock may go back: nothing waits for it to catch up.
func TestAClockThatGoesBackDelaysNothing(t *testing.T) {
	b := newBed(t, Config{Durability: Buffered, FlushInterval: time.Second, TimestampType: record.LogAppendTime})
	b.add("now")
	b.clock.advance(-365 * 24 * time.Hour)
	b.add("a year ago")
	require.EqualValues(t, 2, b.Offsets().Durable, "flush.ms is due when the time since the last flush is unknown")
	b.add("and no time has passed")
	require.EqualValues(t, 2, b.Offsets().Durable)
	b.clock.advance(2 * time.Second)
	b.add("two seconds on")
	require.EqualValues(t, 4, b.Offsets().Durable)
	b.reopen()
	require.Len(t, b.readAll(0), 4)
}

// Recovery says what the open found, whatever the log does since.
func TestTheRecoveryReportStaysAsItWas(t *testing.T) {
	b := newBed(t, Config{})
	for range 5 {
		b.add("x")
	}
	before := b.Recovery()
	var all sync.WaitGroup
	all.Go(func() {
		for range 50 {
			_ = b.Recovery()
		}
	})
	for i := range int64(4) {
		name := "t-0/" + segment.FileName(100+i, ".snapshot")
		f, err := b.fs.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.NoError(t, errOf(b.Truncate(ctx, 4-i)))
		require.False(t, exists(b.fs, name))
	}
	all.Wait()
	require.Equal(t, before, b.Recovery())
}

// An open that is refused for damage changes no log, index or checkpoint; only the marker of a clean stop is gone.
func TestARefusedOpenChangesNoByte(t *testing.T) {
	for _, clean := range []bool{false, true} {
		for name, harm := range map[string]func(s *site){
			"in the first segment": func(s *site) { s.edit(logFile(0), func(b []byte) []byte { b[len(b)-1] ^= 1; return b }) },
			"in the last segment":  func(s *site) { s.edit(logFile(6), func(b []byte) []byte { b[len(b)-1] ^= 1; return b }) },
			"and epochs lost": func(s *site) {
				s.edit(logFile(6), func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
				require.NoError(s.t, s.disk.Remove(inFolder(checkpoint.LeaderEpochs)))
			},
		} {
			s := newNine(t, Durable)
			s.stop()
			if !clean {
				require.NoError(t, removeIfThere(s.disk, checkpoint.CleanMarker))
			}
			harm(s)
			before := s.files()
			err := s.tryOpen()
			if err == nil { // a clean stop hides it; reading meets it
				_, err = offsetsOf(s.log.Records(ctx, 0))
				require.ErrorIs(t, err, ErrCorrupt)
				continue
			}
			require.ErrorIs(t, err, ErrCorrupt)
			if clean { // it says what is not so; the next open recovers, a broker's too
				require.False(t, exists(s.disk, checkpoint.CleanMarker))
				delete(before, checkpoint.CleanMarker)
			}
			require.Empty(t, changedFiles(before, s.files()), "%v %s", clean, name)
			require.NoError(t, s.dir.Close())
			require.Empty(t, changedFiles(before, s.files()), "%v %s", clean, name)
		}
	}
}

// Close is right in every state.
func TestCloseInEveryState(t *testing.T) {
	b := newBed(t, Config{})
	b.add("x")
	require.NoError(t, b.dir.Close())
	require.Equal(t, ErrClosed, b.Log.Close(), "closed with its root")
	require.Equal(t, ErrClosed, b.dir.Close())
	_, err := b.dir.Open(ctx, TopicPartition{"t", 0}, Config{})
	require.Equal(t, ErrClosed, err)
	b.open()
	require.True(t, b.Recovery().Clean)
	require.NoError(t, b.Log.Close())
	require.Equal(t, ErrClosed, b.Log.Close())
	require.NoError(t, b.dir.Close())

	b.open() // many at once: one does it
	var all sync.WaitGroup
	var mu sync.Mutex
	done := map[string]int{}
	for i := range 20 {
		all.Go(func() {
			err := b.dir.Close
			if i%2 == 0 {
				err = b.Log.Close
			}
			said := fmt.Sprint(err())
			mu.Lock()
			defer mu.Unlock()
			done[said]++
		})
	}
	all.Wait()
	require.Len(t, done, 2)
	require.LessOrEqual(t, done["<nil>"], 2)
	b.open()
	require.True(t, b.Recovery().Clean)

	fault := vfstest.NewFault(vfs.Mem()) // after a failure
	b = newBedOn(t, fault, Config{})
	fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Err: syscall.EIO})
	require.ErrorIs(t, errOf(b.Append(ctx, record.Record{})), ErrFailed)
	for range 3 {
		require.ErrorIs(t, errOf(b.Append(ctx, record.Record{})), ErrFailed)
		require.ErrorIs(t, b.Sync(ctx), ErrFailed)
		require.ErrorIs(t, b.Roll(ctx), ErrFailed)
		require.ErrorIs(t, errOf(b.Truncate(ctx, 0)), ErrFailed)
		require.ErrorIs(t, b.ResetTo(ctx, 9), ErrFailed)
		require.ErrorIs(t, b.DeleteRecords(ctx, 0), ErrFailed)
		require.ErrorIs(t, b.AssignEpoch(3), ErrFailed)
		require.ErrorIs(t, errOf(b.AppendBatches(ctx, timed(1), AppendOptions{})), ErrFailed)
		require.ErrorIs(t, b.Wait(ctx, MarkDurable, 1), ErrFailed)
		require.ErrorIs(t, b.Err(), ErrFailed)
	}
	require.ErrorIs(t, b.Log.Close(), ErrFailed)
	require.Equal(t, ErrClosed, b.Log.Close())
	l, err := b.dir.Open(ctx, TopicPartition{"t", 0}, Config{})
	require.NoError(t, err)
	require.False(t, l.Recovery().Clean)
	require.NoError(t, errOf(l.Append(ctx, record.Record{})))
}

// Batches larger than every buffer and setting: refused where a setting says so, else stored and read whole.
func TestHugeBatches(t *testing.T) {
	huge := batchOf(0, 0, record.None, strings.Repeat("x", 9<<20))
	b := newBed(t, Config{})
	require.ErrorIs(t, errOf(b.AppendBatches(ctx, bytes.Clone(huge), AppendOptions{})), ErrTooLarge, "max.message.bytes bounds leaders")
	for i := range int64(3) {
		batch := batchOf(i, 0, record.None, strings.Repeat("x", 9<<20))
		res, err := b.follow(batch)
		require.NoError(t, err)
		require.Equal(t, i, res.Base)
		b.add() // nothing
	}
	require.Equal(t, offsetsIn(0, 3), b.readAll(0))
	f, err := b.Fetch(ctx, 1, FetchOptions{MaxBytes: 10})
	require.NoError(t, err)
	require.Greater(t, f.Len(), int64(9<<20), "the first batch comes whole")
	require.NoError(t, f.Close())
	b.reopen()
	require.Equal(t, offsetsIn(1, 3), b.readAll(1))

	small := newBed(t, Config{SegmentBytes: 1 << 20})
	require.NoError(t, errOf(small.follow(huge)), "its leader has it")
	small.add("x")
	fits := batchOf(2, 0, record.None, strings.Repeat("x", 1<<20-100))
	require.NoError(t, errOf(small.follow(fits)))
	require.NoError(t, errOf(small.follow(batchOf(3, 0, record.None, strings.Repeat("x", 9<<20)))))
	small.add("x")
	require.Equal(t, []int64{0, 1, 2, 3, 4}, small.bases())
	small.reopen()
	require.Equal(t, offsetsIn(0, 5), small.readAll(0))
}
