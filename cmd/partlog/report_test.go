package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/retention"
)

// pageOf writes a report and gives its text.
func pageOf(t testing.TB, want int, args ...string) string {
	t.Helper()
	r := runIn(t, append([]string{"report", "-o", "-"}, args...)...)
	require.Equal(t, want, r.code, r.err)
	require.Empty(t, r.err)
	return r.out
}

var rectangles = regexp.MustCompile(`<rect x="[\d.]+" y="[\d.]+" width="[\d.]+" height="[\d.]+" class="[a-z0-9 ]+"><title>[^<]+</title></rect>`)

func TestAReportIsOnePageThatLoadsNothing(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, dir := goldenFolder(t, name)
			before := treeOf(t, root)
			want := call("verify", root).code
			for _, arg := range []string{root, dir} {
				text := pageOf(t, want, arg)
				for _, no := range []string{"http:", "https:", "src=", "url(", "<script", "<link", "@import", "ZgotmplZ", "NaN", "Inf", "%!", `width="0.00"`} {
					require.NotContains(t, text, no)
				}
				require.Contains(t, text, filepath.Base(dir))
				require.Contains(t, text, "prefers-color-scheme: dark")
				require.Equal(t, strings.Count(text, "<svg "), strings.Count(text, `<svg role="img" aria-label="`))
				require.Equal(t, strings.Count(text, "<rect"), len(rectangles.FindAllString(text, -1)), "every shape is inside and has a tooltip")
				require.Equal(t, want == exitFound, strings.Contains(text, "<h3>Damage</h3>") || strings.Contains(text, "<h3>The root</h3>"))
				for _, tag := range []string{"svg", "section", "table", "div", "details", "ul", "figure", "rect"} {
					require.Equal(t, strings.Count(text, "<"+tag+" ")+strings.Count(text, "<"+tag+">"), strings.Count(text, "</"+tag+">"), tag)
				}
			}
			require.True(t, maps.Equal(before, treeOf(t, root)), "the folder changed")
		})
	}
}

func TestAReportShowsWhatRetentionWouldDrop(t *testing.T) {
	root := threeSegments(t)
	text := pageOf(t, exitOK, root, "--now=2023-11-15T00:00:00Z", "--config", "retention.bytes=176", "--config", oneDay)
	require.Contains(t, text, "1 segment would go now, 88 B; the log would then start at offset 3. The next segment stays: not due;")
	require.Contains(t, text, `class="drop"><title>retention would drop this: size</title>`)
	require.Contains(t, text, "retention.bytes: from here to the right are 176 B")
	require.Contains(t, text, "retention would make 3 the log start")
	require.Contains(t, text, "offsets 0 to 2: 88 B, sealed, 2023-11-14 22:13:20.000 to 2023-11-14 22:13:20.002, retention would drop it: size")
	text = pageOf(t, exitOK, root, aDayOn, "--config", oneDay)
	require.Contains(t, text, "lies behind the last record: all is too old.")
	require.Contains(t, text, "an empty one is left.")
}

func TestAReportShowsCleanAndDirtyAndGaps(t *testing.T) {
	root, dir := compactable(t, "a=1 b=1 a=2 a=3")
	do(t, "clean", dir)
	feed(t, dir, keyed("a=4", "b=2"))
	do(t, "roll", dir)
	text := pageOf(t, exitOK, root)
	for _, want := range []string{`class="seg clean"`, `class="seg dirty"`, `class="seg active"`, "<b>D</b> dirty from 4 on", "<b>U</b> not cleanable from 6 on: active segment",
		"the root has a cleaner checkpoint for it", "2 of 6 offsets have no record (33 %)", "<td>offset 0</td>", `class="hole hole3"`, "Not due (min.cleanable.dirty.ratio)"} {
		require.Contains(t, text, want)
	}
	text = pageOf(t, exitOK, root, "--config", "cleanup.policy=delete")
	require.NotContains(t, text, `class="seg clean"`)
	require.Contains(t, text, "as given")
}

func TestAReportMarksOpenTransactions(t *testing.T) {
	root, _ := goldenFolder(t, "txn-open")
	text := pageOf(t, exitOK, root)
	require.Contains(t, text, "<b>T</b> transaction of producer 7 open since 6")
	require.Contains(t, text, "<b>L</b> last stable offset 6")
	require.Contains(t, text, "<h3>Open transactions</h3>")
}

func TestDamageIsRedAndToldWithItsPlace(t *testing.T) {
	root := threeSegments(t)
	file := filepath.Join(root, "t-0", "00000000000000000003.log")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	raw[70] ^= 1
	require.NoError(t, os.WriteFile(file, raw, 0o644))
	text := pageOf(t, exitFound, root)
	for _, want := range []string{"<h3>Damage</h3>", `<code>t-0/00000000000000000003.log</code>, byte 0, offset 3`, `class="seg bad"`, "DAMAGE", "<b>!</b> damage at offset 3",
		"Not all could be read", `<tr class="bad"><th scope="row" data-h="from offset">3</th>`} {
		require.Contains(t, text, want)
	}
	require.Equal(t, 2, strings.Count(text, `<td data-h="records">3</td>`), "the records of the other segments were read")
	text = pageOf(t, exitOK, root, "--quick")
	require.NotContains(t, text, "<h3>Damage</h3>")
	require.Contains(t, text, "not verified")
}

func TestWhatLiesBehindDamageInTheSameSegmentIsCounted(t *testing.T) {
	root, dir := compactable(t, "a=1 b=1 c=1 d=1", "e=1")
	file := filepath.Join(dir, "00000000000000000000.log")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	raw[70+65] ^= 1 // in the second of four batches
	require.NoError(t, os.WriteFile(file, raw, 0o644))
	text := pageOf(t, exitFound, root)
	require.Contains(t, text, `<td data-h="records">3 read</td>`)
	require.Contains(t, text, "readable again from offset 2")
}

func TestAPartitionThatDoesNotOpenIsDrawnByItsFiles(t *testing.T) {
	root := threeSegments(t)
	require.NoError(t, os.Remove(filepath.Join(root, ".kafka_cleanshutdown")))
	file := filepath.Join(root, "t-0", "00000000000000000006.log")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	raw[70] ^= 1
	require.NoError(t, os.WriteFile(file, append(raw, raw...), 0o644))
	text := pageOf(t, exitFound, root)
	require.Contains(t, text, "A log would not open here")
	require.Contains(t, text, "By size")
}

func TestNamesAreEscaped(t *testing.T) {
	root := filepath.Join(t.TempDir(), `<b>&"'<svg onload=x>`)
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Skip("this system has no such file names: ", err)
	}
	feed(t, filepath.Join(root, "t-0"), numbered(1))
	feed(t, filepath.Join(root, "u-0"), numbered(1))
	require.NoError(t, os.WriteFile(filepath.Join(root, "t-0", `00000000000000000000.log<i>.swap`), nil, 0o644))
	text := runIn(t, "report", root, "-o", "-").out
	require.NotContains(t, text, "<svg onload")
	require.NotContains(t, text, "<b>&")
	require.NotContains(t, text, "<i>.swap")
	require.Contains(t, text, "&lt;b&gt;&amp;")
}

func TestAReportIsBoundedHoweverMuchThereIs(t *testing.T) {
	const n = 10_000
	s := &snapshot{tp: log.TopicPartition{Topic: "t"}, config: log.Config{Cleanup: log.Compact | log.Delete, RetentionTime: 1, IndexIntervalBytes: 4096}, now: n * 1000,
		o: log.Offsets{LogEnd: n * 10, HighWatermark: n * 10}, compact: &compaction.Plan{Bounds: compaction.Bounds{FirstDirty: n * 5}}, retain: retention.Plan{NextDue: -1}}
	s.holes.begin(0, n*10)
	for i := range int64(n) {
		p := part{Count: 1, Base: i * 10, Next: i*10 + 10, Bytes: 100 + i%7, From: i * 1000, To: i*1000 + 1500, Entries: 3, Times: 2, Batches: 2, Records: 9, State: stateSealed}
		if i < 100 {
			p.Drop = "age"
		}
		s.parts = append(s.parts, p)
		s.holes.gap(i*10, i*10+1)
		s.epochs = append(s.epochs, log.EpochEntry{Epoch: int32(i), Start: i * 10})
		s.open = append(s.open, log.OpenTransaction{ProducerID: i, FirstOffset: i * 10, Age: -1})
		for range 3 {
			s.findings = append(s.findings, log.Finding{File: fmt.Sprintf("t-0/%020d.log", i*10), Position: i, Offset: i * 10, Kind: "batch", Detail: strings.Repeat("x", 100)})
		}
	}
	s.parts[n-1].State = stateActive
	s.blame()
	parts := merge(s.parts, mostShapes)
	require.LessOrEqual(t, len(parts), mostShapes+1)
	count, bytes64, damage := 0, int64(0), 0
	for i, p := range parts {
		count, bytes64, damage = count+p.Count, bytes64+p.Bytes, damage+p.Damage
		if i > 0 {
			require.Equal(t, parts[i-1].Next, p.Base)
		}
	}
	require.Equal(t, []int64{n, s.bytes(), 3 * n}, []int64{int64(count), bytes64, int64(damage)})
	require.Equal(t, "age", parts[0].Drop)
	require.Equal(t, "age (16 of 84 segments)", parts[1].Drop)
	require.Equal(t, stateActive, parts[len(parts)-1].State)

	p := &page{}
	for range 1000 {
		p.add(s, fewestShapes)
	}
	p.finish()
	var out bytes.Buffer
	require.NoError(t, pageTemplate.Execute(&out, p))
	require.Less(t, out.Len(), 40<<20)
	require.Contains(t, out.String(), "700 partitions are not drawn below")

	p, out = &page{}, bytes.Buffer{}
	p.add(s, mostShapes)
	p.finish()
	require.NoError(t, pageTemplate.Execute(&out, p))
	require.Less(t, out.Len(), 400<<10)
	require.Contains(t, out.String(), "neighbours together")
}

func TestAReportGoesToAFileWholeOrNotAtAll(t *testing.T) {
	root := threeSegments(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "page.html")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
	require.Empty(t, do(t, "report", root, "-o", file))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(text, []byte("<!DOCTYPE html>")) && bytes.HasSuffix(bytes.TrimSpace(text), []byte("</html>")))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"report"}, "DIR is missing"},
		{[]string{"report", root}, "-o FILE is missing"},
		{[]string{"report", root, "-o", dir}, "is a directory"},
		{[]string{"report", root, "-o", filepath.Join(dir, "none", "page.html")}, "cannot be written"},
		{[]string{"report", filepath.Join(dir, "none"), "-o", file}, "does not exist"},
		{[]string{"report", dir, "-o", file}, "holds no partition folder"},
	} {
		r := runIn(t, c.args...)
		require.Equal(t, exitFailed, r.code, c.args)
		require.Contains(t, r.err, c.want, c.args)
	}
}

// On a narrow screen the wide tables are lists: each cell says what its column is called.
func TestEachCellOfAWideTableNamesItsColumn(t *testing.T) {
	_, dir := goldenFolder(t, "txn-open")
	text := pageOf(t, exitOK, filepath.Dir(dir), "--now=2030-01-01", "--config", "retention.ms=1", "--config", "retention.bytes=-1")
	tables := strings.Split(text, `<div class="wrap cards"`)[1:]
	require.Len(t, tables, 2, "open transactions and segments")
	for _, table := range tables {
		head, body, ok := strings.Cut(table[:strings.Index(table, "</table>")], "</thead>")
		require.True(t, ok)
		var want, got []string
		for _, m := range regexp.MustCompile(`<th scope="col"[^>]*>([^<]*)<`).FindAllStringSubmatch(head, -1) {
			want = append(want, m[1])
		}
		for _, m := range regexp.MustCompile(`<t[hd][^>]* data-h="([^"]*)"`).FindAllStringSubmatch(body, -1) {
			got = append(got, m[1])
		}
		require.NotEmpty(t, want)
		require.Equal(t, slices.Repeat(want, strings.Count(body, "<tr")), got)
	}
}
