// Package golden holds real partition folders written by Apache Kafka 4.3.1, for tests and examples. Product code never
// imports it: the embedded data would reach every program that imports the library.
//
// A case is one folder:
//
//	<case>/root/                  a log root: <topic>-0/, the four checkpoint files, perhaps .kafka_cleanshutdown
//	<case>/records.jsonl          what a read_uncommitted consumer got, one record a line
//	<case>/committed.jsonl        the same for read_committed; absent when it does not differ
//	<case>/dump.txt               Kafka's dump tool on the .log files
//	<case>/index-dump.txt         Kafka's dump tool on the derived files
//	<case>/about.json             settings, history, sizes, and what Kafka says after opening the folder
//
// testdata/README.md says what each case is for and what to mind when comparing. The folders are read-only here; [Copy] and
// [Into] make a writable copy with stripped zero tails restored.
package golden

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"testing"
)

//go:embed all:testdata
var data embed.FS

// Cases are the names of all cases, in order.
func Cases() []string {
	entries, err := data.ReadDir("testdata")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// Copy puts the case's root/ into a fresh directory that ends with the test, and returns that log root.
func Copy(tb testing.TB, name string) (root string) {
	tb.Helper()
	root = tb.TempDir()
	if err := Into(root, name); err != nil {
		tb.Fatal(err)
	}
	return root
}

// Into puts the content of the case's root/ into dir, creating it. Files stored without their trailing zeros get them
// back, so that every byte is as Kafka left it.
func Into(dir, name string) error {
	about, err := AboutOf(name)
	if err != nil {
		return err
	}
	base := path.Join("testdata", name, "root")
	return fs.WalkDir(data, base, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := p[len(base):]
		to := filepath.Join(dir, filepath.FromSlash(rel))
		if e.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		b, err := data.ReadFile(p)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			return err
		}
		f, ok := about.Files[rel[1:]]
		if !ok || f.Size == int64(len(b)) {
			return nil
		}
		if f.StoredSize == nil || *f.StoredSize != int64(len(b)) {
			return fmt.Errorf("golden: %s holds %d bytes, about.json says %d", p, len(b), f.Size)
		}
		return os.Truncate(to, f.Size)
	})
}

// PartitionDir is the single partition folder below a root made by [Copy] or [Into].
func PartitionDir(root string) (string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.IsDir() {
			return filepath.Join(root, e.Name()), nil
		}
	}
	return "", fmt.Errorf("golden: no partition folder in %s", root)
}

// File is one file of a case as embedded, named relative to the case ("dump.txt", "root/meta.properties"). A stripped zero
// tail is not restored.
func File(name, file string) ([]byte, error) {
	return data.ReadFile(path.Join("testdata", name, file))
}
