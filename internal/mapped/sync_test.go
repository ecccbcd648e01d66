package mapped

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

func TestLostCloseOfAWrittenFileIsToldBySync(t *testing.T) {
	c, _ := counted(t)
	b := NewBudget(1)
	x, err := Create(options(&counting{FS: closeFails{c}}, "x", b))
	require.NoError(t, err)
	require.NoError(t, x.Append(entry(1)))
	require.NoError(t, x.Flush())
	write(t, options(c, "y", b), 1) // takes x's descriptor
	require.ErrorIs(t, x.Sync(), errLost)
	require.ErrorIs(t, x.Close(), errLost)
}

var errLost = errors.New("no space left at close")

type closeFails struct{ *counting }

type closeFailsFile struct{ vfs.File }

func (c closeFails) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := c.counting.OpenFile(name, flag, perm)
	return closeFailsFile{f}, err
}

func (f closeFailsFile) Close() error { return errors.Join(f.File.Close(), errLost) }

// D15: what was written before sealing can still be made durable after it.
func TestSyncAfterSealReachesTheFile(t *testing.T) {
	c, _ := counted(t)
	w := &syncWatch{counting: c}
	x, err := Create(options(&counting{FS: w}, "x", NewBudget(3)))
	require.NoError(t, err)
	require.NoError(t, x.Append(entry(1)))
	require.NoError(t, x.Seal())
	require.NoError(t, x.Load())
	require.NoError(t, x.Sync())
	require.EqualValues(t, 1, w.syncs.Load())
	require.NoError(t, x.Sync())
	require.EqualValues(t, 1, w.syncs.Load(), "nothing changed since")
	require.NoError(t, x.Truncate(0))
	w.fail.Store(true)
	require.ErrorIs(t, x.Sync(), syscall.EIO)
	w.fail.Store(false)
	require.ErrorIs(t, x.Sync(), syscall.EIO, "what the device holds is unknown")
	require.NoError(t, x.Close())
	require.Zero(t, c.files.Load())
}

// B007: padding that was cut off at close cannot come back after a power cut.
func TestCloseSyncsACut(t *testing.T) {
	c, dir := counted(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x"), append(entry(7), make([]byte, 800)...), 0o644))
	w := &syncWatch{counting: c}
	x, err := Open(options(&counting{FS: w}, "x", nil))
	require.NoError(t, err)
	require.Equal(t, 1, x.Len())
	require.NoError(t, x.Close())
	require.EqualValues(t, 1, w.syncs.Load())
	b, err := os.ReadFile(filepath.Join(dir, "x"))
	require.NoError(t, err)
	require.Equal(t, entry(7), b)
}

type syncWatch struct {
	*counting
	syncs atomic.Int64
	fail  atomic.Bool
}

type syncFile struct {
	vfs.File
	w *syncWatch
}

func (w *syncWatch) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := w.counting.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return syncFile{f, w}, nil
}

func (f syncFile) Sync() error {
	if f.w.fail.Load() {
		return syscall.EIO
	}
	f.w.syncs.Add(1)
	return f.File.Sync()
}
