package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// goneReader is a standard output whose reader has gone.
type goneReader struct{}

func (goneReader) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}
}

func TestAReaderOfTheOutputThatGoesAwayIsNoFailure(t *testing.T) {
	root, dir := goldenFolder(t, "codec-gzip")
	log := filepath.Join(dir, "00000000000000000000.log")
	for _, args := range [][]string{
		{"cat", root}, {"tail", root}, {"offset", root, "--latest"}, {"info", root}, {"info", root, "--json"}, {"info", dir}, {"dump", log},
		{"dump", "--json", log}, {"verify", root}, {"repair", root}, {"append", root}, {"roll", root}, {"delete-records", root, "5"}, {"truncate", root, "9999"}, {"version"},
	} {
		var errs bytes.Buffer
		code := run(context.Background(), &env{in: strings.NewReader("{}\n"), out: goneReader{}, err: &errs}, args)
		require.Equal(t, exitOK, code, "%v: %s", args, errs.String())
		require.Empty(t, errs.String(), "%v", args)
	}
}

func TestVersionNamesTheModulesVersionOrTheCommit(t *testing.T) {
	lines := do(t, "version")
	require.Len(t, lines, 1)
	require.Regexp(t, `^partlog \S.* go1\.\S+ \w+/\w+$`, lines[0])
	require.Contains(t, runIn(t, "help").out, "  version ")
	released := &debug.BuildInfo{Main: debug.Module{Version: "v0.3.1"}}
	require.Equal(t, "v0.3.1", versionOf(released))
	checkout := &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"}}}
	require.Equal(t, "(devel) 0123456789ab, changed since", versionOf(checkout))
	require.Equal(t, "(unknown)", versionOf(nil))
}

func TestADateAloneIsItsMidnight(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "orders-0")
	midnight := `{"timestamp":1769817600000,"value":"eA=="}` // 2026-01-31
	before := `{"timestamp":1769817599999,"value":"eA=="}`
	require.Equal(t, exitOK, feed(t, dir, before+"\n"+midnight+"\n").code)
	require.Len(t, do(t, "cat", dir, "--since", "2026-01-31"), 1)
	require.Len(t, do(t, "cat", dir, "--until", "2026-01-31"), 1)
	require.Equal(t, []string{"1\t1769817600000\t0"}, do(t, "offset", dir, "--time", "2026-01-31"))
	require.Contains(t, runIn(t, "cat", dir, "--since", "31.1.2026").err, "or a date as 2026-01-31")
}

func TestCatFromBehindTheEndSaysSo(t *testing.T) {
	root, _ := goldenFolder(t, "codec-gzip")
	got := runIn(t, "cat", root, "--from", "283")
	require.Equal(t, outcome{exitOK, "", "note: there is no offset 283: the log holds offsets 0 to 281\n"}, got)
	require.Equal(t, outcome{}, runIn(t, "cat", root, "--from", "282"), "the end itself is where the next record will be")
	empty, _ := goldenFolder(t, "empty")
	require.Contains(t, runIn(t, "cat", empty, "--from", "7").err, "the log is empty, its next offset is 0")
}

func TestAppendRefusesALineThatIsNull(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "orders-0")
	got := feed(t, dir, "{\"value\":\"eA==\"}\n null \n")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.err, "line 2: it is a JSON null, not an object")
	require.Len(t, do(t, "cat", dir), 1)
}

func TestDumpOfWhatIsNoneOfKafkasFilesAndOfWhatCannotBeRead(t *testing.T) {
	_, dir := goldenFolder(t, "codec-gzip")
	unknown := filepath.Join(dir, "notes.txt")
	require.NoError(t, os.WriteFile(unknown, []byte("x"), 0o644))
	require.Equal(t, outcome{exitOK, "", "Ignoring unknown file " + unknown + "\n"}, runIn(t, "dump", unknown))
	for _, name := range []string{"absent.txt", "00000000000000000999.log", ""} {
		got := runIn(t, "dump", filepath.Join(dir, name))
		require.Equal(t, exitFound, got.code, name)
		require.Contains(t, got.err, "Unreadable: ", name)
	}
	require.Contains(t, runIn(t, "dump", dir).err, "it is a directory; name files in it")
	require.Contains(t, runIn(t, "help", "dump").out, "of a kind that is none of Kafka's: it is passed over.")
}

func TestAnErrorIsASentenceWithoutPackagesAndSaysNothingTwice(t *testing.T) {
	for _, c := range [][2]string{
		{"log: invalid record: record: invalid record: record 0: timestamp -5", "invalid record: record 0: timestamp -5"},
		{"log: t-0/0.log is damaged at byte 5 (offset 2): record: crc: wrong", "t-0/0.log is damaged at byte 5 (offset 2): crc: wrong"},
		{"open /a/b: mkdir /a/b: permission denied", "mkdir /a/b: permission denied"},
		{"/a/b: open /a/b: no such file or directory", "open /a/b: no such file or directory"},
		{"log: closed\nlog: closed again", "closed; closed again"},
		{"open /a/b: no such file", "open /a/b: no such file"},
	} {
		require.Equal(t, c[1], sentence(errors.New(c[0])))
	}
}

func TestAWrongFlagIsNamedAsItIsTyped(t *testing.T) {
	for args, want := range map[string]string{
		"cat x --form 5":            "there is no flag --form\n",
		"tail x -z":                 "there is no flag -z\n",
		"cat x --from":              "--from needs a value\n",
		"tail x -n":                 "-n needs a value\n",
		"tail x -n many":            "invalid value \"many\" for flag -n: want a whole number\n",
		"append x --batch 1.5":      "invalid value \"1.5\" for flag --batch: want a whole number\n",
		"info x --json=perhaps":     "invalid value \"perhaps\" for flag --json: want true or false\n",
		"cat x --from -1":           "invalid value \"-1\" for flag --from: a negative offset\n",
		"append x --producer -7:0":  "invalid value \"-7:0\" for flag --producer: want ID:EPOCH or ID:EPOCH:SEQ, none of them negative",
		"append x --txn 7:0 --end":  "--end needs a value\n",
		"append x --config segment": "invalid value \"segment\" for flag --config: want KEY=VALUE\n",
	} {
		got := runIn(t, strings.Fields(args)...)
		require.Equal(t, exitFailed, got.code, args)
		require.Contains(t, got.err, want, args)
	}
}

func TestVersionIsAlsoAskedForAsAFlag(t *testing.T) {
	require.Equal(t, do(t, "version"), do(t, "--version"))
	require.Equal(t, do(t, "version"), do(t, "-version"))
}
