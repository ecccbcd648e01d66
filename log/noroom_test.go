package log

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// hookedFS calls a function before it looks at or opens a file, and behind the removal of one.
type hookedFS struct {
	vfs.FS
	stating, opening, removing func(name string)
}

func (f *hookedFS) Stat(name string) (fs.FileInfo, error) {
	if f.stating != nil {
		f.stating(name)
	}
	return f.FS.Stat(name)
}

func (f *hookedFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if f.opening != nil {
		f.opening(name)
	}
	return f.FS.OpenFile(name, flag, perm)
}

func (f *hookedFS) Remove(name string) error {
	err := f.FS.Remove(name)
	if f.removing != nil && err == nil {
		f.removing(name)
	}
	return err
}

// A queue on a full device deletes what was consumed to get room: that must not need the room for a new checkpoint first.
func TestRecordsCanBeDeletedOnAFullDevice(t *testing.T) {
	full := vfstest.NewFault(vfs.Mem())
	disk := &hookedFS{FS: full}
	b := newBedOn(t, disk, Config{SegmentBytes: 1000, RetentionTime: Forever})
	for range 20 {
		b.add(strings.Repeat("x", 400))
	}
	disk.removing = func(name string) {
		if strings.Contains(name, ".log") {
			full.SetQuota(1 << 20) // what is removed makes room
		}
	}
	full.SetQuota(0)
	require.ErrorIs(t, b.DeleteRecords(ctx, 1), ErrNoSpace, "within the first segment nothing can go")
	require.Zero(t, b.Offsets().LogStart)
	first := b.bases()
	require.NoError(t, b.DeleteRecords(ctx, 9), "whole segments can")
	require.Equal(t, int64(9), b.Offsets().LogStart)
	require.Greater(t, b.bases()[0], first[2])
	require.LessOrEqual(t, b.bases()[0], int64(9))
	require.Positive(t, b.Stats().Freed)

	full.SetQuota(0)
	require.NoError(t, b.DeleteRecords(ctx, ToHighWatermark))
	require.Equal(t, int64(20), b.Offsets().LogStart)
	b.add("more")
	b.reopen()
	require.Equal(t, []int64{20}, b.readAll(20))
	_, err := b.Append(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(20), b.Offsets().LogStart)
}

// A follower that has to give up what its leader gave up is in the same place.
func TestAFollowersLogStartRisesOnAFullDevice(t *testing.T) {
	full := vfstest.NewFault(vfs.Mem())
	disk := &hookedFS{FS: full}
	b := newBedOn(t, disk, Config{SegmentBytes: 1000, RetentionTime: Forever, Cleanup: Compact})
	for range 20 {
		_, err := b.follow(batchOf(b.Offsets().LogEnd, 0, record.None, strings.Repeat("x", 400)))
		require.NoError(t, err)
	}
	disk.removing = func(name string) {
		if strings.Contains(name, ".log") {
			full.SetQuota(1 << 20)
		}
	}
	full.SetQuota(0)
	require.NoError(t, b.FollowLogStart(ctx, 9))
	require.Equal(t, int64(9), b.Offsets().LogStart)
}

// Where room does not come back, what went is gone and the rest is told.
func TestRecordsThatCannotBeDeletedForWantOfRoomAreLeft(t *testing.T) {
	full := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, full, Config{SegmentBytes: 1000, RetentionTime: Forever})
	for range 20 {
		b.add(strings.Repeat("x", 400))
	}
	full.SetQuota(0)
	require.ErrorIs(t, b.DeleteRecords(ctx, 9), ErrNoSpace)
	require.Equal(t, b.bases()[0], b.Offsets().LogStart)
	require.Equal(t, int64(8), b.Offsets().LogStart)
	full.Clear()
	require.NoError(t, b.DeleteRecords(ctx, 9))
	require.Equal(t, int64(9), b.Offsets().LogStart)
}

// Retention beside a Verify takes the index of a segment whose .log is being looked at.
func TestVerifyPassesOverIndexesThatRetentionTakesMeanwhile(t *testing.T) {
	disk := &hookedFS{FS: vfs.Mem()}
	b := newBedOn(t, disk, Config{SegmentBytes: 1000, RetentionTime: time.Hour, FileDeleteDelay: Immediately})
	for range 10 {
		b.add(strings.Repeat("x", 400))
	}
	b.clock.advance(2 * time.Hour)
	b.add(strings.Repeat("y", 400))
	index := "t-0/00000000000000000000.index"
	disk.opening = func(name string) {
		if name == index {
			disk.opening = nil
			_, err := b.Retain(ctx)
			require.NoError(t, err)
			require.Positive(t, b.Offsets().LogStart)
		}
	}
	for f, err := range b.Verify(ctx) {
		require.NoError(t, err)
		t.Error(f)
	}
	require.Nil(t, disk.opening, "it was looked at")
}

// Room that was reserved is no damage: after a kill nothing is to be reported.
func TestReservedRoomIsNoTornTail(t *testing.T) {
	b := newBed(t, Config{Preallocate: true, SegmentBytes: 4096})
	b.add("value")
	require.NoError(t, b.Sync(ctx))
	killed := vfs.Mem()
	require.NoError(t, killed.MkdirAll("t-0", 0o755))
	size, err := vfs.Copy(b.fs, "t-0/00000000000000000000.log", killed, "t-0/00000000000000000000.log")
	require.NoError(t, err)
	require.Equal(t, int64(4096), size)
	for _, reserves := range []bool{true, false} {
		d, err := OpenDir("mem", DirConfig{Manual: true, FS: vfs.Overlay(killed)})
		require.NoError(t, err)
		l, err := d.Open(ctx, b.TopicPartition(), Config{Preallocate: reserves, SegmentBytes: 4096})
		require.NoError(t, err)
		require.Equal(t, int64(1), l.Offsets().LogEnd)
		r := l.Recovery()
		require.Equal(t, reserves, len(r.Findings) == 0 && r.Cut == 0, "%+v", r)
		if !reserves {
			require.Contains(t, r.Findings[0].Detail, "reserved")
		}
		require.NoError(t, d.Close())
	}
}
