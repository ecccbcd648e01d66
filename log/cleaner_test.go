package log

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// dirtyLog opens a compacted log with n keys written twice, in closed segments.
func dirtyLog(t *testing.T, d *Dir, name string, keys int, ratio float64) *Log {
	t.Helper()
	c := compacting
	c.Compaction.MinDirtyRatio = ratio
	l, err := d.Open(ctx, TopicPartition{name, 0}, c)
	require.NoError(t, err)
	for range 2 {
		for k := range keys {
			_, err := l.Append(ctx, record.Record{Key: fmt.Appendf(nil, "k%d", k), Value: []byte(name)})
			require.NoError(t, err)
		}
		require.NoError(t, l.Roll(ctx))
	}
	return l
}

func records(t *testing.T, l *Log) (n int) {
	t.Helper()
	for _, err := range l.Records(ctx, 0, WithReset(Earliest)) {
		require.NoError(t, err)
		n++
	}
	return n
}

// Scenario: I004. Report: B069, B070
func TestTheCleanerTakesTheDirtiestFirstAndABadLogStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var order []string
		fsys := vfs.Mem()
		d, err := OpenDir("root", DirConfig{FS: fsys, Events: &Events{
			Cleaned: func(tp TopicPartition, _ compaction.Result) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, tp.Topic)
			},
		}})
		require.NoError(t, err)
		bad := dirtyLog(t, d, "bad", 5, 0.5)
		f, err := fsys.OpenFile("bad-0/00000000000000000000.log", 2, 0)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{0xff}, 70) // in the first batch
		require.NoError(t, err)
		require.NoError(t, f.Close())
		some := dirtyLog(t, d, "some", 10, 0.5)
		_, err = some.Compact(ctx, CompactOptions{})
		require.NoError(t, err)
		for k := range 11 { // half as much again
			_, err := some.Append(ctx, record.Record{Key: fmt.Appendf(nil, "k%d", k), Value: []byte("more of it")})
			require.NoError(t, err)
		}
		require.NoError(t, some.Roll(ctx))
		all := dirtyLog(t, d, "wholly", 10, 0.5)
		mu.Lock()
		order = nil
		mu.Unlock()

		time.Sleep(31 * time.Second)
		synctest.Wait()
		mu.Lock()
		require.Equal(t, []string{"wholly", "some"}, order)
		mu.Unlock()
		require.Equal(t, 10, records(t, all))
		require.Equal(t, 11, records(t, some))
		stats := bad.Stats()
		require.ErrorIs(t, stats.Cleaner.LastError, ErrCorrupt)
		require.ErrorIs(t, stats.Cleaner.LastError, compaction.ErrUncleanable)
		require.EqualValues(t, 1, stats.Cleaner.Failures)
		require.Len(t, d.Stats().Failing, 1)
		require.Equal(t, "compaction", d.Stats().Failing[0].Task)
		require.EqualValues(t, 1, all.Stats().Cleaner.Runs)
		require.EqualValues(t, 10, all.Stats().Cleaner.Dropped)

		time.Sleep(time.Hour) // with growing pauses
		synctest.Wait()
		tries := bad.Stats().Cleaner.Failures
		require.Greater(t, tries, int64(3))
		require.Less(t, tries, int64(10))
		require.EqualValues(t, 1, all.Stats().Cleaner.Runs, "nothing has changed")
		require.NoError(t, d.Close())
	})
}

func TestAMapThatIsTooSmallForAllKeysIsFilledAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := OpenDir("root", DirConfig{FS: vfs.Mem(), CleanerMapBytes: 24 * 8, Manual: true})
		require.NoError(t, err)
		l := dirtyLog(t, d, "t", 50, AnyDirt)
		time.Sleep(time.Minute)
		require.NoError(t, d.RunOnce(ctx, time.Now()))
		require.Equal(t, 50, records(t, l))
		require.Greater(t, l.Stats().Cleaner.Runs, int64(5))
		require.NoError(t, d.Close())
	})
}

// A log whose device hangs, while it is cleaned or looked at, does not keep the one cleaner from the others; one that is only
// slow does not get it company.
func TestACleanerThatHangsIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.NewFault(vfs.Mem())
		var mu sync.Mutex
		atWork, most := 0, 0
		d, err := OpenDir("root", DirConfig{FS: disk})
		require.NoError(t, err)
		hung := dirtyLog(t, d, "hung", 5, AnyDirt)
		unseen := dirtyLog(t, d, "unseen", 5, AnyDirt)
		var logs []*Log
		for n := range 5 {
			logs = append(logs, dirtyLog(t, d, fmt.Sprint("t", n), 5, AnyDirt))
		}
		block, release := make(chan struct{}), make(chan struct{})
		disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpCreate}, Name: "hung-0/*.cleaned", Times: vfstest.Always, Block: block})
		disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpOpen}, Name: "unseen-0/*index", Times: vfstest.Always, Block: release})
		disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpCreate}, Name: "t*/*.log.cleaned", Times: vfstest.Always, Hook: func(vfstest.Op) error {
			mu.Lock()
			atWork++
			most = max(most, atWork)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			atWork--
			mu.Unlock()
			return nil
		}})
		require.NoError(t, unseen.list.Load().first().Park())

		time.Sleep(3 * time.Minute)
		for _, l := range logs {
			require.Equal(t, 5, records(t, l))
		}
		require.Equal(t, 1, most)
		var stuck []string
		for _, f := range d.Stats().Failing {
			require.Equal(t, errStuck, f.Err)
			if f.Task == "compaction" {
				stuck = append(stuck, f.TopicPartition.Topic)
			}
		}
		require.ElementsMatch(t, []string{"hung", "unseen"}, stuck)
		close(block)
		close(release)
		time.Sleep(2 * time.Minute)
		require.Equal(t, 5, records(t, hung))
		require.Equal(t, 5, records(t, unseen))
		require.Empty(t, d.Stats().Failing)
		require.NoError(t, d.Close())
	})
}
