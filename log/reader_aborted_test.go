package log

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// aborting is a log in segments of a few transactions each, every other one aborted, with a Reader beside it.
type aborting struct {
	*bed
	r    *Reader
	next int32
	want []int64 // what read-committed readers see
}

func newAborting(t *testing.T, fsys vfs.FS) *aborting {
	a := &aborting{bed: newBedOn(t, fsys, Config{Durability: Buffered, SegmentBytes: 1500})}
	a.send(20)
	r, err := OpenReader("t-0", ReaderOptions{FS: a.fs})
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	a.r = r
	return a
}

func (a *aborting) send(transactions int) {
	for range transactions {
		p := inTxn(as(1, 0, a.next))
		at := a.mustSend(p, 1)
		if a.mustEnd(p, a.next%2 == 0, 0); a.next%2 == 0 {
			a.want = append(a.want, at.Base)
		}
		a.next++
	}
}

// check compares all ways of reading with what was committed.
func (a *aborting) check(t *testing.T) {
	t.Helper()
	got, err := offsetsOf(a.r.Records(ctx, 0, WithIsolation(ReadCommitted)))
	require.NoError(t, err)
	require.Equal(t, a.want, got)
	for from, end := int64(0), a.r.Offsets().LastStable; from < end; {
		mine, err := a.r.Fetch(ctx, from, FetchOptions{Isolation: ReadCommitted, MaxBytes: 500})
		require.NoError(t, err)
		theirs, err := a.Fetch(ctx, from, FetchOptions{Isolation: ReadCommitted, MaxBytes: 500})
		require.NoError(t, err)
		require.Equal(t, theirs.Aborted(), mine.Aborted(), from)
		from, err = mine.NextOffset()
		require.NoError(t, err)
		require.NoError(t, mine.Close())
		require.NoError(t, theirs.Close())
	}
}

// A log may have millions of aborted transactions, and a Reader of it runs for months.
func TestAReaderKeepsNoAbortedTransactionThatAnIndexHas(t *testing.T) {
	a := newAborting(t, vfs.Mem())
	for range 10 {
		bases := a.bases()
		last := bases[len(bases)-1]
		a.check(t)
		require.LessOrEqual(t, len(a.r.aborted), 10, "of %d", a.next/2)
		for _, x := range a.r.aborted {
			require.GreaterOrEqual(t, x.LastOffset, last, "those of the last segment")
		}
		require.Len(t, a.r.held, len(bases)-1)
		a.send(13)
	}
	a.truncate(40)
	a.want = a.want[:0]
	for r, err := range a.Records(ctx, 0, WithIsolation(ReadCommitted)) {
		require.NoError(t, err)
		a.want = append(a.want, r.Offset)
	}
	a.check(t)
	a.next = a.Producers()[0].LastSequence + 1
	a.send(30)
	a.check(t)
}

// An index that does not say what the batches say, or does not any more, is no reason to show what was aborted.
func TestAReaderShowsNothingAbortedWhereAnIndexHasLostEntries(t *testing.T) {
	shorten := func(a *aborting, keep int64) {
		f, err := a.fs.OpenFile("t-0/00000000000000000000.txnindex", os.O_RDWR, 0)
		require.NoError(t, err)
		require.NoError(t, f.Truncate(keep*34))
		require.NoError(t, f.Close())
	}
	for keep := range int64(3) {
		t.Run("before it was read", func(t *testing.T) {
			a := newAborting(t, vfs.Mem())
			require.NoError(t, a.r.Close())
			shorten(a, keep)
			var err error
			a.r, err = OpenReader("t-0", ReaderOptions{FS: a.fs})
			require.NoError(t, err)
			defer a.r.Close()
			got, err := offsetsOf(a.r.Records(ctx, 0, WithIsolation(ReadCommitted)))
			require.NoError(t, err)
			require.Equal(t, a.want, got)
			require.NotContains(t, a.r.held, a.r.segments()[0])
			require.Less(t, a.r.aborted[0].LastOffset, a.bases()[1], "they are kept")
		})
		t.Run("afterwards", func(t *testing.T) {
			a := newAborting(t, vfs.Mem())
			a.check(t)
			require.Contains(t, a.r.held, a.r.segments()[0])
			shorten(a, keep)
			a.r.segments()[0].Park() // the file is opened anew
			got, err := offsetsOf(a.r.Records(ctx, 0, WithIsolation(ReadCommitted)))
			require.NoError(t, err)
			require.Equal(t, a.want, got)
		})
	}
}

// The last entries may be neither in an index that was read a moment ago nor any more in memory.
func TestAReaderMissesNoAbortedTransactionThatGoesFromMemoryToTheIndex(t *testing.T) {
	disk := vfstest.NewFault(vfs.Mem())
	a := newAborting(t, disk)
	a.send(1)
	more := false
	disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRead, vfstest.OpStat, vfstest.OpOpen}, Name: "*.txnindex", Times: vfstest.Always, Hook: func(op vfstest.Op) error {
		if more {
			more = false
			bases := len(a.bases())
			for len(a.bases()) == bases {
				a.send(1)
			}
			return a.r.Refresh()
		}
		return nil
	}})
	for range 50 {
		require.NoError(t, a.r.Refresh())
		more = true
		bound := a.r.Offsets().LastStable
		got, err := offsetsOf(a.r.Records(ctx, 0, WithIsolation(ReadCommitted)))
		require.NoError(t, err)
		for i, offset := range got {
			require.Equal(t, a.want[i], offset, "below %d", bound)
		}
	}
}

// A server that fetches from a Reader pays for what it fetches and not for all that was ever aborted.
func TestAFetchOfAReaderReadsWhatIsRecentOnly(t *testing.T) {
	b := newBed(t, Config{Durability: Buffered})
	p := record.Producer{ID: 1, Transactional: true}
	for range int32(3000) {
		b.mustSend(p, 1)
		b.mustEnd(p, false, 0)
		p.BaseSequence++
	}
	r, err := OpenReader("t-0", ReaderOptions{FS: b.fs})
	require.NoError(t, err)
	defer r.Close()
	a := aborts{v: &r.view}
	require.NoError(t, a.collect(nil, 100, 110))
	require.LessOrEqual(t, len(a.list), 6)
	require.LessOrEqual(t, cap(a.list), 64)
}
