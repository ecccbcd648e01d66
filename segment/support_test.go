package segment

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"

	"github.com/stretchr/testify/require"
)

const dir = "t-0"

var ctx = context.Background()

// memFS is a tree in memory with the partition's directory in it.
func memFS(t testing.TB) vfs.FS {
	t.Helper()
	fsys := vfs.Mem()
	require.NoError(t, fsys.MkdirAll(dir, 0o755))
	return fsys
}

// osFS is the same on a real disk.
func osFS(t testing.TB) vfs.FS {
	t.Helper()
	fsys, err := vfs.OS(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, fsys.MkdirAll(dir, 0o755))
	return fsys
}

func create(t testing.TB, base int64, o Options) *Segment {
	t.Helper()
	if o.FS == nil {
		o.FS = memFS(t)
	}
	s, err := Create(dir, base, o)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func open(t testing.TB, base int64, o Options) *Segment {
	t.Helper()
	s, err := Open(dir, base, o)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// batchOf encodes a batch of n records of one value each, at base, with timestamps ts, ts+1, ... (all absent if ts < 0).
func batchOf(t testing.TB, base int64, n int, ts int64, value string) []byte {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{})
	b.SetBaseOffset(base)
	for i := range n {
		r := record.Record{Timestamp: ts + int64(i), Value: []byte(value)}
		if ts < 0 {
			r.Timestamp = record.NoTimestamp
		} else if r.Timestamp == 0 {
			r.Timestamp = 1
		}
		require.NoError(t, b.Add(r))
	}
	out, err := b.Finish()
	require.NoError(t, err)
	raw := append([]byte(nil), out.Bytes()...)
	v, err := record.View(raw)
	require.NoError(t, err)
	v.SetBaseOffset(base)
	v.SetLeaderEpoch(0)
	return raw
}

func one(t testing.TB, offset int64) []byte { return batchOf(t, offset, 1, offset*10, "v") }

func add(t testing.TB, s *Segment, raws ...[]byte) {
	t.Helper()
	for _, raw := range raws {
		_, err := s.Append(raw)
		require.NoError(t, err)
	}
}

// fill appends n batches of one record from the next offset on.
func fill(t testing.TB, s *Segment, n int) {
	t.Helper()
	next, err := s.NextOffset()
	require.NoError(t, err)
	for i := range int64(n) {
		add(t, s, one(t, next+i))
	}
}

// offsets lists the last offsets of all batches, with the error that ends them.
func offsets(s *Segment) (out []int64, err error) {
	for b, err := range s.Batches(0) {
		if err != nil {
			return out, err
		}
		out = append(out, b.LastOffset())
	}
	return out, nil
}

func mustOffsets(t testing.TB, s *Segment) []int64 {
	t.Helper()
	out, err := offsets(s)
	require.NoError(t, err)
	return out
}

func span(from, to int64) (out []int64) {
	for o := from; o < to; o++ {
		out = append(out, o)
	}
	return out
}

func fileBytes(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	b, err := vfs.ReadFile(fsys, name, 1<<30)
	require.NoError(t, err)
	return b
}

func setBytes(t testing.TB, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(0))
	_, err = f.WriteAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func remove(t testing.TB, fsys vfs.FS, name string) {
	t.Helper()
	require.NoError(t, fsys.Remove(name))
}

func file(base int64, kind string) string { return dir + "/" + FileName(base, kind) }

func recoverAll(t testing.TB, s *Segment) Scan {
	t.Helper()
	scan, err := s.Recover(ctx, ScanOptions{})
	require.NoError(t, err)
	return scan
}

func corrupt(t testing.TB, err error) *CorruptError {
	t.Helper()
	c, ok := errors.AsType[*CorruptError](err)
	require.Truef(t, ok, "%v is no CorruptError", err)
	require.ErrorIs(t, err, ErrCorrupt)
	return c
}
