package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/log"
)

const ourID, theirID = "AAECAwQFBgcICQoLDA0ODw", "EBESExQVFhcYGRobHB0eHw"

func TestABackupIsSoundAndItsRestoreIsTheSameByteForByte(t *testing.T) {
	root, to := threeSegments(t), t.TempDir()
	bk, back := filepath.Join(to, "bk"), filepath.Join(to, "back")
	got := do(t, "backup", root, bk, "--verify")
	require.Equal(t, "t-0: the log holds offsets 0 to 8, 3 segments, 264 bytes", got[0])
	require.Contains(t, got[1], "backed up 1 partition to "+bk+": ")
	require.Empty(t, do(t, "verify", bk))
	require.Equal(t, do(t, "cat", filepath.Join(root, "t-0")), do(t, "cat", filepath.Join(bk, "t-0")))

	got = do(t, "restore", bk, back)
	require.Equal(t, "t-0: the log holds offsets 0 to 8, 3 segments, 264 bytes", got[0])
	require.Equal(t, "restored 1 partition to "+back+": 264 bytes copied, 0 bytes linked", got[1])
	require.Equal(t, filesOf(t, bk), filesOf(t, back))

	before := treeOf(t, to)
	for _, again := range [][]string{{"backup", root, bk}, {"restore", bk, back}, {"backup", root, filepath.Join(root, "x")}, {"backup", root, filepath.Join(bk, "t-0", "x")}, {"restore", to, back}} {
		r := runIn(t, again...)
		require.Equal(t, exitFailed, r.code, again)
		require.NotEmpty(t, r.err, again)
		require.Empty(t, r.out, again)
	}
	require.Equal(t, before, treeOf(t, to))
}

func TestOnePartitionOfARootIsBackedUpAndRestoredBesideOthers(t *testing.T) {
	root, to := t.TempDir(), t.TempDir()
	for _, name := range []string{"t-0", "t-1"} {
		require.Equal(t, exitOK, feed(t, filepath.Join(root, name), numbered(2)).code)
	}
	bk := filepath.Join(to, "bk")
	var made copyInfo
	r := runIn(t, "backup", filepath.Join(root, "t-1"), bk, "--copy", "--json")
	require.Equal(t, exitOK, r.code, r.err)
	require.NoError(t, json.Unmarshal([]byte(r.out), &made))
	require.Equal(t, []copiedInfo{{"t-1", 0, 2, 2, 1, made.CopiedBytes}}, made.Partitions)
	require.Zero(t, made.LinkedBytes)

	other := filepath.Join(to, "other")
	require.Equal(t, exitOK, feed(t, filepath.Join(other, "u-0"), numbered(1)).code)
	do(t, "restore", filepath.Join(bk, "t-1"), other)
	require.Empty(t, do(t, "verify", other))
	require.Len(t, do(t, "cat", filepath.Join(other, "t-1")), 2)
	require.Len(t, do(t, "cat", filepath.Join(other, "u-0")), 1)
	r = runIn(t, "restore", bk, other, "--partition", "t-0")
	require.Contains(t, r.err, "holds no t-0")
}

func TestADamagedBackupIsNotRestored(t *testing.T) {
	root, to := threeSegments(t), t.TempDir()
	bk := filepath.Join(to, "bk")
	do(t, "backup", root, bk, "--copy")
	name := filepath.Join(bk, "t-0", "00000000000000000003.log")
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	b[70] ^= 1
	require.NoError(t, os.WriteFile(name, b, 0o644))
	r := runIn(t, "restore", bk, filepath.Join(to, "back"))
	require.Equal(t, exitFound, r.code)
	require.Contains(t, r.err, "t-0/00000000000000000003.log byte 0 (offset 3): batch: ")
	require.NoFileExists(t, filepath.Join(to, "back"))
}

// A log that was recovered under another index.interval.bytes has an index that looks cut short to whoever is not told.
func TestRestoreAndHandoverBelieveTheSettingsTheyAreGiven(t *testing.T) {
	root, to := golden.Copy(t, "txn-commit-abort"), t.TempDir()
	require.NoError(t, os.Remove(filepath.Join(root, ".kafka_cleanshutdown")))
	require.Equal(t, exitOK, feed(t, filepath.Join(root, "txn-commit-abort-0"), "{}\n").code)
	interval := []string{"--config", "index.interval.bytes=4096"}
	for i, args := range [][]string{
		{"restore", root, filepath.Join(to, "back")},
		{"handover", root, filepath.Join(to, "over"), "--everything", "--abort", "--topic-id", "txn-commit-abort=" + theirID},
	} {
		r := runIn(t, args...)
		require.NotEqual(t, exitOK, r.code, "%v", args)
		require.Contains(t, r.err, "look-ups there are slow")
		require.NoFileExists(t, args[2])
		r = runIn(t, append(args, interval...)...)
		require.Equal(t, exitOK, r.code, "%d %s", i, r.err)
		require.Empty(t, do(t, append([]string{"verify", args[2]}, interval...)...))
	}
}

// Every folder that a broker left survives a backup and a restore: the same files, and of those of one that was stopped
// cleanly the same bytes.
func TestFoldersOfABrokerSurviveBackupAndRestore(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			root, to := golden.Copy(t, name), t.TempDir()
			bk, back := filepath.Join(to, "bk"), filepath.Join(to, "back")
			_, err := os.Stat(filepath.Join(root, ".kafka_cleanshutdown"))
			clean := err == nil
			before := filesOf(t, root)
			r := runIn(t, "backup", root, bk)
			require.Equal(t, exitOK, r.code, r.err)
			r = runIn(t, "restore", bk, back)
			require.Equal(t, exitOK, r.code, r.err)
			require.Equal(t, filesOf(t, bk), filesOf(t, back))
			copied, now := filesOf(t, bk), filesOf(t, root)
			for file, content := range now { // which was closed since
				if filepath.Dir(file) != "." {
					require.Equal(t, []byte(content), []byte(copied[file]), file)
				}
			}
			for file, content := range before {
				_, kept := now[file] // loading drops old snapshots, and epochs without records
				if clean && kept && filepath.Dir(file) != "." && filepath.Base(file) != "leader-epoch-checkpoint" {
					require.Equal(t, []byte(content), []byte(copied[file]), file)
				}
			}
		})
	}
}

// filesOf is every file below a directory.
func filesOf(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		all[rel] = string(b)
		return err
	}))
	return all
}

func TestHandoverTeachesWhatIsMissingAndThenReadiesThePartitions(t *testing.T) {
	root, to := threeSegments(t), t.TempDir()
	before := treeOf(t, root)
	dest := filepath.Join(to, "theirs")
	r := runIn(t, "handover", root, dest)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "t-0: topic id: the target's id of the topic is not known")
	require.Contains(t, r.err, "1 reason against it; nothing was copied")
	r = runIn(t, "handover", root, dest, "--dry-run")
	require.Equal(t, exitFound, r.code)
	require.Contains(t, r.out, "t-0: refused: topic id: ")
	require.NoFileExists(t, dest)

	r = runIn(t, "handover", root, dest, "--topic-id", "t="+theirID, "--dry-run", "--json")
	require.Equal(t, exitOK, r.code, r.err)
	var plan handoverInfo
	require.NoError(t, json.Unmarshal([]byte(r.out), &plan))
	require.Equal(t, int64(9), plan.Partitions[0].CutOffset)
	require.Equal(t, theirID, *plan.Partitions[0].TopicID)

	got := do(t, "handover", root, dest, "--topic-id", "t="+theirID)
	require.Equal(t, []string{"t-0: the log holds offsets 0 to 8, 3 segments, 264 bytes", "handed over 1 partition to " + dest + ": 264 bytes copied, 0 bytes linked"}, got)
	require.Equal(t, before, treeOf(t, root))
	require.Empty(t, do(t, "verify", dest))
	require.FileExists(t, filepath.Join(dest, "t-0", "partition.metadata"))

	r = runIn(t, "handover", root, filepath.Join(to, "more"), "--ids-from", dest)
	require.Equal(t, exitOK, r.code, r.err)
	for _, bad := range []string{"t", "t=x", "=" + ourID, "t=AAAAAAAAAAAAAAAAAAAAAA"} {
		r = runIn(t, "handover", root, dest, "--topic-id", bad)
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "want")
	}
	require.ErrorIs(t, new(log.HandoverError), log.ErrHandover)
}
