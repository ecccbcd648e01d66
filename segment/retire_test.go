package segment

import (
	"errors"
	"io/fs"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

func retired(t *testing.T, fsys vfs.FS) (*Segment, []AbortedTxn) {
	s := create(t, 0, Options{FS: fsys, IndexIntervalBytes: 1})
	fill(t, s, 5)
	txn := AbortedTxn{ProducerID: 1, FirstOffset: 0, LastOffset: 3, LastStable: 4}
	require.NoError(t, s.AppendAborted(txn))
	require.NoError(t, s.Seal(ctx))
	return s, []AbortedTxn{txn}
}

func readable(t *testing.T, s *Segment, want []AbortedTxn) {
	t.Helper()
	require.Equal(t, span(0, 5), mustOffsets(t, s))
	p, err := s.Find(3)
	require.NoError(t, err)
	require.EqualValues(t, 3, p.Base)
	got, _, err := s.Aborted(0, math.MaxInt64)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestRetireMakesTheLogsLeavingDurableBeforeTheRestFollows(t *testing.T) {
	fsys := memFS(t)
	s, txns := retired(t, fsys)
	called := false
	require.NoError(t, s.Retire(".deleted", func() error {
		called = true
		_, err := fsys.Stat(file(0, ".log"))
		require.Error(t, err)
		for _, kind := range []string{".index", ".timeindex", ".txnindex"} {
			_, err := fsys.Stat(file(0, kind))
			require.NoError(t, err)
		}
		return nil
	}))
	require.True(t, called)
	for _, kind := range []string{".log", ".index", ".timeindex", ".txnindex"} {
		_, err := fsys.Stat(file(0, kind) + ".deleted")
		require.NoError(t, err)
	}
	readable(t, s, txns)
	require.NoError(t, s.Retire(".deleted", nil), "twice is once")
	require.True(t, s.Retain())
	require.NoError(t, s.Delete())
	readable(t, s, txns)
	s.Release()
	entries, err := fsys.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// Whatever makes the leaving durable may take its time: nobody who reads the segment waits for it, files open or not.
func TestReadersGoOnWhileALeavingIsMadeDurable(t *testing.T) {
	s, txns := retired(t, memFS(t))
	require.NoError(t, s.Retire(".deleted", func() error {
		done := make(chan struct{})
		go func() {
			defer close(done)
			readable(t, s, txns)
			_ = s.Park()
			readable(t, s, txns)
		}()
		select {
		case <-done:
			return nil
		case <-time.After(10 * time.Second):
			return errors.New("a reader waits")
		}
	}))
	require.NoError(t, s.Park())
	readable(t, s, txns)
}

func TestRetireThatCouldNotBeMadeDurableIsTakenBack(t *testing.T) {
	fsys := memFS(t)
	s, txns := retired(t, fsys)
	require.ErrorIs(t, s.Retire(".deleted", func() error { return syscall.EIO }), syscall.EIO)
	require.Equal(t, file(0, ".log"), s.File())
	readable(t, s, txns)
	require.NoError(t, s.Retire(".deleted", nil))
	readable(t, s, txns)
}

func TestRetireWithoutASuffixRemoves(t *testing.T) {
	fsys := memFS(t)
	s, txns := retired(t, fsys)
	require.True(t, s.Retain())
	require.NoError(t, s.Retire("", func() error {
		_, err := fsys.Stat(file(0, ".txnindex"))
		require.NoError(t, err)
		return nil
	}))
	readable(t, s, txns)
	s.Release()
	entries, err := fsys.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)

	other, _ := retired(t, fsys)
	require.ErrorIs(t, other.Retire("", func() error { return syscall.EIO }), syscall.EIO)
	require.NoError(t, other.Delete())
}

func TestRetireThatMeetsAnErrorLosesNothing(t *testing.T) {
	for kind, moved := range map[string]bool{".log": false, ".index": true, ".timeindex": true} {
		fault := vfstest.NewFault(memFS(t))
		s, txns := retired(t, fault)
		_, remove := fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRename}, Name: file(0, kind), Times: vfstest.Always, Err: syscall.EIO})
		err := s.Retire(".deleted", nil)
		require.Equal(t, moved, err == nil, kind)
		readable(t, s, txns)
		remove()
		require.NoError(t, s.Retire(".deleted", nil))
		readable(t, s, txns)
	}
	fault := vfstest.NewFault(memFS(t))
	s, _ := retired(t, fault)
	fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRename}, Name: file(0, ".txnindex"), Times: vfstest.Always, Err: syscall.EIO, Done: true})
	require.NoError(t, s.Retire(".deleted", nil))
	_, _, err := s.Aborted(0, 10)
	require.ErrorIs(t, err, syscall.EIO, "a reader is told, it does not see aborted records")

	closed := open(t, 0, Options{FS: fault, ReadOnly: true, Suffix: ".deleted"})
	require.True(t, errors.Is(closed.Retire("", nil), ErrReadOnly))
}

// A reader that asks for aborted transactions at any moment of a renaming waits for it, and the renaming not for the reader.
func TestRenamingBesideAReaderOfAbortedTransactions(t *testing.T) {
	for name, rename := range map[string]func(s *Segment, meanwhile func() error) error{
		"Retire": func(s *Segment, meanwhile func() error) error { return s.Retire(".deleted", meanwhile) },
		"Rename": func(s *Segment, meanwhile func() error) error {
			s.o.FS.(*vfstest.Fault).Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRename}, Hook: func(vfstest.Op) error { return meanwhile() }})
			return s.Rename(".deleted")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, txns := retired(t, vfstest.NewFault(memFS(t)))
			asked := make(chan error, 1)
			done := make(chan error, 1)
			go func() {
				done <- rename(s, func() error {
					go func() {
						_, _, err := s.Aborted(0, math.MaxInt64)
						asked <- err
					}()
					time.Sleep(5 * time.Millisecond)
					return nil
				})
			}()
			for _, ended := range []chan error{done, asked} {
				select {
				case err := <-ended:
					require.NoError(t, err)
				case <-time.After(10 * time.Second):
					t.Fatal("both wait for the other")
				}
			}
			readable(t, s, txns)
		})
	}
}

// An index that gets another name while it is about to be synced is synced.
func TestAnIndexThatIsRenamedInFrontOfItsSyncIsSynced(t *testing.T) {
	disk := vfstest.NewFault(memFS(t))
	s, _ := retired(t, disk)
	require.NoError(t, s.Park())
	disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpOpen}, Name: "*.index", Hook: func(vfstest.Op) error { return s.Rename(".deleted") }})
	synced, _ := disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync}, Name: "*index.deleted", Times: vfstest.Always})
	require.NoError(t, s.Sync())
	require.GreaterOrEqual(t, synced(), 2)
}

// A full device may have no room for a longer name: what cannot be renamed is removed, which needs none.
func TestARetiredSegmentLeavesNothingUnderItsOldNames(t *testing.T) {
	for _, kind := range []string{".index", ".timeindex", ".txnindex"} {
		fault := vfstest.NewFault(memFS(t))
		s, txns := retired(t, fault)
		fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRename}, Name: file(0, kind), Times: vfstest.Always, Err: syscall.ENOSPC})
		require.NoError(t, s.Retire(".deleted", nil))
		_, err := fault.Stat(file(0, kind))
		require.ErrorIs(t, err, fs.ErrNotExist, kind)
		readable(t, s, txns)
		require.True(t, s.Retain())
		require.NoError(t, s.Delete())
		readable(t, s, txns)
		s.Release()
		entries, err := fault.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, entries, kind)
	}
}
