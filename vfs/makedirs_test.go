package vfs

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// The directory above a root that is there is synced as well: whoever made the root may have been killed before that.
func TestTheDirectoryAboveARootIsSyncedBeforeTheNextNameIsMade(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("directories are not synced there")
	}
	top, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(top, "a"), 0o755))
	var synced []string
	m := osDirs{syncDir: func(d *os.File) error {
		names, err := d.Readdirnames(-1)
		require.NoError(t, err)
		require.Len(t, names, 1)
		name, err := filepath.Rel(top, filepath.Join(d.Name(), names[0]))
		synced = append(synced, name)
		return err
	}}
	require.NoError(t, makeDirs(m, filepath.Join(top, "a", "b", "c")))
	require.Equal(t, []string{"a", filepath.Join("a", "b"), filepath.Join("a", "b", "c")}, synced)
	synced = nil
	require.NoError(t, makeDirs(m, filepath.Join(top, "a", "b", "c")))
	require.Equal(t, []string{filepath.Join("a", "b", "c")}, synced)
}

func TestAMissingDirectoryAboveTheTopIsNoConcern(t *testing.T) {
	require.NoError(t, MkdirDurable(Mem(), ".", 0o755))
	require.Error(t, MkdirDurable(Mem(), "../x", 0o755))
	m := osDirs{syncDir: func(*os.File) error { return nil }}
	require.NoError(t, makeDirs(m, string(os.PathSeparator)))
}
