package timeindex

import (
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/vfs"
)

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
