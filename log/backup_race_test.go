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

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

func TestBackupsBesideAppendsRollsRetentionCompactionAndTruncationAreWhole(t *testing.T) {
	for _, mode := range []string{"linked", "copied"} {
		t.Run(mode, func(t *testing.T) {
			mem := vfs.Mem()
			b := newBedOn(t, subtree(t, mem, "root"), Config{Cleanup: Compact | Delete, SegmentBytes: 2000, RetentionBytes: 12000, FileDeleteDelay: Immediately,
				Compaction: CompactionConfig{MinDirtyRatio: 0.01, MapBytes: 1 << 16}})
			stop := make(chan struct{})
			var all sync.WaitGroup
			end := sync.OnceFunc(func() { close(stop); all.Wait() })
			defer end()
			repeat := func(f func(r *rand.Rand) error) {
				all.Go(func() {
					r := rand.New(rand.NewPCG(1, 2))
					for {
						select {
						case <-stop:
							return
						default:
						}
						if err := f(r); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			ctx := context.Background()
			repeat(func(r *rand.Rand) error {
				var recs []record.Record
				for range 1 + r.IntN(4) {
					recs = append(recs, record.Record{Key: fmt.Appendf(nil, "k%d", r.IntN(30)), Value: make([]byte, r.IntN(60)), Timestamp: epoch2023})
				}
				_, err := b.Append(ctx, recs...)
				if errors.Is(err, ErrTruncated) {
					err = nil
				}
				if _, unsure := errors.AsType[*UnconfirmedError](err); unsure {
					err = nil
				}
				time.Sleep(50 * time.Microsecond)
				return err
			})
			repeat(func(r *rand.Rand) error {
				time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
				switch r.IntN(4) {
				case 0:
					_, err := b.Retain(ctx)
					return err
				case 1:
					_, err := b.Compact(ctx, CompactOptions{Force: true})
					if errors.Is(err, ErrCleaningAborted) {
						return nil
					}
					return err
				case 2:
					err := b.Roll(ctx)
					if errors.Is(err, ErrTruncated) {
						return nil
					}
					return err
				default:
					o := b.Offsets()
					_, err := b.Truncate(ctx, max(o.LogStart, o.LogEnd-int64(r.IntN(40))))
					return err
				}
			})
			for i := range 25 {
				name := fmt.Sprintf("bk%d", i)
				r, err := b.Backup(ctx, name, BackupOptions{FS: mem, Copy: mode == "copied"})
				require.NoError(t, err)
				bk := subtree(t, mem, name)
				sound(t, bk)
				d, err := OpenDir(name, DirConfig{FS: vfs.Overlay(bk), Manual: true, NoEvict: true})
				require.NoError(t, err)
				l, err := d.Open(ctx, b.tp, Config{})
				require.NoError(t, err)
				require.Empty(t, l.Recovery().Findings)
				require.Empty(t, l.Recovery().Removed)
				require.Equal(t, r.Partitions[0].LogStart, l.Offsets().LogStart)
				require.Equal(t, r.Partitions[0].LogEnd, l.Offsets().LogEnd)
				require.NoError(t, d.Close())
			}
			end()
			require.NoError(t, b.Err())
			for i := range 25 { // what was written since has not changed them
				sound(t, subtree(t, mem, fmt.Sprintf("bk%d", i)))
			}
		})
	}
}

func TestABackupGivesUpChasingAndMakesATruncationWait(t *testing.T) {
	mem := vfs.Mem()
	cuts := 0
	var b *bed
	fault := vfstest.NewFault(mem)
	b = backedUp(t, fault)
	for range 20 {
		b.add("z")
	}
	// Every time the end of the copy is reached the log is cut, as long as that is possible.
	fault.Add(vfstest.Rule{Name: "bk.partial/t-0/leader-epoch-checkpoint.tmp", Ops: []vfstest.Kind{vfstest.OpCreate}, Times: vfstest.Always, Hook: func(vfstest.Op) error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		if _, err := b.Truncate(ctx, b.Offsets().LogEnd-1); err == nil {
			cuts++
		}
		return nil
	}})
	_, err := b.Backup(context.Background(), "bk", BackupOptions{FS: fault})
	require.NoError(t, err)
	require.Equal(t, backupTries, cuts)
	sound(t, subtree(t, mem, "bk"))
}

func TestACrashWhileALinkedLogIsCutHarmsNeitherItNorTheBackup(t *testing.T) {
	for _, kill := range []bool{false, true} {
		crash := vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock})
		b := backedUp(t, crash)
		_, err := b.Backup(context.Background(), "bk", BackupOptions{FS: crash})
		require.NoError(t, err)
		crash.Mark()
		_, err = b.Truncate(context.Background(), 4)
		require.NoError(t, err)
		b.add("p", "q")
		require.NoError(t, b.dir.Close())
		c := copying{}
		disks := 0
		for disk := range crash.Disks(vfstest.DiskOptions{Kill: kill, Limit: 4, Samples: 4, Cuts: 1, NoTorn: true}) {
			disks++
			found := disk.FS()
			err := c.opens(found, "bk", 0, 12)
			if err == nil {
				var root vfs.FS
				if root, err = vfs.Sub(found, "root"); err == nil {
					err = recoversToPrefix(root)
				}
			}
			if err == nil {
				err = c.opens(found, "bk", 0, 12) // the recovery did not touch it
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, disk.Describe())
			}
		}
		require.Greater(t, disks, 10)
		b.open()
	}
}

// recoversToPrefix opens a root for good and appends to it.
func recoversToPrefix(root vfs.FS) error {
	d, err := OpenDir("root", DirConfig{FS: root, Manual: true})
	if err != nil {
		return err
	}
	l, err := d.Open(context.Background(), TopicPartition{"t", 0}, Config{})
	if err != nil {
		return err
	}
	got, err := offsetsOf(l.Records(context.Background(), 0))
	if err != nil || len(got) < 3 {
		return fmt.Errorf("%v: %w", got, err)
	}
	if _, err := l.Append(context.Background(), values(2, 3)...); err != nil {
		return err
	}
	return d.Close()
}
