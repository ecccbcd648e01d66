//go:build unix

package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/log"
)

var errPipe = syscall.EPIPE

// codeOf waits for a child.
func codeOf(t *testing.T, c *exec.Cmd) int {
	t.Helper()
	if err := c.Wait(); err != nil {
		var ended *exec.ExitError
		require.ErrorAs(t, err, &ended)
		require.True(t, ended.Exited(), "ended by a signal: %v", ended)
		return ended.ExitCode()
	}
	return 0
}

func TestTheBuiltProgramKeepsToItsExitCodes(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "partlog")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	root := golden.Copy(t, "headers-nulls")
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"cat", root}, exitOK},
		{[]string{"help"}, exitOK},
		{[]string{"offset", root, "--time", "9999999999999"}, exitFound},
		{[]string{"cat", root + "/none"}, exitFailed},
		{nil, exitFailed},
	} {
		cmd := exec.Command(program, c.args...)
		require.NoError(t, cmd.Start())
		require.Equal(t, c.code, codeOf(t, cmd), "%v", c.args)
	}
}

func TestAReaderOfTheOutputMayLeaveEarly(t *testing.T) {
	root := golden.Copy(t, "big-records") // far more than a pipe holds
	c := child(t, "cat", root)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	_, err = io.ReadFull(out, make([]byte, 10))
	require.NoError(t, err)
	require.NoError(t, out.Close())
	require.Equal(t, exitOK, codeOf(t, c))
	require.Empty(t, errs.String())
}

func TestCtrlCEndsTailWith130(t *testing.T) {
	c := child(t, "tail", "-f", golden.Copy(t, "headers-nulls"), "-n", "1")
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, `"offset":8`)
	require.NoError(t, c.Process.Signal(os.Interrupt))
	require.Equal(t, exitInterrupted, codeOf(t, c))
	require.Empty(t, errs.String())
}

func TestCtrlCDuringAppendKeepsWhatWasWrittenAndLeavesTheRootClean(t *testing.T) {
	root := t.TempDir()
	c := child(t, "append", filepath.Join(root, "t-0"), "--batch", "2", "--linger", "1h")
	var errs bytes.Buffer
	c.Stderr = &errs
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	_, err = io.WriteString(in, numbered(3))
	require.NoError(t, err)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "0\n", line)

	// Meanwhile the root is taken, for this process as for a broker.
	r := runIn(t, "roll", root)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "is in use by ")

	require.NoError(t, c.Process.Signal(os.Interrupt))
	require.Equal(t, exitInterrupted, codeOf(t, c))
	require.Contains(t, errs.String(), "interrupted; the lines up to 2 are appended, at offsets 0 to 1")
	require.Len(t, do(t, "cat", root), 2)
	l, err := log.Open(root, log.Config{})
	require.NoError(t, err)
	require.True(t, l.Recovery().Clean)
	require.NoError(t, l.Close())
}

func TestAKilledAppendKeepsEveryOffsetItPrinted(t *testing.T) {
	root := t.TempDir()
	c := child(t, "append", filepath.Join(root, "t-0"), "--batch", "1")
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	go func() { _, _ = io.WriteString(in, strings.Repeat("{}\n", 100000)) }()
	lines := bufio.NewScanner(out)
	printed := 0
	for lines.Scan() && printed < 100 {
		printed++
	}
	require.NoError(t, c.Process.Kill())
	for lines.Scan() {
		printed++
	}
	_ = c.Wait()
	require.GreaterOrEqual(t, len(do(t, "cat", root)), printed)
	require.Equal(t, exitOK, feed(t, root, "{}").code, "and the next one recovers")
}

func TestASignalDuringALongCatIsHeard(t *testing.T) {
	c := child(t, "cat", golden.Copy(t, "big-records"))
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	_, err = io.ReadFull(out, make([]byte, 10))
	require.NoError(t, err)
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	time.Sleep(10 * time.Millisecond)
	_, _ = io.Copy(io.Discard, out)
	require.Equal(t, exitInterrupted, codeOf(t, c))
}

// A command that changes a log is killed at any moment: what is left is the log as it was, as it was to become, or at a
// batch boundary between the two, and the same command then finishes the job.
func TestAKilledChangeCanBeRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		args       []string
		start, end int
	}{
		"truncate":       {[]string{"truncate", "30"}, 0, 30},
		"restart-at":     {[]string{"restart-at", "500"}, 500, 500},
		"delete-records": {[]string{"delete-records", "70"}, 70, 120},
		"roll":           {[]string{"roll"}, 0, 120},
		"append":         {[]string{"append", "--from", os.DevNull}, 0, 120},
		"repair":         {[]string{"repair", "--apply"}, 0, 120},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i := range 6 {
				root := t.TempDir()
				require.Equal(t, exitOK, feed(t, filepath.Join(root, "t-0"), numbered(120), "--batch", "5", "--config", "internal.segment.bytes=900").code)
				if i%2 == 0 { // the stop before was not clean either
					require.NoError(t, os.Remove(filepath.Join(root, ".kafka_cleanshutdown")))
				}
				args := append([]string{c.args[0], root}, c.args[1:]...)
				killed := child(t, args...)
				require.NoError(t, killed.Start())
				time.Sleep(time.Duration(10+i*15) * time.Millisecond)
				_ = killed.Process.Kill()
				_ = killed.Wait()

				n := len(do(t, "cat", root))
				require.True(t, n%5 == 0 && n <= 120, "%d records", n)
				again := runIn(t, args...)
				require.Equal(t, exitOK, again.code, again.err)
				require.Len(t, do(t, "cat", root), c.end-c.start)
				require.Equal(t, exitOK, runIn(t, "verify", root).code)
				require.Equal(t, exitOK, feed(t, root, "{}").code)
				require.Len(t, do(t, "cat", root), c.end-c.start+1)
			}
		})
	}
}

// Of many that want to write at once each gets its turn or is told who has the root.
func TestProcessesThatFightForARootLoseNothing(t *testing.T) {
	root := t.TempDir()
	require.Equal(t, exitOK, feed(t, filepath.Join(root, "t-0"), "{}").code)
	appended := 1
	for range 4 {
		var all []*exec.Cmd
		var errs []*bytes.Buffer
		for range 5 {
			c := child(t, "append", root)
			c.Stdin = strings.NewReader("{}\n{}\n")
			var b bytes.Buffer
			c.Stderr = &b
			require.NoError(t, c.Start())
			all, errs = append(all, c), append(errs, &b)
		}
		won := 0
		for i, c := range all {
			switch code := codeOf(t, c); code {
			case exitOK:
				won++
				appended += 2
			default:
				require.Equal(t, exitFailed, code)
				require.Contains(t, errs[i].String(), "is in use by")
			}
		}
		require.Positive(t, won)
		require.Len(t, do(t, "cat", root), appended)
	}
}
