package compaction

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// garble changes one byte of a segment's log.
func (w *world) garble(i int, pos int64) {
	f := must(w.fs.OpenFile(w.segs[i].File(), 2, 0))
	var b [1]byte
	must(f.ReadAt(b[:], pos))
	b[0] ^= 0x40
	must(f.WriteAt(b[:], pos))
	require.NoError(w.t, f.Close())
}

// Scenario: I004
// Report: B070, B073
func TestTheFirstUnreadableBatchEndsTheCleaning(t *testing.T) {
	make5 := func(t *testing.T) (*world, int64) {
		w := newWorld(t, vfs.Mem())
		w.o.MaxBytes = 200
		first := plain(0, "a=1", "b=1")
		w.add(first, plain(2, "a=2"))
		w.add(plain(3, "a=3", "b=2"), plain(5, "c=1"))
		w.add(plain(6, "a=4", "b=3"), plain(8, "c=2"))
		w.add(plain(9, "a=5"))
		w.add(plain(10, "x=1"))
		return w, int64(len(first))
	}
	t.Run("in the dirty part", func(t *testing.T) {
		w, size := make5(t)
		w.garble(2, size+3+60)
		behind := [][]byte{must(vfs.ReadFile(w.fs, w.segs[2].File(), 1<<20)), must(vfs.ReadFile(w.fs, w.segs[3].File(), 1<<20))}
		out, err := w.clean()
		var bad *UncleanableError
		require.ErrorAs(t, err, &bad)
		require.ErrorIs(t, err, ErrUncleanable)
		require.ErrorIs(t, err, segment.ErrCorrupt)
		require.Equal(t, []any{folder + "/00000000000000000006.log", size, int64(8)}, []any{bad.File, bad.Position, bad.Offset})
		require.Contains(t, err.Error(), "crc")
		require.EqualValues(t, 6, out.FirstDirty, "what is in front is clean")
		require.Equal(t, behind[0], must(vfs.ReadFile(w.fs, folder+"/00000000000000000006.log", 1<<20)))
		require.Equal(t, behind[1], must(vfs.ReadFile(w.fs, folder+"/00000000000000000009.log", 1<<20)))
		v, _ := viewOf(w.segs)
		require.Equal(t, []string{"3-4 a=0x0 n=2", "5-5 a=0x0 n=1"}, v.batches[:2], "nothing that is behind counts: it may be lost")

		w.dirty = out.FirstDirty
		again, err := w.clean()
		require.ErrorIs(t, err, ErrUncleanable)
		require.Equal(t, []int{6, 0, 0}, []int{int(again.FirstDirty), again.Groups, again.Unchanged})
	})
	t.Run("what was read of it does not count", func(t *testing.T) {
		w := newWorld(t, vfs.Mem())
		w.o.MaxBytes = 100
		w.add(plain(0, "a=1"))
		w.add(plain(1, "b=1"), plain(2, "b=2"))
		first := plain(3, "a=2")
		w.add(first, plain(4, "c=1"))
		w.add(plain(5, "x=1"))
		w.garble(2, int64(len(first))+63)
		w.dirty = 1
		_, err := w.clean()
		require.ErrorIs(t, err, ErrUncleanable)
		v, _ := viewOf(w.segs)
		require.Equal(t, []rec{{0, "a=1", at0.UnixMilli()}, {2, "b=2", at0.UnixMilli() + 2}}, v.records[:2])
	})
	t.Run("in the clean part", func(t *testing.T) {
		w, size := make5(t)
		w.garble(1, size+3+60)
		w.dirty = 6
		out, err := w.clean()
		require.ErrorIs(t, err, ErrUncleanable)
		require.EqualValues(t, 6, out.FirstDirty)
		require.Equal(t, 1, out.Groups)
		for _, name := range w.files() {
			require.NotContains(t, name, cleaned)
		}
		s := w.segs[len(w.segs)-4]
		require.EqualValues(t, 3, s.Base())
	})
	t.Run("a negative length", func(t *testing.T) {
		w, size := make5(t)
		f := must(w.fs.OpenFile(w.segs[1].File(), 2, 0))
		must(f.WriteAt([]byte{0xff, 0xff, 0xff, 0xff}, size+8))
		require.NoError(t, f.Close())
		_, err := w.clean()
		require.ErrorIs(t, err, ErrUncleanable)
		require.NotContains(t, err.Error(), "panic")
	})
}

// badBatch makes a batch with a right checksum around wrong records.
func badBatch(base int64, change func(b []byte)) []byte {
	raw := plain(base, "a=1", "b=1")
	change(raw)
	b := must(record.View(raw))
	// SetAppendTime stamps the checksum.
	b.SetAppendTime(at0.UnixMilli() + 77)
	return raw
}

func TestRecordsThatDoNotParseEndTheCleaningToo(t *testing.T) {
	for name, raw := range map[string][]byte{
		"a record too long":   badBatch(1, func(b []byte) { b[61] = 0x7e }),
		"fewer records":       badBatch(1, func(b []byte) { b[60] = 1 }),
		"a payload of no zip": badBatch(1, func(b []byte) { b[22] |= 1 }),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, vfs.Mem())
			first := plain(0, "a=0")
			w.add(first, raw)
			w.add(plain(3, "x=1"))
			for _, dirty := range []int64{0, 3} {
				in := w.input()
				in.Bounds.FirstDirty = dirty
				if dirty == 3 { // the bad one is in the clean part
					w.add(plain(4, "y=1"))
					in = w.input()
					in.Bounds.FirstDirty = 3
				}
				out, err := Run(context.Background(), in)
				var bad *UncleanableError
				require.ErrorAs(t, err, &bad)
				require.Equal(t, []int64{int64(len(first)), 1, dirty}, []int64{bad.Position, bad.Offset, out.FirstDirty})
				require.True(t, errors.Is(err, record.ErrCorrupt), err)
			}
		})
	}
}

func TestAPayloadBeyondTheLimitsIsReported(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.c.Limits.MaxDecompressedBytes = 1000
	w.add(batchOf(0, record.BuilderOptions{Codec: record.Gzip}, "a="+strings.Repeat("v", 10_000)))
	w.add(plain(1, "x=1"))
	_, err := w.clean()
	require.ErrorIs(t, err, ErrUncleanable)
	require.ErrorIs(t, err, record.ErrTooLarge)
}

func TestADamagedTransactionIndexIsAnError(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(plain(0, "a=1"), tx(1, 0, 1, "a=2"), end(false, 1, 2))
	w.aborted(0, 1, 1, 2, 3)
	w.add(plain(3, "x=1"))
	w.reopen()
	f := must(w.fs.OpenFile(folder+"/00000000000000000000.txnindex", 2, 0))
	must(f.WriteAt(bytes.Repeat([]byte{0xff}, 34), 0))
	require.NoError(t, f.Close())
	before := w.files()
	_, err := w.clean()
	require.ErrorIs(t, err, segment.ErrCorrupt)
	require.Equal(t, before, w.files())
}

// Offsets of records that their batch does not hold would put a key in a place that another record has.
func TestARecordOutsideItsBatchEndsTheCleaning(t *testing.T) {
	for name, change := range map[string]func(b []byte){
		"above": func(b []byte) { b[26] = 0 },   // last offset delta
		"below": func(b []byte) { b[61+3] = 1 }, // offset delta -1 of the first record
	} {
		for _, exact := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t, vfs.Mem())
				w.c.ExactKeys = exact
				w.add(plain(0, "a=0"), badBatch(1, change), plain(3, "a=3"))
				w.add(plain(4, "x=1"))
				before := w.files()
				out, err := w.clean()
				bad, _ := errors.AsType[*UncleanableError](err)
				require.NotNil(t, bad, "%v", err)
				require.EqualValues(t, 1, bad.Offset)
				require.Zero(t, out.Groups)
				require.Equal(t, before, w.files())
			})
		}
	}
}
