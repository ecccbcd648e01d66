package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// legacyRecords collects what iterating over the one entry in b yields.
func legacyRecords(t testing.TB, b []byte) ([]Record, error) {
	t.Helper()
	batch, err := View(b)
	if err != nil {
		return nil, err
	}
	var got []Record
	for r, err := range batch.Records(NewDecoder(Limits{MaxDecompressedBytes: 1 << 20})) {
		if err != nil {
			return got, err
		}
		got = append(got, r.Clone())
	}
	return got, nil
}

func message(offset int64, magic int8, timestamp int64, key, value string) legacyEntry {
	return legacyEntry{offset: offset, magic: magic, timestamp: timestamp, key: []byte(key), value: []byte(value)}
}

func TestWorkedLegacyMessages(t *testing.T) {
	for _, c := range []struct {
		name, bytes string
		want        Record
	}{
		{"F: magic 1", "00 00 00 00 00 00 00 05 00 00 00 18 e4 e3 21 bc 01 00 00 00 00 00 00 00 03 e8 00 00 00 01 6b 00 00 00 01 76",
			Record{Offset: 5, Timestamp: 1000, Key: []byte("k"), Value: []byte("v")}},
		{"G: magic 0 tombstone", "00 00 00 00 00 00 00 04 00 00 00 0f 90 82 04 f6 00 00 00 00 00 01 6b ff ff ff ff",
			Record{Offset: 4, Timestamp: NoTimestamp, Key: []byte("k")}},
	} {
		b := streamBytes(t, c.bytes)
		batch, err := View(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := batch.Verify(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		got, err := legacyRecords(t, b)
		if err != nil || !reflect.DeepEqual(got, []Record{c.want}) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
		// The writer of these tests makes the same bytes.
		again := appendLegacy(nil, legacyEntry{offset: c.want.Offset, magic: batch.Magic(), timestamp: c.want.Timestamp, key: c.want.Key, value: c.want.Value})
		if !bytes.Equal(again, b) {
			t.Errorf("%s: written anew as %x", c.name, again)
		}
		if first, err := NewDecoder(Limits{}).FirstOffset(batch); err != nil || first != c.want.Offset {
			t.Errorf("%s: first offset %d, %v", c.name, first, err)
		}
	}
}

func TestLegacyWrappersGiveOffsetsAndTimestampsAsTheirMagicSays(t *testing.T) {
	for _, codec := range []Codec{Gzip, Snappy, LZ4} {
		for _, c := range []struct {
			name    string
			wrapper legacyEntry
			offsets []int64
			times   []int64
		}{
			{"magic 0: absolute", legacyEntry{offset: 12, inner: []legacyEntry{message(10, 0, 0, "a", "1"), message(11, 0, 0, "b", "2"), message(12, 0, 0, "c", "3")}},
				[]int64{10, 11, 12}, []int64{-1, -1, -1}},
			{"magic 0 with gaps", legacyEntry{offset: 15, inner: []legacyEntry{message(10, 0, 0, "a", "1"), message(15, 0, 0, "b", "2")}},
				[]int64{10, 15}, []int64{-1, -1}},
			{"magic 1: relative", legacyEntry{offset: 12, magic: 1, timestamp: 30, inner: []legacyEntry{message(0, 1, 30, "a", "1"), message(1, 1, 20, "b", "2"), message(2, 1, 10, "c", "3")}},
				[]int64{10, 11, 12}, []int64{30, 20, 10}},
			{"magic 1 with gaps left by compaction", legacyEntry{offset: 19, magic: 1, timestamp: 30, inner: []legacyEntry{message(2, 1, 30, "a", "1"), message(9, 1, 20, "b", "2")}},
				[]int64{12, 19}, []int64{30, 20}},
			{"magic 1, one message", legacyEntry{offset: 7, magic: 1, timestamp: 30, inner: []legacyEntry{message(0, 1, 30, "a", "1")}},
				[]int64{7}, []int64{30}},
			{"magic 1, wrapper at its own last inner offset", legacyEntry{offset: 1, magic: 1, timestamp: 30, inner: []legacyEntry{message(0, 1, 30, "a", "1"), message(1, 1, 20, "b", "2")}},
				[]int64{0, 1}, []int64{30, 20}},
			{"magic 1 at 0: never placed", legacyEntry{offset: 0, magic: 1, timestamp: 30, inner: []legacyEntry{message(0, 1, 30, "a", "1"), message(1, 1, 20, "b", "2")}},
				[]int64{0, 1}, []int64{30, 20}},
			{"magic 1, append time", legacyEntry{offset: 12, magic: 1, appendTime: true, timestamp: 99, inner: []legacyEntry{message(0, 1, 30, "a", "1"), message(1, 1, -1, "b", "2")}},
				[]int64{11, 12}, []int64{99, 99}},
			{"magic 1, inner append time bits mean nothing", legacyEntry{offset: 12, magic: 1, timestamp: 99, inner: []legacyEntry{{offset: 0, magic: 1, appendTime: true, timestamp: 5, value: []byte("v")}}},
				[]int64{12}, []int64{5}},
			{"magic 1 around magic 0", legacyEntry{offset: 12, magic: 1, timestamp: 99, inner: []legacyEntry{message(0, 0, 0, "a", "1"), message(1, 0, 0, "b", "2")}},
				[]int64{11, 12}, []int64{-1, -1}},
		} {
			c.wrapper.codec = codec
			name := fmt.Sprintf("%s, %s", c.name, codec)
			b := appendLegacy(nil, c.wrapper)
			batch, err := View(b)
			if err == nil {
				err = batch.Verify()
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got, err := legacyRecords(t, b)
			if err != nil || len(got) != len(c.offsets) {
				t.Errorf("%s: %d records, %v", name, len(got), err)
				continue
			}
			for i, r := range got {
				in := c.wrapper.inner[i]
				if r.Offset != c.offsets[i] || r.Timestamp != c.times[i] || !bytes.Equal(r.Key, in.key) || !bytes.Equal(r.Value, in.value) || r.Headers != nil {
					t.Errorf("%s: record %d is %+v", name, i, r)
				}
			}
			if first, err := (*Decoder)(nil).FirstOffset(batch); err != nil || first != c.offsets[0] {
				t.Errorf("%s: first offset %d, %v", name, first, err)
			}
			if batch.LastOffset() != c.wrapper.offset || batch.LeaderEpoch() != NoEpoch || batch.Codec() != codec {
				t.Errorf("%s: header %d %d %s", name, batch.LastOffset(), batch.LeaderEpoch(), batch.Codec())
			}
		}
	}
}

func TestLegacyNullAndEmptyStayDistinct(t *testing.T) {
	for magic := range int8(2) {
		inner := []legacyEntry{{magic: magic}, {offset: 1, magic: magic, key: []byte{}, value: []byte{}}}
		b := appendLegacy(nil, legacyEntry{offset: 1, magic: magic, codec: Gzip, inner: inner})
		got, err := legacyRecords(t, b)
		if err != nil || len(got) != 2 {
			t.Fatalf("magic %d: %v, %v", magic, got, err)
		}
		if got[0].Key != nil || got[0].Value != nil || got[1].Key == nil || got[1].Value == nil {
			t.Errorf("magic %d: %#v", magic, got)
		}
	}
}

func TestIllegalLegacyEntriesAreErrors(t *testing.T) {
	inner := []legacyEntry{message(0, 1, 1, "a", "1"), message(1, 1, 2, "b", "2")}
	pack := func(c Codec, set []byte) []byte {
		b, err := compress(nil, set, c, 0)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	wrap := func(set []byte) legacyEntry {
		return legacyEntry{offset: 9, magic: 1, codec: Gzip, value: pack(Gzip, set)}
	}
	set := appendLegacy(nil, inner...)
	edit := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(set)) }
	flipped := edit(func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
	small := edit(func(b []byte) []byte { binary.BigEndian.PutUint32(b[posLength:], 13); return b })
	huge := edit(func(b []byte) []byte { binary.BigEndian.PutUint32(b[posLength:], math.MaxInt32); return b })
	magic2 := edit(func(b []byte) []byte { b[posMagic] = 2; return b })
	negative := func(n uint32) []byte { // the key length of a plain magic 1 entry
		b := appendLegacy(nil, message(3, 1, 5, "key", "value"))
		binary.BigEndian.PutUint32(b[posLegacyTimestamp+8:], n)
		stampLegacy(b)
		return b
	}
	plain := appendLegacy(nil, message(3, 1, 5, "key", "value"))
	longer := append(bytes.Clone(plain), 0)
	stampLegacy(longer)
	old := message(-5, 0, 0, "a", "1")

	for _, c := range []struct {
		name  string
		b     []byte
		fault string
	}{
		{"zstd", appendLegacy(nil, legacyEntry{offset: 9, magic: 1, codec: Zstd, value: pack(Zstd, set)}), "zstd"},
		{"codec 5", appendLegacy(nil, legacyEntry{offset: 9, magic: 1, codec: 5, value: set}), "codec"},
		{"null wrapper", appendLegacy(nil, legacyEntry{offset: 9, magic: 1, codec: Gzip}), "null"},
		{"empty wrapper", appendLegacy(nil, legacyEntry{offset: 9, magic: 1, codec: Gzip, value: []byte{}}), "gzip payload"},
		{"empty inner set", appendLegacy(nil, wrap(nil)), "empty"},
		{"garbage in the wrapper", appendLegacy(nil, legacyEntry{offset: 9, magic: 0, codec: LZ4, value: []byte("garbage")}), "lz4 payload"},
		{"wrapper in a wrapper", appendLegacy(nil, legacyEntry{offset: 9, magic: 1, codec: Gzip, inner: []legacyEntry{{magic: 1, codec: Snappy, inner: inner}}}), "inside a compressed set"},
		{"wrapper below its last inner offset", appendLegacy(nil, legacyEntry{offset: 1, magic: 1, codec: Gzip, inner: []legacyEntry{message(0, 1, 1, "a", "1"), message(2, 1, 1, "a", "1")}}), "smaller than the last inner"},
		{"inner entry cut short", appendLegacy(nil, wrap(set[:len(set)-1])), "record 1: the message is cut short"},
		{"inner header cut short", appendLegacy(nil, wrap(append(bytes.Clone(set), 0, 0))), "record 2: an entry is cut short"},
		{"inner size too small", appendLegacy(nil, wrap(small)), "record 0: the size"},
		{"inner size too large", appendLegacy(nil, wrap(huge)), "record 0: the message is cut short"},
		{"inner magic 2", appendLegacy(nil, wrap(magic2)), "record 0: the message has magic 2"},
		{"inner crc", appendLegacy(nil, wrap(flipped)), "record 1: its checksum"},
		{"negative inner offset", appendLegacy(nil, legacyEntry{offset: 9, codec: Gzip, inner: []legacyEntry{old}}), "no offset"},
		{"negative inner offset behind the first", appendLegacy(nil, legacyEntry{offset: 9, codec: Gzip, inner: []legacyEntry{message(1, 0, 0, "", ""), old}}), "no offset"},
		{"inner offset that overflows", appendLegacy(nil, legacyEntry{offset: math.MaxInt64 - 1, magic: 1, codec: Gzip, inner: []legacyEntry{message(math.MaxInt64-1, 1, 0, "", ""), message(1, 1, 0, "", "")}}), "no offset"},
		{"inner offsets that fall", appendLegacy(nil, legacyEntry{offset: 90, magic: 1, codec: Gzip, inner: []legacyEntry{message(7, 1, 0, "", ""), message(1, 1, 0, "", "")}}), "no offset"},
		{"inner offsets that fall, absolute", appendLegacy(nil, legacyEntry{offset: 1, codec: Gzip, inner: []legacyEntry{message(7, 0, 0, "", ""), message(1, 0, 0, "", "")}}), "no offset"},
		{"key length -2", negative(0xfffffffe), "key"},
		{"key length beyond the message", negative(100), "key"},
		{"key that eats the value's length", negative(10), "value"},
		{"bytes behind the value", longer, "bytes follow"},
	} {
		_, err := legacyRecords(t, c.b)
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %v, want %q", c.name, err, c.fault)
		}
		if c.b[posLegacyAttributes]&attrCodec != 0 {
			batch, err := View(c.b)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := NewDecoder(Limits{}).FirstOffset(batch); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: first offset: %v", c.name, err)
			}
		}
	}
}

func TestALegacyBombIsTooLarge(t *testing.T) {
	big := legacyEntry{magic: 1, value: make([]byte, 2<<20)}
	for _, codec := range []Codec{Gzip, Snappy, LZ4} {
		b := appendLegacy(nil, legacyEntry{offset: 5, magic: 1, codec: codec, inner: []legacyEntry{big}})
		if _, err := legacyRecords(t, b); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", codec, err)
		}
	}
}

func TestEveryFlippedBitOfALegacyEntryIsSeen(t *testing.T) {
	b := appendLegacy(nil, legacyEntry{offset: 9, magic: 1, timestamp: 7, codec: Snappy, inner: []legacyEntry{message(0, 1, 1, "a", "1"), message(1, 1, 1, "b", "2")}})
	for i := posLegacyCRC * 8; i < len(b)*8; i++ {
		damaged := bytes.Clone(b)
		damaged[i/8] ^= 1 << (i % 8)
		batch, err := View(damaged)
		if err == nil {
			err = batch.Verify()
		}
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrIncomplete) {
			t.Errorf("bit %d: %v", i, err)
		}
	}
}

func TestWalkingALegacyWrapperAllocatesNothing(t *testing.T) {
	b := appendLegacy(nil, legacyEntry{offset: 9, magic: 1, codec: LZ4, inner: []legacyEntry{message(0, 1, 1, "a", "1"), message(1, 1, 1, "b", "2")}})
	batch, err := View(b)
	if err != nil {
		t.Fatal(err)
	}
	d := NewDecoder(Limits{})
	if n := testing.AllocsPerRun(100, func() {
		for _, err := range batch.Records(d) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}); n >= 1 {
		t.Errorf("%.1f allocations", n)
	}
}

func TestALegacyIterationCanStopEarly(t *testing.T) {
	b := appendLegacy(nil, legacyEntry{offset: 9, magic: 1, codec: LZ4, inner: []legacyEntry{message(0, 1, 1, "a", "1"), message(1, 1, 1, "b", "2")}})
	batch, err := View(b)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for range batch.Records(nil) {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d steps", n)
	}
}

func TestChecksumsAreThoseThatLegacyRecordsCarry(t *testing.T) {
	inner := []legacyEntry{{offset: 0, magic: 1, timestamp: 5, value: []byte("a")}, {offset: 1, magic: 1, timestamp: 6, key: []byte("k")}}
	var want []uint32
	for _, e := range inner {
		want = append(want, binary.BigEndian.Uint32(appendLegacy(nil, e)[12:]))
	}
	for _, codec := range []Codec{Gzip, Snappy, LZ4} {
		// The wrapper's timestamp is the records', but not what their checksums are of.
		b, err := View(appendLegacy(nil, legacyEntry{offset: 9, magic: 1, appendTime: true, timestamp: 77, codec: codec, inner: inner}))
		require.NoError(t, err)
		got, err := NewDecoder(Limits{}).Checksums(b)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	b, err := View(appendLegacy(nil, inner[0]))
	require.NoError(t, err)
	got, err := (*Decoder)(nil).Checksums(b)
	require.NoError(t, err)
	require.Equal(t, want[:1], got)
}
