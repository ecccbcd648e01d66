package mapped

import (
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

const size = 8

func number(e []byte) int64 { return int64(binary.BigEndian.Uint64(e)) }

func blank(e []byte) bool { return number(e) == 0 }

func entry(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// counting counts what is open and can refuse to map or to open.
type counting struct {
	vfs.FS
	files, maps     atomic.Int64
	refuseMap       atomic.Bool
	closedForNoFile atomic.Bool // OpenFile fails while more than one file is open
}

type countedFile struct {
	vfs.File
	c    *counting
	once sync.Once
}

type countedMapping struct {
	vfs.Mapping
	c    *counting
	once sync.Once
}

func (c *counting) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if c.closedForNoFile.Load() && c.files.Load() > 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EMFILE}
	}
	f, err := c.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	c.files.Add(1)
	return &countedFile{File: f, c: c}, nil
}

func (f *countedFile) Close() error {
	f.once.Do(func() { f.c.files.Add(-1) })
	return f.File.Close()
}

func (f *countedFile) Map(n int64) (vfs.Mapping, error) {
	if f.c.refuseMap.Load() {
		return nil, syscall.ENOMEM
	}
	m, err := f.File.Map(n)
	if err != nil {
		return nil, err
	}
	f.c.maps.Add(1)
	return &countedMapping{Mapping: m, c: f.c}, nil
}

func (m *countedMapping) Close() error {
	m.once.Do(func() { m.c.maps.Add(-1) })
	return m.Mapping.Close()
}

func counted(t *testing.T) (*counting, string) {
	dir := t.TempDir()
	disk, err := vfs.OS(dir)
	require.NoError(t, err)
	return &counting{FS: disk}, dir
}

func options(c *counting, name string, b *Budget) Options {
	return Options{FS: c, Name: name, EntrySize: size, Blank: blank, Budget: b}
}

func needsMappings(t *testing.T, c *counting) {
	t.Helper()
	if !c.Traits(".").Mmap {
		t.Skip("no mappings on this platform")
	}
}

func write(t *testing.T, o Options, n int) {
	t.Helper()
	x, err := Create(o)
	require.NoError(t, err)
	for i := range n {
		require.NoError(t, x.Append(entry(i+1)))
	}
	require.NoError(t, x.Close())
}

func TestBudgetBoundsMappingsAndFilesAndEverythingIsGivenBack(t *testing.T) {
	for _, never := range []bool{false, true} {
		c, _ := counted(t)
		b := NewBudget(5)
		var tables []*Table
		for i := range 40 {
			o := options(c, fmt.Sprintf("%d", i), b)
			write(t, o, 600)
			o.NeverMap = never
			tables = append(tables, OpenSealed(o))
		}
		require.Zero(t, c.files.Load(), "nothing is opened before its first use")
		for round := range 3 {
			for i, x := range tables {
				e, slot, err := x.Floor(number, int64(i+round))
				require.NoError(t, err)
				require.Equal(t, i+round-1, slot)
				require.EqualValues(t, i+round, number(e[:]))
				require.LessOrEqual(t, c.files.Load(), int64(5))
				require.LessOrEqual(t, c.maps.Load(), int64(5))
				require.EqualValues(t, c.files.Load(), b.Files())
				require.EqualValues(t, c.maps.Load(), b.Mappings())
			}
		}
		require.EqualValues(t, 5, b.Files()+b.Mappings())
		require.Equal(t, never || !c.Traits("0").Mmap, b.Mappings() == 0)
		for _, x := range tables {
			require.NoError(t, x.Close())
		}
		require.Zero(t, c.files.Load())
		require.Zero(t, c.maps.Load())
		require.Zero(t, b.Files()+b.Mappings())
	}
}

func TestWhatIsUsedAllTheTimeStays(t *testing.T) {
	c, _ := counted(t)
	b := NewBudget(4)
	var tables []*Table
	for i := range 30 {
		o := options(c, fmt.Sprintf("%d", i), b)
		write(t, o, 10)
		tables = append(tables, OpenSealed(o))
	}
	hot := tables[0]
	require.NoError(t, hot.Load())
	l := hot.state.Load().src.lease.Load()
	for _, x := range tables[1:] {
		_, _, err := hot.Floor(number, 5)
		require.NoError(t, err)
		require.NoError(t, x.Load())
	}
	require.Same(t, l, hot.state.Load().src.lease.Load())
}

func TestPinnedLeaseIsNeverEvicted(t *testing.T) {
	c, _ := counted(t)
	b := NewBudget(1)
	for _, name := range []string{"a", "b", "c"} {
		write(t, options(c, name, b), 10)
	}
	a := OpenSealed(options(c, "a", b))
	l, err := a.acquire(a.state.Load().src)
	require.NoError(t, err)
	for _, name := range []string{"b", "c"} {
		require.NoError(t, OpenSealed(options(c, name, b)).Load())
	}
	if l.m != nil {
		require.NoError(t, l.m.Read(func(b []byte) { require.Len(t, b, 80) }))
	} else {
		n, err := l.f.ReadAt(make([]byte, 80), 0)
		require.NoError(t, err)
		require.Equal(t, 80, n)
	}
	l.unpin()
	x := OpenSealed(options(c, "b", b))
	require.NoError(t, x.Load())
	require.NoError(t, x.Close())
	require.Nil(t, a.state.Load().src.lease.Load(), "idle now, so it had to leave")
}

// D6: where mapping fails the same answers come from ReadAt.
func TestFailedMappingFallsBackToReadAt(t *testing.T) {
	c, _ := counted(t)
	c.refuseMap.Store(true)
	o := options(c, "x", NewBudget(3))
	write(t, o, 2000)
	x := OpenSealed(o)
	e, _, err := x.Floor(number, 1777)
	require.NoError(t, err)
	require.EqualValues(t, 1777, number(e[:]))
	require.Equal(t, 1, o.Budget.Files())
	require.Zero(t, c.maps.Load())
	require.NoError(t, x.Close())
	require.Zero(t, c.files.Load())
}

func TestProcessOutOfDescriptorsGivesItsOwnBack(t *testing.T) {
	c, _ := counted(t)
	b := NewBudget(10)
	for _, name := range []string{"a", "b"} {
		write(t, options(c, name, b), 2000)
	}
	c.refuseMap.Store(true)
	c.closedForNoFile.Store(true)
	a, x := OpenSealed(options(c, "a", b)), OpenSealed(options(c, "b", b))
	for range 3 {
		require.NoError(t, a.Load())
		_, _, err := a.Floor(number, 5)
		require.NoError(t, err)
		_, _, err = x.Floor(number, 5)
		require.NoError(t, err)
	}
}

func TestFailedOpenHoldsNothing(t *testing.T) {
	c, dir := counted(t)
	o := options(c, "x", NewBudget(3))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "x"), 0o755))
	_, err := Open(o)
	require.Error(t, err)
	require.Error(t, OpenSealed(o).Load())
	_, err = Create(o)
	require.ErrorIs(t, err, fs.ErrExist)
	require.Zero(t, c.files.Load())
	require.Zero(t, o.Budget.Files())
}

// B053, B047: many readers meet the cut at once; each gets an error and the mapping is given back.
func TestReadersOfACutFileAllGetTheErrorAndNothingLeaks(t *testing.T) {
	for _, never := range []bool{false, true} {
		c, dir := counted(t)
		o := options(c, "x", NewBudget(3))
		o.NeverMap = never
		write(t, o, 50000)
		x := OpenSealed(o)
		require.NoError(t, x.Load())
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				for i := int64(0); ; i++ {
					e, _, err := x.Floor(number, 50000-i%100)
					if err != nil {
						if !Changed(err) {
							t.Errorf("%v", err)
						}
						return
					}
					if number(e[:]) != 50000-i%100 {
						t.Errorf("%d: %d", 50000-i%100, number(e[:]))
						return
					}
				}
			})
		}
		require.NoError(t, os.Truncate(filepath.Join(dir, "x"), 8192))
		wg.Wait()
		require.ErrorIs(t, x.Load(), io.ErrUnexpectedEOF)
		require.Equal(t, 50000, x.Len(), "known from before")
		_, _, err := x.Floor(number, 50000)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Zero(t, c.files.Load())
		require.Zero(t, c.maps.Load())
		require.NoError(t, x.Close())
	}
}

// The file is never shortened while it is mapped.
func TestTruncatingASealedTableUnmapsFirst(t *testing.T) {
	c, _ := counted(t)
	needsMappings(t, c)
	o := options(&counting{FS: cutWatch{c, &c.maps, t}}, "x", NewBudget(3))
	x, err := Create(o)
	require.NoError(t, err)
	for i := range 2000 {
		require.NoError(t, x.Append(entry(i+1)))
	}
	for _, keep := range []int{1500, 1024, 600, 512, 3, 0} {
		require.NoError(t, x.Seal())
		require.NoError(t, x.Load())
		if x.Len() > 0 {
			require.EqualValues(t, 1, c.maps.Load())
		}
		require.NoError(t, x.Truncate(keep))
		require.Equal(t, keep, x.Len())
		b, err := vfs.ReadFile(c, "x", 1<<20)
		require.NoError(t, err)
		require.Len(t, b, keep*size)
	}
	require.NoError(t, x.Close())
}

// cutWatch fails the test if a file is cut while anything is mapped.
type cutWatch struct {
	*counting
	maps *atomic.Int64
	t    *testing.T
}

type cutFile struct {
	vfs.File
	w cutWatch
}

func (w cutWatch) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := w.counting.OpenFile(name, flag, perm)
	return cutFile{f, w}, err
}

func (f cutFile) Truncate(n int64) error {
	if f.w.maps.Load() != 0 {
		f.w.t.Errorf("cut to %d under a mapping", n)
	}
	return f.File.Truncate(n)
}

func TestFailedReadWhileTruncatingLeavesTheTableAsItWas(t *testing.T) {
	c, _ := counted(t)
	r := &readFails{counting: c}
	x, err := Create(options(&counting{FS: r}, "x", NewBudget(3)))
	require.NoError(t, err)
	for i := range 1300 {
		require.NoError(t, x.Append(entry(i+1)))
	}
	r.fail.Store(true)
	require.ErrorIs(t, x.Truncate(700), syscall.EIO)
	require.Equal(t, 1300, x.Len())
	_, _, err = x.Floor(number, 5)
	require.ErrorIs(t, err, syscall.EIO)
	r.fail.Store(false)
	e, _, err := x.Floor(number, 5)
	require.NoError(t, err)
	require.EqualValues(t, 5, number(e[:]))
	require.NoError(t, x.Truncate(700))
	require.Equal(t, 700, x.Len())
	require.NoError(t, x.Append(entry(9999)))
	require.NoError(t, x.Close())
}

type readFails struct {
	*counting
	fail atomic.Bool
}

type failingFile struct {
	vfs.File
	r *readFails
}

func (r *readFails) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := r.counting.OpenFile(name, flag, perm)
	return failingFile{f, r}, err
}

func (f failingFile) ReadAt(b []byte, off int64) (int, error) {
	if f.r.fail.Load() {
		return 0, syscall.EIO
	}
	return f.File.ReadAt(b, off)
}

func TestChunksOfAGrowingTableEndWhereItBegan(t *testing.T) {
	c, _ := counted(t)
	x, err := Create(options(c, "x", nil))
	require.NoError(t, err)
	defer x.Close()
	for i := range 1000 {
		require.NoError(t, x.Append(entry(i+1)))
	}
	seen := 0
	require.NoError(t, x.Chunks(func(first int, b []byte) bool {
		require.Equal(t, seen, first)
		seen += len(b) / size
		for range 300 {
			require.NoError(t, x.Append(entry(x.Len()+1)))
		}
		return true
	}))
	require.Equal(t, 1000, seen)
	require.NoError(t, x.Chunks(func(first int, b []byte) bool {
		require.NoError(t, x.Truncate(0))
		return true
	}))
}

func TestTableFollowsItsDirectory(t *testing.T) {
	c, dir := counted(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "a"), 0o755))
	b := NewBudget(1)
	write(t, options(c, "a/x", b), 1000)
	x := OpenSealed(options(c, "a/x", b))
	require.NoError(t, x.Load())
	require.NoError(t, c.Rename("a", "b"))
	x.Moved("b/x")
	write(t, options(c, "y", b), 1)
	y := OpenSealed(options(c, "y", b))
	require.NoError(t, y.Load())
	e, _, err := x.Floor(number, 900)
	require.NoError(t, err)
	require.EqualValues(t, 900, number(e[:]))
	require.Equal(t, "b/x", x.Name())
}

// A mapping that is shorter than what was asked for is an error, not a panic.
func TestShortMappingIsAFault(t *testing.T) {
	c, _ := counted(t)
	needsMappings(t, c)
	write(t, options(c, "x", nil), 1000)
	x := OpenSealed(options(&counting{FS: shortMaps{c}}, "x", NewBudget(1)))
	_, _, err := x.Floor(number, 900)
	require.ErrorIs(t, err, vfs.ErrFault)
}

type shortMaps struct{ *counting }

type shortMapFile struct{ vfs.File }

func (s shortMaps) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := s.counting.OpenFile(name, flag, perm)
	return shortMapFile{f}, err
}

func (f shortMapFile) Map(n int64) (vfs.Mapping, error) { return f.File.Map(n / 2) }

// What a reader holds never changes under it, whatever the writer does next.
func TestStateOfAReaderIsNotTouchedByTruncateAndAppend(t *testing.T) {
	c, _ := counted(t)
	x, err := Create(options(c, "x", nil))
	require.NoError(t, err)
	defer x.Close()
	for i := range 1300 {
		require.NoError(t, x.Append(entry(i+1)))
	}
	s := x.state.Load()
	fence, tail := string(s.fence), string(s.tail[:s.n.Load()*size])
	for _, keep := range []int{500, 1100} {
		require.NoError(t, x.Truncate(keep))
		for range 700 {
			require.NoError(t, x.Append(entry(1<<30)))
		}
	}
	require.Equal(t, fence, string(s.fence))
	require.Equal(t, tail, string(s.tail[:s.n.Load()*size]))
}
