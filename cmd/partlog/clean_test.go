package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// keyed is a line for each word: "a=1" sets a key, "a" deletes it. One word is a second.
func keyed(words ...string) string {
	var b strings.Builder
	for i, w := range words {
		key, value, set := strings.Cut(w, "=")
		text := "null"
		if set {
			text = `"` + b64(value) + `"`
		}
		if key = `"` + b64(key) + `"`; key == `""` {
			key = "null"
		}
		fmt.Fprintf(&b, `{"timestamp":%d,"key":%s,"value":%s}`+"\n", 1_700_000_000_000+int64(i)*1000, key, text)
	}
	return b.String()
}

// compactable is a root with a log whose every argument is a sealed segment, and an empty active one.
func compactable(t testing.TB, segments ...string) (root, dir string) {
	t.Helper()
	root = t.TempDir()
	dir = filepath.Join(root, "t-0")
	for _, words := range segments {
		r := feed(t, dir, keyed(strings.Fields(words)...), "--batch", "1")
		require.Equal(t, exitOK, r.code, r.err)
		do(t, "roll", dir)
	}
	return root, dir
}

// values are the records of a log as words, with their offsets.
func values(t testing.TB, dir string) (all []string) {
	t.Helper()
	for _, line := range do(t, "cat", dir) {
		var r struct {
			Offset int64  `json:"offset"`
			Key    []byte `json:"key"`
			Value  []byte `json:"value"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		word := string(r.Key)
		if r.Value != nil {
			word += "=" + string(r.Value)
		}
		all = append(all, fmt.Sprintf("%d:%s", r.Offset, word))
	}
	return all
}

func TestCleanKeepsTheLastOfEachKeyAndThePlanSaysSoBefore(t *testing.T) {
	root, dir := compactable(t, "a=1 b=1 a=2", "c=1 b a=3")
	before := treeOf(t, root)
	require.Equal(t, []string{
		"t-0: due (min.cleanable.dirty.ratio); clean up to offset 0, 0 bytes; cleanable up to 6, 419 bytes; dirty ratio 1.00",
		"  what begins at offset 6 stays as it is: active segment",
		"  2 segments from offset 0 on, 419 bytes: would become one",
		"  a dry run: 3 of 6 records dropped (3 superseded), 419 bytes now 214; clean up to offset 6",
	}, do(t, "plan", "compaction", root, "--dry-run"))
	require.Equal(t, before, treeOf(t, root))

	require.Equal(t, []string{"t-0: was log start 0, log end 6, segments 3; is log start 0, log end 6, segments 2 (3 of 6 records dropped (3 superseded), 419 bytes now 214; clean up to offset 6)"},
		do(t, "clean", dir))
	require.Equal(t, []string{"3:c=1", "4:b", "5:a=3"}, values(t, dir))
	raw, err := os.ReadFile(filepath.Join(root, "cleaner-offset-checkpoint"))
	require.NoError(t, err)
	require.Equal(t, "0\n1\nt 0 6\n", string(raw))
	require.FileExists(t, filepath.Join(root, ".kafka_cleanshutdown"))
	require.Empty(t, do(t, "verify", root))
	for name := range treeOf(t, root) {
		require.NotRegexp(t, `\.(deleted|cleaned|swap)$`, name)
	}
	require.Equal(t, []string{"t-0: was log start 0, log end 6, segments 2; is log start 0, log end 6, segments 2 (nothing to clean below the active segment; clean up to offset 6)"},
		do(t, "clean", dir))
	require.Contains(t, do(t, "plan", "compaction", dir)[0], "t-0: not due (nothing to clean); clean up to offset 6, 214 bytes; cleanable up to 6, 0 bytes")
}

func TestTombstonesGoOnceTheClockIsPastTheirHorizon(t *testing.T) {
	_, dir := compactable(t, "a=1 a")
	do(t, "clean", dir, "--now", "1700000100000", "--config", "delete.retention.ms=60000")
	require.Equal(t, []string{"1:a"}, values(t, dir))
	more := func() { feed(t, dir, keyed("b=1")); do(t, "roll", dir) }
	more()
	require.Contains(t, do(t, "clean", dir, "--now", "1700000159000", "--config", "delete.retention.ms=60000")[0], "0 of 2 records dropped,")
	more()
	require.Contains(t, do(t, "clean", dir, "--now", "1700000161000", "--config", "delete.retention.ms=60000")[0], "(1 superseded, 1 tombstones past their time)")
	require.Equal(t, []string{"3:b=1"}, values(t, dir))
}

func TestCleanRefusesWhatDoesNotLookLikeACompactedTopicUnlessToldThatItIs(t *testing.T) {
	root, dir := compactable(t, "a=1 =nokey a=2")
	before := treeOf(t, root)
	r := runIn(t, "clean", dir)
	require.Equal(t, exitFailed, r.code)
	require.Equal(t, "partlog clean: 1 record without a key would be dropped: this does not look like the log of a compacted topic; if it is one, say --config cleanup.policy=compact\n", r.err)
	r = runIn(t, "clean", dir, "--config", "cleanup.policy=delete")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "with cleanup.policy=delete nothing is compacted")
	for name, sum := range before {
		if strings.HasSuffix(name, ".log") {
			require.Equal(t, sum, treeOf(t, root)[name])
		}
	}
	require.Contains(t, do(t, "plan", "compaction", dir, "--config", "cleanup.policy=delete")[0], "not due (cleanup.policy)")
	require.Contains(t, do(t, "clean", dir, "--config", "cleanup.policy=compact,delete")[0], "2 of 3 records dropped (1 superseded, 1 without a key)")
	require.Equal(t, []string{"2:a=2"}, values(t, dir))
}

func TestCleanAndItsPlanAsJSON(t *testing.T) {
	root, dir := compactable(t, "a=1 a=2")
	var plan compactionInfo
	require.NoError(t, json.Unmarshal([]byte(do(t, "plan", "compaction", "--json", "--dry-run", root, "--now", "1700000002000", "--config", "max.compaction.lag.ms=1000")[0]), &plan))
	oldest := int64(1_700_000_000_000)
	require.Equal(t, compactionInfo{Partition: "t-0", Now: 1_700_000_002_000, Due: true, Why: "max.compaction.lag.ms", UncleanableOffset: 2, HeldBy: "active segment",
		CleanableBytes: 140, DirtyRatio: 1, OldestDirty: &oldest, Groups: []groupInfo{{0, 1, 140}},
		DryRun: &cleaningInfo{FirstDirtyOffset: 2, Keys: 1, ReadRecords: 2, Superseded: 1, Groups: 1, BytesBefore: 140, BytesAfter: 70}}, plan)
	require.Equal(t, `{"partition":"t-0","before":{"logStartOffset":0,"logEndOffset":2,"segments":2},"after":{"logStartOffset":0,"logEndOffset":2,"segments":2},`+
		`"result":{"firstDirtyOffset":2,"mapFull":false,"keys":1,"readRecords":2,"superseded":1,"tombstones":0,"unkeyed":0,"aborted":0,"markers":0,"emptyBatches":0,"groups":1,"unchangedSegments":0,"bytesBefore":140,"bytesAfter":70}}`,
		do(t, "clean", "--json", dir)[0])
}

func TestAPlanOfACompactionSaysWhatHoldsIt(t *testing.T) {
	_, dir := goldenFolder(t, "txn-open")
	require.Contains(t, strings.Join(do(t, "plan", "compaction", dir), "\n"), "stays as it is: last stable offset")
	_, dir = compactable(t, "a=1")
	require.Contains(t, strings.Join(do(t, "plan", "compaction", dir, "--now=1700000001000", "--config", "min.compaction.lag.ms=60000"), "\n"), "offset 0 stays as it is: min.compaction.lag.ms")
}

// What a broker compacted is compacted further here, and means the same.
func TestCleanGoesOnWhereABrokersCleanerEnded(t *testing.T) {
	for _, name := range []string{"compact-once", "compact-repeat", "compact-delete", "compact-txn"} {
		t.Run(name, func(t *testing.T) {
			root, dir := goldenFolder(t, name)
			latest := func() map[string]string {
				m := map[string]string{}
				for _, word := range values(t, dir) {
					_, word, _ = strings.Cut(word, ":")
					key, value, set := strings.Cut(word, "=")
					if delete(m, key); set {
						m[key] = value
					}
				}
				return m
			}
			before := latest()
			do(t, "roll", dir)
			do(t, "clean", dir, "--config", "cleanup.policy=compact", "--config", "delete.retention.ms=0")
			require.Equal(t, before, latest())
			require.Empty(t, do(t, "verify", root))
		})
	}
}

func TestCleanStopsAtDamageAndSaysWhatItDid(t *testing.T) {
	_, dir := compactable(t, "a=1 a=2", "b=1 b=2", "c=1 c=2")
	file := filepath.Join(dir, "00000000000000000002.log")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	raw[65] ^= 1
	require.NoError(t, os.WriteFile(file, raw, 0o644))
	r := runIn(t, "clean", dir)
	require.Equal(t, exitFound, r.code, r.err)
	require.Contains(t, r.err, "00000000000000000002.log")
	require.Contains(t, r.out, "1 of 2 records dropped (1 superseded)")
	require.Contains(t, r.out, "clean up to offset 2")
	require.Contains(t, r.err, "00000000000000000002.log is damaged at byte 0 (offset 2; readable again from offset 3): crc: ")
	require.Equal(t, 1, strings.Count(r.err, "00000000000000000002.log"), r.err)
}

func TestCleanSaysWhatHoldsIt(t *testing.T) {
	_, dir := goldenFolder(t, "txn-open")
	require.Contains(t, do(t, "clean", dir)[0], "(nothing to clean: held at offset 0 by last stable offset; clean up to offset 0)")
	_, dir = compactable(t, "a=1")
	require.Contains(t, do(t, "clean", dir)[0], "clean up to offset 1")
	require.Contains(t, do(t, "clean", dir)[0], "(nothing to clean below the active segment; clean up to offset 1)")
}

func TestAnInterruptedCleanLeavesASoundLog(t *testing.T) {
	root, dir := compactable(t, "a=1 a=2 a=3", "a=4 b=1 b=2")
	want := values(t, dir)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		time.Sleep(50 * time.Millisecond)
		stop()
	}()
	var out, errs bytes.Buffer
	code := run(ctx, &env{in: strings.NewReader(""), out: &out, err: &errs, terminal: true}, []string{"clean", dir, "--rate", "50"})
	require.Equal(t, exitInterrupted, code, errs.String())
	require.Contains(t, errs.String(), "interrupted; the log is as it was")
	require.Equal(t, want, values(t, dir))
	require.Empty(t, do(t, "verify", root))
	do(t, "clean", dir)
	require.Equal(t, []string{"3:a=4", "5:b=2"}, values(t, dir))
}

func TestAMapThatIsTooSmallIsToldAndTheRestIsForTheNextClean(t *testing.T) {
	_, dir := compactable(t, "a=1 a=2", "b=1 c=1 d=1 e=1 f=1 g=1")
	got := do(t, "clean", dir, "--map-bytes", "100", "--config", "cleanup.policy=compact")[0]
	require.Contains(t, got, "clean again for the rest")
	r := runIn(t, "clean", dir, "--map-bytes", "1")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "give more with --map-bytes")
}

func TestWrongUsesOfCleanAreExplained(t *testing.T) {
	root, dir := compactable(t, "a=1")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"clean"}, "DIR is missing"},
		{[]string{"clean", filepath.Join(root, "none")}, "does not exist"},
		{[]string{"clean", dir, "--rate", "-1"}, "cannot be negative"},
		{[]string{"clean", dir, "--config", "delete.retention.ms=x"}, "delete.retention.ms"},
		{[]string{"plan", "retention", dir, "--dry-run"}, "--dry-run is for plan compaction"},
		{[]string{"plan", "compaction"}, "DIR is missing"},
		{[]string{"plan", "all", dir}, "want retention or compaction"},
	} {
		r := runIn(t, c.args...)
		require.Equal(t, exitFailed, r.code, c.args)
		require.Contains(t, r.err, c.want, c.args)
	}
	lockRoot(t, root)
	r := runIn(t, "clean", dir)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "is in use by")
}
