package segment

import (
	"io/fs"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

func TestFileNamesHaveTwentyDigits(t *testing.T) {
	require.Equal(t, "00000000000000000000.log", FileName(0, ".log"))
	require.Equal(t, "09223372036854775807.snapshot", FileName(math.MaxInt64, ".snapshot"))
	require.Equal(t, "a/00000000000000000012.index.swap", fileName("a", 12, ".index", ".swap"))
	require.Equal(t, "00000000000000000012.index", fileName(".", 12, ".index", ""))
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { FileName(1<<40, ".timeindex") }), 1.0)
}

func TestAListingTellsWhichSegmentsThereAreAndWhoHasATransactionIndex(t *testing.T) {
	fsys := vfs.Mem()
	for _, name := range []string{
		"00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.txnindex.deleted",
		"00000000000000000005.txnindex", // of no .log
		"00000000000000000010.log", "00000000000000000010.log.swap", "00000000000000000010.snapshot", "00000000000000000010.txnindex",
		"00000000000000000020.log", "30.log", "+40.log", "-1.log", "x.log", ".log", "00000000000000000050.log.cleaned", "99999999999999999999.log",
	} {
		require.NoError(t, fsys.MkdirAll("d", 0o755))
		f, err := fsys.OpenFile("d/"+name, 0x42, 0o644)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	require.NoError(t, fsys.MkdirAll("d/00000000000000000060.log", 0o755))
	entries, err := fsys.ReadDir("d")
	require.NoError(t, err)
	all := FilesOf(entries)
	var bases []int64
	for _, f := range all {
		bases = append(bases, f.Base)
		require.Equal(t, f.Base == 10, f.aborted, f.Base)
		require.NotNil(t, f.log)
	}
	require.Equal(t, []int64{0, 10, 20}, bases, "the files of 30.log would be looked for under other names")
	require.Equal(t, bases, Bases(entries))
	plain := slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name()[:3] != "000" })
	require.Less(t, testing.AllocsPerRun(100, func() { FilesOf(plain) }), 2.0)
}

func TestOpeningWhatWasListedAsksForNothing(t *testing.T) {
	fsys := memFS(t)
	s := create(t, 0, Options{FS: fsys})
	fill(t, s, 20)
	require.NoError(t, s.AppendAborted(AbortedTxn{1, 3, 5, 6}))
	require.NoError(t, s.Close())
	trace := vfstest.NewTrace(fsys)
	entries, err := trace.ReadDir(s.dir)
	require.NoError(t, err)
	all := FilesOf(entries)
	require.Len(t, all, 1)
	trace.Reset()
	again, err := all[0].Open(s.dir, Options{FS: trace})
	require.NoError(t, err)
	require.Equal(t, s.Size(), again.Size())
	require.Zero(t, trace.Count())
	found, _, err := again.Aborted(0, 100)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, again.Close())

	bare := all[0]
	bare.aborted = false
	trace.Reset()
	again, err = bare.Open(s.dir, Options{FS: trace})
	require.NoError(t, err)
	require.NoError(t, again.CheckAborted())
	require.Zero(t, trace.Count(), "no index is listed: there is none")
	require.NoError(t, again.AppendAborted(AbortedTxn{1, 8, 9, 10}), "but it can come into being")
	found, _, err = again.Aborted(0, 100)
	require.NoError(t, err)
	require.Contains(t, found, AbortedTxn{1, 8, 9, 10})
	require.NoError(t, again.Close())
}

// Whoever asks for the last batch gets the one that a search finds, before and after every kind of change.
func TestTheLastBatchIsTheOneASearchFinds(t *testing.T) {
	s := create(t, 0, Options{FS: memFS(t)})
	_, err := s.Last()
	require.ErrorIs(t, err, ErrNotFound)
	fill(t, s, 20)
	require.NoError(t, s.Close())
	s, err = Open(s.dir, 0, s.o)
	require.NoError(t, err)
	same := func() {
		t.Helper()
		next, err := s.NextOffset()
		require.NoError(t, err)
		want, err := s.Find(next - 1)
		require.NoError(t, err)
		got, err := s.Last()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err = s.NextOffset()
	require.NoError(t, err)
	require.Nil(t, s.ix.Load(), "the look at the end leaves no index open")
	same()
	size := s.Size()
	_, err = s.Truncate(18)
	require.NoError(t, err)
	same()
	fill(t, s, 10)
	same()
	require.NotEqual(t, size, s.Size())
	require.NoError(t, s.Close())
	require.True(t, slices.IsSorted(Bases(nil)))
}
