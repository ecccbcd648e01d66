package interop

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
)

const digestOver = 4096

// goldenRecords is the case's records.jsonl (or committed.jsonl where it differs).
func goldenRecords(t *testing.T, name, file string) []Record {
	t.Helper()
	b, err := golden.File(name, file)
	if err != nil && file == "committed.jsonl" {
		b, err = golden.File(name, "records.jsonl")
	}
	require.NoError(t, err)
	var out []Record
	dec := json.NewDecoder(bytes.NewReader(b))
	for dec.More() {
		var r Record
		require.NoError(t, dec.Decode(&r))
		out = append(out, r)
	}
	return out
}

// sameRecords compares without printing thousands of lines.
func sameRecords(t *testing.T, want, got []Record) {
	t.Helper()
	for i := range min(len(want), len(got)) {
		require.Equal(t, want[i], got[i], "record %d of %d", i, len(want))
	}
	require.Len(t, got, len(want))
}

func TestDriverOpensEveryGoldenFolderAsRecorded(t *testing.T) {
	_, d := kafka(t)
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			about := golden.About(t, name)
			l, err := d.Open(OpenOptions{Root: golden.Copy(t, name), Topic: about.Topic, Partition: about.Partition,
				Config: about.TopicConfig, NowMs: about.OpenedAtMs})
			require.NoError(t, err)
			defer l.Abandon()

			got, want := l.Opened.Opened, about.AsOpened
			for i := range got.Segments { // a segment without timestamps answers with the file's time, which a copy does not keep
				if name == "empty" || name == "no-timestamps" {
					want.Segments[i].LargestTimestamp = got.Segments[i].LargestTimestamp
				}
			}
			require.Equal(t, want, got)

			rs, err := l.Records(digestOver)
			require.NoError(t, err)
			sameRecords(t, goldenRecords(t, name, "records.jsonl"), rs)
			require.NoError(t, l.Close())
		})
	}
}

func TestDumpToolPrintsTheGoldenDumps(t *testing.T) {
	_, d := kafka(t)
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			dir, err := golden.PartitionDir(golden.Copy(t, name))
			require.NoError(t, err)
			for file, exts := range map[string][]string{"dump.txt": {".log"}, "index-dump.txt": {".index", ".timeindex", ".txnindex", ".snapshot"}} {
				b, err := golden.File(name, file)
				require.NoError(t, err)
				wantOut, wantErr, _ := strings.Cut(string(b), "--- standard error ---\n")
				flags := []string{"--deep-iteration"}
				if strings.Contains(wantOut, " payload: ") {
					flags = []string{"--deep-iteration", "--print-data-log"}
				}
				got, err := d.Dump(partitionFiles(t, dir, exts...), flags...)
				require.NoError(t, err)
				out := strings.ReplaceAll(got.Stdout, dir+"/", "")
				if got.Exit != 0 {
					out += "exit status 1\n"
				}
				require.Equal(t, sections(wantOut), sections(out), file)
				require.Equal(t, findings(wantErr), findings(strings.ReplaceAll(got.Stderr, dir+"/", "")), file)
			}
		})
	}
}

// partitionFiles are the files of dir that end in one of exts, by name.
func partitionFiles(t *testing.T, dir string, exts ...string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var out []string
	for _, e := range entries {
		for _, ext := range exts {
			if filepath.Ext(e.Name()) == ext {
				out = append(out, filepath.Join(dir, e.Name()))
			}
		}
	}
	return out
}

// sections splits a dump by file, since the order of files is the caller's.
func sections(dump string) []string {
	parts := strings.Split(dump, "Dumping ")
	for i, p := range parts {
		parts[i] = strings.TrimSpace(p)
	}
	sort.Strings(parts)
	return parts
}

// findings are the lines of standard error without stack frames, in no particular order, as the tool prints them.
func findings(stderr string) []string {
	var out []string
	for line := range strings.Lines(stderr) {
		line = strings.TrimRight(line, "\n")
		if line != "" && !strings.HasPrefix(line, "\tat ") && !strings.HasPrefix(line, "\t...") {
			out = append(out, line)
		}
	}
	sort.Strings(out)
	return out
}
