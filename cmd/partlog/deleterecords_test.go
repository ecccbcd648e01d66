package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
)

func TestDeleteRecordsTakesKafkasOffsetFile(t *testing.T) {
	root := golden.Copy(t, "codec-mixed")
	file := filepath.Join(t.TempDir(), "offsets.json")
	with := func(text string, args ...string) outcome {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		return runIn(t, append([]string{"delete-records", "--offset-json-file", file}, args...)...)
	}
	for text, why := range map[string]string{
		`{"partitions":[{"topic":"codec-mixed","partition":0,"offset":5}]}`:                                                              "version 0",
		`{"version":1,"partitions":[]}`:                                                                                                  "names no partition",
		`{"version":1,"partitions":[{"topic":"codec-mixed","partition":0}]}`:                                                             "entry 1 needs",
		`{"version":1,"partitions":[{"topic":"codec-mixed","partition":0,"offset":-2}]}`:                                                 "entry 1 needs",
		`{"version":1,"partitions":[{"topic":"../x","partition":0,"offset":5}]}`:                                                         "entry 1: ",
		`{"version":1,"partitions":[{"topic":"codec-mixed","partition":0,"offset":5},{"topic":"codec-mixed","partition":0,"offset":6}]}`: "codec-mixed-0 twice",
		`{"version":1,"partitions":[{"topic":"codec-mixed","partition":0,"offset":5},{"topic":"other","partition":0,"offset":6}]}`:       "no partition other-0",
		`offsets`: "not what kafka-delete-records.sh takes",
	} {
		r := with(text, root)
		require.NotZero(t, r.code, text)
		require.Contains(t, r.err, why, text)
		require.NotContains(t, r.out, "is log start", "nothing is changed")
	}
	r := with(`{"version":1,"partitions":[{"topic":"codec-mixed","partition":0,"offset":5}]}`, root, "7")
	require.NotZero(t, r.code, "the offset is in the file")

	r = with(`{"version":1,"partitions":[{"topic":"codec-mixed","partition":0,"offset":5}]}`, root)
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "codec-mixed-0: was log start 0")
	require.Contains(t, r.out, "is log start 5")
}
