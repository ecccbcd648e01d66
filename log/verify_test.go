package log

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/vfs"
)

// verifyAll collects what Verify says about a root; an error fails the test.
func verifyAll(t *testing.T, fsys vfs.FS, o VerifyOptions) []Finding {
	t.Helper()
	var out []Finding
	for f, err := range Verify(t.Context(), fsys, o) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, f)
	}
	return out
}

func sayFindings(findings []Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "\n  %s @%d offset %d [%s] %s", f.File, f.Position, f.Offset, f.Kind, f.Detail)
	}
	return b.String()
}

func verifyFS(t *testing.T, root string) vfs.FS {
	t.Helper()
	fsys, err := vfs.OSReadOnly(root)
	if err != nil {
		t.Fatal(err)
	}
	return fsys
}

func TestVerifyFindsNothingInWhatABrokerLeftAndTheDamageWhereThereIsSome(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := verifyAll(t, verifyFS(t, golden.Copy(t, name)), VerifyOptions{})
			want := map[string]string{
				"killed-torn-body": FindingTail, "killed-torn-header": FindingTail, "killed-bad-crc": FindingTail, "killed-zero-tail": FindingTail,
			}[name]
			switch {
			case want == "" && len(got) > 0:
				t.Errorf("findings in a sound folder:%s", sayFindings(got))
			case want != "" && !slices.ContainsFunc(got, func(f Finding) bool { return f.Kind == want }):
				t.Errorf("no finding of kind %q:%s", want, sayFindings(got))
			case len(got) > 0:
				t.Log(sayFindings(got))
			}
		})
	}
}

func TestVerifyEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var last error
	for _, err := range Verify(ctx, verifyFS(t, golden.Copy(t, "codec-gzip")), VerifyOptions{}) {
		last = err
	}
	if last != context.Canceled {
		t.Fatalf("ended with %v", last)
	}
}

// Segments whose indexes were written, or built anew, under different settings of index.interval.bytes lie in one folder. Nobody
// says which: an index is not cut short for having as few entries as its own entries say that it should.
func TestAnIndexOfAWiderIntervalIsNotTakenForOneCutShort(t *testing.T) {
	b := newBedOn(t, vfs.Mem(), Config{IndexIntervalBytes: 64 << 10})
	for range 230 {
		b.clock.advance(time.Second)     // or the writer could have been restarted anywhere
		b.add(strings.Repeat("x", 1000)) // three entries, and half of the next one's bytes
	}
	if err := b.Roll(ctx); err != nil {
		t.Fatal(err)
	}
	b.cfg.IndexIntervalBytes = 0
	b.reopen()
	for range 100 {
		b.clock.advance(time.Second)
		b.add(strings.Repeat("x", 1000))
	}
	if err := b.Roll(ctx); err != nil {
		t.Fatal(err)
	}
	b.cfg.IndexIntervalBytes = 64 << 10
	b.reopen()
	if err := b.Roll(ctx); err != nil {
		t.Fatal(err)
	}
	for range 40 { // no entry at all
		b.clock.advance(time.Second)
		b.add(strings.Repeat("x", 1000))
	}
	if err := b.dir.Close(); err != nil {
		t.Fatal(err)
	}
	if got := verifyAll(t, b.fs, VerifyOptions{Now: b.clock.now}); len(got) > 0 {
		t.Errorf("findings in a sound log:%s", sayFindings(got))
	}
}
