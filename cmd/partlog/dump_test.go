package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/partlog/partlog/internal/golden"
)

// called is what one call of the command left.
type called struct {
	code     int
	out, err string
}

// call runs the command as a shell would.
func call(args ...string) called {
	var out, err bytes.Buffer
	code := run(context.Background(), &env{in: strings.NewReader(""), out: &out, err: &err}, args)
	return called{code, out.String(), err.String()}
}

// goldenFolder is a copy of a case: its root and partition folder.
func goldenFolder(t *testing.T, name string) (root, dir string) {
	t.Helper()
	root = golden.Copy(t, name)
	dir, err := golden.PartitionDir(root)
	if err != nil {
		t.Fatal(err)
	}
	return root, dir
}

// goldenFiles are a folder's files with one of the extensions, in the order of the dumps.
func goldenFiles(t *testing.T, dir string, extensions ...string) (files []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if slices.Contains(extensions, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files
}

// toolDump is one of Kafka's recorded dumps.
type toolDump struct {
	lines    []string
	gaveUp   bool
	findings map[string][]string // lines by title
}

func parseToolDump(t *testing.T, name, file string) toolDump {
	t.Helper()
	b, err := golden.File(name, file)
	if err != nil {
		t.Fatal(err)
	}
	out, findings, _ := strings.Cut(string(b), "--- standard error ---\n")
	d := toolDump{lines: strings.Split(strings.TrimSuffix(out, "\n"), "\n")}
	if n := len(d.lines); d.lines[n-1] == "exit status 1" {
		d.lines, d.gaveUp = d.lines[:n-1], true
	}
	if !d.gaveUp {
		d.findings = groups(findings)
	}
	return d
}

func groups(text string) map[string][]string {
	g, title := map[string][]string{}, ""
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(line, "\n"); strings.HasPrefix(line, " ") || strings.HasPrefix(line, "Indexed") {
			g[title] = append(g[title], line)
		} else {
			title = line
			g[title] = nil
		}
	}
	return g
}

func TestDumpPrintsTheLinesOfKafkasTool(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, dir := goldenFolder(t, name)
			t.Run("log", func(t *testing.T) {
				args := []string{"dump", "--deep-iteration"}
				if name != "big-records" {
					args = append(args, "--print-data-log")
				}
				compareDump(t, parseToolDump(t, name, "dump.txt"), dir, call(append(args, goldenFiles(t, dir, ".log")...)...))
			})
			t.Run("index", func(t *testing.T) {
				files := goldenFiles(t, dir, ".index", ".timeindex", ".txnindex", ".snapshot")
				compareDump(t, parseToolDump(t, name, "index-dump.txt"), dir, call(append([]string{"dump"}, files...)...))
			})
		})
	}
}

// compareDump compares all lines, or, where Kafka's tool gave up, all that it printed before.
func compareDump(t *testing.T, want toolDump, dir string, got called) {
	t.Helper()
	strip := func(s string) string { return strings.ReplaceAll(s, dir+string(filepath.Separator), "") }
	lines := strings.Split(strings.TrimSuffix(strip(got.out), "\n"), "\n")
	if want.gaveUp {
		if len(lines) < len(want.lines) {
			t.Fatalf("%d lines, the tool has %d before it gives up", len(lines), len(want.lines))
		}
		lines = lines[:len(want.lines)]
	} else if got.code != exitOK {
		t.Errorf("exit code %d: %s", got.code, got.err)
	}
	for i := range min(len(lines), len(want.lines)) {
		if lines[i] != want.lines[i] {
			t.Fatalf("line %d\n got %s\nwant %s", i+1, lines[i], want.lines[i])
		}
	}
	if len(lines) != len(want.lines) {
		t.Fatalf("%d lines, want %d", len(lines), len(want.lines))
	}
	if !want.gaveUp && !maps.EqualFunc(groups(strip(got.err)), want.findings, slices.Equal) {
		t.Errorf("findings\n%s\nwant %v", strip(got.err), want.findings)
	}
}

func TestDumpOfUnreadableTailsEndsWithOneAndGoesOnWithTheNextFile(t *testing.T) {
	for _, name := range []string{"killed-zero-tail", "killed-bad-crc"} {
		_, dir := goldenFolder(t, name)
		log := filepath.Join(dir, "00000000000000000000.log")
		got := call("dump", "--deep-iteration", log, filepath.Join(dir, "leader-epoch-checkpoint"))
		if got.code != exitFound {
			t.Errorf("%s: exit code %d", name, got.code)
		}
		if !strings.Contains(got.err, "Unreadable: "+log) {
			t.Errorf("%s: %s", name, got.err)
		}
		if !strings.Contains(got.out, "epoch: 0 startOffset: 0\n") {
			t.Errorf("%s: the next file is missing:\n%s", name, got.out)
		}
	}
}

func TestDumpShowsABadChecksumAndGoesOn(t *testing.T) {
	_, dir := goldenFolder(t, "killed-bad-crc")
	got := call("dump", filepath.Join(dir, "00000000000000000000.log"))
	if got.code != exitOK || strings.Count(got.out, "isvalid: false") != 1 || strings.Contains(got.out, "| offset") {
		t.Errorf("code %d, output\n%s", got.code, got.out)
	}
}

// jsonLines parses the JSON form.
func jsonLines(t *testing.T, text string) (objects []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		var v map[string]any
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		objects = append(objects, v)
	}
	return objects
}

func TestDumpAsJSONSaysTheSameWithKafkasNames(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, dir := goldenFolder(t, name)
			files := goldenFiles(t, dir, ".log", ".index", ".timeindex", ".txnindex", ".snapshot")
			text, objects := call(append([]string{"dump", "--deep-iteration"}, files...)...), call(append([]string{"dump", "--json"}, files...)...)
			if text.code != objects.code || objects.err != "" {
				t.Fatalf("codes %d and %d, standard error %q", text.code, objects.code, objects.err)
			}
			kinds := map[string]int{}
			rebuilt := map[string]int{}
			for _, v := range jsonLines(t, objects.out) {
				kinds[v["kind"].(string)]++
				if v["kind"] == "entry" && v["position"] != nil {
					rebuilt["offset: "+v["offset"].(json.Number).String()+" position: "+v["position"].(json.Number).String()]++
				}
			}
			if got, want := kinds["record"], strings.Count(text.out, "\n| "); got != want {
				t.Errorf("%d records, want %d", got, want)
			}
			if got, want := kinds["batch"], strings.Count(text.out, "isvalid: "); got != want {
				t.Errorf("%d batches, want %d", got, want)
			}
			for line := range rebuilt {
				if !strings.Contains(text.out, line+"\n") {
					t.Errorf("no line %q in the text", line)
				}
			}
		})
	}
}

func TestDumpAsJSONSpellsAbsentAsNullAndBytesAsBase64(t *testing.T) {
	_, dir := goldenFolder(t, "headers-nulls")
	objects := jsonLines(t, call("dump", "--json", filepath.Join(dir, "00000000000000000000.log")).out)
	if b := objects[0]; b["kind"] != "batch" || b["deleteHorizonMs"] != nil || b["isvalid"] != true || b["timestampType"] != "CreateTime" || b["compresscodec"] != "none" {
		t.Errorf("batch %v", b)
	}
	for i, want := range []struct{ key, payload any }{{nil, nil}, {nil, "dg=="}, {"aw==", nil}, {"", ""}, {"", nil}, {nil, ""}} {
		if r := objects[i+1]; r["kind"] != "record" || r["key"] != want.key || r["payload"] != want.payload {
			t.Errorf("record %d: %v", i, r)
		}
	}
}

func TestDumpReadsTheSmallFiles(t *testing.T) {
	root, dir := goldenFolder(t, "epochs")
	for file, want := range map[string]string{
		filepath.Join(dir, "leader-epoch-checkpoint"):           "epoch: ",
		filepath.Join(dir, "partition.metadata"):                "topicId: ",
		filepath.Join(root, "recovery-point-offset-checkpoint"): "topic: epochs partition: 0 offset: ",
		filepath.Join(root, "replication-offset-checkpoint"):    "topic: epochs partition: 0 offset: ",
		filepath.Join(root, "log-start-offset-checkpoint"):      "",
		filepath.Join(root, "cleaner-offset-checkpoint"):        "",
		filepath.Join(root, "meta.properties"):                  "node.id: ",
		filepath.Join(root, ".kafka_cleanshutdown"):             "brokerEpoch: OptionalLong[",
	} {
		got := call("dump", file)
		if got.code != exitOK || !strings.HasPrefix(got.out, "Dumping "+file+"\n") || !strings.Contains(got.out, want) {
			t.Errorf("%s: code %d\n%s%s", file, got.code, got.out, got.err)
		}
	}
}

func TestDumpFindsWhatAnIndexSaysWrong(t *testing.T) {
	_, dir := goldenFolder(t, "killed")
	index, times := filepath.Join(dir, "00000000000000000000.index"), filepath.Join(dir, "00000000000000000000.timeindex")
	patch := func(file string, at int, b byte) {
		t.Helper()
		content, err := os.ReadFile(file)
		if err == nil {
			content[at] ^= b
			err = os.WriteFile(file, content, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	patch(index, 3, 1)
	got := call("dump", "--verify-index-only", index)
	if got.code != exitOK || got.out != "Dumping "+index+"\n" || !strings.Contains(got.err, "Mismatches in :"+index+"\n  Index offset: 15, log offset: 14\n") {
		t.Errorf("code %d\n%s%s", got.code, got.out, got.err)
	}
	patch(index, 3, 1)
	patch(times, 7, 1)
	if got := call("dump", times); !strings.Contains(got.err, "Found timestamp mismatch in :"+times+"\n  Index timestamp: ") {
		t.Errorf("%s", got.err)
	}
	patch(index, 4, 0x7f)
	if got := call("dump", index); got.code != exitFound || !strings.Contains(got.err, "but the log has") {
		t.Errorf("code %d: %s", got.code, got.err)
	}
	if got := call("dump", "--index-sanity-check", index); got.code != exitOK || !strings.Contains(got.out, "passed sanity check.") {
		t.Errorf("code %d: %s", got.code, got.out)
	}
}

func TestDumpIgnoresForeignFilesAndStopsAtMaxBytes(t *testing.T) {
	_, dir := goldenFolder(t, "codec-mixed")
	log := filepath.Join(dir, "00000000000000000000.log")
	if got := call("dump", "--max-bytes", "1", log); got.code != exitOK || strings.Contains(got.out, "baseOffset") {
		t.Errorf("code %d\n%s", got.code, got.out)
	}
	notes := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(notes, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := call("dump", notes); got.code != exitOK || !strings.Contains(got.err, "Ignoring unknown file") {
		t.Errorf("code %d\n%s", got.code, got.err)
	}
	if got := call("dump", filepath.Join(dir, "00000000000000099999.log")); got.code != exitFound {
		t.Errorf("code %d\n%s", got.code, got.err)
	}
	if got := call("dump"); got.code != exitFailed {
		t.Errorf("code %d\n%s", got.code, got.err)
	}
	renamed := log + ".deleted"
	if err := os.Rename(log, renamed); err != nil {
		t.Fatal(err)
	}
	if got := call("dump", renamed); got.code != exitOK || !strings.Contains(got.out, "Log starting offset: 0\nbaseOffset: 0 ") {
		t.Errorf("code %d\n%.200s%s", got.code, got.out, got.err)
	}
}
