package log

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// liar is a file system that breaks one rule of the order of writes, as code without that rule would.
type liar struct {
	vfs.FS
	skipSyncDir func(dir string) bool
	skipSync    func(file string) bool
	rename      func(old, new string) (done bool, err error)
	before      func() error // runs before any call that changes something but a rename
	late        *lateSync
	hold        *held
}

func (l *liar) changing() error {
	if l.before != nil {
		return l.before()
	}
	return nil
}

func (l *liar) SyncDir(name string) error {
	if l.skipSyncDir != nil && l.skipSyncDir(name) {
		return nil
	}
	return l.FS.SyncDir(name)
}

func (l *liar) Rename(old, new string) error {
	if l.rename != nil {
		if done, err := l.rename(old, new); done {
			return err
		}
	}
	return l.FS.Rename(old, new)
}

func (l *liar) Remove(name string) error {
	if err := l.changing(); err != nil {
		return err
	}
	return l.FS.Remove(name)
}

func (l *liar) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if flag&os.O_CREATE != 0 {
		if err := l.changing(); err != nil {
			return nil, err
		}
	}
	f, err := l.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &liarFile{f, l, name}, nil
}

type liarFile struct {
	vfs.File
	l    *liar
	name string
}

func (f *liarFile) skips() bool { return f.l.skipSync != nil && f.l.skipSync(f.name) }

func (f *liarFile) Sync() error {
	if f.skips() {
		return nil
	}
	return f.File.Sync()
}

func (f *liarFile) SyncData() error {
	switch {
	case f.skips():
		return nil
	case f.l.late != nil && strings.HasSuffix(f.name, ".log"):
		f.l.late.due = f.File
		return nil
	}
	return f.File.SyncData()
}

func (f *liarFile) Truncate(n int64) error {
	if err := f.l.changing(); err != nil {
		return err
	}
	return f.File.Truncate(n)
}

func (f *liarFile) WriteAt(p []byte, off int64) (int, error) {
	if f.l.hold != nil {
		if strings.HasSuffix(f.name, ".txnindex") {
			return len(p), f.l.hold.keep(func() error { _, err := f.File.WriteAt(p, off); return err })
		}
		if err := f.l.hold.let(); err != nil {
			return 0, err
		}
	}
	n, err := f.File.WriteAt(p, off)
	if f.name == hintFile && f.l.late != nil && f.l.late.due != nil {
		due := f.l.late.due
		f.l.late.due = nil
		if serr := due.SyncData(); serr != nil {
			return n, serr
		}
	}
	return n, err
}

// lateSync is the sync of a .log that comes behind the hint instead of before it.
type lateSync struct{ due vfs.File }

// held is a write that comes behind the next one.
type held struct{ due func() error }

func (h *held) keep(do func() error) error {
	err := h.let()
	h.due = do
	return err
}

func (h *held) let() error {
	if h.due == nil {
		return nil
	}
	do := h.due
	h.due = nil
	return do()
}

// lateSnapshots gives producer snapshots their name only behind the recovery point.
func lateSnapshots(inner vfs.FS) vfs.FS {
	l := &liar{FS: inner}
	var waiting held
	l.rename = func(old, new string) (bool, error) {
		if strings.HasSuffix(new, ".snapshot") {
			return true, waiting.keep(func() error { return errors.Join(inner.Rename(old, new), inner.SyncDir(path.Dir(new))) })
		}
		if new != checkpoint.RecoveryPoints {
			return false, nil
		}
		return true, errors.Join(inner.Rename(old, new), inner.SyncDir("."), waiting.let())
	}
	return l
}

// lowFirst drops the segments of a truncation from the lowest up.
func lowFirst(inner vfs.FS) vfs.FS {
	l := &liar{FS: inner}
	var waiting [][2]string
	l.rename = func(old, new string) (bool, error) {
		if !strings.HasSuffix(new, ".deleted") {
			return false, nil
		}
		waiting = append(waiting, [2]string{old, new})
		return true, nil
	}
	l.skipSyncDir = func(string) bool { return len(waiting) > 0 }
	l.before = func() error {
		base := ""
		for len(waiting) > 0 { // they wait by segment, highest first
			last := waiting[len(waiting)-1]
			if b := strings.SplitN(path.Base(last[0]), ".", 2)[0]; b != base {
				base = b
				if err := inner.SyncDir(path.Dir(last[0])); err != nil {
					return err
				}
			}
			if err := inner.Rename(last[0], last[1]); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			waiting = waiting[:len(waiting)-1]
		}
		if base == "" {
			return nil
		}
		return inner.SyncDir(crashTP.String())
	}
	return l
}

func verbsNamed(t *testing.T, names ...string) (work []verb) {
	t.Helper()
	for _, name := range names {
		for _, v := range verbs {
			if v.name == name {
				work = append(work, v)
			}
		}
	}
	require.Len(t, work, len(names))
	return work
}

func hasSuffix(suffixes ...string) func(string) bool {
	return func(name string) bool {
		for _, s := range suffixes {
			if strings.HasSuffix(name, s) {
				return true
			}
		}
		return false
	}
}

// Each row is a known wrong order of writes; the enumerator must find a disk that shows it.
func TestWrongOrdersOfWritesAreFoundOut(t *testing.T) {
	folder := func(dir string) bool { return dir == crashTP.String() }
	root := func(dir string) bool { return dir == "." }
	for _, m := range []struct {
		name  string
		start crashStart
		work  []string
		says  string
		wrap  func(vfs.FS) vfs.FS
	}{
		{"no directory sync at a roll", crashStart{Durable, false}, []string{"append until it rolls"}, "durable records are lost",
			func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSyncDir: folder} }},
		{"no data sync before an acknowledgement", crashStart{Durable, false}, []string{"append"}, "",
			func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSync: hasSuffix(".log")} }},
		{"no data sync before a roll", crashStart{Buffered, false}, []string{"append buffered", "append buffered until it rolls"}, "",
			func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSync: hasSuffix(".log")} }},
		{"segments truncated from the lowest up", crashStart{Durable, false}, []string{"truncate inside the first segment"}, "",
			lowFirst},
		{"a truncation that leaves its renames to chance", crashStart{Durable, false}, []string{"truncate inside the first segment", "append"}, "",
			func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSyncDir: folder} }},
		{"recovery point before the indexes", crashStart{Durable, false}, []string{"append until it rolls", "sync"}, "index",
			func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSync: hasSuffix(".index", ".timeindex")} }},
		{"hint before the data", crashStart{Durable, false}, []string{"append"}, "damaged",
			func(f vfs.FS) vfs.FS { return &liar{FS: f, late: &lateSync{}} }},
		{"checkpoint without a sync", crashStart{Durable, false}, []string{"delete some"}, "epochs [{0 9} {1 13}], the batches say [{0 7} {1 13}]",
			func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSync: hasSuffix("checkpoint.tmp")} }},
		{"clean marker over unsynced records", crashStart{Buffered, false}, []string{"append buffered", "reopen"}, "",
			func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSync: hasSuffix(".log")} }},
		{"clean marker that comes back", crashStart{Buffered, true}, []string{"append buffered", "append buffered"}, "",
			func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSyncDir: root} }},
		{"start offset that comes back", crashStart{Durable, false}, []string{"delete some"}, "epochs [{0 9} {1 13}], the batches say [{0 7} {1 13}]",
			func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSyncDir: root} }},
		{"recovery point before the index of aborted transactions", crashStart{Durable, false}, []string{"abort", "append until it rolls", "sync"}, "aborted transactions",
			func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSync: hasSuffix(".txnindex")} }},
		{"recovery point before the snapshot", crashStart{Durable, false}, []string{"append until it rolls", "sync"}, "the snapshot below it",
			lateSnapshots},
		{"snapshot without a sync", crashStart{Durable, false}, []string{"append until it rolls", "sync"}, "the snapshot below it",
			func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSync: hasSuffix(".snapshot.tmp")} }},
	} {
		t.Run(m.name, func(t *testing.T) {
			disk, start := prepare(t, m.start.mode, m.start.clean)
			w := newWorld(disk, m.start.mode, start, m.wrap)
			require.NoError(t, w.open())
			for _, v := range verbsNamed(t, m.work...) {
				require.NoError(t, v.do(w), v.name)
			}
			total := newTally()
			err := total.enumerate(w, &start, vfstest.DiskOptions{Limit: 200, Samples: 50}, 0)
			require.Error(t, err, "nothing found on %d disks", total.disks)
			require.ErrorContains(t, err, m.says)
			t.Logf("found on disk %d", total.disks)
		})
	}
}

// An abort whose index entry comes behind the marks: no crash is needed, the world of the crashes watches the write.
func TestAnIndexOfAbortedTransactionsThatIsLateIsFoundOut(t *testing.T) {
	disk, start := prepare(t, Durable, false)
	w := newWorld(disk, Durable, start, func(f vfs.FS) vfs.FS { return &liar{FS: f, hold: &held{}} })
	require.NoError(t, w.open())
	require.ErrorContains(t, verbsNamed(t, "abort")[0].do(w), "the marks moved before the index was written")
}

// A log that lets readers in before it knows its last stable offset would show them what lies below the high watermark.
func TestReadersBeforeTheLastStableOffsetAreFoundOut(t *testing.T) {
	disk, start := prepare(t, Durable, false)
	w, _, err := run(disk, Durable, start, verbsNamed(t, "begin", "append"))
	require.NoError(t, err)
	early, disks := 0, 0
	for d := range w.fs.Disks(vfstest.DiskOptions{Limit: 20, Samples: 5}) {
		_, l, err := recovered(d.FS(), Durable, false)
		require.NoError(t, err)
		require.NoError(t, checkProducers(l))
		l.update(func(o *Offsets) { o.LastStable = o.HighWatermark })
		if checkProducers(l) != nil {
			early++
		}
		disks++
	}
	require.Positive(t, early, "%d disks", disks)
	require.Less(t, early, disks)
}

// A sync fails, Linux forgets the pages but shows them still. Whoever opens the log again in the same boot must not
// build on them: with the cache trusted, what was shown is gone after the next power loss.
func TestOnlyEvictionSeesWhatAFailedSyncLost(t *testing.T) {
	reopened := func(noEvict bool) error {
		disk, start := prepare(t, Durable, false)
		w := newWorld(disk, Durable, start, nil)
		require.NoError(t, w.open())
		w.fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "*.log", LosePages: true, Err: syscall.EIO})
		recs := w.records(1)
		err := w.put(recs, Durable)
		var unconfirmed *UnconfirmedError
		require.ErrorAs(t, err, &unconfirmed)
		require.ErrorIs(t, err, ErrFailed)
		require.ErrorIs(t, w.dir.Close(), ErrFailed)

		again := w.fs.Kill()
		_, l, err := check(again, Durable, &w.e, noEvict)
		if err != nil {
			return err
		}
		shown := w.e.clone()
		shown.floor = l.Offsets().HighWatermark
		again.Note(shown)
		total := newTally()
		return total.enumerate(&world{fs: again, mode: Durable}, &w.e, vfstest.DiskOptions{}, 0)
	}
	require.NoError(t, reopened(false))
	require.ErrorContains(t, reopened(true), "durable records are lost")
}
