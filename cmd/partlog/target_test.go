package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
)

// photos is a folder with a partition's name and nothing of a log in it.
func photos(t *testing.T, root string) string {
	t.Helper()
	dir := filepath.Join(root, "photos-2024")
	require.NoError(t, os.Mkdir(dir, 0o755))
	for _, name := range []string{"a.jpg", "b.jpg", "c.jpg", "server.log"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644))
	}
	return dir
}

func TestAFolderWithAPartitionsNameAndNothingOfALogIsNotTakenForOne(t *testing.T) {
	root := t.TempDir()
	dir := photos(t, root)
	before := treeOf(t, root)
	for _, args := range [][]string{{"cat", dir}, {"tail", dir}, {"offset", dir, "--latest"}, {"info", dir}, {"verify", dir}, {"repair", dir, "--apply"}, {"append", dir}, {"roll", dir}, {"truncate", dir, "0"}} {
		got := runIn(t, args...)
		require.Equal(t, exitFailed, got.code, "%v", args)
		require.Contains(t, got.err, "photos-2024 is named like a partition, but holds neither a segment nor partition.metadata; it holds a.jpg, b.jpg, c.jpg and 1 name more", "%v", args)
	}
	for _, args := range [][]string{{"cat", root}, {"info", root}, {"verify", root}, {"repair", root}, {"append", root}, {"roll", root}} {
		got := runIn(t, args...)
		require.Equal(t, exitFailed, got.code, "%v", args)
		require.Contains(t, got.err, "holds no partition folder", "%v", args)
	}
	require.Contains(t, runIn(t, "cat", root).err, "photos-2024")
	require.Equal(t, before, treeOf(t, root), "nothing may change")
}

func TestAFolderWithAPartitionsNameBesideARealOneIsPassedOverAndNamed(t *testing.T) {
	root, _ := goldenFolder(t, "codec-gzip")
	want := runIn(t, "cat", root).out
	photos(t, root)
	for _, args := range [][]string{{"cat", root}, {"tail", root}, {"info", root}, {"offset", root, "--earliest"}} {
		got := runIn(t, args...)
		require.Equal(t, exitOK, got.code, "%v: %s", args, got.err)
		require.Contains(t, got.err, "note: passed over "+filepath.Join(root, "photos-2024"), "%v", args)
	}
	require.Equal(t, want, runIn(t, "cat", root).out)
	got := runIn(t, "verify", root)
	require.Equal(t, exitFound, got.code)
	require.Contains(t, got.out, "photos-2024: foreign: ")
	got = runIn(t, "roll", root)
	require.Equal(t, exitOK, got.code, got.err)
	require.Contains(t, got.err, "warning: "+filepath.Join(root, "photos-2024")+" is named like a partition")
	require.NoFileExists(t, filepath.Join(root, "photos-2024", "00000000000000000000.log"))
}

func TestAnEmptyFolderWithAPartitionsNameIsAPartitionWithoutRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "orders-0")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.Empty(t, do(t, "cat", dir))
	got := feed(t, dir, `{"value":"eA=="}`)
	require.Equal(t, "0\n", got.out, got.err)
}

func TestAppendMakesNoLogRootInsideOfAnother(t *testing.T) {
	root, dir := goldenFolder(t, "codec-gzip")
	before := treeOf(t, root)
	for path, want := range map[string]string{
		filepath.Join(root, "deep", "er", "x-0"): "inside the log root",
		filepath.Join(root, "deep", "x-0"):       "inside the log root",
		filepath.Join(dir, "x-0"):                "is a partition folder",
		filepath.Join(dir, "deep", "x-0"):        "is a partition folder",
	} {
		got := feed(t, path, `{"value":"eA=="}`)
		require.Equal(t, exitFailed, got.code, path)
		require.Contains(t, got.err, want, path)
		require.Contains(t, got.err, "; name "+filepath.Join(root, "x-0"), path)
	}
	require.Equal(t, before, treeOf(t, root))
	require.Equal(t, exitOK, feed(t, filepath.Join(root, "x-0"), `{"value":"eA=="}`).code)
	require.Equal(t, exitOK, feed(t, filepath.Join(t.TempDir(), "new", "root", "x-0"), `{"value":"eA=="}`).code)
}

func TestWrongCallsSayWhatIsWrong(t *testing.T) {
	root := golden.Copy(t, "txn-open")
	for want, args := range map[string][]string{
		`no plan "orders-0"; want retention or compaction`: {"plan", "orders-0"},
		"DIR is empty":                     {"retain", ""},
		"DEST is empty":                    {"backup", root, ""},
		"want a whole number":              {"clean", root, "--map-bytes", "10MB"},
		"name a path outside of it":        {"backup", root, filepath.Join(root, "copies")},
		"an epoch of at most 32767":        {"append", root, "--producer", "5:40000"},
		"--end is for the transaction of ": {"append", root, "--end", "abort"},
	} {
		res := runIn(t, args...)
		require.Equal(t, exitFailed, res.code, want)
		require.Contains(t, res.err, want)
	}
}
