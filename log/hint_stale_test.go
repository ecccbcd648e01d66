package log

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs/vfstest"
)

// What the file of hints said when the root was opened holds for the first opening of a log alone: one that was truncated and
// written anew since is not judged by it when it is opened again.
func TestAHintThatWasFoundIsNotBelievedOfWhatWasWrittenSince(t *testing.T) {
	disk := vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock})
	tp := TopicPartition{"t", 0}
	d, err := OpenDir("root", DirConfig{FS: disk, Manual: true, Now: crashClock})
	require.NoError(t, err)
	l, err := d.Open(ctx, tp, Config{})
	require.NoError(t, err)
	add(t, l, "a")
	require.NoError(t, l.Sync(ctx))
	add(t, l, "b", "c", "d", "e") // the hint says 5, under the recovery point 1

	disk = disk.Kill()
	d, err = OpenDir("root", DirConfig{FS: disk, Manual: true, Now: crashClock})
	require.NoError(t, err)
	l, err = d.Open(ctx, tp, Config{})
	require.NoError(t, err)
	_, err = l.Truncate(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	l, err = d.Open(ctx, tp, Config{})
	require.NoError(t, err)
	require.Empty(t, l.Recovery().Findings, "nothing is gone that was not truncated")
	require.Equal(t, int64(1), l.Offsets().LogEnd)
}

// A log that failed is opened again with a recovery: a torn tail above what it had confirmed by then is cut, and what it had
// confirmed is not.
func TestARecoveryInTheSameProcessGoesByTheNewestHint(t *testing.T) {
	for name, durable := range map[string]int{"nothing is confirmed": 0, "two records are": 2} {
		t.Run(name, func(t *testing.T) {
			disk := vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock})
			fault := vfstest.NewFault(disk)
			tp := TopicPartition{"t", 0}
			d, err := OpenDir("root", DirConfig{FS: fault, Manual: true, Now: crashClock})
			require.NoError(t, err)
			l, err := d.Open(ctx, tp, Config{})
			require.NoError(t, err)
			add(t, l, "a")
			require.NoError(t, l.Sync(ctx))
			add(t, l, "b", "c", "d", "e") // the hint says 5, under the recovery point 1

			disk = disk.Kill()
			fault = vfstest.NewFault(disk)
			d, err = OpenDir("root", DirConfig{FS: fault, Manual: true, Now: crashClock})
			require.NoError(t, err)
			l, err = d.Open(ctx, tp, Config{})
			require.NoError(t, err)
			_, err = l.Truncate(ctx, 1)
			require.NoError(t, err)
			for range durable {
				add(t, l, "x")
			}
			end := l.segments().active().Size()
			fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Err: syscall.EIO})
			_, err = l.Append(ctx, record.Record{Value: []byte("y")})
			require.ErrorIs(t, err, ErrFailed)
			require.Error(t, l.Close())
			f, err := disk.OpenFile("t-0/00000000000000000000.log", os.O_RDWR, 0)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte("torn"), end+30)
			require.NoError(t, err)
			l, err = d.Open(ctx, tp, Config{})
			require.NoError(t, err)
			require.Equal(t, int64(1+durable), l.Offsets().LogEnd)
		})
	}
}
