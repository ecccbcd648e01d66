package timeindex

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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

// Scenario: T005, B015 and the rest of the table of damage, by every way to open a file.
func TestDamageIsFoundByCheckAndNeverStopsAnOpen(t *testing.T) {
	const base, lastOffset = 100, 9000
	good := steps(base, 350)
	zero := make([]byte, EntrySize)
	for _, row := range []struct {
		name    string
		b       []byte
		entries int
		slot    int // -2: no damage
		padding bool
	}{
		{"good", bytesOf(base, good...), 350, -2, false},
		{"empty", nil, 0, -2, false},
		{"equal offsets", bytesOf(base, Entry{5, 105}, Entry{6, 105}), 2, -2, false},
		{"equal offsets at the base", bytesOf(base, Entry{5, base}, Entry{6, base}), 2, -2, false},
		{"equal offsets at the base, pre-sized", append(bytesOf(base, Entry{5, base}, Entry{6, base}), zero...), 2, 2, true},
		{"timestamp zero at the base", bytesOf(base, Entry{0, base}), 1, -2, false},
		{"last offset below base", append(bytesOf(base, good...), 0, 0, 1, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xf0), 351, 350, false},
		{"last timestamp below first", bytesOf(base, Entry{50, 101}, Entry{60, 102}, Entry{40, 103}), 3, 2, false},
		{"odd length", append(bytesOf(base, good...), 7), 350, 350, true},
		{"last entry zeroed", append(bytesOf(base, good[:349]...), zero...), 349, 349, true},
		{"pre-sized without entries", make([]byte, 1048572), 0, 0, true},
		{"pre-sized with entries", append(bytesOf(base, good...), make([]byte, 1048572-350*EntrySize)...), 350, 350, true},
		{"hole inside", append(append(bytesOf(base, good...), zero...), bytesOf(base, Entry{9999999, 8000})...), 352, 350, false},
		{"same timestamp twice", bytesOf(base, Entry{5, 105}, Entry{5, 106}), 2, 1, false},
		{"falling offset", bytesOf(base, Entry{5, 105}, Entry{6, 104}), 2, 1, false},
		{"negative timestamp", bytesOf(base, Entry{-1, 105}), 1, 0, false},
		{"beyond the log", bytesOf(base, Entry{5, 105}, Entry{6, lastOffset + 1}), 2, 1, false},
	} {
		for name, open := range map[string]func(string, int64, index.Options) (*Index, error){"active": Open, "sealed": OpenSealed} {
			for _, mode := range []index.MapMode{index.Auto, index.Never} {
				o := memOptions()
				o.Map = mode
				put(t, o, row.b)
				x, err := open(file, base, o)
				require.NoError(t, err, row.name)
				require.Equal(t, row.entries, x.Len(), "%s, %s", row.name, name)
				err = x.Check(lastOffset)
				if row.slot == -2 {
					require.NoError(t, err, row.name)
				} else {
					var d *index.DamageError
					require.ErrorAs(t, err, &d, row.name)
					require.ErrorIs(t, err, index.ErrDamaged)
					require.Equal(t, row.slot, d.Slot, "%s: %v", row.name, d)
					require.Equal(t, row.padding, d.Padding, "%s: %v", row.name, d)
				}
				require.NoError(t, x.Close())
				want := len(row.b)
				if name == "active" {
					want = row.entries * EntrySize
				}
				require.Len(t, contents(t, o), want, "%s, %s", row.name, name)
			}
		}
	}
	x := create(t, 100, memOptions(), Entry{5, 100})
	require.ErrorIs(t, x.Check(99), index.ErrDamaged, "an entry beside an empty log")
}

// Scenario: T007: a file resized by a broker, to the same, half or double size, is the same index.
func TestFileLengthBeyondTheEntriesDoesNotMatter(t *testing.T) {
	es := steps(0, 400)
	for _, length := range []int{400, 500, 1000, 2000} {
		o := memOptions()
		put(t, o, append(bytesOf(0, es...), make([]byte, (length-400)*EntrySize)...))
		x, err := Open(file, 0, o)
		require.NoError(t, err)
		require.Equal(t, es, all(t, x))
		_, err = x.Append(Entry{5000, 5000})
		require.NoError(t, err)
		require.NoError(t, x.Close())
		require.Equal(t, bytesOf(0, append(es[:400:400], Entry{5000, 5000})...), contents(t, o))
	}
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

// Scenario: B053
func TestFileCutUnderTheMappingIsAnErrorAndTheProcessLives(t *testing.T) {
	dir := t.TempDir()
	disk, err := vfs.OS(dir)
	require.NoError(t, err)
	for _, mode := range []index.MapMode{index.Auto, index.Never} {
		_ = disk.Remove(file)
		x := create(t, 0, index.Options{FS: disk, Map: mode}, steps(0, 5000)...)
		require.NoError(t, x.Seal())
		require.Equal(t, Entry{50000, 35000}, lookup(t, x, math.MaxInt64))
		require.NoError(t, os.Truncate(filepath.Join(dir, file), 5000))
		_, err = x.Lookup(math.MaxInt64)
		require.ErrorIs(t, err, index.ErrDamaged)
		require.ErrorIs(t, x.Check(math.MaxInt64), index.ErrDamaged)
		require.ErrorIs(t, x.Truncate(30000), index.ErrDamaged)
	}
}

type model []Entry

func (m model) lookup(base, ts int64) Entry {
	found := Entry{NoTimestamp, base}
	for _, e := range m {
		if e.Timestamp <= ts {
			found = e
		}
	}
	return found
}

func TestIndexEqualsTheModelHoweverItIsRead(t *testing.T) {
	disk, err := vfs.OS(t.TempDir())
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		o := index.Options{FS: rapid.SampledFrom([]vfs.FS{disk, vfs.Mem()}).Draw(t, "fs"), Budget: index.NewBudget(1)}
		if rapid.Bool().Draw(t, "unmapped") {
			o.Map = index.Never
		}
		base := rapid.SampledFrom([]int64{0, 1 << 40}).Draw(t, "base")
		_ = o.FS.Remove(file)
		x, err := Create(file, base, o)
		require.NoError(t, err)
		m := model{}
		last := func() Entry {
			if len(m) == 0 {
				return Entry{NoTimestamp, base}
			}
			return m[len(m)-1]
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 40, 340, 341, 400}).Draw(t, "n") {
					e := Entry{last().Timestamp + rapid.Int64Range(0, 3).Draw(t, "ms"), last().Offset + 1}
					added, err := x.Append(e)
					if x.Full() {
						return
					}
					if err != nil || added != (e.Timestamp > last().Timestamp) {
						t.Fatalf("append %+v after %+v: %v, %v", e, last(), added, err)
					}
					if added {
						m = append(m, e)
					}
				}
			},
			"truncate": func(t *rapid.T) {
				to := rapid.Int64Range(base-1, last().Offset+2).Draw(t, "offset")
				require.NoError(t, x.Truncate(to))
				for i, e := range m {
					if e.Offset >= to {
						m = m[:i:i]
						break
					}
				}
			},
			"flush": func(t *rapid.T) { require.NoError(t, x.Flush()) },
			"seal":  func(t *rapid.T) { require.NoError(t, x.Seal()) },
			"reopen": func(t *rapid.T) {
				require.NoError(t, x.Close())
				x, err = rapid.SampledFrom([]func(string, int64, index.Options) (*Index, error){Open, OpenSealed}).Draw(t, "how")(file, base, o)
				require.NoError(t, err)
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(m), x.Len())
				got, _ := x.Last()
				require.Equal(t, last(), got)
				for range 8 {
					ts := rapid.Int64Range(-2, last().Timestamp+2).Draw(t, "timestamp")
					got, err := x.Lookup(ts)
					require.NoError(t, err)
					require.Equal(t, m.lookup(base, ts), got, "timestamp %d", ts)
				}
			},
		})
		require.NoError(t, x.Check(last().Offset))
		require.NoError(t, x.Close())
	})
}

func FuzzAnyBytesOpenCheckAndAnswerAlikeInEveryReader(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add(append(bytesOf(0, steps(0, 800)...), make([]byte, 100)...), int64(5000))
	f.Add(make([]byte, 9000), int64(0))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0}, int64(-1))
	f.Fuzz(func(t *testing.T, b []byte, ts int64) {
		o := memOptions()
		put(t, o, b)
		unmapped, readOnly := o, o
		unmapped.Map, readOnly.ReadOnly = index.Never, true
		var first string
		for i, open := range []func() (*Index, error){
			func() (*Index, error) { return OpenSealed(file, 3, o) },
			func() (*Index, error) { return OpenSealed(file, 3, unmapped) },
			func() (*Index, error) { return Open(file, 3, readOnly) },
			func() (*Index, error) { return Open(file, 3, o) },
		} {
			x, err := open()
			require.NoError(t, err)
			e, err := x.Lookup(ts)
			require.NoError(t, err)
			bad := x.Check(1 << 40)
			if bad != nil {
				require.ErrorIs(t, bad, index.ErrDamaged)
			}
			last, _ := x.Last()
			answer := describe(e, last, x.Len(), bad)
			if i == 0 {
				first = answer
			}
			require.Equal(t, first, answer)
			for _, err := range x.Entries() {
				if err != nil {
					t.Fatal(err)
				}
			}
			if i == 3 {
				require.NoError(t, x.Truncate(ts))
			}
			require.NoError(t, x.Close())
		}
	})
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

// fullDisk refuses every write while full.
type fullDisk struct {
	vfs.FS
	full bool
}

type fullFile struct {
	vfs.File
	d *fullDisk
}

func (d *fullDisk) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := d.FS.OpenFile(name, flag, perm)
	return fullFile{f, d}, err
}

func (f fullFile) WriteAt(b []byte, off int64) (int, error) {
	if f.d.full {
		return 0, syscall.ENOSPC
	}
	return f.File.WriteAt(b, off)
}

func TestFullDiskIsAnErrorAndTheSameAppendWorksOnceThereIsRoom(t *testing.T) {
	o := memOptions()
	d := &fullDisk{FS: o.FS}
	o.FS = d
	x := create(t, 0, o)
	es := steps(0, 400)
	for i, e := range es {
		d.full = i == 340 // the append that fills the page
		added, err := x.Append(e)
		if d.full {
			require.ErrorIs(t, err, syscall.ENOSPC)
			require.False(t, added)
			require.Equal(t, 340, x.Len())
			d.full = false
			added, err = x.Append(e)
		}
		require.NoError(t, err)
		require.True(t, added)
	}
	require.NoError(t, x.Seal())
	require.Equal(t, bytesOf(0, es...), contents(t, o))
}

func describe(a ...any) string { return fmt.Sprint(a...) }
