package log

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/vfs"
)

// Kafka removes the snapshot at the log start; of a transaction that began below it only later ones tell.
func TestAReaderKnowsOfAnOpenTransactionWhoseBeginningWasDeleted(t *testing.T) {
	b := newBedOn(t, vfs.Mem(), Config{Durability: Buffered})
	p := inTxn(as(1, 0, 0))
	b.mustSend(p, 3)
	require.NoError(t, b.Roll(ctx))
	start := b.add("a", "b")
	require.NoError(t, b.DeleteRecords(ctx, start))
	_, err := b.Retain(ctx)
	require.NoError(t, err)
	b.add("c")
	require.NoError(t, b.dir.Close())
	require.NoError(t, producerstate.Remove(b.fs, "t-0", []int64{start}))

	r, err := OpenReader("t-0", ReaderOptions{FS: b.fs})
	require.NoError(t, err)
	defer r.Close()
	require.Equal(t, [2]int64{start, start + 3}, [2]int64{r.Offsets().LastStable, r.Offsets().LogEnd})
	seen := func() []int64 {
		got, err := offsetsOf(r.Records(ctx, start, WithIsolation(ReadCommitted)))
		require.NoError(t, err)
		return got
	}
	require.Empty(t, seen())
	b.open()
	require.Equal(t, start, b.Offsets().LastStable)
	b.mustEnd(p, true, 0)
	require.Equal(t, []int64{start, start + 1, start + 2}, seen())
	require.Equal(t, start+4, r.Offsets().LastStable)

	require.NoError(t, b.Roll(ctx)) // a Reader that is opened behind the marker, and a segment
	b.add("d")
	b.reopen()
	require.NoError(t, b.dir.Close())
	require.NoError(t, producerstate.Remove(b.fs, "t-0", []int64{start + 4}))
	require.NoError(t, r.Close())
	r, err = OpenReader("t-0", ReaderOptions{FS: b.fs})
	require.NoError(t, err)
	require.Equal(t, start+5, r.Offsets().LastStable)
	require.NoError(t, r.Close())
	b.open()
}
