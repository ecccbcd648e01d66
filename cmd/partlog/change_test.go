package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/log"
)

func TestChangesSayWhatTheLogWasAndIs(t *testing.T) {
	for _, c := range []struct {
		args string
		want string
	}{
		{"truncate DIR 100", "log start 0, log end 291, segments 2; is log start 0, log end 97, segments 1 (100 lay inside the batch that began at 97)"},
		{"truncate DIR 97", "is log start 0, log end 97, segments 1\n"},
		{"truncate DIR 291", "is log start 0, log end 291, segments 2 (nothing to cut off)"},
		{"truncate DIR 0", "is log start 0, log end 0, segments 1"},
		{"restart-at DIR 5000000000", "is log start 5000000000, log end 5000000000, segments 1"},
		{"delete-records DIR 20", "is log start 20, log end 291, segments 2\n"},
		{"delete-records DIR -1", "is log start 291, log end 291"},
		{"delete-records -1 DIR", ""},
		{"delete-records --json DIR -1", `{"partition":"codec-mixed-0","before":{"logStartOffset":0,"logEndOffset":291,"segments":2},"after":{"logStartOffset":291,`},
		{"delete-records DIR 0", "(nothing to delete)"},
		{"roll DIR", "is log start 0, log end 291, segments 3\n"},
	} {
		t.Run(c.args, func(t *testing.T) {
			root := golden.Copy(t, "codec-mixed")
			r := runIn(t, strings.Fields(strings.ReplaceAll(c.args, "DIR", root))...)
			if c.want == "" {
				require.Equal(t, exitFailed, r.code)
				return
			}
			require.Equal(t, exitOK, r.code, r.err)
			require.Empty(t, r.err)
			require.Contains(t, r.out, c.want)
			require.FileExists(t, filepath.Join(root, ".kafka_cleanshutdown"))
			require.NoFileExists(t, filepath.Join(root, ".lock"))

			l, err := log.Open(root, log.Config{})
			require.NoError(t, err)
			require.True(t, l.Recovery().Clean)
			state := l.Offsets()
			require.NoError(t, l.Close())
			if strings.Contains(c.args, "--json") {
				require.Contains(t, r.out, fmt.Sprintf(`"after":{"logStartOffset":%d,"logEndOffset":%d,`, state.LogStart, state.LogEnd))
			} else {
				require.Contains(t, r.out, fmt.Sprintf("is log start %d, log end %d,", state.LogStart, state.LogEnd))
			}
		})
	}
}

func TestRollKeepsAnEmptySegment(t *testing.T) {
	root := golden.Copy(t, "codec-mixed")
	do(t, "roll", root)
	require.Contains(t, do(t, "roll", root)[0], "the active segment is empty")
}

func TestChangesThatCannotBeLeaveEveryRecordWhereItWas(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"delete-records DIR 292", "offset 292 out of range"},
		{"delete-records DIR 5 --config cleanup.policy=compact", "does not delete"},
		{"truncate DIR 5 --config segment.bytes=1", "segment.bytes"},
		{"truncate DIR", "OFFSET is missing"},
		{"truncate DIR -1", "must not be negative"},
		{"truncate DIR five", `"five" is not an offset`},
		{"restart-at DIR -1", "must not be negative"},
		{"delete-records DIR -2", "must be -1"},
		{"roll DIR 7", `unexpected argument "7"`},
		{"truncate NONE 0", "does not exist"},
		{"roll NONE", "does not exist"},
	} {
		root := golden.Copy(t, "codec-mixed")
		r := runIn(t, strings.Fields(strings.NewReplacer("DIR", root, "NONE", filepath.Join(root, "new-0")).Replace(c.args))...)
		require.Equal(t, exitFailed, r.code, c.args)
		require.Contains(t, r.err, c.want, c.args)
		require.Len(t, do(t, "cat", root), 291, c.args)
		require.NoDirExists(t, filepath.Join(root, "new-0"))
	}
}

func TestAChangeRecoversAKilledLogFirstAndSaysSo(t *testing.T) {
	root := golden.Copy(t, "killed-torn-body")
	r := runIn(t, "roll", root)
	require.Equal(t, exitOK, r.code, r.err)
	require.Contains(t, r.err, "warning: ")
	want := golden.MustRecords(t, "killed-torn-body")
	require.Len(t, do(t, "cat", root), len(want))
}

func TestAnInterruptedCallLeavesTheRecordsAndALogThatOpens(t *testing.T) {
	for _, args := range []string{"cat DIR", "tail DIR", "tail -f DIR", "append DIR", "truncate DIR 5", "restart-at DIR 5", "delete-records DIR 5", "roll DIR", "offset DIR --time 0"} {
		root := golden.Copy(t, "codec-mixed")
		ctx, stop := context.WithCancel(t.Context())
		stop()
		var out, errs bytes.Buffer
		code := run(ctx, &env{in: strings.NewReader("{}\n"), out: &out, err: &errs}, strings.Fields(strings.ReplaceAll(args, "DIR", root)))
		require.Equal(t, exitInterrupted, code, "%s: %s", args, &errs)
		require.Empty(t, out.String(), args)
		require.Len(t, do(t, "cat", root), 291, args)
		require.NoFileExists(t, filepath.Join(root, ".lock"), args)
		require.Equal(t, exitOK, runIn(t, "roll", root).code, args)
	}
}

func TestALockedRootIsReadAndNotWritten(t *testing.T) {
	root := golden.Copy(t, "codec-mixed")
	d, err := log.OpenDir(root, log.DirConfig{})
	require.NoError(t, err)
	before := treeOf(t, root)
	dir := filepath.Join(root, "codec-mixed-0")
	for _, args := range [][]string{{"append", dir}, {"append", filepath.Join(root, "new-0")}, {"truncate", dir, "5"}, {"restart-at", root, "5"}, {"delete-records", root, "5"}, {"roll", root}} {
		r := runWith(t, "{}\n", args...)
		require.Equal(t, exitFailed, r.code, args)
		require.Contains(t, r.err, root+" is in use by ")
		require.Equal(t, 1, strings.Count(r.err, "\n"), r.err)
	}
	do(t, "cat", dir)
	do(t, "tail", dir)
	do(t, "offset", dir, "--latest")
	require.Equal(t, before, treeOf(t, root))
	require.NoError(t, d.Close())
}

func TestWrongCallsAreExplained(t *testing.T) {
	dir := golden.Copy(t, "empty")
	for _, c := range []struct{ args, want string }{
		{"", "usage: partlog COMMAND"},
		{"bogus", `no command "bogus"`},
		{"help bogus", `no command "bogus"`},
		{"cat", "DIR is missing"},
		{"cat DIR DIR", "unexpected argument"},
		{"cat DIR --nonsense", "there is no flag --nonsense"},
		{"cat DIR -5", `unexpected argument "-5"`},
		{"cat DIR --from", "--from needs a value"},
		{"cat DIR --from x", `for flag --from: "x" is not an offset`},
		{"cat DIR --to -1", "a negative offset"},
		{"cat DIR --max -1", "a negative number"},
		{"cat DIR --since yesterday", "Unix milliseconds"},
		{"cat DIR --isolation dirty", "want read_uncommitted, read_committed or log_end"},
		{"cat DIR --digest-over -1", "number of bytes"},
		{"cat DIR --config segment.bytes", "KEY=VALUE"},
		{"cat DIR --config segment_bytes=1", "did you mean segment.bytes?"},
		{"tail DIR -n -1", "must not be negative"},
		{"tail DIR --config a=b", "unknown key"},
		{"dump DIR/none --config a=b", "unknown key"},
		{"restore DIR DIR/none --config a=b", "unknown key"},
		{"handover DIR DIR/none --config a=b", "unknown key"},
		{"offset DIR", "want one of"},
		{"offset DIR --earliest --latest", "want one of"},
		{"offset DIR --time -9", "before 1970"},
		{"append DIR --batch 0", "at least 1"},
		{"append DIR --leader-epoch -1", "0 to 2147483647"},
		{"append DIR --ack maybe", "durable or buffered"},
		{"append DIR --linger -1s", "must not be negative"},
		{"cat /dev/null", "is a file"},
		{"cat DIR/none", "does not exist"},
	} {
		before := treeOf(t, dir)
		r := runIn(t, strings.Fields(strings.ReplaceAll(c.args, "DIR", dir))...)
		require.Equal(t, exitFailed, r.code, c.args)
		require.Contains(t, r.err, c.want, c.args)
		require.Empty(t, r.out, c.args)
		require.Equal(t, before, treeOf(t, dir), c.args)
	}
}

func TestHelpTeachesEachCommandWithAnExample(t *testing.T) {
	list := runIn(t, "help")
	require.Equal(t, exitOK, list.code)
	for _, c := range commands() {
		require.Contains(t, list.out, "  "+c.name+" ")
		require.NotEmpty(t, c.summary)
		for _, args := range [][]string{{"help", c.name}, {c.name, "--help"}, {c.name, "-h"}} {
			r := runIn(t, args...)
			require.Equal(t, exitOK, r.code)
			require.Empty(t, r.err)
			require.Contains(t, r.out, "usage: partlog "+c.name)
			require.Regexp(t, `(?m)^ +partlog `+c.name+`\b`, r.out, "an example")
			if c.args != "" {
				require.Contains(t, r.out, "  --config KEY=VALUE")
			}
		}
	}
}

func TestReadingWorksWhereNothingCanBeWritten(t *testing.T) {
	root := golden.Copy(t, "killed")
	require.NoError(t, filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(p, 0o555)
	}))
	t.Cleanup(func() {
		_ = os.Chmod(root, 0o755)
		_ = os.Chmod(filepath.Join(root, "killed-0"), 0o755)
	})
	require.Len(t, do(t, "cat", root), len(golden.MustRecords(t, "killed")))
	do(t, "tail", root, "-n", "1")
	do(t, "offset", root, "--max-timestamp")
}
