package index

import (
	"encoding/hex"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

const file = "00000000000000000000.index"

func memOptions() Options { return Options{FS: vfs.Mem()} }

func osOptions(t testing.TB) (Options, string) {
	dir := t.TempDir()
	fsys, err := vfs.OS(dir)
	require.NoError(t, err)
	return Options{FS: fsys, Budget: NewBudget(0)}, filepath.Join(dir, file)
}

func create(t testing.TB, base int64, o Options, entries ...Entry) *Index {
	t.Helper()
	x, err := Create(file, base, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	for _, e := range entries {
		if err := x.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

// steps are n entries, one every 10 offsets and 4096 bytes.
func steps(base int64, n int) []Entry {
	es := make([]Entry, n)
	for i := range es {
		es[i] = Entry{Offset: base + int64(i+1)*10, Position: int64(i+1) * 4096}
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

func contents(t testing.TB, o Options, name string) []byte {
	t.Helper()
	b, err := vfs.ReadFile(o.FS, name, 64<<20)
	require.NoError(t, err)
	return b
}

func put(t testing.TB, o Options, name string, b []byte) {
	t.Helper()
	f, err := o.FS.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	require.NoError(t, err)
	if len(b) > 0 {
		_, err = f.WriteAt(b, 0)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
}

func lookup(t testing.TB, x *Index, offset int64) Entry {
	t.Helper()
	e, err := x.Lookup(offset)
	require.NoError(t, err)
	return e
}

// Spec 3.2: base 1000, offset 1057, position 4211.
func TestEntryIsEightBigEndianBytes(t *testing.T) {
	o := memOptions()
	x := create(t, 1000, o, Entry{1057, 4211})
	require.NoError(t, x.Flush())
	require.Equal(t, "0000003900001073", hex.EncodeToString(contents(t, o, file)))
}

// Scenario: O002
func TestLookupBelowTheFirstEntryIsTheBaseAtPositionZero(t *testing.T) {
	x := create(t, 45, memOptions())
	require.Equal(t, Entry{45, 0}, lookup(t, x, 45))
	require.Equal(t, Entry{45, 0}, lookup(t, x, 1000))
	require.NoError(t, x.Append(Entry{46, 7}))
	require.NoError(t, x.Append(Entry{49, 9}))
	for offset, want := range map[int64]Entry{
		math.MinInt64: {45, 0}, -1: {45, 0}, 44: {45, 0}, 45: {45, 0}, 46: {46, 7}, 48: {46, 7}, 49: {49, 9}, 50: {49, 9}, math.MaxInt64: {49, 9},
	} {
		require.Equal(t, want, lookup(t, x, offset), "offset %d", offset)
	}
}

// Scenario: O003
func TestEntryOfASlotIsWhatWasAppendedThere(t *testing.T) {
	x := create(t, 45, memOptions())
	_, ok, err := x.At(0)
	require.NoError(t, err)
	require.False(t, ok)
	es := steps(45, 1100)
	for _, e := range es {
		require.NoError(t, x.Append(e))
	}
	for i, e := range es {
		got, ok, err := x.At(i)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, e, got)
	}
	for _, slot := range []int{-1, 1100, math.MaxInt32} {
		_, ok, err := x.At(slot)
		require.NoError(t, err)
		require.False(t, ok)
	}
}

// Scenario: O005
func TestAppendRefusesWhatDoesNotLieBehindTheLastEntry(t *testing.T) {
	const base = 45
	x := create(t, base, memOptions(), Entry{51, 100})
	for name, row := range map[string]struct {
		e    Entry
		want error
	}{
		"smaller offset":      {Entry{50, 200}, ErrOrder},
		"same offset":         {Entry{51, 200}, ErrOrder},
		"same position":       {Entry{52, 100}, ErrOrder},
		"smaller position":    {Entry{52, 99}, ErrOrder},
		"below the base":      {Entry{44, 200}, ErrRange},
		"too far from base":   {Entry{base + math.MaxInt32 + 1, 200}, ErrRange},
		"far beyond int64":    {Entry{math.MinInt64, 200}, ErrRange},
		"position too large":  {Entry{52, math.MaxInt32 + 1}, ErrRange},
		"position below zero": {Entry{52, -1}, ErrRange},
	} {
		require.ErrorIs(t, x.Append(row.e), row.want, name)
	}
	require.Equal(t, []Entry{{51, 100}}, all(t, x))
	require.NoError(t, x.Append(Entry{base + math.MaxInt32, math.MaxInt32}))
	require.Equal(t, Entry{base + math.MaxInt32, math.MaxInt32}, lookup(t, x, math.MaxInt64))
}

// Scenario: O006
func TestUpperBoundIsTheFirstEntryAtOrBehindThePosition(t *testing.T) {
	x := create(t, 45, memOptions(), Entry{45, 0}, Entry{46, 10}, Entry{47, 23}, Entry{48, 37})
	for _, row := range []struct{ from, size, want int64 }{
		{0, 5, 46}, {0, 10, 46}, {0, 22, 47}, {0, 23, 47}, {10, 24, 48}, {37, 1, -1}, {0, 200, -1}, {0, 0, 45}, {math.MinInt64, 0, 45}, {math.MaxInt64, 0, -1},
	} {
		e, ok, err := x.UpperBound(row.from + row.size)
		require.NoError(t, err)
		require.Equal(t, row.want >= 0, ok, "%+v", row)
		if ok {
			require.Equal(t, row.want, e.Offset, "%+v", row)
		}
	}
}

// Scenario: O007
func TestSealedIndexHasTheSameEntriesExactLengthAndIsFull(t *testing.T) {
	o, path := osOptions(t)
	es := steps(0, 700)
	x := create(t, 0, o, es...)
	require.False(t, x.Full())
	require.NoError(t, x.Seal())
	check := func(x *Index) {
		require.True(t, x.Full())
		require.ErrorIs(t, x.Append(Entry{100000, 10000000}), ErrReadOnly)
		require.Equal(t, es, all(t, x))
		require.NoError(t, x.Check(math.MaxInt64))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.EqualValues(t, 700*EntrySize, info.Size())
	}
	check(x)
	require.NoError(t, x.Close())
	y, err := OpenSealed(file, 0, o)
	require.NoError(t, err)
	defer y.Close()
	check(y)
}

func TestReopenedActiveIndexGoesOnWhereItWas(t *testing.T) {
	for _, n := range []int{0, 1, 511, 512, 513, 1024, 1500} {
		o := memOptions()
		es := steps(7, 2000)
		x, err := Create(file, 7, o)
		require.NoError(t, err)
		for _, e := range es[:n] {
			require.NoError(t, x.Append(e))
		}
		require.NoError(t, x.Close())
		require.Len(t, contents(t, o, file), n*EntrySize)
		x, err = Open(file, 7, o)
		require.NoError(t, err)
		require.Equal(t, n, x.Len())
		for _, e := range es[n:] {
			require.NoError(t, x.Append(e))
		}
		require.Equal(t, es, all(t, x))
		require.Equal(t, es[1999].Offset, x.LastOffset())
		require.NoError(t, x.Close())
		require.Len(t, contents(t, o, file), 2000*EntrySize)
	}
}

// Scenario: O008
func TestTruncateDropsEntriesAtAndAboveTheOffset(t *testing.T) {
	es := []Entry{}
	for i := int64(1); i < 10; i++ {
		es = append(es, Entry{i, i * 5})
	}
	for _, sealed := range []bool{false, true} {
		for _, row := range []struct {
			offset int64
			left   int
		}{{12, 9}, {10, 9}, {9, 8}, {5, 4}, {1, 0}, {0, 0}, {-3, 0}} {
			o := memOptions()
			x := create(t, 0, o, es...)
			if sealed {
				require.NoError(t, x.Seal())
			}
			require.NoError(t, x.Truncate(row.offset))
			require.Equal(t, es[:row.left], all(t, x), "%+v", row)
			require.False(t, x.Full())
			require.NoError(t, x.Append(Entry{20, 100}))
			require.NoError(t, x.Truncate(0))
			require.Equal(t, 0, x.Len())
			require.EqualValues(t, 0, x.LastOffset())
			require.NoError(t, x.Truncate(0))
			require.NoError(t, x.Append(Entry{1, 0}))
			require.NoError(t, x.Flush())
			require.Len(t, contents(t, o, file), EntrySize)
		}
	}
}

// Scenario: O009
func TestLookupAfterCloseIsAnErrorAndASecondCloseIsNone(t *testing.T) {
	o, _ := osOptions(t)
	x := create(t, 0, o, steps(0, 10)...)
	require.NoError(t, x.Seal())
	lookup(t, x, 20)
	require.Equal(t, 1, o.Budget.Mappings()+o.Budget.Files(), "a file where the platform has no mappings")
	require.NoError(t, x.Close())
	require.Equal(t, 0, o.Budget.Mappings())
	require.Equal(t, 0, o.Budget.Files())
	_, err := x.Lookup(20)
	require.ErrorIs(t, err, fs.ErrClosed)
	_, _, err = x.UpperBound(20)
	require.ErrorIs(t, err, fs.ErrClosed)
	for _, err := range x.Entries() {
		require.ErrorIs(t, err, fs.ErrClosed)
	}
	for _, err := range []error{x.Check(0), x.Append(Entry{1000, 100000}), x.Truncate(0), x.Flush(), x.Sync(), x.Seal(), x.Load(), x.Rename("other")} {
		require.ErrorIs(t, err, fs.ErrClosed)
	}
	require.Equal(t, 0, x.Len())
	require.True(t, x.Full())
	require.NoError(t, x.Close())
}

// Scenario: O010 (and B002)
func TestSingleEntryOfTheBaseOffsetIsLegal(t *testing.T) {
	for _, base := range []int64{0, 2076} {
		o := memOptions()
		x := create(t, base, o, Entry{base, 0})
		require.NoError(t, x.Close())
		y, err := Open(file, base, o)
		require.NoError(t, err)
		require.NoError(t, y.Check(100))
		require.Equal(t, []Entry{{base, 0}}, all(t, y))
		require.NoError(t, y.Close())
		z, err := OpenSealed(file, base, o)
		require.NoError(t, err)
		require.NoError(t, z.Check(100))
		require.Equal(t, 1, z.Len())
		require.NoError(t, z.Close())
	}
}

// Scenario: B009, S010
func TestFullIndexTruncatedToItsBaseTakesAppendsAgain(t *testing.T) {
	o := memOptions()
	o.MaxBytes = 3*EntrySize + 5
	x := create(t, 0, o, steps(0, 3)...)
	require.True(t, x.Full())
	require.ErrorIs(t, x.Append(Entry{100, 100000}), ErrFull)
	require.NoError(t, x.Truncate(0))
	require.False(t, x.Full())
	require.NoError(t, x.Append(Entry{1, 0}))
}

// Scenario: B012
func TestOffsetsFarBeyond32Bits(t *testing.T) {
	for _, base := range []int64{4294967290, 1<<31 - 10, 1 << 62, math.MaxInt64 - math.MaxInt32} {
		es := steps(base, 600)
		x := create(t, base, memOptions(), es...)
		require.NoError(t, x.Seal())
		for _, e := range es {
			require.Equal(t, e, lookup(t, x, e.Offset+9))
		}
		require.Equal(t, Entry{base, 0}, lookup(t, x, base+9))
	}
}

func TestSizeLimitBelowOneEntryIsAnError(t *testing.T) {
	for _, max := range []int64{-1, 1, EntrySize - 1} {
		o := memOptions()
		o.MaxBytes = max
		_, err := Create(file, 0, o)
		require.ErrorIs(t, err, ErrTooSmall)
		_, err = Open(file, 0, o)
		require.ErrorIs(t, err, ErrTooSmall)
		_, err = OpenSealed(file, 0, o)
		require.ErrorIs(t, err, ErrTooSmall)
		_, err = Rebuild(file, 0, o, seq(nil))
		require.ErrorIs(t, err, ErrTooSmall)
	}
}

func TestMissingFileIsReportedByOpenAndByTheFirstUseOfASealedIndex(t *testing.T) {
	o := memOptions()
	_, err := Open(file, 0, o)
	require.ErrorIs(t, err, fs.ErrNotExist)
	x, err := OpenSealed(file, 0, o)
	require.NoError(t, err)
	defer x.Close()
	_, err = x.Lookup(3)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, x.Load(), fs.ErrNotExist)
	require.ErrorIs(t, x.Check(10), fs.ErrNotExist)
	require.ErrorIs(t, x.Truncate(0), fs.ErrNotExist)
	require.Equal(t, 0, x.Len())
	_, ok := x.Last()
	require.False(t, ok)
	require.NoError(t, x.Rename("elsewhere.index"))
	put(t, o, "elsewhere.index", []byte{0, 0, 0, 1, 0, 0, 0, 2})
	require.NoError(t, x.Load())
	require.Equal(t, Entry{1, 2}, lookup(t, x, 3))
}

func TestCreateRefusesAnExistingFile(t *testing.T) {
	o := memOptions()
	create(t, 0, o)
	_, err := Create(file, 0, o)
	require.ErrorIs(t, err, fs.ErrExist)
}

func TestReadOnlyIndexRefusesEveryChange(t *testing.T) {
	o, path := osOptions(t)
	x := create(t, 0, o, steps(0, 600)...)
	require.NoError(t, x.Close())
	padded := append(contents(t, o, file), make([]byte, 64)...)
	require.NoError(t, os.WriteFile(path, padded, 0o644))
	require.NoError(t, os.Chmod(path, 0o444))
	ro := o
	ro.ReadOnly = true
	for _, open := range []func(string, int64, Options) (*Index, error){Open, OpenSealed} {
		x, err := open(file, 0, ro)
		require.NoError(t, err)
		require.Equal(t, 600, x.Len())
		for _, err := range []error{x.Append(Entry{10000, 1 << 30}), x.Truncate(0), x.Rename("x")} {
			require.ErrorIs(t, err, ErrReadOnly)
		}
		require.NoError(t, x.Flush())
		require.NoError(t, x.Sync())
		require.NoError(t, x.Seal())
		require.Equal(t, steps(0, 600), all(t, x))
		require.NoError(t, x.Close())
	}
	_, err := Create("other", 0, ro)
	require.ErrorIs(t, err, ErrReadOnly)
	_, err = Rebuild(file, 0, ro, seq(nil))
	require.ErrorIs(t, err, ErrReadOnly)
	require.Equal(t, padded, contents(t, o, file))
}

func TestRenamedIndexStaysReadableAndWritable(t *testing.T) {
	o := memOptions()
	o.Budget = NewBudget(1)
	x := create(t, 0, o, steps(0, 600)...)
	require.NoError(t, x.Rename("a.index"))
	y, err := Create(file, 0, o) // takes the only descriptor of the budget
	require.NoError(t, err)
	defer y.Close()
	require.NoError(t, x.Append(Entry{10000, 1 << 30}))
	require.NoError(t, x.Seal())
	require.NoError(t, x.Rename("a.index.deleted"))
	require.Equal(t, Entry{10000, 1 << 30}, lookup(t, x, 10000))
	require.Equal(t, "a.index.deleted", x.Name())
	require.Equal(t, Entry{10, 4096}, lookup(t, x, 10))
	require.Equal(t, 601, x.Len())
}

func TestWithoutAFileSystemThereIsAnErrorAndNoPanic(t *testing.T) {
	o := Options{}
	_, err := Create(file, 0, o)
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = Open(file, 0, o)
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = OpenSealed(file, 0, o)
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = Rebuild(file, 0, o, seq(nil))
	require.ErrorIs(t, err, fs.ErrInvalid)
}

func TestNearIsLookupAndWhatFollows(t *testing.T) {
	x, err := Create("0.index", 100, Options{FS: vfs.Mem()})
	require.NoError(t, err)
	var all []Entry
	for i := range int64(1100) {
		all = append(all, Entry{Offset: 110 + 10*i, Position: 5000 * (i + 1)})
	}
	near, n, err := x.Near(500)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, Entry{Offset: 100}, near[0])
	for _, e := range all {
		require.NoError(t, x.Append(e))
	}
	look := func() {
		for i, e := range all {
			near, n, err := x.Near(e.Offset + 3)
			require.NoError(t, err)
			require.Equal(t, all[i:min(i+n, len(all))], near[:n])
			if want := min(3, len(all)-i); i%512 < 509 {
				require.Equal(t, want, n, "entry %d", i)
			}
		}
		near, n, err = x.Near(50)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, Entry{Offset: 100}, near[0])
	}
	look()
	require.NoError(t, x.Seal())
	look()
	require.NoError(t, x.Close())
	_, _, err = x.Near(500)
	require.ErrorIs(t, err, fs.ErrClosed)
}
