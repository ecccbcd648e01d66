package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// load copies a golden root into a file system in memory, and spoils one byte of the file that is named.
func load(t testing.TB, to vfs.FS, name, spoiled string, at int) {
	t.Helper()
	tree := os.DirFS(golden.Copy(t, name))
	err := fs.WalkDir(tree, ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			return to.MkdirAll(p, 0o755)
		}
		b, err := fs.ReadFile(tree, p)
		if err != nil {
			return err
		}
		if p == spoiled {
			b[at] ^= 1
		}
		f, err := to.OpenFile(p, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(b, 0)
		return errors.Join(err, f.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// repairOn runs a repair that takes effect over any file system, with a quarantine that never loses anything.
func repairOn(t *testing.T, root vfs.FS, tp log.TopicPartition) error {
	t.Helper()
	q := &quarantine{at: "quarantine", run: "run", fs: vfs.Mem(), dir: "quarantine"}
	if err := q.fs.MkdirAll(q.run, 0o755); err != nil {
		t.Fatal(err)
	}
	target := &target{root: "root", fs: root, partitions: []log.TopicPartition{tp}, isRoot: true}
	r := &repairer{ctx: t.Context(), e: &env{out: &bytes.Buffer{}, err: &bytes.Buffer{}}, t: target, apply: true, q: q, fs: &keepingFS{FS: root, q: q}}
	return r.run()
}

// recordsOn reads all records.
func recordsOn(t testing.TB, root vfs.FS, tp log.TopicPartition) (out []string) {
	t.Helper()
	r, err := log.OpenReader(tp.String(), log.ReaderOptions{FS: root})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for rec, err := range r.Records(context.Background(), r.Offsets().LogStart) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%d %q %q", rec.Offset, rec.Key, rec.Value))
	}
	return out
}

func TestRepairThatIsCutShortAnywhereCanBeRunAgainAndEndsTheSame(t *testing.T) {
	t.Parallel()
	tp := log.TopicPartition{Topic: "txn-commit-abort"}
	file := "txn-commit-abort-0/00000000000000000000.log"
	whole := vfs.Mem()
	load(t, whole, tp.Topic, file, 1500)
	if err := repairOn(t, whole, tp); err != nil {
		t.Fatal(err)
	}
	want := recordsOn(t, whole, tp)

	crash := vfstest.NewCrash(vfstest.CrashOptions{})
	load(t, crash, tp.Topic, file, 1500)
	crash.Mark()
	if err := repairOn(t, crash, tp); err != nil {
		t.Fatal(err)
	}
	disks := 0
	for disk := range crash.Disks(vfstest.DiskOptions{Limit: 32, Samples: 12}) {
		disks++
		root := disk.FS()
		if err := repairOn(t, root, tp); err != nil {
			var ended *exit
			t.Fatalf("disk %d, behind operation %d: %v (%v)", disks, disk.At(), err, errors.As(err, &ended))
		}
		if got := recordsOn(t, root, tp); !slices.Equal(got, want) {
			t.Fatalf("disk %d, behind operation %d: %d records, want %d", disks, disk.At(), len(got), len(want))
		}
		for f, err := range log.Verify(t.Context(), root, log.VerifyOptions{}) {
			t.Fatalf("disk %d, behind operation %d: verify: %v %v", disks, disk.At(), f, err)
		}
	}
	if disks < 200 {
		t.Errorf("only %d disks", disks)
	}
}
