package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

func TestTailPrintsTheLastRecordsWhateverGapsAndMarkersLieBetween(t *testing.T) {
	for _, name := range golden.Cases() {
		root := golden.Copy(t, name)
		all := do(t, "cat", root, "--digest-over", "4096")
		for _, n := range []int{0, 1, 2, 10, 100000} {
			got := do(t, "tail", root, "-n", fmt.Sprint(n), "--digest-over", "4096")
			require.Equal(t, strings.Join(all[max(0, len(all)-n):], "\n"), strings.Join(got, "\n"), "%s -n %d", name, n)
		}
	}
	require.Len(t, do(t, "tail", golden.Copy(t, "codec-mixed")), 10)
}

func TestTailFollowsAWriterThroughRollsCutsAndDeletions(t *testing.T) {
	root := t.TempDir()
	d, err := log.OpenDir(root, log.DirConfig{})
	require.NoError(t, err)
	defer d.Close()
	l, err := d.Open(t.Context(), log.TopicPartition{Topic: "t"}, log.Config{SegmentBytes: 300})
	require.NoError(t, err)
	put := func(from, to int) {
		for i := from; i < to; i++ {
			_, err := l.Append(t.Context(), record.Record{Value: []byte(fmt.Sprint(i))})
			require.NoError(t, err)
		}
	}
	put(0, 5)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, errs syncBuffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, &env{out: &out, err: &errs}, []string{"tail", "-f", root, "-n", "2"})
	}()
	sees := func(want ...string) {
		t.Helper()
		require.Eventually(t, func() bool {
			text := out.String()
			return strings.HasSuffix(text, "\n") && strings.Join(offsetsOf(t, outcome{out: text}.lines()), " ") == strings.Join(want, " ")
		}, 10*time.Second, 5*time.Millisecond, "%s", &out)
	}
	sees("3", "4")
	put(5, 12)
	sees("3", "4", "5", "6", "7", "8", "9", "10", "11")
	_, err = l.Truncate(t.Context(), 8)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(errs.String(), "the log was cut back to 8; going on there") }, 10*time.Second, 5*time.Millisecond)
	put(8, 9)
	sees("3", "4", "5", "6", "7", "8", "9", "10", "11", "8")
	require.NoError(t, l.ResetTo(t.Context(), 50))
	require.Eventually(t, func() bool { return strings.Contains(errs.String(), "the log now starts at 50; going on there") }, 10*time.Second, 5*time.Millisecond, "%s", &errs)
	put(50, 51)
	sees("3", "4", "5", "6", "7", "8", "9", "10", "11", "8", "50")
	stop()
	require.Equal(t, exitInterrupted, <-ended)
	require.NotContains(t, errs.String(), "interrupted", "leaving tail -f is nothing to report")
}

func TestOffsetAnswersAsKafkaDoes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t-0")
	require.Equal(t, exitOK, feed(t, dir, numbered(20), "--batch", "4").code)
	require.Equal(t, exitOK, feed(t, dir, `{"timestamp":5}`, "--leader-epoch", "3").code)
	require.Equal(t, exitOK, runIn(t, "delete-records", dir, "2").code)
	for _, c := range []struct{ flags, want string }{
		{"--time 1700000000007", "7\t1700000000007\t0"},
		{"--time 2023-11-14T22:13:20.007Z", "7\t1700000000007\t0"},
		{"--time 0", "2\t1700000000002\t0"},
		{"--earliest", "2\t-1\t0"},
		{"--time -2", "2\t-1\t0"},
		{"--latest", "21\t-1\t3"},
		{"--time -1", "21\t-1\t3"},
		{"--max-timestamp", "19\t1700000000019\t0"},
		{"--time -3", "19\t1700000000019\t0"},
		{"--latest --json", `{"offset":21,"timestamp":-1,"leaderEpoch":3}`},
		{"--time 1700000000007 --json", `{"offset":7,"timestamp":1700000000007,"leaderEpoch":0}`},
	} {
		require.Equal(t, []string{c.want}, do(t, append([]string{"offset", dir}, strings.Fields(c.flags)...)...), c.flags)
	}
	require.Equal(t, []string{"291\t-1\t0"}, do(t, "offset", golden.Copy(t, "codec-mixed"), "--latest"), "epoch 4 has no records")
	r := runIn(t, "offset", dir, "--time", "1700000000020")
	require.Equal(t, exitFound, r.code)
	require.Empty(t, r.out)
	require.Equal(t, "partlog offset: no record has a timestamp at or after 1700000000020 (2023-11-14T22:13:20.02Z)\n", r.err)
	empty := golden.Copy(t, "empty")
	require.Equal(t, exitFound, runIn(t, "offset", empty, "--max-timestamp").code)
	require.Equal(t, "0\t-1\t", do(t, "offset", empty, "--earliest")[0][:5])
}
