package log

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

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
