package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// threeSegments is a root with a log of three records a segment, at 2023-11-14T22:13:20Z.
func threeSegments(t testing.TB) (root string) {
	t.Helper()
	root = t.TempDir()
	dir := filepath.Join(root, "t-0")
	for i := range 3 {
		if i > 0 {
			do(t, "roll", dir)
		}
		r := feed(t, dir, numbered(3))
		require.Equal(t, exitOK, r.code, r.err)
	}
	return root
}

const (
	inTime  = "--now=2023-11-15T00:00:00Z"
	aDayOn  = "--now=2023-11-15T22:13:21Z"
	oneDay  = "retention.ms=86400000"
	forever = "retention.ms=-1"
)

func TestAPlanOfRetentionSaysWhatWouldGoAndChangesNothing(t *testing.T) {
	root := threeSegments(t)
	dir := filepath.Join(root, "t-0")
	before := treeOf(t, root)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{inTime, "--config", oneDay}, []string{"t-0: 0 of 3 segments would go, 0 bytes; log start 0, then 0",
			"  the oldest segment stays: not due; old enough from 2023-11-15T22:13:20.003Z on"}},
		{[]string{aDayOn, "--config", oneDay}, []string{"t-0: 3 of 3 segments would go, 264 bytes; log start 0, then 9",
			"  offsets 0 to 2, 88 bytes: age", "  offsets 3 to 5, 88 bytes: age", "  offsets 6 to 8, 88 bytes: age",
			"  the active segment is rolled first: an empty one is left, which begins at offset 9"}},
		{[]string{aDayOn, "--config", forever, "--config", "retention.bytes=177"}, []string{"t-0: 0 of 3 segments would go, 0 bytes; log start 0, then 0",
			"  the oldest segment stays: not due"}},
		{[]string{aDayOn, "--config", forever, "--config", "retention.bytes=176"}, []string{"t-0: 1 of 3 segments would go, 88 bytes; log start 0, then 3",
			"  offsets 0 to 2, 88 bytes: size", "  the next segment stays: not due"}},
		{[]string{"--now=2023-01-01", "--config", oneDay}, []string{"t-0: 0 of 3 segments would go, 0 bytes; log start 0, then 0",
			"  the oldest segment stays: future timestamp; old enough from 2023-11-15T22:13:20.003Z on"}},
		{[]string{aDayOn, "--config", "cleanup.policy=compact"}, []string{"t-0: 0 of 3 segments would go, 0 bytes; log start 0, then 0",
			"  the oldest segment stays: cleanup policy"}},
	} {
		for _, at := range []string{root, dir} {
			got := do(t, append([]string{"plan", "retention", at}, c.args...)...)
			require.Equal(t, c.want, got, "%v", c.args)
		}
	}
	var got planInfo
	require.NoError(t, json.Unmarshal([]byte(do(t, "plan", "retention", "--json", root, aDayOn, "--config", oneDay)[0]), &got))
	require.Equal(t, "t-0", got.Partition)
	require.EqualValues(t, 9, got.NewLogStartOffset)
	require.EqualValues(t, 264, got.FreedBytes)
	require.True(t, got.RollFirst)
	require.Nil(t, got.NextDue)
	require.Equal(t, dropInfo{3, 6, 88, "age"}, got.Drop[1])
	require.Equal(t, before, treeOf(t, root))
}

func TestRetainDoesWhatThePlanSays(t *testing.T) {
	root := threeSegments(t)
	require.Equal(t, []string{"t-0: was log start 0, log end 9, segments 3; is log start 0, log end 9, segments 3 (nothing to drop; the oldest segment stays: not due; old enough from 2023-11-15T22:13:20.003Z on)"},
		do(t, "retain", root, inTime, "--config", oneDay))
	require.Equal(t, []string{"t-0: was log start 0, log end 9, segments 3; is log start 3, log end 9, segments 2 (1 segment dropped, 88 bytes)"},
		do(t, "retain", root, inTime, "--config", "retention.bytes=176"))
	do(t, "delete-records", root, "6")
	require.Contains(t, do(t, "retain", root, inTime, "--config", "cleanup.policy=compact")[0], "(1 segment dropped, 88 bytes)")
	line := do(t, "retain", "--json", filepath.Join(root, "t-0"), aDayOn, "--config", oneDay)[0]
	require.Contains(t, line, `{"partition":"t-0","before":{"logStartOffset":6,"logEndOffset":9,"segments":1},"after":{"logStartOffset":9,"logEndOffset":9,"segments":1},"dropped":1,"freedBytes":88,"plan":{"newLogStartOffset":9,`)
	require.True(t, json.Valid([]byte(line)))
	entries, err := os.ReadDir(filepath.Join(root, "t-0"))
	require.NoError(t, err)
	for _, e := range entries {
		require.False(t, strings.HasSuffix(e.Name(), ".deleted"), e.Name())
	}
	require.FileExists(t, filepath.Join(root, ".kafka_cleanshutdown"))
	require.Empty(t, do(t, "verify", root))
}

func TestWrongUsesOfPlanAndRetainAreExplained(t *testing.T) {
	root := threeSegments(t)
	before := treeOf(t, root)
	for _, c := range []struct{ args, want string }{
		{"plan", "retention"},
		{"plan retention", "DIR is missing"},
		{"plan everything DIR", `no plan "everything"`},
		{"plan retention DIR more", `unexpected argument "more"`},
		{"plan retention DIR --now soon", "want Unix milliseconds"},
		{"plan retention NONE", "does not exist"},
		{"plan retention DIR --config retention.ms=x", "retention.ms"},
		{"retain", "DIR is missing"},
		{"retain NONE", "does not exist"},
		{"retain DIR --config retention.bytes=x", "retention.bytes"},
	} {
		args := strings.Fields(strings.NewReplacer("DIR", root, "NONE", filepath.Join(root, "none")).Replace(c.args))
		if strings.HasSuffix(c.args, "retention") || c.args == "retain" {
			args = strings.Fields(c.args)
		}
		r := runIn(t, args...)
		require.Equal(t, exitFailed, r.code, c.args)
		require.Contains(t, r.err, c.want, c.args)
	}
	require.Equal(t, before, treeOf(t, root))
}
