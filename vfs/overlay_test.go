package vfs_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

// counted counts the bytes read from a base and refuses everything else.
type counted struct {
	vfs.FS
	t      *testing.T
	read   int64
	opened int
}

func (c *counted) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if flag != os.O_RDONLY {
		c.t.Errorf("%s opened for writing", name)
	}
	f, err := c.FS.OpenFile(name, flag, perm)
	if err == nil {
		c.opened++
		f = &countedFile{File: f, fs: c}
	}
	return f, err
}

type countedFile struct {
	vfs.File
	fs *counted
}

func (f *countedFile) ReadAt(b []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(b, off)
	f.fs.read += int64(n)
	return n, err
}

func (f *countedFile) Close() error {
	f.fs.opened--
	return f.File.Close()
}

func TestOverlayOfAHugeFileCopiesAtMostAPage(t *testing.T) {
	const size = 1<<30 + 100
	dir := t.TempDir()
	fsys, err := vfs.OS(dir)
	require.NoError(t, err)
	f := open(t, fsys, "log", os.O_RDWR|os.O_CREATE)
	require.NoError(t, f.Truncate(size)) // sparse
	_, err = f.WriteAt([]byte("tail"), size-4)
	require.NoError(t, err)

	readOnly, err := vfs.OSReadOnly(dir)
	require.NoError(t, err)
	base := &counted{FS: readOnly, t: t}
	over := vfs.Overlay(base)
	g := open(t, over, "log", os.O_RDWR)
	_, err = g.WriteAt([]byte("more"), size)
	require.NoError(t, err)
	require.LessOrEqual(t, base.read, int64(64<<10), "an append copies the page it lands in")
	b := make([]byte, 8)
	_, err = g.ReadAt(b, size-4)
	require.NoError(t, err)
	require.Equal(t, "tailmore", string(b))

	base.read = 0
	require.NoError(t, g.Truncate(size-2))
	require.NoError(t, g.Truncate(1000))
	require.NoError(t, g.Truncate(size))
	require.Zero(t, base.read, "a cut copies nothing")
	_, err = g.ReadAt(b, size-8)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 8), b, "what was cut off does not come back")

	require.NoError(t, g.Close())
	require.Zero(t, base.opened, "the base file is closed with the last handle")
	n, err := f.Size()
	require.NoError(t, err)
	require.EqualValues(t, size, n)
}

func TestOverlayPassesMappingsOfUntouchedFilesOn(t *testing.T) {
	base := vfs.Mem()
	seed(t, base)
	over := vfs.Overlay(base)
	f := open(t, over, "d/f", os.O_RDWR)
	m, err := f.Map(10)
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, m.Read(func(b []byte) { require.Equal(t, "0123456789", string(b)) }))
	_, err = f.WriteAt([]byte("x"), 0)
	require.NoError(t, err)
	_, err = f.Map(10)
	require.ErrorIs(t, err, vfs.ErrUnsupported)
	require.NoError(t, m.Read(func([]byte) {}))
	require.NoError(t, f.Truncate(5))
	require.ErrorIs(t, m.Read(func([]byte) { t.Error("read") }), vfs.ErrFault)
	put(t, over, "new", "created above")
	g := open(t, over, "new", os.O_RDONLY)
	m2, err := g.Map(7)
	require.NoError(t, err)
	require.NoError(t, m2.Read(func(b []byte) { require.Equal(t, "created", string(b)) }))
	require.NoError(t, m2.Close())
}

func TestOverlayGrantsALockThatIsHeldOnItsBase(t *testing.T) {
	base := vfs.Mem()
	held, err := base.Lock(".lock")
	require.NoError(t, err)
	over := vfs.Overlay(base)
	l, err := over.Lock(".lock")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = over.Stat(".lock")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = base.Stat(".lock")
	require.NoError(t, err)
	require.NoError(t, held.Close())
}

func TestOverlayReportsABaseThatIsCutOrRemovedMeanwhile(t *testing.T) {
	base := vfs.Mem()
	seed(t, base)
	over := vfs.Overlay(base)
	f := open(t, over, "big", os.O_RDWR)
	g := open(t, over, "d/f", os.O_RDWR)
	b := make([]byte, 10)
	_, err := g.ReadAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, open(t, base, "big", os.O_RDWR).Truncate(70_000))
	require.NoError(t, base.Remove("d/f"))

	buf := make([]byte, 150_000)
	n, err := f.ReadAt(buf, 0)
	require.Equal(t, 65_536, n)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = f.WriteAt([]byte("x"), 140_000)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "a page that cannot be copied cannot be changed")
	_, err = g.ReadAt(b, 0)
	require.NoError(t, err, "an open handle keeps the file underneath")
	require.NoError(t, g.Close())
	_, err = over.OpenFile("d/g", os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, base.Remove("d/g"))
	_, err = over.Stat("d/g")
	require.True(t, err == nil || errors.Is(err, fs.ErrNotExist))
}

func TestMemTakesSparseAndHugeLengths(t *testing.T) {
	fsys := vfs.Mem()
	f := open(t, fsys, "f", os.O_RDWR|os.O_CREATE)
	require.NoError(t, f.Truncate(1<<62))
	_, err := f.WriteAt([]byte("end"), 1<<62-3)
	require.NoError(t, err)
	b := make([]byte, 10)
	n, err := f.ReadAt(b, 1<<62-6)
	require.Equal(t, "\x00\x00\x00end", string(b[:n]))
	require.Equal(t, io.EOF, err)
	_, err = f.WriteAt(b, 1<<63-5)
	require.ErrorIs(t, err, fs.ErrInvalid)
	_, err = f.Map(1 << 40)
	require.ErrorIs(t, err, vfs.ErrUnsupported)
	_, err = vfs.ReadFile(fsys, "f", 1<<30)
	require.ErrorIs(t, err, vfs.ErrTooLong)
}
