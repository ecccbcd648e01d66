package log

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

var fullDevice = Config{SegmentBytes: 2000, IndexIntervalBytes: EveryBatch, RetentionTime: Forever, FileDeleteDelay: Immediately}

// killedLog is a log with transactions and leader epochs that was not stopped; what it holds, and knows.
func killedLog(t *testing.T, fsys vfs.FS) (b *bed, want map[string]string, knows memory) {
	b = newBedOn(t, fsys, fullDevice)
	for e := range int32(3) {
		require.NoError(t, b.AssignEpoch(e))
		mixed(b, uint64(e), 12)
	}
	return b, b.committed(), b.memory()
}

// on opens the log on another file system.
func (b *bed) on(t *testing.T, fsys vfs.FS) (*bed, error) {
	k := &bed{t: t, fs: fsys, cfg: b.cfg, clock: &clock{}}
	k.clock.ms.Store(epoch2023)
	d, err := OpenDir("mem", DirConfig{Manual: true, FS: fsys, Now: k.clock.now})
	if err != nil {
		return nil, err
	}
	k.dir = d
	k.Log, err = d.Open(ctx, TopicPartition{"t", 0}, b.cfg)
	return k, err
}

// A log that was not stopped cleanly is opened on a device without a free byte, so that room can be made: what is derived from
// its records is kept in memory, and written once there is room.
func TestALogIsRecoveredOnAFullDevice(t *testing.T) {
	base := vfs.Mem()
	b, want, knows := killedLog(t, base)
	without := func(suffix string) func(f vfs.FS) {
		return func(f vfs.FS) {
			for _, name := range b.folder(suffix) {
				require.NoError(t, f.Remove("t-0/"+name))
			}
		}
	}
	for name, harm := range map[string]func(f vfs.FS){
		"a kill":           func(vfs.FS) {},
		"no offset index":  without(".index"),
		"no time index":    without(".timeindex"),
		"no snapshots":     without(".snapshot"),
		"no leader epochs": without("leader-epoch-checkpoint"),
		"half a batch at the end": func(f vfs.FS) {
			last := b.segments().active()
			file, err := f.OpenFile(last.File(), os.O_RDWR, 0)
			require.NoError(t, err)
			_, err = file.WriteAt([]byte("torn"), last.Size())
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			full := vfstest.NewFault(vfs.Overlay(base))
			harm(full)
			disk := &hookedFS{FS: full}
			full.SetQuota(0)
			k, err := b.on(t, disk)
			require.NoError(t, err)
			r := k.Recovery()
			require.NotEmpty(t, r.Unfiled)
			require.Empty(t, r.Rebuilt)
			same := func(k *bed) {
				t.Helper()
				require.Equal(t, want, k.committed())
				require.Equal(t, knows.producers, k.memory().producers)
				require.Equal(t, knows.offsets.LogEnd, k.Offsets().LogEnd)
				require.Equal(t, b.epochs.Entries(), k.epochs.Entries())
				for i, s := range b.segments() {
					at, err := k.OffsetForTime(ctx, time.UnixMilli(s.Info().LargestTimestamp))
					require.NoError(t, err)
					require.LessOrEqual(t, at.Offset, k.Offsets().LogEnd, i)
				}
			}
			same(k)
			require.ErrorIs(t, errOf(k.Append(ctx, record.Record{Value: []byte("x")})), ErrNoSpace)
			require.ErrorIs(t, k.Sync(ctx), ErrNoSpace)
			require.NoError(t, k.Err())
			again, err := b.on(t, vfs.Overlay(disk)) // killed there
			require.NoError(t, err)
			same(again)

			disk.removing = func(name string) {
				if strings.Contains(name, ".log") {
					full.SetQuota(1 << 20) // what is removed makes room
				}
			}
			require.NoError(t, k.DeleteRecords(ctx, b.bases()[3]))
			require.NoError(t, errOf(k.Append(ctx, record.Record{Key: []byte("x"), Value: []byte("1")})))
			require.NoError(t, k.Sync(ctx))
			require.Len(t, k.folder(".index"), len(k.bases()), "each segment has its files again")
			require.Len(t, k.folder(".timeindex"), len(k.bases()))
			k.silent()
			want, knows := k.committed(), k.memory()
			again, err = b.on(t, vfs.Overlay(disk))
			require.NoError(t, err)
			require.Equal(t, want, again.committed())
			k.silentAtRest()
			k.open()
			require.True(t, k.Recovery().Clean)
			require.Equal(t, want, k.committed())
			require.Equal(t, knows.producers, k.memory().producers)
		})
	}
}

// Wherever in a recovery the room ends, for good or for a moment, the log is opened as it was; or not at all, where its records
// could not be synced.
func TestTheRoomEndsAnywhereInARecovery(t *testing.T) {
	base := vfs.Mem()
	b, want, knows := killedLog(t, base)
	same := func(k *bed, what ...any) {
		t.Helper()
		require.Equal(t, want, k.committed(), what...)
		require.Equal(t, knows.producers, k.memory().producers, what...)
		require.Equal(t, b.epochs.Entries(), k.epochs.Entries(), what...)
	}
	for _, rule := range []vfstest.Rule{
		{Ops: []vfstest.Kind{vfstest.OpWrite}, Times: vfstest.Always},
		{Ops: []vfstest.Kind{vfstest.OpWrite}},
		{Ops: []vfstest.Kind{vfstest.OpWrite}, Short: true, Keep: 5},
		{Ops: []vfstest.Kind{vfstest.OpCreate, vfstest.OpRename}, Times: vfstest.Always},
		{Ops: []vfstest.Kind{vfstest.OpCreate, vfstest.OpRename}},
		{Ops: []vfstest.Kind{vfstest.OpSync, vfstest.OpSyncData}, Name: "*.tmp", Times: vfstest.Always},
		{Ops: []vfstest.Kind{vfstest.OpSync, vfstest.OpSyncData, vfstest.OpSyncDir}},
	} {
		opened, refused := 0, 0
		for n := 1; ; n++ {
			f := vfstest.NewFault(vfs.Overlay(base))
			rule.Nth, rule.Err = n, syscall.ENOSPC
			hits, _ := f.Add(rule)
			k, err := b.on(t, f)
			if hits() == 0 {
				break
			}
			if err == nil {
				opened++
				same(k, n, rule)
			} else {
				require.ErrorIs(t, err, ErrNoSpace)
				require.NotContains(t, rule.Ops, vfstest.OpWrite, n)
				refused++
			}
			f.Clear()
			again, err := b.on(t, vfs.Overlay(f)) // killed there
			require.NoError(t, err)
			same(again, n, rule)
			if k == nil {
				continue // the root was refused
			}
			if k.Log == nil {
				k.Log, err = k.dir.Open(ctx, again.tp, b.cfg)
				require.NoError(t, err)
			}
			require.NoError(t, errOf(k.Append(ctx, record.Record{Key: []byte("x"), Value: []byte("1")})))
			require.NoError(t, k.Sync(ctx))
			last := k.committed()
			k.silent()
			k.silentAtRest()
			k.open()
			require.Equal(t, last, k.committed(), n)
			require.NoError(t, k.dir.Close())
		}
		t.Logf("%v: %d opened, %d refused", rule.Ops, opened, refused)
	}
}

// A power loss at any point of a recovery without room, and of what makes room behind it, leaves what was there, but for the
// records that were deleted.
func TestACrashOfARecoveryOnAFullDeviceLosesNothing(t *testing.T) {
	first := vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock})
	b, _, knows := killedLog(t, first)
	cut, deleted := b.bases()[2], b.bases()[4]
	records := func(l *Log, from int64) (all []kept) {
		for r, err := range l.Records(ctx, from, WithIsolation(ReadCommitted)) {
			require.NoError(t, err)
			all = append(all, kept{r.Offset, string(r.Key), string(r.Value)})
		}
		return all
	}
	all := records(b.Log, 0)
	disk := first.Kill()
	full := vfstest.NewFault(disk)
	hooked := &hookedFS{FS: full}
	full.SetQuota(0)
	disk.Note(false)
	k, err := b.on(t, hooked)
	require.NoError(t, err)
	require.NotEmpty(t, k.Recovery().Unfiled)
	hooked.removing = func(name string) {
		if strings.Contains(name, ".log") {
			full.SetQuota(1 << 20)
		}
	}
	require.NoError(t, k.DeleteRecords(ctx, cut))
	require.NoError(t, k.Sync(ctx))
	require.NoError(t, k.DeleteRecords(ctx, deleted))
	require.NoError(t, k.Sync(ctx))
	disks := 0
	look := func(d *vfstest.Disk) {
		disks++
		l, err := b.on(t, d.FS())
		require.NoError(t, err, d.Describe())
		start := l.Offsets().LogStart
		require.LessOrEqual(t, start, deleted, d.Describe())
		require.Equal(t, knows.offsets.LogEnd, l.Offsets().LogEnd, d.Describe())
		want := all
		for len(want) > 0 && want[0].offset < start {
			want = want[1:]
		}
		require.Equal(t, want, records(l.Log, start), d.Describe())
		require.Equal(t, knows.producers, l.memory().producers, d.Describe())
		require.Equal(t, b.epochs.Entries()[2:], l.epochs.Entries()[len(l.epochs.Entries())-1:], d.Describe())
	}
	for d := range disk.Disks(vfstest.DiskOptions{Limit: 4, Samples: 2, Cuts: 1}) {
		if d.Hash()>>20%uint64(8*crashShare()) == 0 {
			look(d)
		}
	}
	for d := range disk.Disks(vfstest.DiskOptions{Kill: true}) {
		look(d)
	}
	t.Logf("%d disks", disks)
}
