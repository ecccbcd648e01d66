package log

import (
	"bytes"
	"context"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// bomb is a follower's batch whose one record unpacks to more than default readers take.
func bomb(t testing.TB, base int64, c record.Codec) []byte {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{Codec: c})
	require.NoError(t, b.Add(record.Record{Timestamp: epoch2023, Value: make([]byte, 65<<20)}))
	batch, err := b.Finish()
	require.NoError(t, err)
	batch.SetBaseOffset(base)
	batch.SetLeaderEpoch(0)
	return bytes.Clone(batch.Bytes())
}

func TestAppendsRefuseWhatDefaultReadersCannotRead(t *testing.T) {
	raw := bomb(t, 0, record.Zstd)
	second := bomb(t, 1, record.Zstd)
	t.Run("records", func(t *testing.T) {
		b := newBed(t, Config{CompressionType: "zstd", MaxMessageBytes: 100 << 20})
		base, err := b.Append(ctx, record.Record{Value: make([]byte, 70<<20)})
		require.ErrorIs(t, err, ErrTooLarge)
		require.Equal(t, int64(-1), base)
		require.Contains(t, err.Error(), "67108864")
		_, err = b.Append(ctx, record.Record{Headers: make([]record.Header, record.DefaultMaxHeaders+1)})
		require.ErrorIs(t, err, ErrTooLarge)
	})
	t.Run("a leader's batch", func(t *testing.T) {
		b := newBed(t, Config{MaxMessageBytes: 100 << 20})
		_, err := b.AppendBatches(ctx, bytes.Clone(raw), AppendOptions{})
		require.ErrorIs(t, err, ErrTooLarge)
	})
	t.Run("a leader's batch that gets compressed", func(t *testing.T) {
		b := newBed(t, Config{MaxMessageBytes: 100 << 20, CompressionType: "zstd"})
		_, err := b.AppendBatches(ctx, bomb(t, 0, record.None), AppendOptions{})
		require.ErrorIs(t, err, ErrTooLarge)
	})
	t.Run("a follower's batch", func(t *testing.T) {
		b := newBed(t, Config{MaxMessageBytes: 100 << 20})
		res, err := b.follow(batchOf(0, 0, record.None, "a"), second)
		require.ErrorIs(t, err, ErrTooLarge)
		require.Equal(t, notAppended, res)
		require.Zero(t, b.Offsets().LogEnd)
	})
}

// plantBomb closes the log and writes the bomb behind its two records, as another program would.
func plantBomb(t *testing.T, b *bed) {
	require.NoError(t, b.dir.Close())
	name := "t-0/00000000000000000000.log"
	log, err := vfs.ReadFile(b.fs, name, math.MaxInt32)
	require.NoError(t, err)
	writeAll(t, b.fs, name, append(log, bomb(t, 2, record.Zstd)...))
	require.NoError(t, b.fs.Remove(".kafka_cleanshutdown"))
	b.open()
}

func TestABatchBeyondTheLimitsIsTooLargeAndNotDamage(t *testing.T) {
	b := newBed(t, Config{})
	b.add("a", "b")
	plantBomb(t, b)
	require.Equal(t, int64(3), b.Offsets().LogEnd)
	r, err := OpenReader("t-0", ReaderOptions{FS: b.fs})
	require.NoError(t, err)
	defer r.Close()
	large, err := OpenReader("t-0", ReaderOptions{FS: b.fs, Limits: record.Limits{MaxDecompressedBytes: 100 << 20}})
	require.NoError(t, err)
	defer large.Close()
	more := WithLimits(record.Limits{MaxDecompressedBytes: 100 << 20})

	tooLarge := func(offsets []int64, err error) {
		t.Helper()
		require.Equal(t, []int64{0, 1}, offsets)
		require.ErrorIs(t, err, ErrTooLarge)
		require.ErrorIs(t, err, record.ErrTooLarge)
		require.NotErrorIs(t, err, ErrCorrupt)
		require.Contains(t, err.Error(), "offsets 2 to 2")
	}
	tooLarge(offsetsOf(b.Records(ctx, 0)))
	tooLarge(offsetsOf(b.Follow(ctx, 0)))
	tooLarge(offsetsOf(r.Records(ctx, 0)))
	require.Equal(t, []int64{0, 1, 2}, b.readAll(0, more))
	for _, read := range []func() ([]int64, error){
		func() ([]int64, error) { return offsetsOf(large.Records(ctx, 0)) },
		func() ([]int64, error) { return offsetsOf(r.Records(ctx, 0, more)) },
		func() ([]int64, error) {
			return fetchedOffsets(t, &b.view, FetchOptions{Limits: record.Limits{MaxDecompressedBytes: 100 << 20}})
		},
		func() ([]int64, error) { return fetchedOffsets(t, &large.view, FetchOptions{}) },
	} {
		got, err := read()
		require.NoError(t, err)
		require.Equal(t, []int64{0, 1, 2}, got)
	}
	tooLarge(fetchedOffsets(t, &b.view, FetchOptions{}))
	for f, err := range b.Verify(ctx) {
		require.NoError(t, err)
		t.Errorf("verify: %+v", f)
	}
	for f, err := range Verify(ctx, b.fs, VerifyOptions{}) {
		require.NoError(t, err)
		require.NotEqual(t, FindingRecords, f.Kind, f.Detail)
	}
}

func fetchedOffsets(t *testing.T, v *view, o FetchOptions) ([]int64, error) {
	f := fetch{v: v, o: o}
	got, err := f.run(context.Background())
	require.NoError(t, err)
	defer got.Close()
	return offsetsOf(got.Records())
}

func writeAll(t *testing.T, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(0))
	_, err = f.WriteAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}
