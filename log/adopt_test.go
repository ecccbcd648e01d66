package log

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

func TestAnEmptyPathIsNoLog(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := Open("", Config{})
	require.ErrorIs(t, err, ErrNotLog)
	_, err = OpenDir("", DirConfig{})
	require.ErrorIs(t, err, ErrNotLog)
	_, err = OpenReader("", ReaderOptions{})
	require.ErrorIs(t, err, ErrNotLog)
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestAFileIsNoLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o644))
	for _, path := range []string{file, file + "/below"} {
		_, err := Open(path, Config{})
		require.ErrorIs(t, err, ErrNotLog)
		require.True(t, path != file || strings.Count(err.Error(), file) == 1, err.Error())
		_, err = OpenReader(path, ReaderOptions{})
		require.ErrorIs(t, err, ErrNotLog)
	}
}

// A folder is a partition's by what it holds, not by its name alone.
func TestAForeignFolderWithAPartitionsNameIsNotAdopted(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Mkdir(root+"/photos-2024", 0o755))
	require.NoError(t, os.WriteFile(root+"/photos-2024/a.jpg", []byte("x"), 0o644))
	for range 2 {
		l, err := Open(root, Config{})
		require.NoError(t, err)
		require.Equal(t, "log-0", l.TopicPartition().String())
		_, err = l.Append(ctx, values(1, 3)...)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.FileExists(t, root+"/.kafka_cleanshutdown", "a folder of pictures does not make a stop unclean")
	}
	entries, err := os.ReadDir(root + "/photos-2024")
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

func TestAFolderThatIsEmptyOrHasAnIDIsAdopted(t *testing.T) {
	for name, file := range map[string]string{"empty": "", "metadata": "partition.metadata", "segment": "00000000000000000007.log"} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			require.NoError(t, os.Mkdir(root+"/orders-3", 0o755))
			if file != "" {
				require.NoError(t, os.WriteFile(root+"/orders-3/"+file, nil, 0o644))
			}
			l, err := Open(root, Config{})
			require.NoError(t, err)
			defer l.Close()
			require.Equal(t, "orders-3", l.TopicPartition().String())
		})
	}
}

func TestABadConfigTouchesNothing(t *testing.T) {
	root := filepath.Join(t.TempDir(), "new")
	bad := Config{SegmentBytes: -5}
	c := (*ConfigError)(nil)
	_, err := Open(root, bad)
	require.ErrorAs(t, err, &c)
	_, err = OpenDir(root, DirConfig{Defaults: bad})
	require.ErrorAs(t, err, &c)
	require.NoDirExists(t, root)
	d, err := OpenDir(root, DirConfig{})
	require.NoError(t, err)
	defer d.Close()
	_, err = d.Open(ctx, TopicPartition{"t", 0}, bad)
	require.ErrorAs(t, err, &c)
	require.NoDirExists(t, root+"/t-0")
}

// Recovery at open says how far it is; a clean open has nothing to say.
func TestRecoveryTellsItsProgress(t *testing.T) {
	b := newBed(t, Config{Durability: Buffered})
	for range 3 {
		b.add("a", "b")
		require.NoError(t, b.Roll(ctx))
	}
	b.add("c")
	size := b.Stats().Bytes
	type step struct {
		tp          TopicPartition
		done, total int64
	}
	open := func(fsys vfs.FS) (steps []step) {
		d, err := OpenDir("mem", DirConfig{Manual: true, FS: fsys, Progress: func(tp TopicPartition, done, total int64) {
			steps = append(steps, step{tp, done, total})
		}})
		require.NoError(t, err)
		_, err = d.Open(ctx, TopicPartition{"t", 0}, Config{})
		require.NoError(t, err)
		require.NoError(t, d.Close())
		return steps
	}
	require.NoError(t, b.dir.Close())
	require.Empty(t, open(b.fs))
	require.NoError(t, b.fs.Remove(".kafka_cleanshutdown"))
	require.NoError(t, b.fs.Remove("recovery-point-offset-checkpoint"))
	steps := open(b.fs)
	require.Len(t, steps, 4)
	for i, s := range steps {
		require.Equal(t, size, s.total)
		require.True(t, i == 0 || s.done > steps[i-1].done)
	}
	require.Equal(t, step{TopicPartition{"t", 0}, size, size}, steps[3])
}

// A snapshot that speaks of offsets the log does not have goes on every open, also behind a clean stop.
func TestSnapshotsBeyondTheEndGoOnEveryOpen(t *testing.T) {
	b := newBed(t, Config{})
	b.add("a", "b")
	require.NoError(t, b.dir.Close())
	for _, name := range []string{"00000000000000000003.snapshot", "00000000000000000099.snapshot"} {
		writeAll(t, b.fs, "t-0/"+name, []byte("x"))
	}
	b.open()
	require.Equal(t, []string{"t-0/00000000000000000003.snapshot", "t-0/00000000000000000099.snapshot"}, b.Recovery().Removed)
	_, err := b.fs.Stat("t-0/00000000000000000002.snapshot")
	require.NoError(t, err)
}

// Several files that were set aside are all named, and nothing is said of bytes that were no batch.
func TestAllThatWasSetAsideIsNamed(t *testing.T) {
	b := newBed(t, Config{})
	b.add("a")
	require.NoError(t, b.Roll(ctx))
	b.add("b")
	size := b.Stats().Bytes
	require.NoError(t, b.dir.Close())
	writeAll(t, b.fs, "log-start-offset-checkpoint", []byte("0\n1\nt 0 50\n"))
	b.open()
	r := b.Recovery()
	require.Len(t, r.Saved, 2)
	require.Zero(t, r.Cut)
	require.Equal(t, size, r.SetAside)
	for _, file := range r.Saved {
		_, err := b.fs.Stat(file)
		require.NoError(t, err)
	}
	for _, f := range r.Findings {
		require.NotContains(t, f.Detail, "was cut")
	}
	require.Equal(t, int64(50), b.Offsets().LogStart)
}

// A reader names the leader epoch of the last batch; -1 where there is none.
func TestAReaderNamesTheLeaderEpochOfTheLastBatch(t *testing.T) {
	b := newBed(t, Config{})
	epochOf := func() int32 {
		r, err := OpenReader("t-0", ReaderOptions{FS: b.fs})
		require.NoError(t, err)
		defer r.Close()
		return r.Offsets().LeaderEpoch
	}
	require.Equal(t, int32(-1), epochOf())
	b.add("a")
	require.Equal(t, int32(0), epochOf())
	r, err := OpenReader("t-0", ReaderOptions{FS: b.fs})
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, b.AssignEpoch(7))
	require.Equal(t, int32(0), epochOf(), "no batch has it yet")
	b.add("b")
	require.Equal(t, int32(7), epochOf())
	require.NoError(t, r.Refresh())
	require.Equal(t, int32(7), r.Offsets().LeaderEpoch)
	require.NoError(t, b.Roll(ctx))
	require.Equal(t, int32(7), epochOf(), "the last segment is empty")
}

func TestRangesSayWhichOffsetsThereAre(t *testing.T) {
	b := newBed(t, Config{})
	_, err := b.Fetch(ctx, 9, FetchOptions{})
	require.EqualError(t, err, "log: offset 9 out of range: the log is empty and its next offset is 0")
	b.add("a", "b", "c")
	_, err = b.Fetch(ctx, 9, FetchOptions{})
	require.EqualError(t, err, "log: offset 9 out of range: the log holds offsets 0 up to 2")
}
