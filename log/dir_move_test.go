package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// below is a folder of a file system as one of its own, so that two roots can crash together.
type below struct {
	vfs.FS
	at string
}

func (b below) name(name string) string {
	if name == "." {
		return b.at
	}
	return b.at + "/" + name
}

func (b below) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	return b.FS.OpenFile(b.name(name), flag, perm)
}
func (b below) Stat(name string) (fs.FileInfo, error) { return b.FS.Stat(b.name(name)) }
func (b below) Rename(from, to string) error          { return b.FS.Rename(b.name(from), b.name(to)) }
func (b below) Link(from, to string) error            { return b.FS.Link(b.name(from), b.name(to)) }
func (b below) Remove(name string) error              { return b.FS.Remove(b.name(name)) }
func (b below) MkdirAll(name string, perm fs.FileMode) error {
	return b.FS.MkdirAll(b.name(name), perm)
}
func (b below) ReadDir(name string) ([]fs.DirEntry, error) { return b.FS.ReadDir(b.name(name)) }
func (b below) SyncDir(name string) error                  { return b.FS.SyncDir(b.name(name)) }
func (b below) Lock(name string) (io.Closer, error)        { return b.FS.Lock(b.name(name)) }
func (b below) Chtimes(name string, mtime time.Time) error { return b.FS.Chtimes(b.name(name), mtime) }
func (b below) Free(name string) (int64, error)            { return b.FS.Free(b.name(name)) }
func (b below) Traits(name string) vfs.Traits              { return b.FS.Traits(b.name(name)) }

// twoRoots are the folders a and b of one disk.
func twoRoots(t testing.TB, fsys vfs.FS, c DirConfig) (a, b *rootBed) {
	t.Helper()
	for _, name := range []string{"a", "b"} {
		require.NoError(t, fsys.MkdirAll(name, 0o755))
	}
	return newRootBed(t, below{fsys, "a"}, c), newRootBed(t, below{fsys, "b"}, c)
}

var moved = TopicPartition{"t", 0}

func TestAMovedPartitionIsTheSameElsewhere(t *testing.T) {
	a, b := twoRoots(t, vfs.Mem(), DirConfig{Defaults: Config{SegmentBytes: 300}})
	l := a.log("t", 0, Config{MaxMessageBytes: 12345})
	require.NoError(t, l.SetTopicID([16]byte{1, 2, 3}))
	require.NoError(t, l.AssignEpoch(3))
	add(t, l, "a", "b", "c", "d")
	_, err := l.Append(ctx, values2records([]string{"e1", "e2", "e3"})...)
	require.NoError(t, err)
	require.NoError(t, l.AssignEpoch(5))
	add(t, l, "f")
	require.NoError(t, l.DeleteRecords(ctx, 5), "inside a batch")
	require.NoError(t, l.AssignEpoch(9), "nothing was written in it")
	want, was := valuesOf(t, l), l.Offsets()
	waiting := make(chan error, 1)
	go func() { waiting <- l.Wait(ctx, MarkEnd, 100) }()

	require.NoError(t, a.Move(ctx, moved, b.Dir))
	_, here := a.Get(moved)
	require.False(t, here)
	require.ErrorIs(t, <-waiting, ErrClosed)
	_, err = l.Append(ctx, siteRecord(0))
	require.ErrorIs(t, err, ErrClosed)
	require.Regexp(t, `^t-0\.[0-9a-f]{32}-delete$`, a.folders()[0])
	require.Equal(t, []string{"t-0"}, b.folders())
	n, here := b.Get(moved)
	require.True(t, here)
	require.Equal(t, want, valuesOf(t, n))
	now := n.Offsets()
	was.Durable, was.RecoveryPoint = now.Durable, now.RecoveryPoint
	require.Equal(t, was, now)
	require.Equal(t, []EpochEntry{{3, 5}, {5, 7}, {9, 8}}, n.Epochs())
	require.Equal(t, [16]byte{1, 2, 3}, n.TopicID())
	require.Equal(t, 12345, n.Config().MaxMessageBytes)
	require.Contains(t, b.content(checkpoint.LogStarts), "t 0 5")
	add(t, n, "g")
	a.after(time.Hour)
	require.Empty(t, a.folders())
	a.reopen()
	b.reopen()
	require.NotContains(t, a.content(checkpoint.RecoveryPoints), "t 0")
	n = b.log("t", 0, Config{})
	require.Equal(t, append(want, "g"), valuesOf(t, n))
	require.True(t, n.Recovery().Clean)

	require.NoError(t, b.Move(ctx, moved, a.Dir), "and back")
	back, _ := a.Get(moved)
	require.Equal(t, append(want, "g"), valuesOf(t, back))
}

// Report: B103. A producer that repeats its last batches after a move gets the first answers.
func TestProducersAreKnownAfterAMove(t *testing.T) {
	a, b := twoRoots(t, vfs.Mem(), DirConfig{})
	l := a.log("t", 0, Config{})
	batch := func(seq int32) []byte {
		bl := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: 7, Epoch: 1, BaseSequence: seq}})
		require.NoError(t, bl.Add(record.Record{Timestamp: epoch2023, Value: []byte{byte(seq)}}))
		done, err := bl.Finish()
		require.NoError(t, err)
		return append([]byte(nil), done.Bytes()...)
	}
	for seq := range int32(8) {
		_, err := l.AppendBatches(ctx, batch(seq), AppendOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, a.Move(ctx, moved, b.Dir))
	l, _ = b.Get(moved)
	for seq := int32(3); seq < 8; seq++ {
		res, err := l.AppendBatches(ctx, batch(seq), AppendOptions{})
		require.NoError(t, err)
		require.True(t, res.Duplicate)
		require.Equal(t, int64(seq), res.Base)
	}
	require.Equal(t, int64(8), l.Offsets().LogEnd)
	_, err := l.AppendBatches(ctx, batch(9), AppendOptions{})
	require.ErrorIs(t, err, ErrOutOfOrder)
}

func TestAMoveKeepsWhatIsAppendedMeanwhile(t *testing.T) {
	a, b := twoRoots(t, vfs.Mem(), DirConfig{Defaults: Config{SegmentBytes: 2000, Durability: Buffered}})
	l := a.log("t", 0, Config{})
	add(t, l, "first")
	var writers sync.WaitGroup
	acked := make([][]string, 3)
	for w := range acked {
		writers.Go(func() {
			for i := 0; ; i++ {
				value := fmt.Sprintf("%d.%d", w, i)
				if _, err := l.Append(ctx, values2records([]string{value})...); err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Errorf("append: %v", err)
					}
					return
				}
				acked[w] = append(acked[w], value)
				if i%20 == 0 {
					time.Sleep(time.Millisecond) // three of them outrun any copy
				}
			}
		})
	}
	readers := sync.WaitGroup{}
	for range 2 {
		readers.Go(func() {
			for _, err := range l.Follow(ctx, 0, WithReset(Earliest)) {
				if err != nil && !errors.Is(err, ErrClosed) {
					t.Errorf("follow: %v", err)
				}
			}
		})
	}
	time.Sleep(5 * time.Millisecond)
	require.NoError(t, a.Move(ctx, moved, b.Dir))
	writers.Wait()
	readers.Wait()
	n, ok := b.Get(moved)
	require.True(t, ok)
	got := map[string]int{}
	for _, v := range valuesOf(t, n) {
		got[v]++
	}
	count := 1
	for _, list := range acked {
		count += len(list)
		for _, v := range list {
			require.Equal(t, 1, got[v], v)
		}
	}
	require.Len(t, got, count)
	for f, err := range n.Verify(ctx) {
		require.NoError(t, err)
		t.Errorf("%v", f)
	}
}

// Appends that outrun the copy are held up in the end: a move comes to its end whatever goes on beside it.
func TestAMoveEndsUnderAFloodOfAppends(t *testing.T) {
	disk := vfstest.NewFault(vfs.Mem())
	a, b := twoRoots(t, disk, DirConfig{Defaults: Config{Durability: Buffered}})
	l := a.log("t", 0, Config{})
	_, err := l.Append(ctx, values2records(make([]string, 1500))...)
	require.NoError(t, err)
	flood := 0
	disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpWrite}, Times: vfstest.Always, Name: "b/*-future/*.log", Hook: func(vfstest.Op) error {
		if l.write.held.Load() || flood > 100_000 {
			return nil
		}
		more := 2 * int(l.Offsets().LogEnd) // for each record that is copied
		flood += more
		_, err := l.Append(ctx, values2records(make([]string, more))...)
		return err
	}})
	require.NoError(t, a.Move(ctx, moved, b.Dir))
	n, _ := b.Get(moved)
	require.Len(t, valuesOf(t, n), 1500+flood)
	require.Equal(t, 3000, flood, "there is no second round")
}

// A truncation, a reset and deletions of what was copied already are followed.
func TestAMoveFollowsTruncations(t *testing.T) {
	for name, change := range map[string]func(l *Log) error{
		"truncated and written anew": func(l *Log) error {
			_, err := l.Truncate(ctx, 3)
			add(t, l, "x", "y", "z", "1", "2", "3", "4", "5")
			return err
		},
		"truncated":        func(l *Log) error { _, err := l.Truncate(ctx, 2); return err },
		"reset":            func(l *Log) error { return l.ResetTo(ctx, 50) },
		"everything read":  func(l *Log) error { return l.DeleteRecords(ctx, 8) },
		"the first batch":  func(l *Log) error { return l.DeleteRecords(ctx, 1) },
		"nothing at all":   func(l *Log) error { return nil },
		"a longer log":     func(l *Log) error { add(t, l, "i", "j"); return nil },
		"a rolled segment": func(l *Log) error { return l.Roll(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfstest.NewFault(vfs.Mem())
			a, b := twoRoots(t, disk, DirConfig{Defaults: Config{SegmentBytes: 300}})
			l := a.log("t", 0, Config{})
			add(t, l, "a", "b", "c", "d", "e", "f", "g", "h")
			var inner error
			disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync}, Name: "b/*-future/*.log", Hook: func(vfstest.Op) error {
				inner = change(l)
				return nil
			}})
			require.NoError(t, a.Move(ctx, moved, b.Dir))
			require.NoError(t, inner)
			n, _ := b.Get(moved)
			o, p := l.Offsets(), n.Offsets()
			require.Equal(t, []int64{o.LogStart, o.LogEnd, o.HighWatermark}, []int64{p.LogStart, p.LogEnd, p.HighWatermark})
			for f, err := range n.Verify(ctx) {
				require.NoError(t, err)
				t.Errorf("%v", f)
			}
			all := valuesOf(t, n)
			b.reopen()
			require.Equal(t, all, valuesOf(t, b.log("t", 0, Config{})))
		})
	}
}

func TestWhatCannotBeMovedStays(t *testing.T) {
	disk := vfstest.NewFault(vfs.Mem())
	a, b := twoRoots(t, disk, DirConfig{})
	require.ErrorIs(t, a.Move(ctx, moved, b.Dir), ErrNoPartition)
	l := a.log("t", 0, Config{})
	add(t, l, "a")
	b.log("t", 0, Config{})
	require.ErrorIs(t, a.Move(ctx, moved, b.Dir), ErrPartitionExists)
	b.reopen()
	require.ErrorIs(t, a.Move(ctx, moved, b.Dir), ErrPartitionExists, "not open, but there")
	require.NoError(t, b.Delete(ctx, moved))
	gone, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, a.Move(gone, moved, b.Dir), context.Canceled)
	for _, op := range []vfstest.Kind{vfstest.OpSync, vfstest.OpCreate, vfstest.OpWrite, vfstest.OpMkdir} {
		_, remove := disk.Add(vfstest.Rule{Ops: []vfstest.Kind{op}, Name: "b/*-future*", Err: syscall.ENOSPC})
		_, removeBelow := disk.Add(vfstest.Rule{Ops: []vfstest.Kind{op}, Name: "b/*-future/*", Err: syscall.ENOSPC})
		require.ErrorIs(t, a.Move(ctx, moved, b.Dir), syscall.ENOSPC, "%v", op)
		remove()
		removeBelow()
		add(t, l, "goes on")
		require.Equal(t, []string{"t-0"}, a.folders())
	}
	b.after(time.Hour)
	require.Empty(t, b.folders(), "no copy is left")
	require.Empty(t, b.Stats().Failing)
	require.NoError(t, a.Move(ctx, moved, b.Dir))
	require.NoError(t, b.Dir.Close())
	a.log("t", 1, Config{})
	require.ErrorIs(t, a.Move(ctx, TopicPartition{"t", 1}, b.Dir), ErrClosed)
}

func TestWhileAPartitionMovesNobodyElseTakesIt(t *testing.T) {
	disk := vfstest.NewFault(vfs.Mem())
	a, b := twoRoots(t, disk, DirConfig{})
	add(t, a.log("t", 0, Config{}), "a")
	calls := map[string]error{}
	disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync}, Name: "b/*-future/*.log", Hook: func(vfstest.Op) error {
		calls["delete"] = a.Delete(ctx, moved)
		calls["move"] = a.Move(ctx, moved, b.Dir)
		_, calls["open there"] = b.Open(ctx, moved, Config{})
		_, calls["stray"] = a.SetStray(ctx, moved)
		calls["settle"] = SettleMoves(ctx, a.Dir, b.Dir)
		return nil
	}})
	require.NoError(t, a.Move(ctx, moved, b.Dir))
	require.NoError(t, calls["settle"], "it is under way")
	delete(calls, "settle")
	require.Len(t, calls, 4)
	for name, err := range calls {
		require.ErrorIs(t, err, ErrMoving, name)
	}
}

// Kafka's rules for -future folders, over all roots.
func TestSettleMovesFollowsKafka(t *testing.T) {
	disk := vfs.Mem()
	a, b := twoRoots(t, disk, DirConfig{})
	future := func(n int) string { return fmt.Sprintf("t-%d.%032d-future", n, n) }
	add(t, a.log("t", 0, Config{}), "alone") // becomes a copy without a twin
	add(t, a.log("t", 1, Config{}), "twin elsewhere")
	add(t, a.log("t", 2, Config{}), "twin here")
	require.NoError(t, a.Dir.Close())
	require.NoError(t, b.Dir.Close())
	require.NoError(t, disk.Rename("a/t-0", "a/"+future(0)))
	require.NoError(t, disk.MkdirAll("b/"+future(1), 0o755))
	require.NoError(t, disk.MkdirAll("a/"+future(2), 0o755))
	a.open()
	b.open()
	require.Equal(t, 2, a.Stats().Future)
	for d, n := range map[*rootBed]int32{a: 0, b: 1} {
		_, err := d.Open(ctx, TopicPartition{"t", n}, Config{})
		require.ErrorIs(t, err, ErrMoving, "it is not known whether it is complete")
	}
	l := a.log("t", 2, Config{})
	require.Equal(t, FindingFuture, l.Recovery().Findings[0].Kind)
	require.ErrorIs(t, SettleMoves(ctx, a.Dir, b.Dir), ErrPartitionExists)
	require.Equal(t, []string{"alone"}, valuesOf(t, a.log("t", 0, Config{})))
	b.after(0)
	require.Empty(t, b.folders())
	require.Equal(t, []string{"twin elsewhere"}, valuesOf(t, a.log("t", 1, Config{})))
	require.Equal(t, []string{"twin here"}, valuesOf(t, l))
}

// A power loss or a kill at any point of a move leaves the partition in one of the roots, whole.
func TestAMoveSurvivesEveryCrash(t *testing.T) {
	for _, clean := range []bool{false, true} {
		disk := vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock})
		fault := vfstest.NewFault(disk)
		c := DirConfig{Defaults: Config{SegmentBytes: crashSegment}}
		a, b := twoRoots(t, fault, c)
		l := a.log("t", 0, Config{})
		for i := range 5 {
			add(t, l, fmt.Sprint(i))
		}
		require.NoError(t, l.DeleteRecords(ctx, 1))
		if clean {
			a.reopen()
			b.reopen()
			l = a.log("t", 0, Config{})
		}
		disk.Mark()
		// An append that comes when the copy believes that it has everything.
		fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync}, Name: "b/*-future/*.log", Hook: func(vfstest.Op) error {
			add(t, l, "5")
			disk.Note("appended")
			return nil
		}})
		require.NoError(t, a.Move(ctx, moved, b.Dir))
		n, _ := b.Get(moved)
		disk.Note("moved")
		add(t, n, "6")
		disk.Note("appended there")
		disks := 0
		for _, kill := range []bool{false, true} {
			for d := range disk.Disks(vfstest.DiskOptions{Kill: kill, Limit: 16, Samples: 4, Cuts: 1, NoTorn: true}) {
				require.NoError(t, checkMove(d), "%v", d.Describe())
				disks++
			}
		}
		t.Logf("%d disks", disks)
	}
}

func checkMove(disk *vfstest.Disk) error {
	fsys := disk.FS()
	var dirs []*Dir
	for _, name := range []string{"a", "b"} {
		d, err := OpenDir(name, DirConfig{FS: below{fsys, name}, Manual: true, Now: crashClock, Defaults: Config{SegmentBytes: crashSegment, FileDeleteDelay: Immediately}})
		if err != nil {
			return err
		}
		defer d.Close()
		dirs = append(dirs, d)
	}
	if err := SettleMoves(ctx, dirs...); err != nil {
		return err
	}
	var found *Log
	for _, d := range dirs {
		if err := d.RunOnce(ctx, crashClock().Add(time.Hour)); err != nil {
			return err
		}
		if !exists(d.fs, moved.String()) {
			continue
		}
		l, err := d.Open(ctx, moved, Config{})
		if err != nil {
			return err
		}
		if found != nil {
			return errors.New("it is in both roots")
		}
		found = l
	}
	if found == nil {
		return errors.New("it is in no root")
	}
	var got []string
	for r, err := range found.Records(ctx, found.Offsets().LogStart) {
		if err != nil {
			return err
		}
		got = append(got, string(r.Value))
	}
	all, notes := "1 2 3 4 5 6", len(disk.Notes())
	text := strings.Join(got, " ")
	least := []int{7, 9, 9, 11}[notes] // of the text
	if !strings.HasPrefix(all, text) || len(text) < least || notes < 1 && len(text) > 9 {
		return fmt.Errorf("after %v: %q", disk.Notes(), text)
	}
	if notes >= 2 && found.dir != dirs[1] {
		return errors.New("it is back where it was")
	}
	for _, f := range found.Recovery().Findings {
		if f.Kind != FindingTail {
			return fmt.Errorf("finding %v", f)
		}
	}
	return nil
}

// The copy has the same records, but rolled where the other root rolls: its segments begin elsewhere.
//
// Scenario: N007.
func TestAMovedPartitionMayRollElsewhere(t *testing.T) {
	a, b := twoRoots(t, vfs.Mem(), DirConfig{})
	l := a.log("t", 0, Config{SegmentBytes: 1 << 20})
	for i := range 6 {
		add(t, l, "a", "b")
		if i%2 == 0 {
			require.NoError(t, l.Roll(ctx))
		}
	}
	require.NoError(t, l.Roll(ctx))
	want, was := valuesOf(t, l), l.SegmentInfos()
	require.Len(t, was, 5)
	require.NoError(t, a.Move(ctx, moved, b.Dir))
	n, ok := b.Get(moved)
	require.True(t, ok)
	require.Equal(t, want, valuesOf(t, n))
	require.Equal(t, int64(12), n.Offsets().LogEnd)
	require.NotEqual(t, len(was), len(n.SegmentInfos()))
	add(t, n, "more")
	b.reopen()
	require.Equal(t, append(want, "more"), valuesOf(t, b.log("t", 0, Config{})))
}
