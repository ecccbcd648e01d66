package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
)

func TestCatReadCommittedPrintsWhatKafkasConsumerGot(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			dir, err := golden.PartitionDir(golden.Copy(t, name))
			require.NoError(t, err)
			want, err := golden.Committed(name)
			require.NoError(t, err)
			file := "committed.jsonl"
			if golden.About(t, name).Consumer[file].SameAs != "" {
				file = golden.About(t, name).Consumer[file].SameAs
			}
			text, err := golden.File(name, file)
			require.NoError(t, err)
			lines := outcome{out: string(text)}.lines()
			got := do(t, "cat", dir, "--digest-over", "4096", "--isolation", "read_committed")
			require.Len(t, got, len(want))
			for i := range lines {
				require.JSONEq(t, lines[i], got[i])
			}
		})
	}
}

func TestAppendOfAProducerRepeatsNothingAndEndsItsTransaction(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t-0")
	in := strings.Repeat(`{"value":"cg=="}`+"\n", 4) // of now: old producers are forgotten by an open
	first := feed(t, dir, in, "--producer", "7:0:0", "--batch", "2")
	require.Equal(t, exitOK, first.code, first.err)
	require.Equal(t, []string{"0", "2"}, first.lines())
	again := feed(t, dir, in, "--producer", "7:0:2", "--batch", "2", "--json")
	require.Equal(t, exitOK, again.code, again.err)
	require.Equal(t, "{\"baseOffset\":2,\"lastOffset\":3,\"records\":2}", again.lines()[0])
	gap := feed(t, dir, in, "--producer", "7:0:99")
	require.Equal(t, exitFailed, gap.code)
	require.Contains(t, gap.err, "sequence")
	require.Equal(t, exitOK, feed(t, dir, in, "--txn", "8:0", "--end", "open").code)
	end := len(do(t, "cat", dir))
	committed := do(t, "cat", dir, "--isolation", "read_committed")
	require.Len(t, committed, end-4)
	open := do(t, "transactions", dir, "--json")
	require.Len(t, open, 1)
	require.Contains(t, open[0], `"producerId":8,"epoch":0,"firstOffset":6`)
	require.Contains(t, strings.Join(do(t, "transactions", dir), "\n"), "8         0      6")
	require.Contains(t, strings.Join(do(t, "info", dir), "\n"), "last stable offset  6: read-committed readers wait")
	aborted := feed(t, dir, "", "--txn", "8:0", "--end", "abort", "--coordinator-epoch", "3", "--txn-version", "2")
	require.Equal(t, exitOK, aborted.code, aborted.err)
	require.Contains(t, aborted.err, "aborted")
	require.Empty(t, do(t, "transactions", dir, "--json"))
	none := feed(t, dir, "", "--txn", "88:0", "--end", "abort")
	require.Equal(t, exitOK, none.code)
	require.Equal(t, "note: producer 88 has no open transaction; there is nothing to abort\n", none.err)
	require.Equal(t, exitOK, feed(t, dir, in, "--txn", "8:1").code)
	require.Len(t, do(t, "cat", dir, "--isolation", "read_committed"), end)
	info := do(t, "info", dir, "--json")
	require.Contains(t, info[0], `"abortedTransactions":[{"producerId":8,"firstOffset":6,`)
	require.Contains(t, strings.Join(do(t, "producers", dir), "\n"), "producer  epoch")
	producers := do(t, "producers", dir, "--json")
	require.Len(t, producers, 2)
	require.Contains(t, producers[1], `"producerId":8,"epoch":1`)
	require.Contains(t, strings.Join(do(t, "epochs", dir), "\n"), "0      0")
	require.NotContains(t, strings.Join(do(t, "info", dir), "\n"), "last stable offset")
	require.Equal(t, exitOK, feed(t, dir, in, "--txn", "9:0", "--coordinator-epoch", "4").code)
	left := feed(t, dir, in, "--txn", "9:0", "--coordinator-epoch", "3")
	require.Equal(t, exitFailed, left.code)
	require.Contains(t, left.err, "partlog transactions")
	for _, bad := range []string{"--producer 1", "--producer -1:0", "--producer 1:40000", "--txn 1:0:x", "--producer 1:0 --txn 1:0", "--end maybe", "--txn-version 3", "--coordinator-epoch -1",
		"--end abort", "--producer 1:0 --end commit", "--txn-version 1", "--coordinator-epoch 1"} {
		require.Equal(t, exitFailed, feed(t, dir, in, strings.Fields(bad)...).code, bad)
	}
}

func TestEpochsAreListed(t *testing.T) {
	dir, err := golden.PartitionDir(golden.Copy(t, "epochs"))
	require.NoError(t, err)
	var want []string
	for _, e := range golden.About(t, "epochs").AsOpened.LeaderEpochs {
		want = append(want, fmt.Sprintf(`{"epoch":%d,"startOffset":%d}`, e.Epoch, e.StartOffset))
	}
	require.Equal(t, want, do(t, "epochs", dir, "--json"))
}
