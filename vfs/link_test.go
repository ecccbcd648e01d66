package vfs_test

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// pairs are trees that can be linked between.
func pairs(t *testing.T) map[string][2]vfs.FS {
	t.Helper()
	sub := func(fsys vfs.FS, dir string) vfs.FS {
		require.NoError(t, fsys.MkdirAll(dir, 0o755))
		s, err := vfs.Sub(fsys, dir)
		require.NoError(t, err)
		return s
	}
	mem, crash := vfs.Mem(), vfstest.NewCrash(vfstest.CrashOptions{})
	base := t.TempDir()
	a, err := vfs.OS(base + "/a")
	require.NoError(t, err)
	b, err := vfs.OS(base + "/b")
	require.NoError(t, err)
	return map[string][2]vfs.FS{"os": {a, b}, "mem": {sub(mem, "a"), sub(mem, "b")}, "crash": {sub(crash, "a"), sub(crash, "b")}}
}

func TestALinkBetweenTreesIsOneFileUntilOneSideOwnsIt(t *testing.T) {
	for name, p := range pairs(t) {
		t.Run(name, func(t *testing.T) {
			from, to := p[0], p[1]
			put(t, from, "f", "content")
			require.NoError(t, vfs.LinkTo(from, "f", to, "g"))
			require.Equal(t, "content", get(t, to, "g"))
			require.ErrorIs(t, vfs.LinkTo(from, "f", to, "g"), fs.ErrExist)
			require.ErrorIs(t, vfs.LinkTo(from, "none", to, "h"), fs.ErrNotExist)
			require.ErrorIs(t, vfs.LinkTo(from, "f", to, "../h"), fs.ErrInvalid)
			n, err := vfs.Links(from, "f")
			if err != nil {
				require.ErrorIs(t, err, vfs.ErrUnsupported)
				return
			}
			require.Equal(t, 2, n)
			copied, err := vfs.Own(from, "f")
			require.NoError(t, err)
			require.True(t, copied)
			put(t, from, "f", "other")
			require.Equal(t, "content", get(t, to, "g"))
			copied, err = vfs.Own(to, "g")
			require.NoError(t, err)
			require.False(t, copied)
			_, err = from.Stat("f" + vfs.CopySuffix)
			require.ErrorIs(t, err, fs.ErrNotExist)
		})
	}
	require.ErrorIs(t, vfs.LinkTo(vfs.Mem(), "f", vfs.Mem(), "g"), vfs.ErrUnsupported)
}

func TestWithinTellsWhatLiesInsideATree(t *testing.T) {
	for name, p := range pairs(t) {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, p[0].MkdirAll("x/y", 0o755))
			inner, err := vfs.Sub(p[0], "x")
			require.NoError(t, err)
			require.True(t, vfs.Within(p[0], p[0], "."))
			require.True(t, vfs.Within(p[0], inner, "y"))
			require.True(t, vfs.Within(p[0], inner, "none/yet"))
			require.False(t, vfs.Within(inner, p[0], "z"))
			require.False(t, vfs.Within(p[0], p[1], "x"))
			require.False(t, vfs.Within(p[0], vfs.Mem(), "x"))
		})
	}
}

func TestSubIsATreeThatNoNameLeaves(t *testing.T) {
	mem := vfs.Mem()
	put(t, mem, "secret", "s")
	sub, err := vfs.Sub(mem, "d")
	require.NoError(t, err)
	require.NoError(t, sub.MkdirAll(".", 0o755))
	put(t, sub, "f", "1")
	require.Equal(t, "1", get(t, mem, "d/f"))
	for _, name := range []string{"../secret", "/secret", "", "a//b"} {
		_, err := sub.OpenFile(name, 0, 0)
		require.ErrorIs(t, err, fs.ErrInvalid, name)
		require.ErrorIs(t, sub.Rename("f", name), fs.ErrInvalid, name)
	}
	_, err = vfs.Sub(mem, "..")
	require.ErrorIs(t, err, fs.ErrInvalid)
}
