package vfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func osTree(t testing.TB) FS {
	t.Helper()
	fsys, err := OS(t.TempDir())
	require.NoError(t, err)
	return fsys
}

func TestRootIsCreatedWithItsParents(t *testing.T) {
	root := filepath.Join(t.TempDir(), "a", "b", "c")
	_, err := OSReadOnly(root)
	require.ErrorIs(t, err, fs.ErrNotExist)
	for range 2 {
		_, err = OS(root)
		require.NoError(t, err)
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "f"), nil, 0o644))
	_, err = OS(filepath.Join(root, "f"))
	require.Error(t, err, "a file is no root")
	_, err = OSReadOnly(filepath.Join(root, "f"))
	require.Error(t, err)
}

func TestReadOnlyTreeChangesNothing(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("content"), 0o644))
	fsys, err := OSReadOnly(dir)
	require.NoError(t, err)
	_, err = fsys.Lock(".lock")
	require.ErrorIs(t, err, fs.ErrPermission)
	for _, flag := range []int{os.O_WRONLY, os.O_RDWR, os.O_CREATE, os.O_RDWR | os.O_TRUNC} {
		_, err = fsys.OpenFile("f", flag, 0o644)
		require.ErrorIs(t, err, fs.ErrPermission)
	}
	f, err := fsys.OpenFile("f", os.O_RDONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	_, werr := f.WriteAt([]byte("x"), 0)
	for what, err := range map[string]error{
		"rename": fsys.Rename("f", "g"), "link": fsys.Link("f", "g"), "remove": fsys.Remove("f"),
		"mkdir": fsys.MkdirAll("d", 0o755), "sync dir": fsys.SyncDir("."), "chtimes": fsys.Chtimes("f", time.Now()),
		"write": werr, "truncate": f.Truncate(0), "sync": f.Sync(), "sync data": f.SyncData(), "allocate": f.Allocate(0, 1),
	} {
		require.ErrorIs(t, err, fs.ErrPermission, what)
	}
	b, err := ReadFile(fsys, "f", 100)
	require.NoError(t, err)
	require.Equal(t, "content", string(b))
	entries, err := fsys.ReadDir(".")
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestSymbolicLinksAreFollowedInsideAndRefusedOutside(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o644))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "real"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "real", "f"), []byte("inside"), 0o644))
	for name, target := range map[string]string{
		"in": "real", "out": outside, "up": filepath.Join("..", filepath.Base(outside)), "nowhere": "missing", "loop": "loop",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Skip("no symbolic links here: ", err)
		}
	}
	fsys, err := OS(dir)
	require.NoError(t, err)
	b, err := ReadFile(fsys, "in/f", 100)
	require.NoError(t, err)
	require.Equal(t, "inside", string(b))
	for _, name := range []string{"out/secret", "up/secret", "nowhere/f", "loop/f"} {
		_, err := fsys.OpenFile(name, os.O_RDWR, 0)
		require.Error(t, err, name)
		_, err = fsys.Stat(name)
		require.Error(t, err, name)
		require.Error(t, fsys.Remove(name), name)
		require.Error(t, fsys.Rename("real/f", name), name)
		require.Error(t, fsys.Chtimes(name, time.Unix(1, 0)), name)
		_, err = fsys.Lock(name)
		require.Error(t, err, name)
	}
	b, err = os.ReadFile(filepath.Join(outside, "secret"))
	require.NoError(t, err)
	require.Equal(t, "secret", string(b))

	entries, err := fsys.ReadDir(".")
	require.NoError(t, err)
	dirs := make(map[string]bool)
	for _, e := range entries {
		dirs[e.Name()] = e.IsDir()
	}
	require.Equal(t, map[string]bool{"in": true, "loop": false, "nowhere": false, "out": false, "real": true, "up": false}, dirs)
}

func TestTreeKeepsWorkingWhenItsRootIsRenamed(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOARCH == "wasm" {
		t.Skip("an open directory cannot be renamed")
	}
	parent := t.TempDir()
	fsys, err := OS(filepath.Join(parent, "a"))
	require.NoError(t, err)
	f, err := fsys.OpenFile("f", os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, os.Rename(filepath.Join(parent, "a"), filepath.Join(parent, "b")))
	entries, err := fsys.ReadDir(".")
	require.NoError(t, err)
	require.Len(t, entries, 1)
	_, err = entries[0].Info()
	require.NoError(t, err)
	require.NoError(t, fsys.Remove("f"))
	require.NoError(t, fsys.SyncDir("."))
}

func TestMessagesCarryTheWholePath(t *testing.T) {
	dir := t.TempDir()
	fsys, err := OS(dir)
	require.NoError(t, err)
	_, err = fsys.OpenFile("orders-0/x.log", os.O_RDONLY, 0)
	require.ErrorContains(t, err, "open "+filepath.Join(dir, "orders-0", "x.log")+": ")
	err = fsys.Rename("a", "b")
	require.ErrorContains(t, err, "rename "+filepath.Join(dir, "a")+" "+filepath.Join(dir, "b")+": ")
}

func TestClosingTheTreeReleasesItsDirectory(t *testing.T) {
	fsys, err := OS(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, fsys.(*osFS).Close())
	_, err = fsys.Stat(".")
	require.ErrorIs(t, err, fs.ErrClosed)
	_, err = fsys.Lock(".lock")
	require.ErrorIs(t, err, fs.ErrClosed)
}

// Where a host cannot open and empty a file in one call, the file is emptied after it was opened.
func TestAFileIsEmptiedWhereOpeningDoesNotTruncate(t *testing.T) {
	defer func(was bool) { truncatesOnOpen = was }(truncatesOnOpen)
	truncatesOnOpen = false
	fsys, err := OS(t.TempDir())
	require.NoError(t, err)
	for _, content := range []string{"a longer text", "short", ""} {
		f, err := fsys.OpenFile("file", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte(content), 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		got, err := ReadFile(fsys, "file", 100)
		require.NoError(t, err)
		require.Equal(t, content, string(got))
	}
	require.NoError(t, fsys.MkdirAll("folder", 0o755))
	_, err = fsys.OpenFile("folder", os.O_RDWR|os.O_TRUNC, 0o644)
	require.Error(t, err)
}
