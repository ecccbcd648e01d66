package txnindex

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/vfs"
)

const file = "t-0/00000000000000000000.txnindex"

var four = []Entry{{0, 0, 10, 11}, {1, 5, 15, 13}, {2, 18, 35, 25}, {3, 32, 50, 40}}

func newIndex(t require.TestingT, entries ...Entry) (*Index, vfs.FS) {
	fsys := vfs.Mem()
	require.NoError(t, fsys.MkdirAll("t-0", 0o755))
	x := New(fsys, file, 0)
	for _, e := range entries {
		require.NoError(t, x.Append(e))
	}
	return x, fsys
}

func all(t require.TestingT, x *Index) []Entry {
	var out []Entry
	for e, err := range x.All() {
		require.NoError(t, err)
		out = append(out, e)
	}
	return out
}

func content(t require.TestingT, fsys vfs.FS) []byte {
	b, err := vfs.ReadFile(fsys, file, 1<<20)
	require.NoError(t, err)
	return b
}

func put(t require.TestingT, fsys vfs.FS, b []byte) {
	f, err := fsys.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	require.NoError(t, err)
	_, err = f.WriteAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestTheBytesAreKafkas(t *testing.T) {
	var b [EntrySize]byte
	Entry{4000, 100, 103, 104}.Put(b[:])
	want := "0000" + "0000000000000fa0" + "0000000000000064" + "0000000000000067" + "0000000000000068"
	require.Equal(t, want, hex.EncodeToString(b[:]))
	e, version := Decode(b[:])
	require.Equal(t, Entry{4000, 100, 103, 104}, e)
	require.Zero(t, version)
}

// Scenario: X004 entries (0,0,10,11),(1,5,15,13),(2,18,35,25),(3,32,50,40): collect(0,100) all, incomplete; (0,32) first
// three, complete; (0,35) all, complete; (10,35) all; (11,35) last three; (20,41) last two, incomplete
func TestCollect(t *testing.T) {
	x, _ := newIndex(t, four...)
	for _, row := range []struct {
		from, upper int64
		want        []Entry
		complete    bool
	}{
		{0, 100, four, false},
		{0, 32, four[:3], true},
		{0, 35, four, true},
		{10, 35, four, true},
		{11, 35, four[1:], true},
		{20, 41, four[2:], false},
	} {
		got, complete, err := x.Collect(nil, row.from, row.upper)
		require.NoError(t, err)
		require.Equal(t, row.want, got, "%d to %d", row.from, row.upper)
		require.Equal(t, row.complete, complete, "%d to %d", row.from, row.upper)
	}
}

// Scenario: X005 truncateTo(51) keeps all; truncateTo(50) drops the last; reset → none
func TestTruncateAndReset(t *testing.T) {
	x, fsys := newIndex(t, four...)
	require.NoError(t, x.Truncate(51))
	require.Equal(t, four, all(t, x))
	require.NoError(t, x.Truncate(50))
	require.Equal(t, four[:3], all(t, x))
	require.Len(t, content(t, fsys), 3*EntrySize)
	require.NoError(t, x.Append(Entry{9, 36, 40, 41}), "behind the new last one")
	require.NoError(t, x.Reset())
	require.Empty(t, all(t, x))
	require.Empty(t, content(t, fsys))
	require.NoError(t, x.Append(four[0]))
	require.NoError(t, x.Truncate(0))
	require.Empty(t, all(t, x))
}

// Scenario: X007 rename then append → both entries found; parent directory update
func TestRenameThenAppend(t *testing.T) {
	x, fsys := newIndex(t, four[0])
	require.NoError(t, x.Rename(file+".swap"))
	require.NoError(t, x.Append(four[1]))
	require.Equal(t, four[:2], all(t, x))
	_, err := fsys.Stat(file)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, fsys.Rename(file+".swap", file))
	x.Moved(file)
	require.NoError(t, x.Release())
	require.Equal(t, four[:2], all(t, x))
	require.Equal(t, file, x.Name())
}

// Scenario: X008 flush without file → no error; after append → data on disk; delete-if-exists
func TestWithoutAFileNothingIsMadeAndNothingFails(t *testing.T) {
	x, fsys := newIndex(t)
	require.NoError(t, x.Sync())
	require.NoError(t, x.Truncate(0))
	require.NoError(t, x.Reset())
	require.NoError(t, x.Remove())
	require.NoError(t, x.Check())
	require.NoError(t, x.Rename(file+".deleted"))
	require.NoError(t, x.Rename(file))
	n, err := x.Len()
	require.NoError(t, err)
	require.Zero(t, n)
	require.Empty(t, all(t, x))
	got, complete, err := x.Collect(nil, 0, 100)
	require.NoError(t, err)
	require.False(t, complete)
	require.Empty(t, got)
	_, err = fsys.Stat(file)
	require.ErrorIs(t, err, fs.ErrNotExist)

	require.NoError(t, x.Append(four[0]))
	require.NoError(t, x.Sync())
	require.Len(t, content(t, fsys), EntrySize)
	require.NoError(t, x.Remove())
	_, err = fsys.Stat(file)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, x.Append(four[0]), "after Remove it begins again")
	require.NoError(t, x.Close())
	require.NoError(t, x.Close())
	for name, call := range map[string]func() error{
		"append": func() error { return x.Append(four[1]) }, "sync": x.Sync, "reset": x.Reset, "check": x.Check, "remove": x.Remove,
		"truncate": func() error { return x.Truncate(0) }, "rename": func() error { return x.Rename("t-0/other") },
	} {
		require.ErrorIs(t, call(), fs.ErrClosed, name)
	}
	require.Len(t, content(t, fsys), EntrySize, "a closed index leaves the file to its next owner")
	_, _, err = x.Collect(nil, 0, 1)
	require.ErrorIs(t, err, fs.ErrClosed)
}

func TestEntriesMustComeInOrder(t *testing.T) {
	x, fsys := newIndex(t, four[1])
	for _, e := range []Entry{four[1], four[0], {5, 30, 20, 21}} {
		require.ErrorIs(t, x.Append(e), ErrOrder)
	}
	// Kafka forgets the last entry over a restart; it is read back here
	x = New(fsys, file, 0)
	require.ErrorIs(t, x.Append(four[0]), ErrOrder)
	require.ErrorIs(t, New(vfs.Mem(), "f", 100).Append(four[3]), ErrOrder, "before the segment")
	require.Equal(t, four[1:2], all(t, x))
}

func TestAPartialEntryIsIgnoredAndOverwritten(t *testing.T) {
	for cut := 1; cut < EntrySize; cut++ {
		x, fsys := newIndex(t, four...)
		require.NoError(t, x.Close())
		put(t, fsys, content(t, fsys)[:4*EntrySize-cut])
		x = New(fsys, file, 0)
		require.Equal(t, four[:3], all(t, x))
		require.NoError(t, x.Check())
		require.NoError(t, x.Append(Entry{7, 36, 36, 37}))
		require.Equal(t, append(four[:3:3], Entry{7, 36, 36, 37}), all(t, x))
		require.Len(t, content(t, fsys), 4*EntrySize)
	}
}

func TestEveryKindOfDamageIsNamed(t *testing.T) {
	for name, row := range map[string]struct {
		base   int64
		damage func(b []byte)
		pos    int64
		reads  bool // reading does not notice
	}{
		"unknown version":       {0, func(b []byte) { b[EntrySize] = 1 }, EntrySize, false},
		"low byte of a version": {0, func(b []byte) { b[EntrySize+1] = 1 }, EntrySize, false},
		"version of the last":   {0, func(b []byte) { b[3*EntrySize] = 0xff }, 3 * EntrySize, false},
		"before the segment":    {11, func([]byte) {}, 0, true},
		"out of order":          {0, func(b []byte) { b[EntrySize+25] = 10 }, EntrySize, true},
		"begins after its end":  {0, func(b []byte) { b[2*EntrySize+17] = 36 }, 2 * EntrySize, true},
		"negative":              {0, func(b []byte) { b[2*EntrySize+10] = 0x80 }, 2 * EntrySize, true},
	} {
		t.Run(name, func(t *testing.T) {
			x, fsys := newIndex(t, four...)
			require.NoError(t, x.Close())
			b := content(t, fsys)
			row.damage(b)
			put(t, fsys, b)
			x = New(fsys, file, row.base)
			var corrupt *CorruptError
			require.ErrorAs(t, x.Check(), &corrupt)
			require.ErrorIs(t, corrupt, ErrCorrupt)
			require.Equal(t, file, corrupt.File)
			require.Equal(t, row.pos, corrupt.Position)
			_, _, err := x.Collect(nil, 0, 100)
			require.Equal(t, row.reads, err == nil)
			require.NoError(t, x.Reset(), "a corrupt index can be built anew")
			require.NoError(t, x.Append(four[3]))
			require.NoError(t, x.Check())
		})
	}
}

// failing refuses writes after half of them.
type failing struct{ vfs.FS }
type failingFile struct{ vfs.File }

var errDevice = errors.New("device")

func (f failing) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	file, err := f.FS.OpenFile(name, flag, perm)
	return failingFile{file}, err
}

func (f failingFile) WriteAt(b []byte, off int64) (int, error) {
	n, _ := f.File.WriteAt(b[:len(b)/2], off)
	return n, errDevice
}

func TestAFailedAppendAddsNothing(t *testing.T) {
	x, fsys := newIndex(t, four[0])
	require.NoError(t, x.Close())
	broken := New(failing{fsys}, file, 0)
	require.ErrorIs(t, broken.Append(four[1]), errDevice)
	require.Equal(t, four[:1], all(t, broken))
	require.NoError(t, broken.Close())
	x = New(fsys, file, 0)
	require.NoError(t, x.Append(four[1]))
	require.Equal(t, four[:2], all(t, x))
}

func TestTheIndexesOfARealBrokerAreRead(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			root, about := golden.Copy(t, name), golden.About(t, name)
			fsys, err := vfs.OS(root)
			require.NoError(t, err)
			got := []Entry{}
			dir := about.Topic + "-0"
			names, err := fsys.ReadDir(dir)
			require.NoError(t, err)
			for _, n := range names {
				if filepath.Ext(n.Name()) != ".txnindex" {
					continue
				}
				x := New(fsys, dir+"/"+n.Name(), 0)
				require.NoError(t, x.Check())
				got = append(got, all(t, x)...)
				require.NoError(t, x.Close())
			}
			if about.StoppedClean { // after a kill the broker's recovery wrote them anew
				want := []Entry{}
				for _, a := range about.AsOpened.AbortedTransactions {
					want = append(want, Entry{a.ProducerID, a.FirstOffset, a.LastOffset, a.LastStableOffset})
				}
				require.Equal(t, want, got)
			}
		})
	}
}

func TestReadersRunBesideAppendAndTruncate(t *testing.T) {
	x, _ := newIndex(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range int64(400) {
			require.NoError(t, x.Append(Entry{1, i * 10, i*10 + 5, i*10 + 6}))
			if i%50 == 49 {
				require.NoError(t, x.Release())
			}
		}
	})
	for range 2 {
		wg.Go(func() {
			for range 100 {
				require.NoError(t, x.Check())
				for _, err := range x.All() {
					require.NoError(t, err)
				}
				_, _, err := x.Collect(nil, 100, 200)
				require.NoError(t, err)
			}
		})
	}
	wg.Wait()
	require.Len(t, all(t, x), 400)
}

func TestCollectIntoRoomAllocatesNothing(t *testing.T) {
	x, _ := newIndex(t, four...)
	dst := make([]Entry, 0, 8)
	_, _, err := x.Collect(dst, 0, 100)
	require.NoError(t, err)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _, _ = x.Collect(dst, 0, 100) }), 4.0)
}

func TestAgainstAPlainList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, fsys := newIndex(t)
		var want []Entry
		last := func() int64 {
			if len(want) == 0 {
				return -1
			}
			return want[len(want)-1].LastOffset
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				n := rapid.SampledFrom([]int{1, 1, 130}).Draw(t, "count")
				for range n {
					end := last() + rapid.Int64Range(1, 5).Draw(t, "step")
					e := Entry{rapid.Int64().Draw(t, "pid"), rapid.Int64Range(0, end).Draw(t, "first"), end, end + 1}
					require.NoError(t, x.Append(e))
					want = append(want, e)
				}
			},
			"truncate": func(t *rapid.T) {
				at := rapid.Int64Range(0, last()+2).Draw(t, "at")
				for len(want) > 0 && last() >= at {
					want = want[:len(want)-1]
				}
				require.NoError(t, x.Truncate(at))
			},
			"release": func(t *rapid.T) { require.NoError(t, x.Release()) },
			"reopen":  func(t *rapid.T) { require.NoError(t, x.Close()); x = New(fsys, file, 0) },
			"": func(t *rapid.T) {
				require.Equal(t, append([]Entry(nil), want...), all(t, x))
				from, upper := rapid.Int64Range(0, 300).Draw(t, "from"), rapid.Int64Range(0, 300).Draw(t, "upper")
				var expect []Entry
				complete := false
				for _, e := range want {
					if e.LastOffset >= from && e.FirstOffset < upper {
						expect = append(expect, e)
					}
					if complete = e.LastStableOffset >= upper; complete {
						break
					}
				}
				got, done, err := x.Collect(nil, from, upper)
				require.NoError(t, err)
				require.Equal(t, expect, got)
				require.Equal(t, complete, done)
				checkBelow(t, x, want, from)
			},
		})
	})
}

func FuzzIndexFile(f *testing.F) {
	var b [EntrySize]byte
	four[1].Put(b[:])
	f.Add([]byte{})
	f.Add(b[:])
	f.Add(append(b[:], b[:20]...))
	f.Add([]byte(strings.Repeat("\xff", 3*EntrySize)))
	f.Fuzz(func(t *testing.T, b []byte) {
		fsys := vfs.Mem()
		require.NoError(t, fsys.MkdirAll("t-0", 0o755))
		put(t, fsys, b)
		x := New(fsys, file, 0)
		whole := x.Check() == nil
		n := 0
		for _, err := range x.All() {
			if err != nil {
				require.ErrorIs(t, err, ErrCorrupt)
				require.False(t, whole)
				break
			}
			n++
		}
		if whole {
			require.Equal(t, len(b)/EntrySize, n)
		}
		if below, err := x.Below(5); err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			require.False(t, whole)
		} else {
			require.True(t, whole)
			require.LessOrEqual(t, below, int64(n))
		}
		if _, _, err := x.Collect(nil, 0, 1<<40); err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
		}
		if err := x.Truncate(5); err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
		}
		require.NoError(t, x.Reset())
		require.NoError(t, x.Append(four[0]))
		require.NoError(t, x.Check())
	})
}
