package main

import (
	"bytes"
	"context"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/vfs"
)

// lockRoot holds a root's lock until the test ends.
func lockRoot(t *testing.T, root string) io.Closer {
	t.Helper()
	fsys, err := vfs.OS(root)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := fsys.Lock(".lock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	return lock
}

func TestVerifyIsSilentOverWhatABrokerLeftAndNamesTheDamageElsewhere(t *testing.T) {
	damaged := map[string]string{"killed-torn-body": "tail", "killed-torn-header": "tail", "killed-bad-crc": "tail", "killed-zero-tail": "tail"}
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, dir := goldenFolder(t, name)
			before := treeOf(t, root)
			for _, arg := range []string{root, dir} {
				got := call("verify", arg)
				want := exitOK
				if damaged[name] != "" {
					want = exitFound
				}
				if got.code != want || got.err != "" || (got.out == "") != (want == exitOK) || !strings.Contains(got.out, damaged[name]) {
					t.Errorf("code %d\n%s%s", got.code, got.out, got.err)
				}
			}
			if after := treeOf(t, root); !maps.Equal(before, after) {
				t.Error("the folder changed")
			}
		})
	}
}

func TestVerifyAsJSONIsOneObjectAFinding(t *testing.T) {
	_, dir := goldenFolder(t, "killed-torn-body")
	got := call("verify", "--json", dir)
	v := jsonLines(t, got.out)
	if got.code != exitFound || len(v) != 2 {
		t.Fatalf("code %d\n%s", got.code, got.out)
	}
	if f := v[0]; f["file"] != "killed-torn-body-0/00000000000000000060.log" || f["kind"] != "tail" || f["detail"] == "" || f["position"] == nil || f["offset"] == nil {
		t.Errorf("%v", f)
	}
}

func TestVerifyOfWhatItCannotLookAtExitsWithTwo(t *testing.T) {
	for _, arg := range []string{filepath.Join(t.TempDir(), "absent"), t.TempDir()} {
		if got := call("verify", arg); got.code != exitFailed || got.err == "" {
			t.Errorf("code %d: %s", got.code, got.err)
		}
	}
	if os.Getuid() == 0 {
		return // root reads everything
	}
	root, dir := goldenFolder(t, "epochs")
	if err := os.Chmod(filepath.Join(dir, "00000000000000000000.log"), 0); err != nil {
		t.Fatal(err)
	}
	if got := call("verify", root); got.code != exitFailed || !strings.Contains(got.err, "00000000000000000000.log") {
		t.Errorf("code %d: %s", got.code, got.err)
	}
}

func TestVerifyStopsWhenInterruptedAndShowsProgressOnATerminalOnly(t *testing.T) {
	root, _ := goldenFolder(t, "killed-torn-body")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	if code := run(ctx, &env{in: strings.NewReader(""), out: &out, err: &errs}, []string{"verify", root}); code != exitInterrupted {
		t.Errorf("code %d: %s", code, errs.String())
	}
	errs.Reset()
	run(context.Background(), &env{in: strings.NewReader(""), out: &out, err: &errs}, []string{"verify", root})
	if errs.Len() > 0 {
		t.Errorf("standard error holds %q", errs.String())
	}
}

func TestVerifyFindsWhatACleanMarkerHides(t *testing.T) {
	root, dir := goldenFolder(t, "codec-mixed")
	for _, file := range []string{"00000000000000000000.index", "00000000000000000000.timeindex"} {
		spoil(t, filepath.Join(dir, file), nil, nil)
	}
	got := call("verify", root)
	if got.code != exitFound || !strings.Contains(got.out, "index: the file is missing") || !strings.Contains(got.out, "timeindex: the file is missing") {
		t.Errorf("code %d\n%s", got.code, got.out)
	}
}

func TestHelpOfEveryReadingCommandHasAnExample(t *testing.T) {
	for _, name := range []string{"dump", "info", "verify", "repair"} {
		got := call("help", name)
		if got.code != exitOK || !strings.Contains(got.out, "    partlog "+name+" ") {
			t.Errorf("%s: code %d\n%s", name, got.code, got.out)
		}
	}
}

func TestVerifyFindsNothingAfterOurOwnWork(t *testing.T) {
	for _, name := range []string{"codec-mixed", "killed", "txn-commit-abort", "delete-records", "legacy-v1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, dir := goldenFolder(t, name)
			if name == "killed" {
				call("roll", dir) // recovers first
			}
			steps := [][]string{{"roll", dir}, {"truncate", dir, "60"}, {"delete-records", dir, "40"}, {"restart-at", dir, "1000"}}
			for i := range 10 {
				if r := feed(t, dir, numbered(7)); r.code != exitOK {
					t.Fatalf("append: code %d: %s", r.code, r.err)
				}
				if i < len(steps) && (name != "delete-records" || i == 0 || i == 3) && (name != "legacy-v1" || i != 1) {
					if r := runIn(t, steps[i]...); r.code != exitOK {
						t.Fatalf("%v: code %d: %s", steps[i], r.code, r.err)
					}
				}
				if r := runIn(t, "verify", root); r.code != exitOK {
					t.Fatalf("round %d: code %d\n%s%s", i, r.code, r.out, r.err)
				}
			}
		})
	}
}

// A metadata log is none of a root's partitions, but may be looked at when it is named.
func TestTheFolderOfAMetadataLogIsVerifiedWhenItIsNamed(t *testing.T) {
	root, dir := goldenFolder(t, "codec-lz4")
	to := filepath.Join(root, "__cluster_metadata-0")
	if err := os.Rename(dir, to); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"verify", "info", "cat"} {
		if got := call(verb, to); got.code != 0 {
			t.Errorf("%s: exit code %d: %s%s", verb, got.code, got.out, got.err)
		}
	}
	if got := call("verify", root); got.code != 0 {
		t.Errorf("of the root: exit code %d: %s%s", got.code, got.out, got.err)
	}
}
