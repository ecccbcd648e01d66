package log

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// roots is a Dir under test whose clock tests move; background work runs by RunOnce.
type rootBed struct {
	*Dir
	t     testing.TB
	fs    vfs.FS
	cfg   DirConfig
	clock *clock
}

func newRootBed(t testing.TB, fsys vfs.FS, c DirConfig) *rootBed {
	b := &rootBed{t: t, fs: fsys, cfg: c, clock: &clock{}}
	b.clock.ms.Store(epoch2023)
	b.cfg.FS, b.cfg.Now, b.cfg.Manual = fsys, b.clock.now, true
	b.open()
	t.Cleanup(func() { _ = b.Dir.Close() })
	return b
}

func (b *rootBed) open() {
	b.t.Helper()
	d, err := OpenDir("root", b.cfg)
	require.NoError(b.t, err)
	b.Dir = d
}

func (b *rootBed) reopen() {
	b.t.Helper()
	require.NoError(b.t, b.Dir.Close())
	b.open()
}

func (b *rootBed) log(topic string, partition int32, c Config) *Log {
	b.t.Helper()
	l, err := b.Open(ctx, TopicPartition{topic, partition}, c)
	require.NoError(b.t, err)
	return l
}

// after moves the clock and does what is due then.
func (b *rootBed) after(d time.Duration) {
	b.t.Helper()
	b.clock.advance(d)
	require.NoError(b.t, b.RunOnce(ctx, b.clock.now()))
}

func (b *rootBed) folders() (names []string) {
	b.t.Helper()
	entries, err := b.fs.ReadDir(".")
	require.NoError(b.t, err)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

func (b *rootBed) content(name string) string {
	b.t.Helper()
	text, err := vfs.ReadFile(b.fs, name, 1<<20)
	require.NoError(b.t, err)
	return string(text)
}

func add(t testing.TB, l *Log, values ...string) {
	t.Helper()
	for _, v := range values {
		_, err := l.Append(ctx, values2records([]string{v})...)
		require.NoError(t, err)
	}
}

func valuesOf(t testing.TB, l *Log) (all []string) {
	t.Helper()
	for r, err := range l.Records(ctx, l.Offsets().LogStart, WithIsolation(LogEnd)) {
		require.NoError(t, err)
		all = append(all, string(r.Value))
	}
	return all
}

// Scenario: K014, U060, U102
func TestADeletedPartitionGoesAfterTheDelayAndNotEarlier(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{})
	l, other := b.log("t", 0, Config{}), b.log("t", 1, Config{})
	add(t, l, "a", "b")
	add(t, other, "c")
	require.NoError(t, l.Sync(ctx))
	require.NoError(t, l.DeleteRecords(ctx, 1))
	require.NoError(t, b.Delete(ctx, TopicPartition{"t", 0}))
	_, open := b.Get(TopicPartition{"t", 0})
	require.False(t, open)
	_, err := l.Append(ctx, values2records([]string{"x"})...)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, l.Close(), ErrClosed)
	require.Len(t, b.folders(), 2)
	require.Regexp(t, `^t-0\.[0-9a-f]{32}-delete$`, b.folders()[0])
	require.Equal(t, []MarkedFolder{{b.folders()[0], TopicPartition{"t", 0}, FolderDeleting}}, b.Marked())
	for _, name := range pointFiles {
		if exists(b.fs, name) {
			require.NotContains(t, b.content(name), "t 0 ")
		}
	}
	require.Equal(t, 1, b.Stats().Deleting)
	b.after(time.Minute - time.Millisecond)
	require.Len(t, b.folders(), 2)
	b.after(time.Millisecond)
	require.Equal(t, []string{"t-1"}, b.folders())
	require.Zero(t, b.Stats().Deleting)
	require.Equal(t, []string{"c"}, valuesOf(t, other))
}

func TestADeletedPartitionCanBeMadeAnewAtOnce(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{})
	l := b.log("t", 0, Config{})
	add(t, l, "old", "old", "old")
	require.NoError(t, l.Sync(ctx))
	require.NoError(t, b.Delete(ctx, l.TopicPartition()))
	l = b.log("t", 0, Config{})
	require.Equal(t, Offsets{LeaderEpoch: -1}, l.Offsets())
	add(t, l, "new")
	b.after(time.Hour)
	require.Equal(t, []string{"new"}, valuesOf(t, l))
	b.reopen()
	require.Equal(t, []string{"new"}, valuesOf(t, b.log("t", 0, Config{})))
}

// Scenario: K005
func TestWhatIsNotThereCannotBeDeleted(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{})
	require.ErrorIs(t, b.Delete(ctx, TopicPartition{"t", 0}), ErrNoPartition)
	_, err := b.SetStray(ctx, TopicPartition{"t", 0})
	require.ErrorIs(t, err, ErrNoPartition)
	require.Empty(t, b.folders())
	gone, cancel := context.WithCancel(ctx)
	cancel()
	b.log("t", 0, Config{})
	require.ErrorIs(t, b.Delete(gone, TopicPartition{"t", 0}), context.Canceled)
	_, open := b.Get(TopicPartition{"t", 0})
	require.True(t, open, "nothing has happened")
	var d Dir
	require.ErrorIs(t, d.Delete(ctx, TopicPartition{"t", 0}), ErrClosed)
}

func TestAPartitionNobodyOpenedCanBeDeleted(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{})
	add(t, b.log("t", 0, Config{}), "a")
	b.reopen()
	require.NoError(t, b.Delete(ctx, TopicPartition{"t", 0}))
	require.NotContains(t, b.content(checkpoint.RecoveryPoints), "t 0")
	b.after(time.Minute)
	require.Empty(t, b.folders())
}

// Scenario: U079
func TestFoldersThatAnEarlierOwnerDeletedGoAfterTheOpen(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{})
	require.NoError(t, b.Dir.Close())
	young, old := "t-0."+strings.Repeat("0", 32)+"-delete", "t-1."+strings.Repeat("1", 32)+"-delete"
	for _, folder := range []string{young, old} {
		require.NoError(t, b.fs.MkdirAll(folder+"/below", 0o755))
		require.NoError(t, b.fs.Chtimes(folder, b.clock.now()))
	}
	require.NoError(t, b.fs.Chtimes(old, b.clock.now().Add(-time.Hour)))
	b.open()
	require.Len(t, b.Marked(), 2)
	b.after(0)
	require.Equal(t, []string{young}, b.folders())
	b.after(time.Minute)
	require.Empty(t, b.folders())
}

// Scenario: K014. With no delay the files go with the next work, at the latest with Close.
func TestADeletionWithoutDelayIsDoneWhenTheDirCloses(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{Defaults: Config{FileDeleteDelay: Immediately}})
	add(t, b.log("t", 0, Config{}), "a")
	require.NoError(t, b.Delete(ctx, TopicPartition{"t", 0}))
	require.Len(t, b.folders(), 1)
	require.NoError(t, b.Dir.Close())
	require.Empty(t, b.folders())
	require.True(t, exists(b.fs, checkpoint.CleanMarker))
}

// Report: B196. The longest allowed name can be deleted; its -delete folder is cut as Kafka cuts it.
func TestTheLongestNameCanBeDeletedAndSetAside(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{})
	tp := TopicPartition{strings.Repeat("x", 249), 7}
	add(t, b.log(tp.Topic, tp.Partition, Config{}), "a")
	folder, err := b.SetStray(ctx, tp)
	require.NoError(t, err)
	require.Len(t, folder, 255)
	require.ErrorIs(t, b.Unstray(ctx, folder, TopicPartition{tp.Topic, 8}), ErrNoPartition)
	require.ErrorIs(t, b.Unstray(ctx, folder, TopicPartition{"y", 7}), ErrNoPartition)
	require.NoError(t, b.Unstray(ctx, folder, tp))
	require.Equal(t, []string{"a"}, valuesOf(t, b.log(tp.Topic, tp.Partition, Config{})))
	require.NoError(t, b.Delete(ctx, tp))
	require.Len(t, b.folders()[0], 255)
	require.ErrorIs(t, b.Move(ctx, tp, newRootBed(t, vfs.Mem(), DirConfig{}).Dir), ErrNotLog, "no suffix fits behind the name")
	b.after(time.Minute)
	require.Empty(t, b.folders())
	_, err = b.Open(ctx, TopicPartition{strings.Repeat("x", 250), 7}, Config{})
	require.Error(t, err)
}

// Scenario: K012. Stray folders are listed, never loaded, never removed.
func TestAStrayPartitionStaysAside(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{})
	tp := TopicPartition{"t", 0}
	l := b.log("t", 0, Config{})
	add(t, l, "a", "b")
	folder, err := b.SetStray(ctx, tp)
	require.NoError(t, err)
	require.Regexp(t, `^t-0\.[0-9a-f]{32}-stray$`, folder)
	require.ErrorIs(t, l.Err(), ErrClosed)
	again := b.log("t", 0, Config{})
	require.Empty(t, valuesOf(t, again), "a new one")
	require.ErrorIs(t, b.Unstray(ctx, folder, tp), ErrPartitionExists)
	b.reopen()
	require.NoError(t, b.OpenAll(ctx, OpenAllOptions{}))
	require.ErrorIs(t, b.Unstray(ctx, folder, tp), ErrPartitionExists)
	b.after(time.Hour)
	require.Equal(t, []MarkedFolder{{folder, tp, FolderStray}}, b.Marked())
	require.Equal(t, 1, b.Stats().Stray)
	require.NoError(t, b.Delete(ctx, tp))
	require.NoError(t, b.Unstray(ctx, folder, tp))
	l = b.log("t", 0, Config{})
	require.Equal(t, []string{"a", "b"}, valuesOf(t, l))
	require.False(t, l.Recovery().Clean, "whatever set it aside may not have synced it")
	b.after(time.Hour)
	require.Equal(t, []string{"t-0"}, b.folders())
}

// Scenario: U078. Report: B191. Who reads a segment when its partition is deleted reads it to the end, also when the files go.
func TestReadersOfADeletedPartitionAreUnharmed(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{Defaults: Config{Durability: Buffered}})
	l := b.log("t", 0, Config{FlushInterval: time.Second})
	add(t, l, "a", "b", "c")
	f, err := l.Fetch(ctx, 0, FetchOptions{Isolation: LogEnd})
	require.NoError(t, err)
	seen := 0
	for _, err := range l.Follow(ctx, 0, WithIsolation(LogEnd)) {
		if seen++; seen == 2 {
			require.NoError(t, b.Delete(ctx, TopicPartition{"t", 0}))
		}
		if err != nil {
			require.ErrorIs(t, err, ErrClosed)
		}
	}
	require.Less(t, seen, 5)
	b.after(time.Hour)
	require.Empty(t, b.folders())
	require.Empty(t, b.Stats().Failing, "what was due on it is nobody's failure")
	var bases []int64
	for batch, err := range f.Batches() {
		require.NoError(t, err)
		bases = append(bases, batch.BaseOffset())
	}
	require.Equal(t, []int64{0, 1, 2}, bases)
	require.NoError(t, f.Close())
}

func TestADeletionThatFailsLeavesThePartition(t *testing.T) {
	disk := vfstest.NewFault(vfs.Mem())
	b := newRootBed(t, disk, DirConfig{})
	add(t, b.log("t", 0, Config{}), "a")
	_, remove := disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRename}, Name: "t-0", Err: syscall.EIO})
	require.ErrorIs(t, b.Delete(ctx, TopicPartition{"t", 0}), syscall.EIO)
	remove()
	require.Empty(t, b.Marked())
	l := b.log("t", 0, Config{})
	require.Equal(t, []string{"a"}, valuesOf(t, l))
	require.False(t, l.Recovery().Clean)
}

func TestManyFoldersGoUnderOneSync(t *testing.T) {
	disk := vfstest.NewFault(vfs.Mem())
	b := newRootBed(t, disk, DirConfig{})
	for n := range int32(9) {
		b.log("t", n, Config{})
		require.NoError(t, b.Delete(ctx, TopicPartition{"t", n}))
	}
	b.after(0)
	before := disk.Count(vfstest.OpSyncDir)
	b.clock.advance(time.Minute)
	require.Empty(t, b.removeDoomed(ctx, b.clock.now()))
	require.Equal(t, before+1, disk.Count(vfstest.OpSyncDir))
	require.Empty(t, b.folders())
}

// What cannot be removed is seen, and tried again.
func TestAFolderThatCannotBeRemovedIsTriedAgain(t *testing.T) {
	disk := vfstest.NewFault(vfs.Mem())
	var told []string
	b := newRootBed(t, disk, DirConfig{Events: &Events{Failed: func(tp TopicPartition, err error) { told = append(told, err.Error()) }}})
	add(t, b.log("t", 0, Config{}), "a")
	require.NoError(t, b.Delete(ctx, TopicPartition{"t", 0}))
	_, remove := disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRemove}, Name: "*-delete/*", Times: vfstest.Always, Err: syscall.EACCES})
	b.clock.advance(time.Minute)
	require.ErrorIs(t, b.RunOnce(ctx, b.clock.now()), syscall.EACCES)
	require.Len(t, b.Stats().Failing, 1)
	require.Equal(t, "delete", b.Stats().Failing[0].Task)
	require.Len(t, told, 1)
	b.clock.advance(time.Minute)
	require.Error(t, b.RunOnce(ctx, b.clock.now()))
	require.Equal(t, 2, b.Stats().Failing[0].Times)
	require.Len(t, told, 1, "the same reason again")
	remove()
	b.after(time.Minute)
	require.Empty(t, b.Stats().Failing)
	require.Empty(t, b.folders())
}

// A crash at any point of a deletion leaves the partition as it was, or none; never half of one, and never one that the
// deleted one's marks speak of.
func TestADeletionSurvivesEveryCrash(t *testing.T) {
	disk := vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock})
	b := newRootBed(t, disk, DirConfig{Defaults: Config{SegmentBytes: crashSegment}})
	l := b.log("t", 0, Config{})
	for i := range 7 {
		add(t, l, fmt.Sprint(i))
	}
	require.NoError(t, l.DeleteRecords(ctx, 2))
	disk.Mark() // the log start is all that a checkpoint knows of it
	require.NoError(t, b.Delete(ctx, l.TopicPartition()))
	disk.Note("deleted")
	b.after(time.Hour)
	disk.Note("removed")
	add(t, b.log("t", 0, Config{}), "new")
	disk.Note("made anew")
	for _, kill := range []bool{false, true} {
		for d := range disk.Disks(vfstest.DiskOptions{Kill: kill, Limit: 64, Samples: 16, Cuts: 1}) {
			require.NoError(t, checkDeletion(d), "%v", d.Describe())
		}
	}
}

func checkDeletion(disk *vfstest.Disk) error {
	fsys := disk.FS()
	d, err := OpenDir("root", DirConfig{FS: fsys, Manual: true, Now: crashClock, Defaults: Config{SegmentBytes: crashSegment}})
	if err != nil {
		return err
	}
	defer d.Close()
	l, err := d.Open(ctx, TopicPartition{"t", 0}, Config{})
	if err != nil {
		return err
	}
	o := l.Offsets()
	switch notes := len(disk.Notes()); {
	case notes == 0 && o.LogStart == 2 && o.LogEnd == 7: // not deleted yet
	case notes <= 1 && o.LogStart == 0 && o.LogEnd == 0:
	case notes == 2 && o.LogStart == 0 && o.LogEnd <= 1:
	case notes == 3 && o.LogStart == 0 && o.LogEnd == 1:
	default:
		return fmt.Errorf("after %v: %+v", disk.Notes(), o)
	}
	for _, f := range l.Recovery().Findings {
		if f.Kind != FindingTail || len(disk.Notes()) != 2 { // an append was under way
			return fmt.Errorf("finding: %v", f)
		}
	}
	return nil
}

// Report: B183. Everything at once, on a few partitions.
func TestOpenDeleteAppendAndReadRace(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{Defaults: Config{FileDeleteDelay: Immediately, SegmentBytes: 300}, InitialDelay: Immediately, CheckpointInterval: time.Millisecond})
	var all sync.WaitGroup
	fine := func(err error) {
		for _, known := range []error{nil, ErrClosed, ErrNoPartition, ErrOffsetOutOfRange, ErrPartitionExists} {
			if errors.Is(err, known) {
				return
			}
		}
		t.Errorf("%v", err)
	}
	for n := range int32(2) {
		tp := TopicPartition{"t", n}
		for range 2 {
			all.Go(func() {
				for i := range 30 {
					l, err := b.Open(ctx, tp, Config{})
					if fine(err); err != nil {
						return
					}
					for range 5 {
						_, err = l.Append(ctx, siteRecord(int64(i)))
						fine(err)
					}
					_, err = offsetsOf(l.Records(ctx, 0))
					fine(err)
					if i%3 == 0 {
						fine(l.Close())
					}
				}
			})
		}
		all.Go(func() {
			for i := range 20 {
				if i%4 == 3 {
					folder, err := b.SetStray(ctx, tp)
					if fine(err); err == nil {
						fine(b.Unstray(ctx, folder, tp))
					}
					continue
				}
				fine(b.Delete(ctx, tp))
			}
		})
	}
	all.Go(func() {
		for range 50 {
			b.clock.advance(time.Second)
			fine(b.RunOnce(ctx, b.clock.now()))
			b.Stats()
		}
	})
	all.Wait()
	require.NoError(t, b.Dir.Close())
	require.True(t, exists(b.fs, checkpoint.CleanMarker))
	for _, f := range b.folders() {
		require.NotContains(t, f, "-delete")
	}
}
