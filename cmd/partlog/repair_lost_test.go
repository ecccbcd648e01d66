package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// change rewrites a file.
func change(t testing.TB, file string, f func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, f(b), 0o644))
}

// batchesOf are the positions of the batches of a .log.
func batchesOf(t testing.TB, file string) (at []int) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	for rest := b; len(rest) > 0; {
		at = append(at, len(b)-len(rest))
		_, rest, err = record.Next(rest)
		require.NoError(t, err)
	}
	return at
}

const first, second = "00000000000000000000.log", "00000000000000000223.log" // of codec-gzip

func TestRepairSaysWhichOffsetsAreLost(t *testing.T) {
	for _, c := range []struct {
		name, folder string
		spoil        func(t *testing.T, dir string)
		says         []string
		not          string
	}{
		{"every .log is empty", "codec-gzip", func(t *testing.T, dir string) {
			change(t, filepath.Join(dir, first), func([]byte) []byte { return nil })
			change(t, filepath.Join(dir, second), func([]byte) []byte { return nil })
		}, []string{"lost offsets 0 to 222 of codec-gzip-0, by the index", "lost offsets 223 to 281 of codec-gzip-0, up to which the root's checkpoints know it", "the log is empty, its next offset is 223"}, "holds offsets"},
		{"the last segment is gone", "codec-gzip", func(t *testing.T, dir string) {
			files, err := filepath.Glob(filepath.Join(dir, "*223*"))
			require.NoError(t, err)
			for _, f := range files {
				require.NoError(t, os.Remove(f))
			}
		}, []string{"lost offsets 223 to 281 of codec-gzip-0", "the log holds offsets 0 to 222\n"}, "if there were any"},
		{"the last batch is cut", "codec-mixed", func(t *testing.T, dir string) {
			change(t, filepath.Join(dir, "00000000000000000276.log"), func(b []byte) []byte { return b[:len(b)-100] })
		}, []string{"lost offsets 276 to 290 of codec-mixed-0"}, "if there were any"},
		{"the first .log is gone, its indexes are not", "codec-gzip", func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, first)))
		}, []string{"lost offsets 0 to 222 of codec-gzip-0, whose .log is missing beside its index", "the log holds offsets 223 to 281\n"}, ""},
		{"a torn tail of which the high watermark tells", "killed-torn-body", func(*testing.T, string) {},
			[]string{"lost offsets 70 to 73 of killed-torn-body-0, up to which the root's checkpoints know it"}, "if there were any"},
		{"a torn tail of which nothing is known", "killed-torn-body", func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "..", "replication-offset-checkpoint")))
		},
			[]string{"lost offsets from 70 on, if there were any, of killed-torn-body-0"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root, dir := goldenFolder(t, c.folder)
			c.spoil(t, dir)
			got := runIn(t, "repair", root, "--apply")
			require.Equal(t, exitOK, got.code, got.out+got.err)
			for _, want := range c.says {
				require.Contains(t, got.out, want)
				require.Equal(t, 1, strings.Count(got.out, want), got.out)
			}
			if c.not != "" {
				require.NotContains(t, got.out, c.not)
			}
			require.Equal(t, outcome{}, runIn(t, "verify", root))
		})
	}
}

func TestRepairMendsFieldsThatNoChecksumCoversWhereTheNeighboursTellThem(t *testing.T) {
	offset := func(at int, offset uint64) func(b []byte) []byte {
		return func(b []byte) []byte { binary.BigEndian.PutUint64(b[at:], offset); return b }
	}
	for _, c := range []struct {
		name, folder, file string
		batch              int
		spoil              func(at int) func(b []byte) []byte
		says               string
	}{
		{"an offset beyond the segment", "codec-gzip", first, 2, func(at int) func([]byte) []byte { return offset(at, 330) }, "base offset 330 becomes "},
		{"an offset within the log", "codec-gzip", first, 2, func(at int) func([]byte) []byte { return offset(at, 100) }, "base offset 100 becomes "},
		{"an offset that goes back", "codec-gzip", first, 3, func(at int) func([]byte) []byte { return offset(at, 1) }, "base offset 1 becomes "},
		{"a negative offset", "codec-gzip", first, 3, func(at int) func([]byte) []byte { return offset(at, 1<<63) }, "base offset -9223372036854775808 becomes "},
		{"the first offset of a log", "codec-gzip", first, 0, func(at int) func([]byte) []byte { return offset(at, 1<<40) }, "base offset 1099511627776 becomes 0"},
		{"the first offset of a segment", "codec-gzip", second, 0, func(at int) func([]byte) []byte { return offset(at, 7) }, "base offset 7 becomes 223"},
		{"the last offset of a log", "codec-gzip", second, 2, func(at int) func([]byte) []byte { return offset(at, 1<<30) }, "base offset 1073741824 becomes "},
		{"the last offset but one", "codec-gzip", second, 1, func(at int) func([]byte) []byte { return offset(at, 1<<30) }, "base offset 1073741824 becomes 240"},
		{"the only offset of the last segment", "codec-mixed", "00000000000000000276.log", 0, func(at int) func([]byte) []byte { return offset(at, 1<<40) }, "base offset 1099511627776 becomes 276"},
		{"a leader epoch at the start", "epochs", first, 0, func(at int) func([]byte) []byte { return func(b []byte) []byte { b[at+15] = 64; return b } }, "leader epoch 64 becomes 0"},
		{"a leader epoch between equal ones", "codec-mixed", first, 3, func(at int) func([]byte) []byte { return func(b []byte) []byte { b[at+12] = 0x40; return b } }, "leader epoch 1073741824 becomes 0"},
		{"a leader epoch that goes back", "epochs", "00000000000000000048.log", 0, func(at int) func([]byte) []byte { return func(b []byte) []byte { b[at+15] = 1; return b } }, "leader epoch 1 becomes 4"},
		{"a length", "codec-gzip", first, 3, func(at int) func([]byte) []byte { return func(b []byte) []byte { b[at+9] = 0x20; return b } }, "length "},
		{"the magic", "codec-gzip", first, 3, func(at int) func([]byte) []byte { return func(b []byte) []byte { b[at+16] = 0x42; return b } }, "magic 66 becomes 2"},
		{"an offset and an epoch", "codec-gzip", first, 3, func(at int) func([]byte) []byte {
			return func(b []byte) []byte { b[at+12] = 0x40; return offset(at, 5)(b) }
		}, "base offset 5 becomes "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root, dir := goldenFolder(t, c.folder)
			want := contentOf(t, root)
			file := filepath.Join(dir, c.file)
			sound, err := os.ReadFile(file)
			require.NoError(t, err)
			change(t, file, c.spoil(batchesOf(t, file)[c.batch]))
			require.Equal(t, exitFound, runIn(t, "verify", root).code)
			got := runIn(t, "repair", root, "--apply")
			require.Equal(t, exitOK, got.code, got.out+got.err)
			require.Contains(t, got.out, "mended the header of the batch at byte ")
			require.Contains(t, got.out, c.says)
			require.NotContains(t, got.out, "lost ")
			require.Equal(t, want, contentOf(t, root))
			now, err := os.ReadFile(file)
			require.NoError(t, err)
			require.True(t, slices.Equal(sound, now), "the .log is as it was before the damage")
			require.Equal(t, outcome{}, runIn(t, "verify", root))
		})
	}
}

// Where more than one value fits, nothing is made up.
func TestRepairLeavesOutABatchWhoseOffsetTheNeighboursDoNotTell(t *testing.T) {
	root, dir := goldenFolder(t, "codec-gzip")
	want := contentOf(t, root)
	file := filepath.Join(dir, first)
	at := batchesOf(t, file)
	change(t, file, func(b []byte) []byte {
		binary.BigEndian.PutUint64(b[at[2]:], 1)
		binary.BigEndian.PutUint64(b[at[3]:], 2)
		return b
	})
	got := runIn(t, "repair", root, "--apply")
	require.Equal(t, exitOK, got.code, got.out+got.err)
	require.NotContains(t, got.out, "mended")
	after := contentOf(t, root)
	require.Less(t, len(after), len(want))
	require.Contains(t, got.out, "lost offsets ")
	for _, line := range after {
		require.Contains(t, want, line)
	}
}

func TestRepairGivesASegmentItsNameBackAndListsWhatItPutsAside(t *testing.T) {
	root, dir := goldenFolder(t, "codec-gzip")
	want := contentOf(t, root)
	require.NoError(t, os.Rename(filepath.Join(dir, second), filepath.Join(dir, "7.log")))
	got := runIn(t, "repair", root, "--apply")
	require.Equal(t, exitOK, got.code, got.out+got.err)
	require.Contains(t, got.out, "renamed codec-gzip-0/7.log to "+second)
	require.NotContains(t, got.out, "moved ")
	require.NotContains(t, got.out, "lost ")
	require.Equal(t, want, contentOf(t, root))

	copied, err := os.ReadFile(filepath.Join(dir, second))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "copy.log"), copied, 0o644))
	got = runIn(t, "repair", root, "--apply")
	require.Equal(t, exitOK, got.code, got.out+got.err)
	require.Contains(t, got.out, "moved codec-gzip-0/copy.log out: ")
	require.Contains(t, got.out, "\n  codec-gzip-0/copy.log\n")
	require.Contains(t, got.out, "put 1 file (")
	require.Equal(t, want, contentOf(t, root))
}

func TestRepairNamesEverySnapshotThatLeavesTheFolder(t *testing.T) {
	root, dir := goldenFolder(t, "idempotent")
	file := filepath.Join(dir, first)
	change(t, file, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	before := filesBelow(t, root)
	got := runIn(t, "repair", root, "--apply")
	require.Equal(t, exitOK, got.code, got.out+got.err)
	after := filesBelow(t, root)
	for _, name := range before {
		if strings.HasSuffix(name, ".snapshot") && !slices.Contains(after, name) {
			require.Contains(t, got.out, "moved "+name+" out: ", got.out)
			require.Contains(t, got.out, "\n  "+name+"\n")
		}
	}
}
