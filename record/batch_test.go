package record

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Scenario: D002
// Scenario: D009
func TestSequencesWrapToZero(t *testing.T) {
	b := buildAll(t, BuilderOptions{Producer: &Producer{ID: 1, Epoch: 0, BaseSequence: math.MaxInt32}}, 0, keyed(1, 2, 3)...)
	require.Equal(t, int32(1), b.LastSequence())

	for _, row := range []struct{ seq, n, want int32 }{
		{0, 0, 0}, {5, 5, 10}, {math.MaxInt32 - 1, 1, math.MaxInt32}, {math.MaxInt32, 1, 0}, {math.MaxInt32, 2, 1},
		{math.MaxInt32 - 5, 10, 4}, {math.MaxInt32, math.MaxInt32, math.MaxInt32 - 1},
	} {
		require.Equal(t, row.want, IncrementSequence(row.seq, row.n), row)
		require.Equal(t, row.seq, DecrementSequence(row.want, row.n), row)
	}
	require.Equal(t, int32(math.MaxInt32), DecrementSequence(0, 1))
	require.Equal(t, int32(math.MaxInt32-4), DecrementSequence(5, 10))
}

// Scenario: D003
func TestRecordCountThatIsNotTheRecordsIsCorrupt(t *testing.T) {
	for _, c := range allCodecs {
		for _, count := range []uint32{1, 2, 4, 1 << 20, math.MaxInt32, math.MaxUint32} {
			b := withHeader(buildAll(t, BuilderOptions{Codec: c}, 0, keyed(1, 2, 3)...), func(h []byte) {
				binary.BigEndian.PutUint32(h[posCount:], count)
			})
			n, err := iterate(b)
			require.ErrorIs(t, err, ErrCorrupt)
			require.Equal(t, min(int(max(int32(count), 1))-1, 3), n, "the records before the fault")
		}
	}
	b := withHeader(buildAll(t, BuilderOptions{Codec: Gzip}, 0, keyed(1)...), func(h []byte) {
		binary.BigEndian.PutUint32(h[posCount:], 0)
	})
	n, err := iterate(b)
	require.NoError(t, err, "no records, and the payload is not looked at")
	require.Zero(t, n)
}

// iterate counts the records and returns the error, which must come last.
func iterate(b Batch) (int, error) {
	n := 0
	var failed error
	for _, err := range b.Records(nil) {
		if failed != nil {
			panic("something follows an error")
		}
		if err != nil {
			failed = err
			continue
		}
		n++
	}
	return n, failed
}

// Scenario: D004
// Scenario: D019
func TestDamagedFramesAreCorruptAndShortOnesIncomplete(t *testing.T) {
	length := func(n uint32) func([]byte) []byte {
		return func(b []byte) []byte { binary.BigEndian.PutUint32(b[posLength:], n); return b }
	}
	for _, row := range []struct {
		name   string
		change func([]byte) []byte
		want   error
		field  string
	}{
		{"nothing", func(b []byte) []byte { return nil }, ErrIncomplete, ""},
		{"eleven bytes", func(b []byte) []byte { return b[:11] }, ErrIncomplete, ""},
		{"sixteen bytes", func(b []byte) []byte { return b[:16] }, ErrIncomplete, ""},
		{"one byte short", func(b []byte) []byte { return b[:len(b)-1] }, ErrIncomplete, ""},
		{"zeros", func(b []byte) []byte { return make([]byte, 12) }, ErrCorrupt, "length"},
		{"length 13", length(13), ErrCorrupt, "length"},
		{"length negative", length(0xffffffff), ErrCorrupt, "length"},
		{"length below the header", length(48), ErrCorrupt, "length"},
		{"length beyond files", length(math.MaxInt32 - 11), ErrCorrupt, "length"},
		{"length beyond the input", length(math.MaxInt32 - 12), ErrIncomplete, ""},
		{"magic 3", func(b []byte) []byte { b[posMagic] = 3; return b }, ErrCorrupt, "magic"},
		{"magic -1", func(b []byte) []byte { b[posMagic] = 0xff; return b }, ErrCorrupt, "magic"},
		{"magic 1 and too short for it", func(b []byte) []byte { b[posMagic] = 1; return length(21)(b) }, ErrCorrupt, "length"},
	} {
		t.Run(row.name, func(t *testing.T) {
			raw := row.change(bytes.Clone(sampleA))
			batch, rest, err := Next(raw)
			require.ErrorIs(t, err, row.want)
			require.Equal(t, Batch{}, batch)
			require.Equal(t, raw, rest)
			_, err = View(raw)
			require.ErrorIs(t, err, row.want)

			behind := append(bytes.Clone(sampleB), raw...)
			info, err := Split(behind, Limits{})
			require.Equal(t, 1, info.Batches)
			require.Equal(t, len(sampleB), info.Bytes)
			if row.want == ErrIncomplete {
				require.NoError(t, err)
				return
			}
			var corrupt *CorruptError
			require.ErrorAs(t, err, &corrupt)
			require.Equal(t, row.field, corrupt.Field)
			require.Equal(t, len(sampleB), corrupt.Pos)
			require.Contains(t, err.Error(), fmt.Sprint("byte ", len(sampleB)))
		})
	}
	_, err := View(append(bytes.Clone(sampleA), 0))
	require.ErrorIs(t, err, ErrCorrupt)
}

func TestEveryFlippedBitBehindTheMagicFailsVerify(t *testing.T) {
	for name, sample := range map[string][]byte{"B": sampleB, "D": sampleD, "E": sampleE, "F": sampleF, "G": sampleG} {
		from := posCRC
		if sample[posMagic] < 2 {
			from = posLegacyCRC
		}
		for i := from * 8; i < len(sample)*8; i++ {
			if i/8 == posMagic {
				continue
			}
			b := Batch{bytes.Clone(sample)}
			b.b[i/8] ^= 1 << (i % 8)
			var corrupt *CorruptError
			require.ErrorAs(t, b.Verify(), &corrupt, name)
			require.Equal(t, "crc", corrupt.Field)
		}
	}
}

func TestHeaderRulesThatTheChecksumDoesNotSee(t *testing.T) {
	for name, row := range map[string]struct {
		field  string
		change func(h []byte)
	}{
		"negative offset":   {"base offset", func(h []byte) { h[0] = 0x80 }},
		"offset overflow":   {"base offset", func(h []byte) { binary.BigEndian.PutUint64(h, math.MaxInt64-2) }},
		"unknown codec":     {"attributes", func(h []byte) { h[posAttributes+1] = 5 }},
		"negative delta":    {"last offset delta", func(h []byte) { h[posLastOffsetDelta] = 0x80 }},
		"negative count":    {"count", func(h []byte) { h[posCount] = 0x80 }},
		"count above delta": {"count", func(h []byte) { h[posCount+3] = 4 }},
	} {
		t.Run(name, func(t *testing.T) {
			b := withHeader(view(t, sampleB), row.change)
			var corrupt *CorruptError
			require.ErrorAs(t, b.Verify(), &corrupt)
			require.Equal(t, row.field, corrupt.Field)
		})
	}
	zstd := withHeader(view(t, sampleF), func([]byte) {})
	zstd.b[posLegacyAttributes] = byte(Zstd)
	binary.BigEndian.PutUint32(zstd.b[posLegacyCRC:], zstd.computeChecksum())
	var corrupt *CorruptError
	require.ErrorAs(t, zstd.Verify(), &corrupt)
}

func TestPeekNeedsSeventeenBytesAndDoesNotJudgeMagic(t *testing.T) {
	_, _, err := Peek(sampleB[:16])
	require.ErrorIs(t, err, ErrIncomplete)
	size, magic, err := Peek(sampleB[:17])
	require.NoError(t, err)
	require.Equal(t, []int{92, 2}, []int{size, int(magic)})
	size, magic, err = Peek(sampleF)
	require.NoError(t, err)
	require.Equal(t, []int{len(sampleF), 1}, []int{size, int(magic)})
	odd := bytes.Clone(sampleB)
	odd[posMagic] = 0x57
	_, magic, err = Peek(odd)
	require.NoError(t, err)
	require.Equal(t, int8(0x57), magic)
	_, _, err = Peek(make([]byte, 17))
	require.ErrorIs(t, err, ErrCorrupt)
}

func TestSplitCountsMixedFormats(t *testing.T) {
	wrapper := oldSet(t, 1, Gzip, keyed(7, 9)...)
	Batch{wrapper}.SetBaseOffset(11)
	raw := bytes.Join([][]byte{wrapper, sampleB, sampleC, sampleD[:30]}, nil)
	info, err := Split(raw, Limits{})
	require.NoError(t, err)
	require.Equal(t, Info{Batches: 3, Records: 6, FirstOffset: 10, LastOffset: 103, MaxTimestamp: 2000, Bytes: len(raw) - 30}, info)

	_, err = Split(sampleB, Limits{MaxBatchBytes: len(sampleB) - 1})
	require.ErrorIs(t, err, ErrTooLarge)
	big := buildAll(t, BuilderOptions{Codec: Zstd}, 0, Record{Value: make([]byte, 10000)})
	_, err = Split(big.Bytes(), Limits{MaxDecompressedBytes: 5000})
	require.ErrorIs(t, err, ErrTooLarge)
	info, err = Split(nil, Limits{})
	require.NoError(t, err)
	require.Equal(t, Info{FirstOffset: -1, LastOffset: -1, MaxTimestamp: -1}, info)
	flipped := bytes.Clone(sampleB)
	flipped[70] ^= 1
	_, err = Split(flipped, Limits{})
	require.ErrorIs(t, err, ErrCorrupt)
}

func TestPatchesLeaveTheChecksumAndAppendTimeStampsIt(t *testing.T) {
	b := view(t, sampleB)
	b.SetBaseOffset(1 << 40)
	b.SetLeaderEpoch(99)
	require.NoError(t, b.Verify())
	require.Equal(t, int64(1<<40+2), b.LastOffset())
	require.Equal(t, int32(99), b.LeaderEpoch())
	require.Equal(t, sampleB[posMagic:], b.Bytes()[posMagic:])

	crc := b.Checksum()
	b.SetAppendTime(5000)
	require.NoError(t, b.Verify())
	require.NotEqual(t, crc, b.Checksum())
	require.Equal(t, LogAppendTime, b.TimestampType())
	for _, r := range collect(t, b) {
		require.Equal(t, int64(5000), r.Timestamp)
	}

	before := bytes.Clone(b.Bytes())
	crc = b.Checksum()
	b.SetProducerID(1 << 62)
	require.NoError(t, b.Verify())
	require.NotEqual(t, crc, b.Checksum())
	id, _, _ := b.Producer()
	require.Equal(t, int64(1)<<62, id)
	require.Equal(t, before[posProducerEpoch:], b.Bytes()[posProducerEpoch:])

	f := view(t, sampleF)
	f.SetLeaderEpoch(3)
	f.SetProducerID(3)
	f.SetAppendTime(3)
	require.Equal(t, sampleF, f.Bytes())
	f.SetBaseOffset(77)
	require.NoError(t, f.Verify())
	require.Equal(t, int64(77), f.LastOffset())
}

func TestLegacyEntriesAnswerTheWholeView(t *testing.T) {
	b := view(t, sampleF)
	id, epoch, sequence := b.Producer()
	require.Equal(t, []int64{-1, -1, -1, -1}, []int64{id, int64(epoch), int64(sequence), int64(b.LastSequence())})
	require.False(t, b.Transactional() || b.Control())
	_, ok := b.DeleteHorizon()
	require.False(t, ok)
	require.Equal(t, int64(1000), b.BaseTimestamp())
	require.Equal(t, None, b.Codec())
	wrapper := view(t, oldSet(t, 1, Gzip, keyed(7, 9)...))
	require.Equal(t, -1, wrapper.Count())
	require.Equal(t, Gzip, wrapper.Codec())
}

// Scenario: D006
func TestDamagedRecordsAreCorrupt(t *testing.T) {
	for name, row := range map[string]struct{ body, reason string }{
		"nothing at all":              {"", "no length"},
		"a length of six bytes":       {"ffffffffff01", "no length"},
		"a length beyond the batch":   {"7e 00 00 00 01 01 00", "beyond the end of the batch"},
		"a negative length":           {"01", "beyond the end of the batch"},
		"a length of zero":            {"00", "length is zero"},
		"no timestamp delta":          {"02 00", "timestamp delta"},
		"a timestamp delta too long":  {"1c 00 ffffffffffffffffffffffff 00", "timestamp delta"},
		"no offset delta":             {"04 00 00", "offset delta"},
		"no key length":               {"06 00 00 00", "its key"},
		"a key beyond the record":     {"0c 00 00 00 7e 6b 01", "its key"},
		"no value length":             {"08 00 00 00 01", "its value"},
		"a value beyond the record":   {"0c 00 00 00 01 7e 76", "its value"},
		"no header count":             {"0a 00 00 00 01 01", "count does not parse"},
		"a negative header count":     {"0c 00 00 00 01 01 01", "count is negative"},
		"more headers than bytes":     {"0e 00 00 00 01 01 04 02", "larger than the bytes"},
		"two million headers":         {"10 00 00 00 01 01 80 89 7a", "larger than the bytes"},
		"a null header key":           {"10 00 00 00 01 01 02 01 01", "a header is"},
		"a header key beyond":         {"10 00 00 00 01 01 02 08 61", "a header is"},
		"no header value":             {"10 00 00 00 01 01 02 02 61", "a header is"},
		"a header value beyond":       {"12 00 00 00 01 01 02 02 61 04", "a header is"},
		"a header less than declared": {"12 00 00 00 01 01 04 02 61 01", "a header is"},
		"a header more than declared": {"14 00 00 00 01 01 02 02 61 01 00", "follow its last header"},
		"bytes behind the headers":    {"0e 00 00 00 01 01 00 00", "follow its last header"},
		"bytes behind the record":     {"0c 00 00 00 01 01 00 00", "follow the last record"},
	} {
		for _, c := range allCodecs {
			t.Run(fmt.Sprint(name, " ", c), func(t *testing.T) {
				b, err := compress(make([]byte, HeaderSize), unhex(row.body), c, 0)
				require.NoError(t, err)
				h := header{count: 1}
				h.write(b, c)
				Batch{b}.stampChecksum()
				require.NoError(t, Batch{b}.Verify())
				n, err := iterate(Batch{b})
				require.Zero(t, n)
				var corrupt *CorruptError
				require.ErrorAs(t, err, &corrupt)
				if c == None || row.body != "" { // some codecs have no empty stream
					require.Contains(t, corrupt.Reason, row.reason)
				}
				_, err = Split(b, Limits{})
				require.ErrorIs(t, err, ErrCorrupt)
				_, err = NewDecoder(Limits{}).Validate(b, topic())
				require.ErrorIs(t, err, ErrInvalidRecord)
			})
		}
	}
}

// Scenario: D006
func TestHeadersKeepOrderNullsAndForeignLetters(t *testing.T) {
	for _, c := range allCodecs {
		records := []Record{
			{Timestamp: 1, Headers: []Header{{Key: "foo", Value: []byte("value")}, {Key: "bar"}, {Key: "\"A\\u00ea\\u00f1\\u00fcC\" êñü", Value: []byte{}}, {Key: "foo"}}},
			{Offset: 1, Timestamp: 1, Headers: []Header{{Key: "foo", Value: []byte("x")}, {Key: ""}}},
			{Offset: 2, Timestamp: 1},
			{Offset: 3, Timestamp: 1, Key: []byte{}, Headers: []Header{{Key: "other"}}},
		}
		require.Equal(t, records, collect(t, buildAll(t, BuilderOptions{Codec: c}, 0, records...)))
	}
}

// Scenario: D008
//
// There is one iterator; what must agree is a run without a decoder, with a fresh one and with one that is reused.
func TestIterationDoesNotDependOnTheDecoder(t *testing.T) {
	reused := NewDecoder(Limits{})
	for round := range 3 {
		for _, c := range allCodecs {
			records := keyed(int64(round), 2, 3)
			records[1].Headers = []Header{{Key: fmt.Sprint("h", round), Value: []byte("x")}}
			b := buildAll(t, BuilderOptions{Codec: c}, 0, records...)
			for _, d := range []*Decoder{nil, NewDecoder(Limits{}), reused} {
				var got []Record
				for r, err := range b.Records(d) {
					require.NoError(t, err)
					got = append(got, r.Clone())
				}
				require.Equal(t, records, got)
			}
		}
	}
}

func TestIterationMayStopAndNest(t *testing.T) {
	for _, c := range allCodecs {
		b := buildAll(t, BuilderOptions{Codec: c}, 0, keyed(1, 2, 3)...)
		n := 0
		for range b.Records(nil) {
			for range b.Records(nil) {
				n++
			}
			if n == 6 {
				break
			}
		}
		require.Equal(t, 6, n)
	}
}

func TestCloneOutlivesTheBatch(t *testing.T) {
	b := view(t, sampleB)
	records := collect(t, b)
	clear(b.Bytes())
	require.Equal(t, recordsOfB(), records)
	require.Nil(t, Record{}.Clone().Key)
	require.NotNil(t, Record{Key: []byte{}}.Clone().Key)
	require.Equal(t, time.Time{}, Record{Timestamp: NoTimestamp}.Time())
	require.Equal(t, int64(1005), records[1].Time().UnixMilli())
}

func TestHeaderReadsNextAndIterationAllocateNothing(t *testing.T) {
	raw := bytes.Join([][]byte{sampleB, sampleA, sampleE, sampleF}, nil)
	d := NewDecoder(Limits{})
	var sum int64
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for rest := raw; len(rest) > 0; {
			var b Batch
			b, rest, _ = Next(rest)
			sum += b.LastOffset() + int64(b.LeaderEpoch()) + b.MaxTimestamp() + int64(b.Count())
			if err := b.Verify(); err != nil {
				t.Fatal(err)
			}
		}
	}), "headers")
	plain := buildAll(t, BuilderOptions{}, 0, keyed(1, 2, 3)...)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for r, err := range plain.Records(d) {
			if err != nil {
				t.Fatal(err)
			}
			sum += r.Offset
		}
	}), "plain records")
	headers := []Header{{Key: "content-type", Value: []byte("x")}}
	same := buildAll(t, BuilderOptions{}, 0, Record{Headers: headers}, Record{Offset: 1, Headers: headers})
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for range same.Records(d) {
			sum++
		}
	}), "header keys that repeat")
}
