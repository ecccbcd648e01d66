package log

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// killedRoot is a root with partitions t-0 to t-(n-1) of i+1 records each, left by a kill.
func killedRoot(t *testing.T, n int32) *vfstest.Crash {
	disk := vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock})
	b := newRootBed(t, disk, DirConfig{})
	for i := range n {
		l := b.log("t", i, Config{})
		for range i + 1 {
			add(t, l, "value")
		}
	}
	return disk.Kill()
}

func TestOpenAllOpensEveryPartitionAndTellsHowFarItIs(t *testing.T) {
	b := newRootBed(t, killedRoot(t, 7), DirConfig{RecoveryThreads: 3})
	require.NoError(t, b.fs.MkdirAll("photos-2024", 0o755))
	require.NoError(t, vfsWrite(b.fs, "photos-2024/a.jpg", "x"))
	var told []LoadProgress
	require.NoError(t, b.OpenAll(ctx, OpenAllOptions{
		Progress: func(p LoadProgress) { told = append(told, p) },
		Config:   func(tp TopicPartition) Config { return Config{MaxMessageBytes: 1000 + int(tp.Partition)} },
	}))
	n := int64(0)
	for tp, l := range b.Logs() {
		require.Equal(t, int64(tp.Partition)+1, l.Offsets().LogEnd)
		require.Equal(t, 1000+int(tp.Partition), l.Config().MaxMessageBytes)
		n++
	}
	require.Equal(t, int64(7), n)
	last := told[len(told)-1]
	require.Equal(t, 7, last.Done)
	require.Equal(t, 7, last.Partitions)
	require.Zero(t, last.Failed)
	require.Equal(t, b.Stats().Bytes, last.Read)
	require.Equal(t, last.Read, last.ToRead)
	for i, p := range told[1:] {
		require.GreaterOrEqual(t, p.Done, told[i].Done)
		require.GreaterOrEqual(t, p.Read, told[i].Read)
	}
	require.NoError(t, b.OpenAll(ctx, OpenAllOptions{}), "again")
}

func vfsWrite(fsys vfs.FS, name, content string) error {
	return checkpoint.WriteFile(fsys, name, []byte(content))
}

// Scenario: K020. One that cannot be opened is listed, and the others work; a clean stop is not claimed for it.
func TestOpenAllIsNotStoppedByOneThatFails(t *testing.T) {
	disk := vfstest.NewFault(killedRoot(t, 5))
	b := newRootBed(t, disk, DirConfig{})
	_, remove := disk.Add(vfstest.Rule{Name: "t-1/*", Ops: []vfstest.Kind{vfstest.OpOpen}, Times: vfstest.Always, Err: syscall.EIO})
	disk.Add(vfstest.Rule{Name: "t-3", Ops: []vfstest.Kind{vfstest.OpReadDir}, Nth: 2, Err: syscall.EACCES})
	err := b.OpenAll(ctx, OpenAllOptions{})
	var report *LoadError
	require.ErrorAs(t, err, &report)
	require.Len(t, report.Failed, 2)
	require.Equal(t, TopicPartition{"t", 1}, report.Failed[0].TopicPartition)
	require.ErrorIs(t, report.Failed[0], syscall.EIO)
	require.ErrorIs(t, err, syscall.EACCES)
	require.Equal(t, 3, b.Stats().Logs)
	require.Len(t, b.Stats().Failing, 2)
	add(t, b.log("t", 4, Config{}), "goes on")
	add(t, b.log("t", 3, Config{}), "works now")
	require.Len(t, b.Stats().Failing, 1)
	require.NoError(t, b.Dir.Close())
	require.False(t, exists(disk, checkpoint.CleanMarker))
	remove()
	b.open()
	require.NoError(t, b.OpenAll(ctx, OpenAllOptions{}))
	require.NoError(t, b.Dir.Close())
	require.True(t, exists(disk, checkpoint.CleanMarker))
}

// Scenario: K004
func TestOpenAllIsStoppedByItsContextAndByClose(t *testing.T) {
	disk := killedRoot(t, 6)
	b := newRootBed(t, disk, DirConfig{})
	mine, stop := context.WithCancel(ctx)
	err := b.OpenAll(mine, OpenAllOptions{Progress: func(p LoadProgress) {
		if p.Done == 2 {
			stop()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.GreaterOrEqual(t, b.Stats().Logs, 2)
	require.Less(t, b.Stats().Logs, 6)
	require.NoError(t, b.Dir.Close())
	require.False(t, marked(disk), "not all were loaded")
	require.ErrorIs(t, b.OpenAll(ctx, OpenAllOptions{}), ErrClosed)
	var d Dir
	require.ErrorIs(t, d.OpenAll(ctx, OpenAllOptions{}), ErrClosed)
}

// Scenario: K019. The file is written for a node that says who it is, and only then.
func TestMetaPropertiesNameTheOwnerOfARoot(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{})
	require.Equal(t, Identity{NodeID: -1}, b.Identity())
	require.False(t, exists(b.fs, checkpoint.MetaProperties))
	b.cfg.ClusterID, b.cfg.NodeID = "cluster-a", 3
	b.reopen()
	id := b.Identity()
	require.Equal(t, "cluster-a", id.ClusterID)
	require.Equal(t, int32(3), id.NodeID)
	require.NotZero(t, id.DirectoryID)
	text := b.content(checkpoint.MetaProperties)
	for _, line := range []string{"version=1\n", "node.id=3\n", "cluster.id=cluster-a\n", "directory.id="} {
		require.Contains(t, text, line)
	}
	b.reopen()
	require.Equal(t, id, b.Identity())
	require.Equal(t, text, b.content(checkpoint.MetaProperties))
	require.NoError(t, b.Dir.Close())
	for _, other := range []DirConfig{{ClusterID: "cluster-b", NodeID: 3}, {ClusterID: "cluster-a", NodeID: 4}} {
		other.FS = b.fs
		_, err := OpenDir("root", other)
		require.ErrorIs(t, err, ErrIdentity)
		var refused *IdentityError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, id, refused.Have)
	}
	b.cfg.ClusterID, b.cfg.NodeID = "", 0
	b.open()
	require.Equal(t, id, b.Identity(), "who does not say is not asked")

	require.NoError(t, b.Dir.Close())
	require.NoError(t, vfsWrite(b.fs, checkpoint.MetaProperties, "version=1\ncluster.id=c\nnode.id=5\n"))
	b.cfg.ClusterID, b.cfg.NodeID = "c", 5
	b.open()
	require.NotZero(t, b.Identity().DirectoryID, "given one, as a broker does")
	require.NoError(t, b.Dir.Close())
	require.NoError(t, vfsWrite(b.fs, checkpoint.MetaProperties, "version=7\n"))
	_, err := OpenDir("root", b.cfg)
	require.ErrorIs(t, err, checkpoint.ErrFormat)
	b.cfg.ClusterID, b.cfg.NodeID = "", 0
	b.open()
}

func TestADirConfigThatCannotBeUsedTouchesNothing(t *testing.T) {
	for field, c := range map[string]DirConfig{
		"RecoveryThreads":       {RecoveryThreads: -1},
		"SyncParallelism":       {SyncParallelism: 5000},
		"CheckpointInterval":    {CheckpointInterval: -5},
		"InitialDelay":          {InitialDelay: -7},
		"MinFreeBytes":          {MinFreeBytes: -1},
		"NodeID":                {NodeID: 3},
		"ClusterID":             {ClusterID: "a b"},
		"Defaults.SegmentBytes": {Defaults: Config{SegmentBytes: -1}},
	} {
		fsys := vfs.Mem()
		c.FS = fsys
		_, err := OpenDir("root", c)
		var refused *ConfigError
		require.ErrorAs(t, err, &refused, field)
		require.True(t, strings.HasSuffix(field, refused.Field[strings.LastIndexByte(refused.Field, '.')+1:]), "%s: %v", field, err)
		entries, err := fsys.ReadDir(".")
		require.NoError(t, err)
		require.Empty(t, entries)
	}
}

// Scenario: K003, H005
func TestTheMarkerNamesTheBrokersEpoch(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{})
	epoch, clean := b.CleanShutdown()
	require.Equal(t, int64(-1), epoch)
	require.False(t, clean)
	b.SetBrokerEpoch(42)
	b.reopen()
	epoch, clean = b.CleanShutdown()
	require.Equal(t, int64(42), epoch)
	require.True(t, clean)
	b.SetBrokerEpoch(43)
	epoch, _ = b.CleanShutdown()
	require.Equal(t, int64(42), epoch, "of the stop before this open")
	b.reopen()
	epoch, _ = b.CleanShutdown()
	require.Equal(t, int64(43), epoch)
}

// freeing is a file system with a device whose free space the test says.
type freeing struct {
	vfs.FS
	free  int64
	err   error
	looks int
}

func (f *freeing) Free(string) (int64, error) {
	f.looks++
	return f.free, f.err
}

func TestAppendsLeaveTheReserveFree(t *testing.T) {
	disk := &freeing{FS: vfs.Mem(), free: 10 << 20}
	var pressed int
	b := newRootBed(t, disk, DirConfig{MinFreeBytes: 9 << 20, Events: &Events{Backpressure: func(TopicPartition, error) { pressed++ }}})
	l := b.log("t", 0, Config{SegmentBytes: 4096, RetentionBytes: 100})
	looks := disk.looks
	for range 100 {
		add(t, l, "value")
	}
	require.LessOrEqual(t, disk.looks-looks, 2, "looked at now and then")
	disk.free = 9<<20 + 50
	b.clock.advance(2 * time.Second)
	_, err := l.Append(ctx, siteRecord(0))
	require.ErrorIs(t, err, ErrNoSpace)
	require.Contains(t, err.Error(), "MinFreeBytes")
	require.Equal(t, int64(100), l.Offsets().LogEnd)
	require.Equal(t, 1, pressed)
	report, err := l.Retain(ctx)
	require.NoError(t, err, "retention has room")
	require.Positive(t, report.Dropped)
	require.NoError(t, l.Sync(ctx))
	disk.free = 10 << 20
	add(t, l, "there is room again, at once")
	disk.err = errors.New("no answer")
	b.clock.advance(time.Minute)
	add(t, l, "a device that does not answer is not judged")
	require.Equal(t, int64(-1), b.Stats().Free)

	disk.err = vfs.ErrUnsupported
	require.NoError(t, b.Dir.Close())
	_, err = OpenDir("root", b.cfg)
	var refused *ConfigError
	require.ErrorAs(t, err, &refused)
	b.cfg.MinFreeBytes = 0
	b.open()
}

// The nearer the reserve, the more often the device is asked: with nobody else writing it is never passed.
func TestTheReserveIsNotPassedBetweenLooks(t *testing.T) {
	disk := &freeing{FS: vfs.Mem(), free: 1 << 20}
	r := reserve{fs: disk, min: 1 << 19}
	now := time.UnixMilli(epoch2023)
	for i := range 100000 {
		n := int64(1 + i%5000)
		if err := r.admit(n, now); err != nil {
			require.ErrorIs(t, err, ErrNoSpace)
			require.Less(t, disk.free-n, r.min)
			require.Less(t, disk.looks, 100)
			return
		}
		disk.free -= n
		require.GreaterOrEqual(t, disk.free, r.min)
	}
	t.Error("never full")
}

// Report: B050. Making and deleting many partitions leaves nothing open.
func TestManyPartitionsComeAndGo(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{Defaults: Config{FileDeleteDelay: Immediately, SegmentBytes: 200}})
	for n := range int32(500) {
		l := b.log("t", n, Config{})
		add(t, l, "a", "b", "c", "d")
		_, err := l.OffsetForTime(ctx, time.UnixMilli(epoch2023))
		require.NoError(t, err)
		require.NoError(t, b.Delete(ctx, l.TopicPartition()))
	}
	b.after(0)
	require.Empty(t, b.folders())
	require.Zero(t, b.budget.Files())
	require.Equal(t, DirStats{Free: b.Stats().Free}, b.Stats())
	add(t, b.log("last", 0, Config{}), "a")
}

// Nothing of what a Dir does in the background is left when it has closed, whatever is going on.
func TestCloseEndsTheBackgroundInTheMiddleOfItsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for pause := range 6 {
			disk := vfstest.NewFault(vfs.Mem())
			disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync, vfstest.OpSyncData}, Times: vfstest.Always, Delay: 7 * time.Millisecond})
			d, err := OpenDir("root", DirConfig{FS: disk, InitialDelay: Immediately, CheckpointInterval: 10 * time.Millisecond,
				Defaults: Config{Durability: Buffered, FlushInterval: 10 * time.Millisecond, SegmentBytes: 300}})
			require.NoError(t, err)
			for n := range int32(4) {
				l, err := d.Open(ctx, TopicPartition{"t", n}, Config{})
				require.NoError(t, err)
				for i := range 5 {
					_, err := l.Append(ctx, values2records([]string{fmt.Sprint(i)})...)
					require.NoError(t, err)
				}
			}
			time.Sleep(time.Duration(pause) * 3 * time.Millisecond)
			require.NoError(t, d.Close())
			require.True(t, exists(disk, checkpoint.CleanMarker))
			before := disk.Count()
			time.Sleep(time.Minute)
			require.Equal(t, before, disk.Count())
		}
	})
}
