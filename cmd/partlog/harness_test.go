package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mainVariable makes the test binary be the command: children of tests are started with it.
const mainVariable = "PARTLOG_TEST_IS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// child is the command as a process of its own. It does not outlive the test, and no test waits for it without end.
func child(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(stop)
	c := exec.CommandContext(ctx, exe, args...)
	c.Env = append(os.Environ(), mainVariable+"=1")
	return c
}

// outcome is what a call left.
type outcome struct {
	code     int
	out, err string
}

func (r outcome) lines() []string {
	if r.out == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(r.out, "\n"), "\n")
}

// runIn runs a command in this process.
func runIn(t testing.TB, args ...string) outcome { return runWith(t, "", args...) }

func runWith(t testing.TB, in string, args ...string) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(context.Background(), &env{in: strings.NewReader(in), out: &out, err: &errs}, args)
	return outcome{code, out.String(), errs.String()}
}

// do is runIn for what must succeed without a word on standard error.
func do(t testing.TB, args ...string) []string {
	t.Helper()
	r := runIn(t, args...)
	require.Empty(t, r.err, "%v", args)
	require.Equal(t, exitOK, r.code, "%v", args)
	return r.lines()
}

// feed appends lines to dir.
func feed(t testing.TB, dir, in string, args ...string) outcome {
	t.Helper()
	return runWith(t, in, append([]string{"append", dir, "--from", "-"}, args...)...)
}

// sums is the content of a tree: path to size and hash. Directories count too.
func treeOf(t testing.TB, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			out[p] = "directory"
			return nil
		}
		b, err := os.ReadFile(p)
		out[p] = fmt.Sprintf("%d %x", len(b), sha256.Sum256(b))
		return err
	}))
	return out
}

// syncBuffer is a buffer that a command writes while a test looks.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// numbered are n records with values r0, r1, …, one line each.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"timestamp":%d,"value":"%s"}`+"\n", 1_700_000_000_000+int64(i), b64(fmt.Sprint("r", i)))
	}
	return b.String()
}
