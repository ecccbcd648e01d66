package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// day is a script that passes every place where something is written.
var day = []string{"append", "append buffered", "group", "append until it rolls", "sync", "epoch and append", "delete some",
	"truncate one", "append", "roll", "append", "truncate inside the first segment", "append", "reset far", "append", "reopen the log", "append", "reopen", "append"}

// faulty runs the day while a rule disturbs one call. It stops at the first error and returns it.
func faulty(t *testing.T, mode Durability, rule vfstest.Rule) (w *world, hits int, err error) {
	t.Helper()
	disk, start := prepare(t, mode, true)
	w = newWorld(disk, mode, start, nil)
	count, _ := w.fault.Add(rule)
	if err = w.open(); err == nil {
		for _, v := range verbsNamed(t, day...) {
			if err = v.do(w); err != nil {
				break
			}
		}
	}
	return w, count(), err
}

// afterFailure checks what the failed call left: no acknowledgement from a log that failed, and, after everything was let
// go of, a log that holds what it must, now and after each power loss.
func afterFailure(t *testing.T, w *world, failed error) {
	t.Helper()
	if w.log != nil && errors.Is(w.log.Err(), ErrFailed) {
		_, err := w.log.Append(context.Background(), siteRecord(0))
		require.ErrorIs(t, err, ErrFailed)
		require.ErrorIs(t, w.log.Sync(context.Background()), ErrFailed)
		require.ErrorIs(t, w.log.Roll(context.Background()), ErrFailed)
		_, err = w.log.Truncate(context.Background(), 0)
		require.ErrorIs(t, err, ErrFailed)
	}
	w.fault.Clear()
	total := newTally()
	require.NoError(t, total.enumerate(w, &w.e, vfstest.DiskOptions{From: w.fs.Len(), Limit: 24, Samples: 8, Cuts: 1}, 1), "after %v", failed)
	if w.dir != nil {
		_ = w.dir.Close()
	}
	_, _, err := check(w.fs.Kill(), w.mode, &w.e, false)
	require.NoError(t, err, "after %v and closing: %v", failed, &w.e)
}

// Report: B040
func TestEachSyncOfADayFailsOnce(t *testing.T) {
	for _, mode := range []Durability{Durable, Buffered} {
		for _, lose := range []bool{true, false} {
			n := 1
			for ; ; n += 1 + crashShare()/10 {
				w, hits, err := faulty(t, mode, vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync, vfstest.OpSyncData, vfstest.OpSyncDir}, Nth: n, Err: &fs.PathError{Op: "sync", Path: "x", Err: syscall.EIO}, LosePages: lose})
				if hits == 0 {
					require.NoError(t, err)
					break
				}
				require.Error(t, err, "sync %d failed and nobody was told", n)
				afterFailure(t, w, fmt.Errorf("sync %d: %w", n, err))
			}
			t.Logf("%v: %d syncs", mode, n-1)
		}
	}
}

func TestEachWriteOfADayFailsOnce(t *testing.T) {
	kinds := []vfstest.Kind{vfstest.OpWrite, vfstest.OpCreate, vfstest.OpRename, vfstest.OpRemove, vfstest.OpTruncate, vfstest.OpMkdir}
	for _, mode := range []Durability{Durable, Buffered} {
		for i, r := range []vfstest.Rule{{Err: syscall.EIO}, {Err: syscall.ENOSPC}, {Err: syscall.EIO, Short: true, Keep: 20}, {Short: true, Keep: 7}, {Err: syscall.EIO, Done: true}} {
			for n := 1 + i%3; ; n += 3 + crashShare()/2 {
				r.Ops, r.Nth = kinds, n
				w, hits, err := faulty(t, mode, r)
				if hits == 0 {
					require.NoError(t, err)
					break
				}
				if err != nil { // a hint that could not be written is nobody's concern
					afterFailure(t, w, fmt.Errorf("write %d: %w", n, err))
				}
			}
		}
	}
}

// Report: B041
func TestASecondSyncThatSucceedsConfirmsNothing(t *testing.T) {
	disk, start := prepare(t, Durable, false)
	w := newWorld(disk, Durable, start, nil)
	require.NoError(t, w.open())
	w.fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "*.log", LosePages: true})
	recs := w.records(1)
	var unconfirmed *UnconfirmedError
	require.ErrorAs(t, w.put(recs, Durable), &unconfirmed)
	require.ErrorIs(t, unconfirmed, ErrFailed)
	require.Equal(t, unconfirmed.Base, unconfirmed.Last)
	require.ErrorIs(t, w.log.Wait(context.Background(), MarkDurable, unconfirmed.Last+1), ErrFailed)
	require.ErrorIs(t, w.log.Sync(context.Background()), ErrFailed)
	require.Equal(t, unconfirmed.Base, w.log.Offsets().Durable)
	require.Equal(t, unconfirmed.Base, w.log.Offsets().HighWatermark)
	require.ErrorIs(t, w.log.Close(), ErrFailed)
	require.NoError(t, w.dir.Close())
	require.False(t, exists(w.fs, checkpoint.CleanMarker))
	w.fault.Clear()
	require.NoError(t, w.mount())
	require.Equal(t, unconfirmed.Base, w.log.Offsets().LogEnd, "the device never got it")
}

// Report: B042. Only bytes that are saved before they are cut must have room: without it nothing is cut.
func TestAnOpenOnAFullDiskLosesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		harm    func(s *site)
		refused bool
	}{
		"nothing to repair": {harm: func(*site) {}},
		"a torn tail":       {harm: func(s *site) { s.edit(logFile(6), appendBytes(batchAt(s.t, 9, 0)[:50])) }},
		"valid behind bad": {refused: true, harm: func(s *site) {
			s.edit(logFile(6), appendBytes(append(make([]byte, 30), batchAt(s.t, 9, 0)...)))
		}},
		"no indexes": {harm: func(s *site) {
			require.NoError(s.t, s.disk.Remove(logFile(3)[:len(logFile(3))-4]+".index"))
		}},
		"no epochs": {harm: func(s *site) { require.NoError(s.t, s.disk.Remove(inFolder(checkpoint.LeaderEpochs))) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newNine(t, Durable)
			s.kill()
			c.harm(s)
			before := s.files()
			full := vfstest.NewFault(s.disk, vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpCreate}, Times: vfstest.Always, Hook: func(op vfstest.Op) error {
				if exists(s.disk, op.Name) || op.Name == lockFile {
					return nil
				}
				return &fs.PathError{Op: "open", Path: op.Name, Err: syscall.ENOSPC}
			}})
			full.SetQuota(0)
			d, err := OpenDir("root", DirConfig{Manual: true, FS: full})
			require.NoError(t, err)
			l, err := d.Open(context.Background(), crashTP, s.cfg)
			if c.refused {
				require.ErrorIs(t, err, ErrNoSpace)
			} else {
				require.NoError(t, err)
				require.Equal(t, int64(9), l.Offsets().LogEnd)
				require.NotEmpty(t, l.Recovery().Unfiled)
				require.ErrorIs(t, d.Close(), syscall.ENOSPC)
			}
			_ = d.Close()
			for _, name := range changedFiles(before, s.files()) {
				cut := name == logFile(6) && !c.refused
				require.True(t, cut || strings.HasSuffix(name, "index"), name)
			}
			s.open()
			s.holds(0, 9)
			s.goesOn()
		})
	}
}

func TestALogOnAFullDiskWorksAgainOnceThereIsRoom(t *testing.T) {
	for _, mode := range []Durability{Durable, Buffered} {
		for quota := int64(0); quota < 700; quota += 13 {
			s := newSite(t, nineRecords(mode))
			full := vfstest.NewFault(s.disk)
			s.stop()
			d, err := OpenDir("root", DirConfig{Manual: true, FS: full, Now: crashClock})
			require.NoError(t, err)
			l, err := d.Open(context.Background(), crashTP, s.cfg)
			require.NoError(t, err)
			full.SetQuota(quota)
			end := int64(0)
			for {
				if _, err = l.Append(context.Background(), siteRecord(end)); err != nil {
					break
				}
				end++
			}
			require.ErrorIs(t, err, ErrNoSpace)
			require.NoError(t, l.Err())
			require.Equal(t, end, l.Offsets().LogEnd)
			full.SetQuota(-1)
			s.dir, s.log = d, l
			s.add(5)
			s.holds(0, end+5)
			s.goesOn()
		}
	}
}

// Report: B044. A file system that has no directory syncs makes names durable by itself, or nobody can; one that has them
// and fails is refused.
func TestADirectorySyncThatFailsIsAnErrorOfOpenOneThatIsMissingIsNot(t *testing.T) {
	disk, _ := prepare(t, Durable, true)
	disk = disk.Kill()
	broken := vfstest.NewFault(disk, vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncDir}, Name: ".", Err: syscall.EIO})
	_, err := OpenDir("root", DirConfig{Manual: true, FS: broken})
	require.ErrorIs(t, err, syscall.EIO)

	b := newBedOn(t, noDirSync{vfs.Mem()}, Config{SegmentBytes: 200}) // the lock was given back, and every call gets by without
	for i := range 10 {
		b.add(fmt.Sprint(i))
	}
	require.NoError(t, b.DeleteRecords(ctx, 1))
	require.NoError(t, errOf(b.Truncate(ctx, 8)))
	require.NoError(t, b.AssignEpoch(4))
	b.reopen()
	require.True(t, b.Recovery().Clean)
	require.Equal(t, offsetsIn(1, 8), b.readAll(1))
	require.NoError(t, b.ResetTo(ctx, 100))
	b.add("x")
	b.reopen()
	require.Equal(t, []int64{100}, b.readAll(100))
}

// noDirSync is a platform without it.
type noDirSync struct{ vfs.FS }

func (noDirSync) SyncDir(string) error {
	return &fs.PathError{Op: "sync", Path: ".", Err: vfs.ErrUnsupported}
}

// Report: B043
func TestAnIndexThatMayNotBeWrittenStopsARollAndNoMore(t *testing.T) {
	s := newNine(t, Durable)
	locked := vfstest.NewFault(s.disk.Kill())
	d, err := OpenDir("root", DirConfig{Manual: true, FS: locked, Now: crashClock})
	require.NoError(t, err)
	l, err := d.Open(context.Background(), crashTP, s.cfg)
	require.NoError(t, err)
	denied := func(op vfstest.Op) error {
		if strings.Contains(op.Name, "index") {
			return &fs.PathError{Op: "write", Path: op.Name, Err: syscall.EACCES}
		}
		return nil
	}
	_, remove := locked.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpCreate, vfstest.OpWrite, vfstest.OpTruncate}, Times: vfstest.Always, Hook: denied})
	_, err = l.Append(context.Background(), siteRecord(9))
	require.ErrorIs(t, err, syscall.EACCES)
	require.ErrorContains(t, err, "00000000000000000009.index")
	s.dir, s.log = d, l
	s.holds(0, 9)
	remove()
	s.add(3)
	s.holds(0, 12)
}

func TestOpenErrorsSayWhatIsWrongAndChangeNothing(t *testing.T) {
	made := t.TempDir()
	l, err := Open(filepath.Join(made, "root"), Config{})
	require.NoError(t, err)
	_, err = l.Append(context.Background(), siteRecord(0))
	require.NoError(t, err)

	_, err = Open(filepath.Join(made, "root"), Config{})
	require.ErrorIs(t, err, ErrLocked)
	var held *vfs.LockedError
	require.ErrorAs(t, err, &held)
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Close(), ErrClosed)

	before := contents(t, made)
	_, err = Open(filepath.Join(made, "root", "log-0"), Config{})
	require.ErrorIs(t, err, ErrNotLog)
	_, err = Open(filepath.Join(made, "root", "log-0", "00000000000000000000.log"), Config{})
	require.Error(t, err)
	_, err = Open(filepath.Join(made, "root"), Config{SegmentBytes: -5})
	require.Error(t, err)
	require.Equal(t, before, contents(t, made))

	base, err := vfs.OSReadOnly(filepath.Join(made, "root"))
	require.NoError(t, err)
	_, err = OpenDir("root", DirConfig{Manual: true, FS: base})
	require.ErrorIs(t, err, ErrReadOnly)
	require.Equal(t, before, contents(t, made))

	two, err := OpenDir(filepath.Join(made, "root"), DirConfig{})
	require.NoError(t, err)
	_, err = two.Open(context.Background(), TopicPartition{"other", 1}, Config{})
	require.NoError(t, err)
	require.NoError(t, two.Close())
	before = contents(t, made)
	_, err = Open(filepath.Join(made, "root"), Config{})
	require.ErrorIs(t, err, ErrNotLog)
	require.Equal(t, before, contents(t, made), "a clean root stays one")
}
