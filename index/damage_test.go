package index

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

func bytesOf(base int64, es ...Entry) (b []byte) {
	for _, e := range es {
		raw := encode(base, e)
		b = append(b, raw[:]...)
	}
	return b
}

// One table of damage against every way to open a file.
func TestDamageIsFoundByCheckAndNeverStopsAnOpen(t *testing.T) {
	const base, logSize = 100, 1 << 20
	good := steps(base, 520)[:200]
	zero := make([]byte, EntrySize)
	for _, row := range []struct {
		name    string
		b       []byte
		entries int
		slot    int // -2: no damage
		padding bool
	}{
		{"good", bytesOf(base, good...), 200, -2, false},
		{"empty", nil, 0, -2, false},
		{"pre-sized without entries", make([]byte, 1<<20), 0, 0, true},
		{"pre-sized with entries", append(bytesOf(base, good...), make([]byte, 1<<20)...), 200, 200, true},
		{"one zero slot behind", append(bytesOf(base, good...), zero...), 200, 200, true},
		{"the base entry and padding behind", append(bytesOf(base, Entry{base, 5}), make([]byte, 80)...), 1, 1, true},
		{"a partial entry", append(bytesOf(base, good...), 1, 2, 3, 4, 5), 200, 200, true},
		{"a partial entry alone", []byte{1, 2, 3}, 0, 0, true},
		{"cut by three bytes", bytesOf(base, good...)[:200*EntrySize-3], 199, 199, true},
		{"padding and a partial entry", append(append(bytesOf(base, good...), zero...), 0, 0), 200, 200, true},
		{"a hole inside", append(append(bytesOf(base, good...), zero...), bytesOf(base, Entry{base + 9000, 900000})...), 202, 200, false},
		{"base offset with a position behind", append(bytesOf(base, good...), 0, 0, 0, 0, 0, 9, 9, 9), 200, 200, false},
		{"same offset twice", bytesOf(base, Entry{101, 1}, Entry{101, 2}), 2, 1, false},
		{"falling offset", bytesOf(base, Entry{105, 1}, Entry{103, 2}), 2, 1, false},
		{"falling position", bytesOf(base, Entry{105, 10}, Entry{106, 9}), 2, 1, false},
		{"position at the log's end", bytesOf(base, Entry{105, 10}, Entry{106, logSize}), 2, 1, false},
		{"negative offset", []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1}, 1, 0, false},
		{"negative position", []byte{0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff}, 1, 0, false},
		{"last offset below the base", append(bytesOf(base, good...), 0x80, 0, 0, 0, 0, 0, 0, 1), 201, 200, false},
	} {
		for name, open := range map[string]func(string, int64, Options) (*Index, error){"active": Open, "sealed": OpenSealed} {
			for _, mode := range []MapMode{Auto, Never} {
				o := memOptions()
				o.Map = mode
				put(t, o, file, row.b)
				x, err := open(file, base, o)
				require.NoError(t, err, row.name)
				require.Equal(t, row.entries, x.Len(), "%s, %s", row.name, name)
				err = x.Check(logSize)
				if row.slot == -2 {
					require.NoError(t, err, row.name)
				} else {
					var d *DamageError
					require.ErrorAs(t, err, &d, row.name)
					require.ErrorIs(t, err, ErrDamaged)
					require.Equal(t, row.slot, d.Slot, "%s: %v", row.name, d)
					require.Equal(t, row.padding, d.Padding, "%s: %v", row.name, d)
					require.Contains(t, d.Error(), file)
				}
				require.True(t, bytes.Equal(row.b, contents(t, o, file)), "Check writes nothing")
				if name == "active" && row.padding {
					require.NoError(t, x.Flush())
					require.NoError(t, x.Check(logSize), row.name)
				}
				require.NoError(t, x.Close())
				want := len(row.b)
				if name == "active" {
					want = row.entries * EntrySize
				}
				require.Len(t, contents(t, o, file), want, "%s, %s", row.name, name)
			}
		}
	}
}

// Scenario: B001, B007: a broker's pre-sized file opens with its entries, takes more, and is exact afterwards.
func TestPreSizedFileOfABrokerGoesOn(t *testing.T) {
	es := steps(0, 1300)
	for _, n := range []int{0, 1, 511, 512, 700} {
		o := memOptions()
		put(t, o, file, append(bytesOf(0, es[:n]...), make([]byte, 10<<20-n*EntrySize)...))
		x, err := Open(file, 0, o)
		require.NoError(t, err)
		require.Equal(t, n, x.Len())
		for _, e := range es[n:] {
			require.NoError(t, x.Append(e))
		}
		require.Equal(t, es, all(t, x))
		require.NoError(t, x.Close())
		require.Equal(t, bytesOf(0, es...), contents(t, o, file))
	}
}

// Scenario: B053: someone cuts the file under the mapping.
func TestFileCutUnderTheMappingIsAnErrorAndTheProcessLives(t *testing.T) {
	for _, mode := range []MapMode{Auto, Never} {
		for _, left := range []int64{0, 10, 4096, 40000} {
			o, path := osOptions(t)
			o.Map = mode
			es := steps(0, 10000)
			x := create(t, 0, o, es...)
			require.NoError(t, x.Seal())
			require.Equal(t, es[9999], lookup(t, x, math.MaxInt64))
			require.NoError(t, os.Truncate(path, left))
			_, err := x.Lookup(math.MaxInt64)
			require.ErrorIs(t, err, ErrDamaged)
			var d *DamageError
			require.ErrorAs(t, err, &d)
			_, _, err = x.UpperBound(9000 * 4096)
			require.ErrorIs(t, err, ErrDamaged)
			require.ErrorIs(t, x.Check(math.MaxInt64), ErrDamaged)
			bad := 0
			for _, err := range x.Entries() {
				if err != nil {
					require.ErrorIs(t, err, ErrDamaged)
					bad++
				}
			}
			require.Equal(t, 1, bad)
			y, err := Rebuild(file, 0, o, seq(es))
			require.NoError(t, err)
			require.NoError(t, y.Seal())
			require.NoError(t, y.Check(math.MaxInt64))
			require.NoError(t, y.Close())
		}
	}
}

// fullDisk fails writes with ENOSPC after room bytes, having written what fits.
type fullDisk struct {
	vfs.FS
	room     int
	failSync bool
}

type fullFile struct {
	vfs.File
	d *fullDisk
}

func (d *fullDisk) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := d.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &fullFile{f, d}, nil
}

func (f *fullFile) WriteAt(b []byte, off int64) (int, error) {
	if len(b) <= f.d.room {
		f.d.room -= len(b)
		return f.File.WriteAt(b, off)
	}
	n, err := f.File.WriteAt(b[:f.d.room], off)
	f.d.room = 0
	return n, errors.Join(syscall.ENOSPC, err)
}

func (f *fullFile) Sync() error {
	if f.d.failSync {
		return syscall.EIO
	}
	return f.File.Sync()
}

// Scenario: B045
func TestFullDiskIsAnErrorAndTheSameAppendWorksOnceThereIsRoom(t *testing.T) {
	for _, room := range []int{0, 3, 100, 4095, 4096, 5000} {
		o := memOptions()
		d := &fullDisk{FS: o.FS, room: room}
		o.FS = d
		x, err := Create(file, 0, o)
		require.NoError(t, err)
		es := steps(0, 1030)
		var failed int
		for _, e := range es {
			if err := x.Append(e); err != nil {
				require.ErrorIs(t, err, syscall.ENOSPC)
				n := x.Len()
				require.Less(t, n, 1024)
				require.Equal(t, es[:n], all(t, x))
				require.Equal(t, es[n-1], lookup(t, x, e.Offset))
				require.ErrorIs(t, x.Flush(), syscall.ENOSPC)
				d.room = 4096
				require.NoError(t, x.Append(e))
				failed++
			}
		}
		require.NotZero(t, failed)
		d.room = 0
		require.ErrorIs(t, x.Flush(), syscall.ENOSPC)
		require.ErrorIs(t, x.Seal(), syscall.ENOSPC)
		require.ErrorIs(t, x.Sync(), syscall.ENOSPC)
		require.Equal(t, es, all(t, x))
		d.room = 1 << 20
		require.NoError(t, x.Sync())
		require.NoError(t, x.Seal())
		require.Equal(t, bytesOf(0, es...), contents(t, o, file))
		require.NoError(t, x.Close())
	}
}

func TestCloseOnAFullDiskLeavesWholeEntries(t *testing.T) {
	o := memOptions()
	d := &fullDisk{FS: o.FS, room: 21}
	o.FS = d
	x, err := Create(file, 0, o)
	require.NoError(t, err)
	for _, e := range steps(0, 10) {
		require.NoError(t, x.Append(e))
	}
	require.ErrorIs(t, x.Close(), syscall.ENOSPC)
	require.Empty(t, contents(t, o, file), "what may be torn is cut off")
	require.NoError(t, x.Close())
}

func TestFailedSyncIsNeverForgiven(t *testing.T) {
	o := memOptions()
	d := &fullDisk{FS: o.FS, room: 1 << 20, failSync: true}
	o.FS = d
	x, err := Create(file, 0, o)
	require.NoError(t, err)
	require.NoError(t, x.Append(Entry{1, 1}))
	require.ErrorIs(t, x.Sync(), syscall.EIO)
	d.failSync = false
	require.ErrorIs(t, x.Sync(), syscall.EIO)
	require.NoError(t, x.Append(Entry{2, 2}))
	require.Equal(t, Entry{2, 2}, lookup(t, x, 2))
	require.NoError(t, x.Close())
}

func TestRebuildReplacesTheFileWholeOrNotAtAll(t *testing.T) {
	o := memOptions()
	put(t, o, file, []byte("garbage"))
	put(t, o, file+".tmp", []byte("left by a crash"))
	boom := fmt.Errorf("boom")
	_, err := Rebuild(file, 0, o, func(yield func(Entry, error) bool) {
		_ = yield(Entry{1, 1}, nil) && yield(Entry{}, boom)
	})
	require.ErrorIs(t, err, boom)
	_, err = Rebuild(file, 0, o, seq([]Entry{{2, 2}, {1, 3}}))
	require.ErrorIs(t, err, ErrOrder)
	require.Equal(t, "garbage", string(contents(t, o, file)))
	_, err = o.FS.Stat(file + ".tmp")
	require.ErrorIs(t, err, fs.ErrNotExist)

	es := steps(0, 2000)
	x, err := Rebuild(file, 0, o, seq(es))
	require.NoError(t, err)
	require.Equal(t, file, x.Name())
	require.Equal(t, bytesOf(0, es...), contents(t, o, file))
	require.NoError(t, x.Append(Entry{1 << 20, 1 << 30}))
	require.NoError(t, x.Close())

	o.MaxBytes = 100 * EntrySize
	x, err = Rebuild(file, 0, o, seq(es))
	require.NoError(t, err)
	require.Equal(t, es[:100], all(t, x))
	require.True(t, x.Full())
	require.NoError(t, x.Close())
}

func TestBuildTouchesNoFile(t *testing.T) {
	es := steps(50, 1500)
	x, err := Build(50, seq(es))
	require.NoError(t, err)
	require.Equal(t, es, all(t, x))
	require.Equal(t, 1500, x.Len())
	require.Equal(t, es[700], lookup(t, x, es[700].Offset+5))
	require.NoError(t, x.Check(math.MaxInt64))
	require.ErrorIs(t, x.Append(Entry{1 << 20, 1 << 30}), ErrReadOnly)
	require.ErrorIs(t, x.Truncate(0), ErrReadOnly)
	require.NoError(t, x.Sync())
	require.NoError(t, x.Close())
	_, err = x.Lookup(60)
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = Build(50, seq([]Entry{{49, 1}}))
	require.ErrorIs(t, err, ErrRange)
	_, err = Build(50, seq([]Entry{{60, 1}, {60, 2}}))
	require.ErrorIs(t, err, ErrOrder)
}

func TestThousandSealedIndexesCostAlmostNothingUntilUsed(t *testing.T) {
	o, path := osOptions(t)
	x := create(t, 0, o, steps(0, 10)...)
	require.NoError(t, x.Close())
	for i := range 1000 {
		require.NoError(t, os.Link(path, filepath.Join(filepath.Dir(path), fmt.Sprintf("%020d.index", i+1))))
	}
	o.Budget = NewBudget(10)
	xs := make([]*Index, 0, 1000)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 1000 {
		x, err := OpenSealed(fmt.Sprintf("%020d.index", i+1), 0, o)
		require.NoError(t, err)
		xs = append(xs, x)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc-before.HeapAlloc), int64(1000*1024))
	for range 2 {
		for _, x := range xs {
			require.Equal(t, Entry{50, 5 * 4096}, lookup(t, x, 59))
			require.LessOrEqual(t, o.Budget.Mappings()+o.Budget.Files(), 10)
		}
	}
	for _, x := range xs {
		require.NoError(t, x.Close())
	}
	require.Zero(t, o.Budget.Mappings()+o.Budget.Files())
}
