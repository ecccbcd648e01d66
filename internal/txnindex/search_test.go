package txnindex

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// checkBelow compares the search with a look at each entry, and what is read from there on with what is read from the start.
func checkBelow(t require.TestingT, x *Index, all []Entry, offset int64) {
	want := int64(0)
	for _, e := range all {
		if e.LastOffset < offset {
			want++
		}
	}
	n, err := x.Below(offset)
	require.NoError(t, err)
	require.Equal(t, want, n)
	var rest []Entry
	seen, err := x.From(n, func(e Entry) bool { rest = append(rest, e); return true })
	require.NoError(t, err)
	require.Equal(t, int64(len(all))-n, seen)
	require.Equal(t, append([]Entry(nil), all[n:]...), rest)
}

func longIndex(t testing.TB, fsys vfs.FS, n int64) *Index {
	x := New(fsys, "x", 0)
	for i := range n {
		require.NoError(t, x.Append(Entry{i % 7, 3 * i, 3*i + 2, 3*i + 3}))
	}
	return x
}

func TestALookupInALongIndexReadsLittleOfIt(t *testing.T) {
	trace := vfstest.NewTrace(vfs.Mem())
	x := longIndex(t, trace, 25_000)
	trace.Reset()
	n, err := x.Below(3 * 20_000)
	require.NoError(t, err)
	require.Equal(t, int64(20_000), n)
	read := int64(0)
	for _, op := range trace.Ops() {
		read += op.Done
	}
	require.LessOrEqual(t, len(trace.Ops()), 10)
	require.Less(t, read, int64(6<<10))
	require.NoError(t, x.Release()) // what another process may have written since is looked at once
	for range 2 {
		trace.Reset()
		n, err = x.Below(1 << 40)
		require.NoError(t, err)
		require.Equal(t, int64(25_000), n)
	}
	require.Empty(t, trace.Ops())
}

// An index is searched only if it is in order all over, however far the search would have been led.
func TestALookupInAnIndexOutOfOrderIsRefused(t *testing.T) {
	fsys := vfs.Mem()
	x := longIndex(t, fsys, 1000)
	require.NoError(t, x.Close())
	f, err := fsys.OpenFile("x", os.O_RDWR, 0)
	require.NoError(t, err)
	var b [EntrySize]byte
	Entry{1, 0, 5, 6}.Put(b[:])
	_, err = f.WriteAt(b[:], 700*EntrySize)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	x = New(fsys, "x", 0)
	for range 2 {
		_, err = x.Below(9)
		require.ErrorIs(t, err, ErrCorrupt)
	}
	require.NoError(t, x.Truncate(3*600))
	n, err := x.Below(9)
	require.NoError(t, err)
	require.Equal(t, int64(3), n)
}

func BenchmarkLookup(b *testing.B) {
	fsys, err := vfs.OS(b.TempDir())
	require.NoError(b, err)
	x := longIndex(b, fsys, 25_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := x.Below(3 * 20_000); err != nil {
			b.Fatal(err)
		}
	}
}
