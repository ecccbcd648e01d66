package compaction

import (
	"bytes"
	"compress/gzip"
	"errors"
	"hash/crc32"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// entry is a legacy entry of one record.
func entry(magic byte, offset int64, kv string) []byte { return entryAt(magic, offset, 0, offset, kv) }

func entryAt(magic byte, offset int64, attributes byte, ts int64, kv string) []byte {
	r := rec{offset, kv, at0.UnixMilli() + ts}.record()
	return entryOf(magic, attributes, r)
}

func entryOf(magic, attributes byte, r record.Record) []byte {
	stamp := make([]byte, 40) // a batch to take magic and timestamp type from
	stamp[11], stamp[16] = 28, magic
	raw := appendLegacy(nil, must(record.View(stamp)), &r)
	if attributes != 0 {
		raw[17] = attributes
		f := filterCRC(raw)
		copy(raw[12:16], f)
	}
	return raw
}

func filterCRC(raw []byte) []byte {
	out := make([]byte, 4)
	c := crcOf(raw[16:])
	out[0], out[1], out[2], out[3] = byte(c>>24), byte(c>>16), byte(c>>8), byte(c)
	return out
}

// wrapper compresses entries into one of the offset of the last.
func wrapper(magic byte, last int64, attributes byte, ts int64, entries ...[]byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for _, e := range entries {
		must(z.Write(e))
	}
	if err := z.Close(); err != nil {
		panic(err)
	}
	return entryOf(magic, attributes|1, record.Record{Offset: last, Timestamp: at0.UnixMilli() + ts, Value: b.Bytes()})
}

// Scenario: I003, C039
func TestLegacyFormats(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(
		entry(0, 0, "a=0"), entry(0, 1, "b=0"),
		wrapper(0, 4, 0, 0, entry(0, 2, "c=0"), entry(0, 3, "a=1"), entry(0, 4, "d=0")),
		entry(1, 5, "e=1"),
		wrapper(1, 8, 0, 8, entryAt(1, 0, 0, 6, "b=1"), entryAt(1, 1, 0, 7, "f=1"), entryAt(1, 2, 0, 8, "g=1")),
		wrapper(1, 10, 8, 50, entryAt(1, 0, 0, 9, "h=1"), entryAt(1, 1, 0, 10, "i=1")),
		wrapper(1, 12, 0, 12, entryAt(1, 0, 0, 11, "k=1"), entryAt(1, 1, 0, 12, "l=1")),
	)
	w.add(plain(13, "a=2", "g=2", "h=2"))
	w.add(plain(16, "x=1"))
	all := w.view().records
	before := must(vfs.ReadFile(w.fs, w.segs[0].File(), 1<<20))
	w.mustClean()
	require.Equal(t, []string{"1:b=0", "2:c=0", "4:d=0", "5:e=1", "6:b=1", "7:f=1", "10:i=1", "11:k=1", "12:l=1", "13:a=2", "14:g=2", "15:h=2", "16:x=1"}[1:], w.kvs())
	for _, r := range w.view().records {
		require.Equal(t, all[r.offset], r)
	}
	after := must(vfs.ReadFile(w.fs, w.segs[0].File(), 1<<20))
	last := wrapper(1, 12, 0, 12, entryAt(1, 0, 0, 11, "k=1"), entryAt(1, 1, 0, 12, "l=1"))
	require.Contains(t, string(before), string(last))
	require.Contains(t, string(after), string(last), "a set of which all stays is copied")
	w.dirty = 0
	require.Zero(t, w.mustClean().Written)
}

// A legacy tombstone has no horizon: it goes by the age of files.
func TestLegacyTombstones(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.c.DeleteRetention = time.Hour
	w.add(entry(1, 0, "a=1"), entry(1, 1, "a"))
	w.add(plain(2, "b=1"))
	w.add(plain(3, "x=1"))
	touch := func(i int, at time.Time) { require.NoError(t, w.fs.Chtimes(w.segs[i].File(), at)) }
	touch(0, at0)
	touch(1, at0)
	w.mustClean(func(in *Input) { in.Options.MaxBytes = 1 })
	require.Equal(t, []string{"1:a", "2:b=1", "3:x=1"}, w.kvs(), "nothing was clean before")
	w.add(plain(4, "y=1"))
	touch(0, at0)
	touch(1, at0.Add(time.Hour-1))
	w.mustClean(func(in *Input) { in.Options.MaxBytes = 1 })
	require.Equal(t, "1:a", w.kvs()[0])
	touch(1, at0.Add(2*time.Hour))
	touch(2, at0.Add(2*time.Hour))
	w.add(plain(5, "z=1"))
	w.mustClean(func(in *Input) { in.Options.MaxBytes, in.Bounds.Removal = 1, new(int64(1)) })
	require.Equal(t, "1:a", w.kvs()[0])
	w.dirty = 3
	w.mustClean(func(in *Input) { in.Options.MaxBytes = 1 })
	require.Equal(t, "2:b=1", w.kvs()[0])
}

// A legacy entry has no header that could stay: the last one of the range goes like any other.
func TestALegacyEntryLeavesNoHeader(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(plain(0, "a=1"), entry(1, 1, "=unkeyed"))
	w.add(plain(2, "x=1"))
	w.mustClean()
	require.Equal(t, []string{"0-0 a=0x0 n=1", "2-2 a=0x0 n=1"}, w.lines())
}

func crcOf(b []byte) uint32 { return crc32.ChecksumIEEE(b) }

// The offset of a wrapper is not under its checksum either, and all its records are counted from it.
func TestAWrapperThatWasMovedEndsTheCleaning(t *testing.T) {
	for name, moved := range map[string]int64{
		"into the one before it":         3,
		"into the segment behind it":     6,
		"out of the log":                 1 << 50,
		"below zero":                     -1,
		"below all that it can count to": 1,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, vfs.Mem())
			set := wrapper(1, 4, 0, 0, entry(1, 0, "a=2"), entry(1, 1, "b=3"), entry(1, 2, "c=4"))
			w.add(entry(1, 0, "a=0"), entry(1, 1, "b=1"), set)
			w.add(entry(1, 5, "a=5"))
			w.add(entry(1, 6, "x=1"))
			f := must(w.fs.OpenFile(w.segs[0].File(), 2, 0))
			must(f.WriteAt([]byte{byte(moved >> 56), byte(moved >> 48), byte(moved >> 40), byte(moved >> 32), 0, 0, byte(moved >> 8), byte(moved)},
				int64(len(entry(1, 0, "a=0"))+len(entry(1, 1, "b=1")))))
			require.NoError(t, f.Close())
			w.reopen()
			before := w.files()
			out, err := w.clean()
			bad, _ := errors.AsType[*UncleanableError](err)
			require.NotNil(t, bad, "%v", err)
			require.Equal(t, folder+"/00000000000000000000.log", bad.File)
			require.Positive(t, bad.Position)
			require.Zero(t, out.Groups)
			require.Equal(t, before, w.files())
		})
	}
}
