package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file of any kind that is torn, garbage or far too long is damage: the good entries are printed, standard error names the
// file, the place and the reason, the exit code is 1, and the next file follows. An empty one is what a broker takes it for.
func TestDumpOfADamagedFileOfAnyKindPrintsWhatIsGoodAndSaysWhere(t *testing.T) {
	keep := func(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:n] } }
	less := func(b []byte) []byte { return b[:len(b)-3] }
	add := func(text string) func([]byte) []byte {
		return func(b []byte) []byte { return append(bytes.Clone(b), text...) }
	}
	text := func(text string) func([]byte) []byte { return func([]byte) []byte { return []byte(text) } }
	garbage := text(strings.Repeat("\x7f\xee\x81 garbage\n", 40))
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b = bytes.Clone(b); b[at] ^= 0x40; return b }
	}
	const huge = 3 << 30
	const log, index, times, aborted, snapshot = "00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex",
		"00000000000000000000.txnindex", "*.snapshot"
	for _, row := range []struct {
		file, damage string
		do           func([]byte) []byte // nil: huge
		good         string              // of standard output
		want         string              // of standard error; "" none
	}{
		{index, "torn", add("abc"), "offset: ", "3 bytes at the end, and an entry has 8"},
		{index, "less than an entry", keep(5), "", "byte 0: 5 bytes at the end"},
		{index, "garbage", garbage, "", "but the log has"},
		{index, "empty", keep(0), "is empty.", ""},
		{index, "huge", nil, "", "more than an index can have"},
		{times, "torn", less, "timestamp: ", "9 bytes at the end, and an entry has 12"},
		{times, "empty", keep(0), "", ""},
		{times, "huge", nil, "", "more than an index can have"},
		{aborted, "torn", less, "version: 0 producerId: ", "31 bytes at the end, and an entry has 34"},
		{aborted, "less than an entry", keep(33), "", "byte 0: 33 bytes at the end"},
		{aborted, "garbage", garbage, "", "byte 0: version 32750 is not known"},
		{aborted, "an entry twice", func(b []byte) []byte { return append(bytes.Clone(b[:34]), b[:34]...) }, "version: 0 producerId: ", "byte 34: ends at offset "},
		{aborted, "an end before its begin", flip(11), "version: 0 producerId: ", "byte 0: begins at offset "},
		{aborted, "empty", keep(0), "", ""},
		{aborted, "huge", nil, "", "more than an index can have"},
		{snapshot, "torn", less, "", "byte 2: CRC is "},
		{snapshot, "a bit", flip(20), "", "byte 2: CRC is "},
		{snapshot, "garbage", garbage, "", "byte 0: version 32750 is not known"},
		{snapshot, "empty", keep(0), "", "byte 0: 0 bytes are too short for a header"},
		{snapshot, "huge", nil, "", "longer than 268435456 bytes"},
		{"leader-epoch-checkpoint", "torn", text("0\n3\n0 0\n4 10\n"), "epoch: 4 startOffset: 10\n", "line 2: 3 entries announced, 2 found"},
		{"leader-epoch-checkpoint", "torn in a line", text("0\n2\n0 0\n4"), "epoch: 0 startOffset: 0\n", `line 4: "4" does not have 2 fields`},
		{"leader-epoch-checkpoint", "garbage", garbage, "", "is not a version number"},
		{"leader-epoch-checkpoint", "empty", keep(0), "", ""},
		{"leader-epoch-checkpoint", "huge", nil, "", "file longer than allowed"},
		{"partition.metadata", "torn", less, "", "is not a topic id"},
		{"partition.metadata", "garbage", garbage, "", "line 1: "},
		{"partition.metadata", "empty", keep(0), "", `line 1: not "version: <number>"`},
		{"partition.metadata", "huge", nil, "", "file longer than allowed"},
		{"../recovery-point-offset-checkpoint", "torn", text("0\n2\nt 0 5\nt 1"), "topic: t partition: 0 offset: 5\n", `line 4: "t 1" does not have 3 fields`},
		{"../replication-offset-checkpoint", "too few", text("0\n2\nt 0 5\n"), "topic: t partition: 0 offset: 5\n", "line 2: 2 entries announced, 1 found"},
		{"../log-start-offset-checkpoint", "garbage", garbage, "", "is not a version number"},
		{"../cleaner-offset-checkpoint", "empty", keep(0), "", ""},
		{"../recovery-point-offset-checkpoint", "huge", nil, "", "file longer than allowed"},
		{"../.kafka_cleanshutdown", "torn", less, "", "byte 0: not JSON"},
		{"../.kafka_cleanshutdown", "garbage", garbage, "", "byte 0: not JSON"},
		{"../.kafka_cleanshutdown", "empty", keep(0), "brokerEpoch: OptionalLong.empty", ""},
		{"../.kafka_cleanshutdown", "huge", nil, "", "file longer than allowed"},
		{"../meta.properties", "torn", text("version=1\nnode.id=1\n"), "", "cluster.id is missing"},
		{"../meta.properties", "garbage", text("version=\xff\n"), "", "is not known"},
		{"../meta.properties", "huge", nil, "", "file longer than allowed"},
		{log, "huge", nil, "Log starting offset: 0\n", "byte 0: size 0 is below the smallest batch's, 14"},
	} {
		t.Run(filepath.Base(row.file)+" "+row.damage, func(t *testing.T) {
			t.Parallel()
			_, dir := goldenFolder(t, "txn-commit-abort")
			names, err := filepath.Glob(filepath.Join(dir, row.file))
			require.NoError(t, err)
			require.NotEmpty(t, names)
			name := names[0]
			if row.do == nil {
				require.NoError(t, os.WriteFile(name, nil, 0o644))
				require.NoError(t, os.Truncate(name, huge)) // sparse
			} else {
				b, err := os.ReadFile(name)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(name, row.do(b), 0o644))
			}
			next := filepath.Join(dir, "next", "leader-epoch-checkpoint")
			require.NoError(t, os.Mkdir(filepath.Dir(next), 0o755))
			require.NoError(t, os.WriteFile(next, []byte("0\n1\n77 7\n"), 0o644))
			got := runIn(t, "dump", name, next)
			require.Contains(t, got.out, row.good)
			require.Contains(t, got.out, "epoch: 77 startOffset: 7\n", "the next file")
			asJSON := runIn(t, "dump", "--json", name, next)
			require.Equal(t, got.code, asJSON.code)
			if row.want == "" {
				require.Equal(t, exitOK, got.code, got.err)
				require.Empty(t, got.err)
				require.NotContains(t, asJSON.out, `"finding"`)
				return
			}
			require.Equal(t, exitFound, got.code, got.err)
			require.Contains(t, got.err, row.want)
			require.Contains(t, got.err, "Unreadable: "+name+"\n")
			require.Contains(t, asJSON.out, `"finding":"unreadable"`)
		})
	}
}

// What Kafka's tool calls a finding stays one: entries that fit no batch, and bytes at the end of a log that are no batch, as
// every kill leaves them.
func TestDumpOfGarbageThatKafkasToolReadsSaysWhatTheToolSays(t *testing.T) {
	_, dir := goldenFolder(t, "txn-commit-abort")
	garbage := []byte(strings.Repeat("\x7f\xee\x81 garbage\n", 12))
	times, log := filepath.Join(dir, "00000000000000000000.timeindex"), filepath.Join(dir, "00000000000000000000.log")
	require.NoError(t, os.WriteFile(times, garbage, 0o644))
	got := runIn(t, "dump", times)
	require.Equal(t, exitOK, got.code)
	require.Contains(t, got.err, "The following indexed offsets are not found in :"+times+"\n")
	require.NoError(t, os.WriteFile(log, garbage, 0o644))
	got = runIn(t, "dump", log)
	require.Equal(t, exitOK, got.code)
	require.Contains(t, got.out, "Found 144 invalid bytes at the end of 00000000000000000000.log\n")
}
