package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/partlog/partlog/internal/golden"
)

// FuzzDump dumps any bytes under any of Kafka's names, with sound files of the same segment beside them: it ends with
// exit code 0 or 1 and every line of its JSON form begins an object.
func FuzzDump(f *testing.F) {
	names := []string{"00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex", "00000000000000000000.txnindex",
		"00000000000000000082.snapshot", "leader-epoch-checkpoint", "partition.metadata", "meta.properties", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"}
	for _, name := range []string{"idempotent", "txn-commit-abort", "legacy-v1", "codec-mixed"} {
		root := f.TempDir()
		if err := golden.Into(root, name); err != nil {
			f.Fatal(err)
		}
		dir, err := golden.PartitionDir(root)
		if err != nil {
			f.Fatal(err)
		}
		for i, file := range names {
			for _, in := range []string{dir, root} {
				if b, err := os.ReadFile(filepath.Join(in, file)); err == nil && len(b) < 64<<10 {
					f.Add(byte(i), b)
				}
			}
		}
	}
	for i := range names {
		f.Add(byte(i), []byte("0")) // less than one entry
	}
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		dir := t.TempDir()
		if err := golden.Into(dir, "idempotent"); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "idempotent-0", names[int(which)%len(names)])
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"dump", file}, {"dump", "--json", file}, {"dump", "--index-sanity-check", file}} {
			var out, errs bytes.Buffer
			code := run(context.Background(), &env{in: strings.NewReader(""), out: &out, err: &errs}, args)
			if code != exitOK && code != exitFound {
				t.Fatalf("%v: code %d: %s", args, code, errs.String())
			}
			for line := range strings.Lines(out.String()) {
				if args[1] == "--json" && !strings.HasPrefix(line, `{"kind":`) {
					t.Fatalf("not an object: %.200s", line)
				}
			}
		}
	})
}
