package log

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

// Somebody copied an older segment over the name of the active one, or beside it, while the log was stopped cleanly: nothing in it
// fits its name. The open finds out, as behind a crash, and the log goes on.
func TestAnActiveSegmentWithAnothersContentIsRecoveredBehindACleanStop(t *testing.T) {
	b := newBed(t, Config{SegmentBytes: 300})
	for range 20 {
		b.add("value")
	}
	require.NoError(t, b.dir.Close())
	old, err := vfs.ReadFile(b.fs, "t-0/00000000000000000000.log", 1<<20)
	require.NoError(t, err)
	f, err := b.fs.OpenFile("t-0/00000000000000000099.log", os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(t, err)
	_, err = f.WriteAt(old, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	b.open()
	require.Len(t, b.readAll(0), 20)
	require.Equal(t, int64(99), b.Offsets().LogEnd)
	require.NotEmpty(t, b.Recovery().Findings)
	b.add("more")
	b.reopen()
	require.Equal(t, int64(100), b.Offsets().LogEnd)
}

// Names that Kafka would not give are no segments, and no reason to refuse the log.
func TestAFileThatIsNamedNearlyLikeASegmentIsLeftAlone(t *testing.T) {
	b := newBed(t, Config{})
	b.add("value")
	require.NoError(t, b.dir.Close())
	names := []string{"1.log", "0000000000000000001.log", "000000000000000000001.log", "99999999999999999999.log", "+0000000000000000001.log", "copy.log"}
	for _, name := range names {
		f, err := b.fs.OpenFile("t-0/"+name, os.O_RDWR|os.O_CREATE, 0o644)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte("x"), 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	b.open()
	require.Equal(t, []int64{0}, b.bases())
	require.Len(t, b.Recovery().Findings, len(names), "but it is said")
	require.Equal(t, []int64{0}, b.readAll(0))
	foreign := 0
	for f, err := range b.Verify(ctx) {
		require.NoError(t, err)
		t.Log(f)
		foreign++
	}
	require.Equal(t, len(names), foreign)
	b.add("more")
	b.reopen()
	for _, name := range names {
		_, err := b.fs.Stat("t-0/" + name)
		require.NoError(t, err, "%s is somebody's", name)
	}
}
