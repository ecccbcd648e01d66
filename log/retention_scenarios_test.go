package log

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
)

// Scenario: U074
func TestTheStartIsNeverAboveTheHighWatermark(t *testing.T) {
	b := newBed(t, Config{Visibility: External})
	b.inSegments(same(6, 1)...)
	_, err := b.SetHighWatermark(25)
	require.NoError(t, err)
	require.ErrorIs(t, b.DeleteRecords(ctx, 26), ErrOffsetOutOfRange)
	require.Zero(t, b.Offsets().LogStart)
	require.NoError(t, b.DeleteRecords(ctx, 25))
	require.EqualValues(t, 25, b.Offsets().LogStart)
}

// Kafka gives the whole root up when a partition cannot be deleted. Here the name is free again, the file that took the
// folder's place lies aside, and everything else goes on.
// Scenario: U077
func TestDeletingAPartitionWhoseFolderBecameAFile(t *testing.T) {
	root := t.TempDir()
	fsys, err := vfs.OS(root)
	require.NoError(t, err)
	b := newRootBed(t, fsys, DirConfig{})
	l, other := b.log("t", 0, Config{}), b.log("t", 1, Config{})
	add(t, l, "a")
	add(t, other, "b")
	require.NoError(t, l.Sync(ctx))
	require.NoError(t, os.RemoveAll(root+"/t-0"))
	require.NoError(t, os.WriteFile(root+"/t-0", []byte("no folder"), 0o600))
	require.NoError(t, b.Delete(ctx, l.TopicPartition()), "the name is free")
	_, open := b.Get(l.TopicPartition())
	require.False(t, open)
	_, err = l.Append(ctx, values2records([]string{"x"})...)
	require.ErrorIs(t, err, ErrClosed)
	b.clock.advance(time.Hour)
	require.NoError(t, b.RunOnce(ctx, b.clock.now()))
	require.Empty(t, b.Stats().Failing)
	require.Empty(t, b.Marked())
	kept, err := filepath.Glob(root + "/t-0.*-delete")
	require.NoError(t, err)
	require.Len(t, kept, 1)
	add(t, other, "c")
	require.Equal(t, []string{"b", "c"}, valuesOf(t, other))
	add(t, b.log("t", 0, Config{}), "anew")
}

func TestAFileIsNoPartitionToDelete(t *testing.T) {
	root := t.TempDir()
	fsys, err := vfs.OS(root)
	require.NoError(t, err)
	b := newRootBed(t, fsys, DirConfig{})
	require.NoError(t, os.WriteFile(root+"/holidays-2024", []byte("a list"), 0o600))
	tp := TopicPartition{"holidays", 2024}
	require.ErrorIs(t, b.Delete(ctx, tp), ErrNoPartition)
	_, err = b.SetStray(ctx, tp)
	require.ErrorIs(t, err, ErrNoPartition)
	require.Equal(t, "a list", b.content("holidays-2024"))
}

// Report: B080. Only .log files are left: the log begins where they do, never below what was removed, and at the start that
// was given to it as long as the file that says so is there.
func TestWhatWasDeletedStaysSoWithoutSideFiles(t *testing.T) {
	for _, keepStarts := range []bool{false, true} {
		b := newBed(t, Config{})
		b.inSegments(same(20, epoch2023)...)
		require.NoError(t, b.DeleteRecords(ctx, 73))
		b.retain()
		require.EqualValues(t, 70, b.bases()[0])
		require.NoError(t, b.dir.Close())
		for _, folder := range []string{".", "t-0"} {
			entries, err := b.fs.ReadDir(folder)
			require.NoError(t, err)
			for _, e := range entries {
				if !e.IsDir() && !strings.HasSuffix(e.Name(), ".log") && (!keepStarts || e.Name() != checkpoint.LogStarts) {
					require.NoError(t, b.fs.Remove(path.Join(folder, e.Name())))
				}
			}
		}
		b.open()
		want := int64(70)
		if keepStarts {
			want = 73
		}
		require.Equal(t, want, b.Offsets().LogStart)
		require.Equal(t, offsetsIn(want, 100), b.readAll(want))
		_, err := offsetsOf(b.Records(ctx, want-1))
		require.ErrorIs(t, err, ErrOffsetOutOfRange)
	}
}

// Scenario: U126, U128, L004
func TestSmallFilesGoWithTheFolderThatGetsAnotherName(t *testing.T) {
	b := newRootBed(t, vfs.Mem(), DirConfig{})
	tp := TopicPartition{"t", 0}
	l := b.log("t", 0, Config{})
	require.NoError(t, l.SetTopicID([16]byte{9}))
	require.NoError(t, l.AssignEpoch(4))
	add(t, l, "a", "b")
	folder, err := b.SetStray(ctx, tp)
	require.NoError(t, err)
	require.Equal(t, []string{folder}, b.folders())
	require.Contains(t, b.content(folder+"/"+checkpoint.Metadata), "topic_id: CQAAAAAAAAAAAAAAAAAAAA")
	require.Equal(t, "0\n1\n4 0\n", b.content(folder+"/"+checkpoint.LeaderEpochs))
	anew := b.log("t", 0, Config{})
	require.Zero(t, anew.TopicID(), "the new one has files of its own")
	require.Empty(t, anew.Epochs())
	require.NoError(t, anew.SetTopicID([16]byte{7}))
	require.Contains(t, b.content(folder+"/"+checkpoint.Metadata), "topic_id: CQAAAAAAAAAAAAAAAAAAAA")
	require.NoError(t, b.Delete(ctx, tp))
	require.NoError(t, b.Unstray(ctx, folder, tp))
	l = b.log("t", 0, Config{})
	require.Equal(t, [16]byte{9}, l.TopicID())
	require.Equal(t, []EpochEntry{{4, 0}}, l.Epochs())
	for _, s := range l.segments() {
		require.True(t, strings.HasPrefix(s.File(), "t-0/"), s.File())
	}
}
