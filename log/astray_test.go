package log

import (
	"encoding/binary"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// A base offset is not under its batch's CRC. Each row moves that of one batch.
var astrayBatches = []struct {
	name string
	base int64 // of the batch, three records each
	to   int64
}{
	{"up past everything", 3, 1 << 24},
	{"up to the log end", 3, 24},
	{"up into the next segment", 3, 10},
	{"up within its segment", 3, 4},
	{"down to the start", 6, 0},
	{"down by one", 6, 5},
	{"the last of a segment, into the next one", 9, 10},
	{"the last of a segment, by a lot", 9, 9 + 1<<24},
	{"the first of a segment, below it", 12, 3},
	{"in the active segment, past the end", 15, 100},
	{"in the active segment, by one", 15, 16},
	{"in the active segment, down", 18, 12},
	{"the last of all, up", 21, 40},
	{"the last of all, up by one", 21, 22},
	{"the last of all, down", 21, 15},
}

// astrayBed is a cleanly closed log of two segments, offsets 0 to 11 and 12 to 23, with one base offset changed.
func astrayBed(t *testing.T, base, to int64) vfs.FS {
	b := newBed(t, Config{})
	for i := range 8 {
		if i == 4 {
			require.NoError(t, b.Roll(ctx))
		}
		b.add("a", "b", "c")
	}
	require.NoError(t, b.dir.Close())
	name := "t-0/00000000000000000000.log"
	if base >= 12 {
		name = "t-0/00000000000000000012.log"
	}
	log, err := vfs.ReadFile(b.fs, name, math.MaxInt32)
	require.NoError(t, err)
	for rest := log; len(rest) > 0; {
		batch, next, err := record.Next(rest)
		require.NoError(t, err)
		if batch.BaseOffset() == base {
			binary.BigEndian.PutUint64(rest, uint64(to))
		}
		rest = next
	}
	writeAll(t, b.fs, name, log)
	return b.fs
}

func TestABatchWithADamagedBaseOffsetIsDamageForEveryReader(t *testing.T) {
	for _, row := range astrayBatches {
		t.Run(row.name, func(t *testing.T) {
			fsys := astrayBed(t, row.base, row.to)
			r, err := OpenReader("t-0", ReaderOptions{FS: fsys})
			require.NoError(t, err)
			defer r.Close()
			astrayIsDamage(t, &r.view, row.base)
			d, err := OpenDir("mem", DirConfig{Manual: true, FS: vfs.Overlay(fsys)})
			require.NoError(t, err)
			defer d.Close()
			l, err := d.Open(ctx, TopicPartition{"t", 0}, Config{})
			if err != nil { // it was seen at once
				require.ErrorIs(t, err, ErrCorrupt)
				return
			}
			astrayIsDamage(t, &l.view, row.base)
		})
	}
}

// astrayIsDamage reads from each offset in each way: records below the batch at base come, it itself is damage, and no
// record comes under a wrong offset.
func astrayIsDamage(t *testing.T, v *view, base int64) {
	t.Helper()
	require.Equal(t, int64(24), v.load().LogEnd)
	for from := int64(0); from < 24; from++ {
		want := offsetsIn(from, base)
		if from >= base+3 {
			want = nil
		}
		check := func(way string, got []int64, err error) {
			t.Helper()
			if from >= base+3 && err == nil {
				require.Equal(t, offsetsIn(from, 24), got, "%s from %d", way, from)
				return
			}
			c := (*CorruptError)(nil)
			require.ErrorAs(t, err, &c, "%s from %d: %v", way, from, got)
			require.GreaterOrEqual(t, c.Position, int64(0))
			require.Equal(t, want, got, "%s from %d", way, from)
		}
		got, err := offsetsOf(v.records(ctx, from, collect(nil), false))
		check("records", got, err)
		if from < base+3 {
			got, err = offsetsOf(v.records(ctx, from, collect(nil), true))
			check("follow", got, err)
		}
		got = nil
		for b, e := range v.batches(ctx, from, collect(nil)) {
			if err = e; e == nil {
				got = append(got, offsetsIn(max(from, b.BaseOffset()), b.LastOffset()+1)...)
			}
		}
		check("batches", got, err)
		got, err = fetchAll(v, from)
		check("fetch", got, err)
	}
}

// fetchAll reads with one fetch after the other.
func fetchAll(v *view, from int64) (all []int64, err error) {
	for from < v.load().LogEnd {
		f := fetch{v: v, offset: from}
		got, err := f.run(ctx)
		if err != nil {
			return all, err
		}
		offsets, err := offsetsOf(got.Records())
		all = append(all, offsets...)
		if err == nil {
			from, err = got.NextOffset()
		}
		got.Close()
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// The folder of a real broker whose third batch was moved up by 2^56.
func TestARealFolderWithADamagedBaseOffsetDoesNotEndEarly(t *testing.T) {
	root := golden.Copy(t, "codec-gzip")
	dir, err := golden.PartitionDir(root)
	require.NoError(t, err)
	want := len(golden.MustRecords(t, "codec-gzip"))
	r, err := OpenReader(dir, ReaderOptions{})
	require.NoError(t, err)
	got, err := offsetsOf(r.Records(ctx, 0))
	require.NoError(t, err)
	require.Len(t, got, want)
	require.NoError(t, r.Close())
	file := dir + "/00000000000000000000.log"
	log, err := os.ReadFile(file)
	require.NoError(t, err)
	log[3391] = 1
	require.NoError(t, os.WriteFile(file, log, 0o644))
	r, err = OpenReader(dir, ReaderOptions{})
	require.NoError(t, err)
	defer r.Close()
	got, err = offsetsOf(r.Records(ctx, 0))
	require.ErrorIs(t, err, ErrCorrupt)
	require.Len(t, got, 74)
	_, err = offsetsOf(r.Follow(ctx, 74))
	require.ErrorIs(t, err, ErrCorrupt)
}
