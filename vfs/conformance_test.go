package vfs_test

import (
	"os"
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

// seed fills a tree with what every conformance case starts from:
//
//	d/f "0123456789"   d/g "other"   e/ (empty)   big (150,000 bytes, more than two pages)
func seed(t testing.TB, fsys vfs.FS) {
	t.Helper()
	require.NoError(t, fsys.MkdirAll("d", 0o755))
	require.NoError(t, fsys.MkdirAll("e", 0o755))
	put(t, fsys, "d/f", "0123456789")
	put(t, fsys, "d/g", "other")
	put(t, fsys, "big", string(bigContent))
}

var bigContent = func() []byte {
	b := make([]byte, 150_000)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}()

func put(t testing.TB, fsys vfs.FS, name, content string) {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte(content), 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func get(t testing.TB, fsys vfs.FS, name string) string {
	t.Helper()
	b, err := vfs.ReadFile(fsys, name, 1<<30)
	require.NoError(t, err)
	return string(b)
}

func open(t testing.TB, fsys vfs.FS, name string, flag int) vfs.File {
	t.Helper()
	f, err := fsys.OpenFile(name, flag, 0o644)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// contents is every name of a tree with what it holds.
func contents(t testing.TB, fsys vfs.FS) map[string]string {
	t.Helper()
	all := make(map[string]string)
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := fsys.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			if e.IsDir() {
				all[name] = "directory"
				walk(name)
				continue
			}
			all[name] = "file " + get(t, fsys, name)
		}
	}
	walk(".")
	return all
}

// implementations are the trees that must behave alike. Each is fresh and seeded; check is run after the case.
var implementations = []struct {
	name string
	make func(t *testing.T) vfs.FS
}{
	{"OS", func(t *testing.T) vfs.FS {
		fsys, err := vfs.OS(t.TempDir())
		require.NoError(t, err)
		seed(t, fsys)
		return fsys
	}},
	{"Mem", func(t *testing.T) vfs.FS {
		fsys := vfs.Mem()
		seed(t, fsys)
		return fsys
	}},
	{"Overlay of Mem", func(t *testing.T) vfs.FS {
		base := vfs.Mem()
		seed(t, base)
		return overlayUnchanged(t, base)
	}},
	{"Overlay of OSReadOnly", func(t *testing.T) vfs.FS {
		dir := t.TempDir()
		fsys, err := vfs.OS(dir)
		require.NoError(t, err)
		seed(t, fsys)
		base, err := vfs.OSReadOnly(dir)
		require.NoError(t, err)
		return overlayUnchanged(t, base)
	}},
	{"empty Overlay", func(t *testing.T) vfs.FS {
		fsys := overlayUnchanged(t, vfs.Mem())
		seed(t, fsys)
		return fsys
	}},
}

// overlayUnchanged fails the test if the base is different at its end.
func overlayUnchanged(t *testing.T, base vfs.FS) vfs.FS {
	before := contents(t, base)
	t.Cleanup(func() { require.Equal(t, before, contents(t, base), "the base of an overlay was changed") })
	return vfs.Overlay(base)
}

func TestEveryImplementationBehavesAlike(t *testing.T) {
	for _, impl := range implementations {
		t.Run(impl.name, func(t *testing.T) {
			for _, c := range conformance {
				t.Run(c.name, func(t *testing.T) { c.run(t, impl.make(t)) })
			}
		})
	}
}
