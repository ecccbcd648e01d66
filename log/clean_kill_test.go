//go:build unix

package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// cleanerVariable makes the test binary be a process that writes, compacts, drops, moves and deletes below the root it names
// until it is killed.
const cleanerVariable = "PARTLOG_TEST_CLEANER"

var killedConfig = Config{Cleanup: Compact | Delete, SegmentBytes: 4000, RetentionTime: Forever, FileDeleteDelay: Immediately,
	Compaction: CompactionConfig{MinDirtyRatio: AnyDirt, DeleteRetention: Immediately}}

func killedRoots(root string, c DirConfig) (dirs []*Dir, err error) {
	for _, name := range []string{"a", "b"} {
		d, err := OpenDir(filepath.Join(root, name), c)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, d)
	}
	return dirs, SettleMoves(ctx, dirs...)
}

// whereIs opens the partition in the root that has it.
func whereIs(dirs []*Dir, tp TopicPartition) (at int, l *Log, err error) {
	if exists(dirs[1].fs, tp.String()) {
		at = 1
	}
	l, err = dirs[at].Open(ctx, tp, killedConfig)
	return at, l, err
}

// cleanUntilKilled says "key value" after each acknowledged append; values grow.
func cleanUntilKilled(root string) error {
	dirs, err := killedRoots(root, DirConfig{LockTimeout: 10 * time.Second, InitialDelay: Immediately, CleanerBackoff: 2 * time.Millisecond, RetentionInterval: 2 * time.Millisecond})
	if err != nil {
		return err
	}
	tp, passing := TopicPartition{"t", 0}, TopicPartition{"passing", 0}
	at, l, err := whereIs(dirs, tp)
	if err != nil {
		return err
	}
	var still sync.RWMutex // moves wait for appends, which would end with ErrClosed
	errs := make(chan error)
	go func() {
		for n := time.Now().UnixNano(); ; n++ {
			still.RLock()
			k := rand.IntN(40)
			_, err := l.Append(ctx, record.Record{Key: fmt.Appendf(nil, "k%d", k), Value: fmt.Append(nil, n)})
			still.RUnlock()
			if err != nil {
				errs <- err
				return
			}
			fmt.Println(k, n)
		}
	}()
	go func() {
		for {
			time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
			still.Lock()
			err := dirs[at].Move(ctx, tp, dirs[1-at])
			if err == nil {
				at = 1 - at
				l, _ = dirs[at].Get(tp)
			}
			still.Unlock()
			if err != nil {
				errs <- err
				return
			}
		}
	}()
	go func() {
		for {
			p, err := dirs[0].Open(ctx, passing, killedConfig)
			if err == nil {
				_, err = p.Append(ctx, record.Record{Key: []byte("k"), Value: []byte("v")})
			}
			if err == nil {
				err = dirs[0].Delete(ctx, passing)
			}
			if err != nil {
				errs <- err
				return
			}
		}
	}()
	for {
		select {
		case err := <-errs:
			return err
		default:
		}
		still.RLock()
		_, err := l.Compact(ctx, CompactOptions{Force: true})
		still.RUnlock()
		if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrCleaningAborted) {
			return err
		}
	}
}

// A process that compacts, drops, moves and deletes is killed again and again: no key loses what was acknowledged, and verify
// finds nothing.
func TestAProcessThatCleansIsKilled(t *testing.T) {
	kills := 6
	if testing.Short() {
		kills = 2
	}
	root := t.TempDir()
	acked := map[string]int64{}
	tp := TopicPartition{"t", 0}
	for n := range kills {
		for _, line := range runWriter(t, cleanerVariable, root, time.Duration(50+rand.IntN(300))*time.Millisecond) {
			var k, v int64
			_, err := fmt.Sscan(line, &k, &v)
			require.NoError(t, err, line)
			acked[fmt.Sprint("k", k)] = v
		}
		dirs, err := killedRoots(root, DirConfig{Manual: true})
		require.NoError(t, err)
		_, l, err := whereIs(dirs, tp)
		require.NoError(t, err)
		got, last := map[string]int64{}, int64(-1)
		for r, err := range l.Records(ctx, 0, WithReset(Earliest)) {
			require.NoError(t, err)
			require.Greater(t, r.Offset, last)
			last = r.Offset
			v, err := strconv.ParseInt(string(r.Value), 10, 64)
			require.NoError(t, err)
			require.Greater(t, v, got[string(r.Key)], "kill %d", n)
			got[string(r.Key)] = v
		}
		for k, v := range acked {
			require.GreaterOrEqual(t, got[k], v, "kill %d: %s", n, k)
		}
		for f, err := range l.Verify(ctx) {
			require.NoError(t, err)
			require.Fail(t, "verify", "kill %d: %+v", n, f)
		}
		require.Empty(t, l.Recovery().Findings)
		require.NoError(t, errOf(l.Compact(ctx, CompactOptions{Force: true})))
		for _, d := range dirs {
			if n%2 == 0 {
				require.NoError(t, d.Close())
			} else {
				require.NoError(t, d.lock.Close())
			}
		}
	}
}
