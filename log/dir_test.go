package log

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs/vfstest"
)

func openDir(t *testing.T, disk *vfstest.Crash) *Dir {
	t.Helper()
	d, err := OpenDir("root", DirConfig{Manual: true, FS: disk, Now: crashClock})
	require.NoError(t, err)
	return d
}

func openPartition(t *testing.T, d *Dir, n int32) *Log {
	t.Helper()
	l, err := d.Open(context.Background(), TopicPartition{"t", n}, nineRecords(Durable))
	require.NoError(t, err)
	return l
}

// newRoot holds three partitions with one, two and three records; the disk is as Dir.Close or a kill leaves it.
func newRoot(t *testing.T, clean bool) *vfstest.Crash {
	disk := vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock})
	d := openDir(t, disk)
	for n := range int32(3) {
		l := openPartition(t, d, n)
		for i := range n + 1 {
			_, err := l.Append(context.Background(), siteRecord(int64(i)))
			require.NoError(t, err)
		}
	}
	if !clean {
		return disk.Kill()
	}
	require.NoError(t, d.Close())
	require.ErrorIs(t, d.Close(), ErrClosed)
	return disk
}

func marked(disk *vfstest.Crash) bool { return exists(disk, checkpoint.CleanMarker) }

// Scenario: K003, K010
func TestCloseStopsEveryPartitionCleanly(t *testing.T) {
	disk := newRoot(t, true)
	require.True(t, marked(disk))
	require.False(t, exists(disk, lockFile))
	s := &site{t: t, disk: disk}
	require.Equal(t, "0\n3\nt 0 1\nt 1 2\nt 2 3\n", string(s.read(checkpoint.RecoveryPoints)))
	require.Equal(t, "0\n3\nt 0 1\nt 1 2\nt 2 3\n", string(s.read(checkpoint.HighWatermarks)))
	require.Equal(t, "0\n0\n", string(s.read(checkpoint.LogStarts)))
	require.Equal(t, "0\n0\n", string(s.read(checkpoint.CleanerOffsets)))
	d := openDir(t, disk)
	for n := range int32(3) {
		l := openPartition(t, d, n)
		require.True(t, l.Recovery().Clean)
		require.Equal(t, int64(n+1), l.Offsets().LogEnd)
	}
}

func TestPartitionsNobodyLoadedStayAsTheyWere(t *testing.T) {
	for _, clean := range []bool{true, false} {
		disk := newRoot(t, clean)
		d := openDir(t, disk)
		require.False(t, marked(disk))
		require.Equal(t, clean, openPartition(t, d, 1).Recovery().Clean)
		require.NoError(t, d.Close())
		require.Equal(t, clean, marked(disk), "the marker would vouch for partitions that were never recovered")
		d = openDir(t, disk)
		for n := range int32(3) {
			l := openPartition(t, d, n)
			require.Equal(t, int64(n+1), l.Offsets().LogEnd)
			require.Equal(t, clean, l.Recovery().Clean)
		}
		require.NoError(t, d.Close())
		require.True(t, marked(disk), "all were loaded")
	}
}

func TestALogMayBeClosedAndOpenedAgainBeforeItsRoot(t *testing.T) {
	disk := newRoot(t, false)
	d := openDir(t, disk)
	for n := range int32(3) {
		l := openPartition(t, d, n)
		require.NoError(t, l.Close())
		require.ErrorIs(t, l.Close(), ErrClosed)
		_, ok := d.Get(TopicPartition{"t", n})
		require.False(t, ok)
		again := openPartition(t, d, n)
		require.NotSame(t, l, again)
		require.True(t, again.Recovery().Clean)
		if n == 1 {
			require.NoError(t, again.Close())
		}
		require.ErrorIs(t, l.Close(), ErrClosed, "the old handle does not close the new log")
	}
	require.NoError(t, d.Close())
	require.True(t, marked(disk))
}

// Scenario: K003
func TestAPartitionThatCannotBeFlushedWithholdsTheMarker(t *testing.T) {
	disk := newRoot(t, true)
	faulty := vfstest.NewFault(disk)
	d, err := OpenDir("root", DirConfig{Manual: true, FS: faulty, Now: crashClock})
	require.NoError(t, err)
	for n := range int32(3) {
		l := openPartition(t, d, n)
		_, err := l.append(context.Background(), prepare1(t, l, int64(n)+1), &AppendOptions{Durability: Buffered})
		require.NoError(t, err)
	}
	faulty.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync}, Name: "t-1/*", Err: syscall.EIO})
	require.ErrorIs(t, d.Close(), syscall.EIO)
	require.False(t, marked(disk))
	require.False(t, exists(disk, lockFile), "the lock is released all the same")
	s := &site{t: t, disk: disk}
	require.Contains(t, string(s.read(checkpoint.RecoveryPoints)), "t 0 2\n")
	require.Contains(t, string(s.read(checkpoint.RecoveryPoints)), "t 1 2\n", "nothing is claimed")
	require.Contains(t, string(s.read(checkpoint.RecoveryPoints)), "t 2 4\n")
	d = openDir(t, disk)
	require.False(t, openPartition(t, d, 0).Recovery().Clean)
}

func prepare1(t *testing.T, l *Log, offset int64) *prepared {
	t.Helper()
	p := new(prepared)
	require.NoError(t, l.encode(l.encoder(), values2records([]string{fmt.Sprint(offset)}), p))
	return p
}

func TestTheLockIsReleasedOnEveryFailedOpen(t *testing.T) {
	n := 1
	for ; ; n++ {
		disk := newRoot(t, true)
		faulty := vfstest.NewFault(disk)
		hits, _ := faulty.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpOpen, vfstest.OpRead, vfstest.OpRemove, vfstest.OpSyncDir, vfstest.OpCreate, vfstest.OpSize}, Nth: n, Err: syscall.EIO})
		d, err := OpenDir("root", DirConfig{Manual: true, FS: faulty})
		if hits() == 0 {
			require.NoError(t, err)
			break
		}
		if err == nil {
			require.NoError(t, d.Close())
		}
		openDir(t, disk)
	}
	require.Greater(t, n, 3)
}

func TestCloseAnswersEveryoneWhoWaits(t *testing.T) {
	disk := newRoot(t, false)
	slow := vfstest.NewFault(disk)
	d, err := OpenDir("root", DirConfig{Manual: true, FS: slow, Now: crashClock})
	require.NoError(t, err)
	l := openPartition(t, d, 0)
	block, inSync := make(chan struct{}), make(chan struct{})
	slow.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "*.log", Block: block, Hook: func(vfstest.Op) error {
		close(inSync)
		return nil
	}})
	var wg sync.WaitGroup
	appended, waited := make([]error, 2), make([]error, 3)
	wg.Go(func() { _, appended[0] = l.Append(context.Background(), siteRecord(1)) })
	<-inSync
	wg.Go(func() { _, appended[1] = l.Append(context.Background(), siteRecord(2)) })
	for i, m := range []Mark{MarkEnd, MarkHighWatermark, MarkLastStable} {
		wg.Go(func() { waited[i] = l.Wait(context.Background(), m, 100) })
	}
	for l.Offsets().LogEnd < 3 {
		time.Sleep(time.Millisecond)
	}
	closed := make(chan error, 1)
	go func() { closed <- d.Close() }()
	time.Sleep(5 * time.Millisecond)
	close(block)
	require.NoError(t, <-closed)
	wg.Wait()
	require.NoError(t, errors.Join(appended...), "both are on the device")
	for _, err := range waited {
		require.ErrorIs(t, err, ErrClosed)
	}
	d = openDir(t, disk)
	require.Equal(t, int64(3), openPartition(t, d, 0).Offsets().LogEnd)
}

func TestEntriesOfVanishedPartitionsDoNotComeBack(t *testing.T) {
	disk := newRoot(t, true)
	s := &site{t: t, disk: disk}
	for name := range s.files() {
		if path.Dir(name) == "t-1" {
			require.NoError(t, disk.Remove(name))
		}
	}
	require.NoError(t, disk.Remove("t-1"))
	d := openDir(t, disk)
	require.NoError(t, d.Close())
	require.True(t, marked(disk))
	d = openDir(t, disk)
	l := openPartition(t, d, 1)
	require.Equal(t, Offsets{LeaderEpoch: -1}, l.Offsets())
	require.NotContains(t, string(s.read(checkpoint.RecoveryPoints)), "t 1 2")
}

// Scenario: K011. Foreign folders are neither partitions nor in the way.
func TestFoldersTellsPartitionsFromForeignOnes(t *testing.T) {
	disk := newRoot(t, true)
	for _, name := range []string{"remote-log-index-cache", "__cluster_metadata-0", "notes", "t-9.0123456789abcdef0123456789abcdef-delete", "t-8.0123456789abcdef0123456789abcdef-stray"} {
		require.NoError(t, disk.MkdirAll(name, 0o755))
	}
	d := openDir(t, disk)
	partitions, foreign, err := d.Folders()
	require.NoError(t, err)
	require.Equal(t, []TopicPartition{{"t", 0}, {"t", 1}, {"t", 2}}, partitions)
	require.Equal(t, []string{"notes"}, foreign)
	require.NoError(t, d.Close())
	require.True(t, marked(disk))
}

// Scenario: K018
func TestTheStartOffsetIsStoredOnlyAboveTheFirstSegment(t *testing.T) {
	s := newNine(t, Durable)
	require.NoError(t, s.log.DeleteRecords(context.Background(), 4))
	require.Equal(t, "0\n1\nt 0 4\n", string(s.read(checkpoint.LogStarts)), "at once, durably")
	s.reset(4)
	require.Equal(t, "0\n0\n", string(s.read(checkpoint.LogStarts)))
	s.kill()
	s.open()
	s.holds(4, 4)
	s.stop()
	require.Equal(t, "0\n0\n", string(s.read(checkpoint.LogStarts)))
}

// A failed open of a lone log gives its root back as it found it.
func TestAnOpenThatIsRefusedLeavesTheRootAlone(t *testing.T) {
	disk := newRoot(t, true)
	before := filesOf(t, disk)
	d := openDir(t, disk)
	_, err := d.openLone("root", Config{})
	require.ErrorIs(t, err, ErrNotLog)
	require.NoError(t, d.Close())
	require.Empty(t, changedFiles(before, filesOf(t, disk)))

	s := newNine(t, Durable)
	s.kill()
	s.edit(logFile(6), flipAt(-1))
	s.write(checkpoint.RecoveryPoints, []byte("0\n1\nt 0 9\nmore than it says\n"))
	before = s.files()
	require.ErrorIs(t, s.tryOpen(), ErrCorrupt)
	require.NoError(t, s.dir.Close())
	for _, name := range changedFiles(before, s.files()) {
		require.True(t, strings.HasSuffix(name, "checkpoint") && before[name] == "", "%s was changed", name)
	}
}

func TestManyOpensAndClosesRaceOnlyWithThemselves(t *testing.T) {
	disk := newRoot(t, true)
	d := openDir(t, disk)
	var wg sync.WaitGroup
	for n := range int32(3) {
		for range 3 {
			wg.Go(func() {
				for i := range 20 {
					l, err := d.Open(context.Background(), TopicPartition{"t", n}, nineRecords(Durable))
					if err != nil {
						t.Errorf("open: %v", err)
						return
					}
					if _, err := l.Append(context.Background(), siteRecord(int64(i))); err != nil && !errors.Is(err, ErrClosed) {
						t.Errorf("append: %v", err)
					}
					if err := l.Close(); err != nil && !errors.Is(err, ErrClosed) {
						t.Errorf("close: %v", err)
					}
					for range d.Logs() {
						break
					}
				}
			})
		}
	}
	wg.Wait()
	require.NoError(t, d.Close())
	require.True(t, marked(disk))
}

// A broker loads the folder t-00 as that of t-0, and starts no more once there is t-0 as well.
func TestAFolderWhoseNumberIsWrittenOtherwiseIsNamedAndNoOtherIsMadeBesideIt(t *testing.T) {
	disk := newRoot(t, true)
	require.NoError(t, disk.Rename("t-1", "t-01"))
	asked := &hookedFS{FS: disk}
	d, err := OpenDir("root", DirConfig{FS: asked, Manual: true, Now: crashClock})
	require.NoError(t, err)
	looked := 0
	asked.stating = func(name string) {
		if name == "t-01" {
			looked++
			seen := make(chan struct{})
			go func() { d.Logs(); close(seen) }()
			select {
			case <-seen:
			case <-time.After(10 * time.Second):
				t.Error("others wait while the folder is looked at")
			}
		}
	}
	_, err = d.Open(context.Background(), TopicPartition{"t", 1}, nineRecords(Durable))
	require.ErrorIs(t, err, ErrNotLog)
	require.ErrorContains(t, err, "t-01")
	require.Equal(t, 1, looked)
	asked.stating = nil
	failed := &LoadError{}
	require.ErrorAs(t, d.OpenAll(context.Background(), OpenAllOptions{}), &failed)
	require.Len(t, failed.Failed, 1)
	require.NoError(t, d.Close())
	require.False(t, exists(disk, "t-1"))
	marks, err := checkpoint.ReadOffsets(disk, checkpoint.RecoveryPoints)
	require.NoError(t, err)
	require.Contains(t, marks, checkpoint.Partition{Topic: "t", Partition: 1})
}
