package timeindex

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"iter"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/vfs"
)

const file = "00000000000000000000.timeindex"

func memOptions() index.Options { return index.Options{FS: vfs.Mem()} }

func create(t testing.TB, base int64, o index.Options, es ...Entry) *Index {
	t.Helper()
	x, err := Create(file, base, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	for _, e := range es {
		if added, err := x.Append(e); err != nil || !added {
			t.Fatalf("append %+v: %v, %v", e, added, err)
		}
	}
	return x
}

// steps are n entries, one every 10 ms and 7 offsets.
func steps(base int64, n int) []Entry {
	es := make([]Entry, n)
	for i := range es {
		es[i] = Entry{Timestamp: int64(i+1) * 10, Offset: base + int64(i+1)*7}
	}
	return es
}

func seq(es []Entry) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for _, e := range es {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func all(t testing.TB, x *Index) []Entry {
	t.Helper()
	es := []Entry{}
	for e, err := range x.Entries() {
		if err != nil {
			t.Fatal(err)
		}
		es = append(es, e)
	}
	return es
}

func contents(t testing.TB, o index.Options) []byte {
	t.Helper()
	b, err := vfs.ReadFile(o.FS, file, 64<<20)
	require.NoError(t, err)
	return b
}

func put(t testing.TB, o index.Options, b []byte) {
	t.Helper()
	f, err := o.FS.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	require.NoError(t, err)
	if len(b) > 0 {
		_, err = f.WriteAt(b, 0)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
}

func bytesOf(base int64, es ...Entry) (b []byte) {
	for _, e := range es {
		raw := encode(base, e)
		b = append(b, raw[:]...)
	}
	return b
}

func lookup(t testing.TB, x *Index, ts int64) Entry {
	t.Helper()
	e, err := x.Lookup(ts)
	require.NoError(t, err)
	return e
}

// Spec 3.3: timestamp 1700000000000, relative offset 57.
func TestEntryIsTwelveBigEndianBytes(t *testing.T) {
	o := memOptions()
	x := create(t, 1000, o, Entry{1700000000000, 1057})
	require.NoError(t, x.Flush())
	require.Equal(t, "0000018bcfe5680000000039", hex.EncodeToString(contents(t, o)))
}

func TestLookupIsTheLastEntryNotYounger(t *testing.T) {
	x := create(t, 45, memOptions())
	require.Equal(t, Entry{NoTimestamp, 45}, lookup(t, x, 100))
	last, ok := x.Last()
	require.False(t, ok)
	require.Equal(t, Entry{NoTimestamp, 45}, last)
	for _, e := range []Entry{{10, 46}, {12, 50}} {
		_, err := x.Append(e)
		require.NoError(t, err)
	}
	for ts, want := range map[int64]Entry{
		math.MinInt64: {-1, 45}, 9: {-1, 45}, 10: {10, 46}, 11: {10, 46}, 12: {12, 50}, math.MaxInt64: {12, 50},
	} {
		require.Equal(t, want, lookup(t, x, ts), "timestamp %d", ts)
	}
}

// Scenario: T003
func TestEntryOfASlotIsWhatWasAppendedThere(t *testing.T) {
	x := create(t, 45, memOptions())
	_, ok, err := x.At(0)
	require.NoError(t, err)
	require.False(t, ok)
	es := steps(45, 700) // more than two pages of 341
	for _, e := range es {
		_, err := x.Append(e)
		require.NoError(t, err)
	}
	for i, e := range es {
		got, ok, err := x.At(i)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, e, got)
	}
	require.Equal(t, es, all(t, x))
}

func TestOnlyALargerTimestampIsStored(t *testing.T) {
	x := create(t, 0, memOptions())
	for _, row := range []struct {
		e     Entry
		added bool
		err   error
	}{
		{Entry{-1, 3}, false, nil},
		{Entry{-7, 3}, false, nil},
		{Entry{0, 3}, true, nil},
		{Entry{0, 9}, false, nil},
		{Entry{10, 9}, true, nil},
		{Entry{10, 9}, false, nil},
		{Entry{10, 20}, false, nil},
		{Entry{9, 20}, false, index.ErrOrder},
		{Entry{11, 8}, false, index.ErrOrder},
		{Entry{11, math.MaxInt32 + 1}, false, index.ErrRange},
		{Entry{11, math.MaxInt32}, true, nil},
	} {
		added, err := x.Append(row.e)
		require.ErrorIs(t, err, row.err, "%+v", row.e)
		require.Equal(t, row.added, added, "%+v", row.e)
	}
	require.Equal(t, []Entry{{0, 3}, {10, 9}, {11, math.MaxInt32}}, all(t, x))
	_, err := create(t, 100, memOptions()).Append(Entry{5, 99})
	require.ErrorIs(t, err, index.ErrRange)
}

func TestOneSlotIsKeptForTheLastEntry(t *testing.T) {
	o := memOptions()
	o.MaxBytes = 3*EntrySize + 11
	x := create(t, 0, o, Entry{10, 1}, Entry{20, 2})
	require.True(t, x.Full())
	_, err := x.Append(Entry{30, 3})
	require.ErrorIs(t, err, index.ErrFull)
	require.NoError(t, x.AppendLast(Entry{20, 9}))
	require.NoError(t, x.AppendLast(Entry{5, 9}))
	require.Equal(t, 2, x.Len())
	require.NoError(t, x.AppendLast(Entry{30, 3}))
	require.NoError(t, x.AppendLast(Entry{40, 4}), "the largest timestamp is never lost")
	require.NoError(t, x.Seal())
	last, ok := x.Last()
	require.True(t, ok)
	require.Equal(t, Entry{40, 4}, last)
	require.ErrorIs(t, x.AppendLast(Entry{50, 5}), index.ErrReadOnly)
}

func TestTruncateGoesByTheOffset(t *testing.T) {
	for offset, left := range map[int64]int{-1: 0, 6: 0, 7: 0, 8: 1, 14: 1, 15: 2, 7 * 400: 399, 7*400 + 1: 400, math.MaxInt64: 400} {
		for _, sealed := range []bool{false, true} {
			o := memOptions()
			x := create(t, 0, o, steps(0, 400)...)
			if sealed {
				require.NoError(t, x.Seal())
			}
			require.NoError(t, x.Truncate(offset))
			require.Equal(t, steps(0, 400)[:left], all(t, x))
			added, err := x.Append(Entry{1 << 40, 1 << 20})
			require.NoError(t, err)
			require.True(t, added)
			require.NoError(t, x.Sync())
			require.Len(t, contents(t, o), (left+1)*EntrySize)
		}
	}
	x := create(t, 0, memOptions(), Entry{5, 105}, Entry{6, 105}, Entry{7, 106})
	require.NoError(t, x.Truncate(105))
	require.Equal(t, 0, x.Len(), "all entries of the offset go")
}

func TestRebuildAndBuildKeepTheLargestTimestamp(t *testing.T) {
	src := []Entry{{NoTimestamp, 1}, {10, 2}, {5, 3}, {10, 4}, {30, 5}, {40, 6}, {50, 7}, {45, 8}}
	want := []Entry{{10, 2}, {30, 5}, {40, 6}, {50, 7}}
	o := memOptions()
	put(t, o, []byte("garbage"))
	x, err := Build(0, seq(src))
	require.NoError(t, err)
	require.Equal(t, want, all(t, x))
	require.NoError(t, x.Check(100))
	require.NoError(t, x.Close())

	x, err = Rebuild(file, 0, o, seq(sorted(src)))
	require.NoError(t, err)
	require.Equal(t, want, all(t, x))
	require.NoError(t, x.Close())
	require.Equal(t, bytesOf(0, want...), contents(t, o))

	o.MaxBytes = 3 * EntrySize
	x, err = Rebuild(file, 0, o, seq(sorted(src)))
	require.NoError(t, err)
	require.Equal(t, []Entry{{10, 2}, {30, 5}, {50, 7}}, all(t, x))
	require.NoError(t, x.Close())

	boom := errors.New("boom")
	_, err = Rebuild(file, 0, o, func(yield func(Entry, error) bool) { yield(Entry{}, boom) })
	require.ErrorIs(t, err, boom)
	_, err = Build(0, func(yield func(Entry, error) bool) { yield(Entry{}, boom) })
	require.ErrorIs(t, err, boom)
	_, err = o.FS.Stat(file + ".tmp")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// sorted is what a segment offers: the largest timestamp so far and its offset.
func sorted(src []Entry) (out []Entry) {
	max := Entry{Timestamp: NoTimestamp}
	for _, e := range src {
		if e.Timestamp > max.Timestamp {
			max = e
		}
		out = append(out, max)
	}
	return out
}

func TestSizeLimitBelowOneEntryIsAnError(t *testing.T) {
	for _, max := range []int64{-1, 4, 8, EntrySize - 1} {
		o := memOptions()
		o.MaxBytes = max
		_, err := Create(file, 0, o)
		require.ErrorIs(t, err, index.ErrTooSmall)
		_, err = Rebuild(file, 0, o, seq(nil))
		require.ErrorIs(t, err, index.ErrTooSmall)
	}
	o := memOptions()
	o.MaxBytes = EntrySize
	require.True(t, create(t, 0, o).Full())
}

func TestLookupsAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector makes sync.Pool forget")
	}
	o := memOptions()
	x := create(t, 0, o, steps(0, 5000)...)
	for range 2 {
		ts := int64(0)
		require.Zero(t, testing.AllocsPerRun(500, func() {
			ts = (ts + 12347) % 50000
			_, _ = x.Lookup(ts)
			x.Last()
		}))
		require.NoError(t, x.Seal())
	}
}

func TestWithoutAFileSystemThereIsAnErrorAndNoPanic(t *testing.T) {
	o := index.Options{}
	_, err := Create(file, 0, o)
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = Open(file, 0, o)
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = OpenSealed(file, 0, o)
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = Rebuild(file, 0, o, seq(nil))
	require.ErrorIs(t, err, fs.ErrInvalid)
}
