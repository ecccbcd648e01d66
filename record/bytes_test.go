package record

import (
	"encoding/hex"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The worked bytes of the format description. Kafka's own classes parse each as the tests below say.
var (
	// one record, base 0, epoch 0, time 1700000000000, k -> v
	sampleA = unhex(`0000000000000000 0000003a 00000000 02 e99b8dd8 0000 00000000
		0000018bcfe56800 0000018bcfe56800 ffffffffffffffff ffff ffffffff 00000001
		10 00 00 00 02 6b 02 76 00`)
	// base 100, epoch 7, producer 4000/3/10: a->1, b->null with header h=x, null->empty with header n=null
	sampleB = unhex(`00 00 00 00 00 00 00 64 00 00 00 50 00 00 00 07 02 28 1f d1 ed 00 00 00 00 00 02
		00 00 00 00 00 00 03 e8 00 00 00 00 00 00 03 ed 00 00 00 00 00 00 0f a0 00 03 00 00 00 0a 00 00 00 03
		10 00 00 00 02 61 02 31 00 16 00 0a 02 02 62 01 02 02 68 02 78 12 00 05 04 01 00 02 02 6e 01`)
	// COMMIT marker at offset 103
	sampleC = unhex(`00 00 00 00 00 00 00 67 00 00 00 42 00 00 00 07 02 8f 04 24 c6 00 30 00 00 00 00
		00 00 00 00 00 00 07 d0 00 00 00 00 00 00 07 d0 00 00 00 00 00 00 0f a0 00 03 ff ff ff ff 00 00 00 01
		20 00 00 00 08 00 00 00 01 0c 00 00 00 00 00 09 00`)
	// B with all its records compacted away
	sampleD = unhex(`00 00 00 00 00 00 00 64 00 00 00 31 00 00 00 07 02 32 36 ee ff 00 00 00 00 00 02
		ff ff ff ff ff ff ff ff 00 00 00 00 00 00 03 ed 00 00 00 00 00 00 0f a0 00 03 00 00 00 0a 00 00 00 00`)
	// tombstone b at 101 rewritten with delete horizon 90000000
	sampleE = unhex(`00 00 00 00 00 00 00 65 00 00 00 3c 00 00 00 07 02 4d 9f fd 9c 00 40 00 00 00 00
		00 00 00 00 05 5d 4a 80 00 00 00 00 00 00 03 ed ff ff ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 01
		14 00 a5 9a ea 55 00 02 62 01 00`)
	// magic 1, offset 5, time 1000, k -> v
	sampleF = unhex(`00 00 00 00 00 00 00 05 00 00 00 18 e4 e3 21 bc 01 00 00 00 00 00 00 00 03 e8 00 00 00 01 6b 00 00 00 01 76`)
	// magic 0 tombstone, offset 4, key k
	sampleG = unhex(`00 00 00 00 00 00 00 04 00 00 00 0f 90 82 04 f6 00 00 00 00 00 01 6b ff ff ff ff`)
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(regexp.MustCompile(`\s+`).ReplaceAllString(strings.TrimSpace(s), ""))
	if err != nil {
		panic(err)
	}
	return b
}

// view is a private copy of a sample.
func view(t testing.TB, sample []byte) Batch {
	t.Helper()
	b, err := View(append([]byte(nil), sample...))
	require.NoError(t, err)
	return b
}

// collect is all records of a batch, cloned.
func collect(t testing.TB, b Batch) []Record {
	t.Helper()
	var records []Record
	for r, err := range b.Records(nil) {
		require.NoError(t, err)
		records = append(records, r.Clone())
	}
	return records
}

func buildAll(t testing.TB, o BuilderOptions, base int64, records ...Record) Batch {
	t.Helper()
	b := NewBuilder(o)
	b.SetBaseOffset(base)
	for _, r := range records {
		require.NoError(t, b.AddAt(r))
	}
	batch, err := b.Finish()
	require.NoError(t, err)
	return batch
}

func TestWorkedSampleAOneRecord(t *testing.T) {
	b := view(t, sampleA)
	require.NoError(t, b.Verify())
	require.Equal(t, 70, b.Size())
	require.Equal(t, int8(2), b.Magic())
	require.Equal(t, None, b.Codec())
	require.Equal(t, CreateTime, b.TimestampType())
	require.Equal(t, int64(1700000000000), b.MaxTimestamp())
	id, epoch, sequence := b.Producer()
	require.Equal(t, []int64{-1, -1, -1}, []int64{id, int64(epoch), int64(sequence)})
	require.Equal(t, int32(-1), b.LastSequence())
	want := Record{Timestamp: 1700000000000, Key: []byte("k"), Value: []byte("v")}
	require.Equal(t, []Record{want}, collect(t, b))
	require.Equal(t, 9, want.EncodedSize())

	built := buildAll(t, BuilderOptions{}, 0, want)
	built.SetLeaderEpoch(0)
	require.Equal(t, sampleA, built.Bytes())
}

func recordsOfB() []Record {
	return []Record{
		{Offset: 100, Timestamp: 1000, Key: []byte("a"), Value: []byte("1")},
		{Offset: 101, Timestamp: 1005, Key: []byte("b"), Headers: []Header{{Key: "h", Value: []byte("x")}}},
		{Offset: 102, Timestamp: 997, Value: []byte{}, Headers: []Header{{Key: "n"}}},
	}
}

func TestWorkedSampleBIdempotentWithHeaders(t *testing.T) {
	b := view(t, sampleB)
	require.NoError(t, b.Verify())
	require.Equal(t, int64(100), b.BaseOffset())
	require.Equal(t, int64(102), b.LastOffset())
	require.Equal(t, int64(103), b.NextOffset())
	require.Equal(t, int32(7), b.LeaderEpoch())
	require.Equal(t, 3, b.Count())
	require.Equal(t, int64(1005), b.MaxTimestamp())
	require.Equal(t, int32(12), b.LastSequence())
	require.False(t, b.Transactional())
	require.Equal(t, recordsOfB(), collect(t, b))

	built := buildAll(t, BuilderOptions{Producer: &Producer{ID: 4000, Epoch: 3, BaseSequence: 10}}, 100, recordsOfB()...)
	built.SetLeaderEpoch(7)
	require.Equal(t, sampleB, built.Bytes())
}

func TestWorkedSampleCMarkers(t *testing.T) {
	b := view(t, sampleC)
	require.NoError(t, b.Verify())
	require.True(t, b.Transactional())
	require.True(t, b.Control())
	m, err := ParseMarker(collect(t, b)[0])
	require.NoError(t, err)
	require.Equal(t, EndMarker{Type: Commit, CoordinatorEpoch: 9}, m)

	built := Marker(true, Producer{ID: 4000, Epoch: 3}, 9, time.UnixMilli(2000))
	built.SetBaseOffset(103)
	built.SetLeaderEpoch(7)
	require.Equal(t, sampleC, built.Bytes())
	require.Equal(t, 78, cap(built.Bytes()))

	abort := Marker(false, Producer{ID: 4000, Epoch: 3}, 9, time.UnixMilli(2000))
	require.Equal(t, uint32(0x7b3af28e), abort.Checksum())
	require.Equal(t, []byte{0, 0, 0, 0}, collect(t, abort)[0].Key)
}

// Scenario: D001
func TestWorkedSampleDEmptiedBatchKeepsItsHeader(t *testing.T) {
	b := view(t, sampleD)
	require.NoError(t, b.Verify())
	require.Equal(t, 0, b.Count())
	require.Empty(t, collect(t, b))
	require.Equal(t, int64(102), b.LastOffset())
	require.Equal(t, int32(12), b.LastSequence())

	builder := NewBuilder(BuilderOptions{})
	require.NoError(t, builder.Rebuild(view(t, sampleB), 90000000))
	built, err := builder.Finish()
	require.NoError(t, err)
	require.Equal(t, sampleD, built.Bytes())
}

func TestWorkedSampleETombstoneWithDeleteHorizon(t *testing.T) {
	b := view(t, sampleE)
	require.NoError(t, b.Verify())
	horizon, ok := b.DeleteHorizon()
	require.True(t, ok)
	require.Equal(t, int64(90000000), horizon)
	want := Record{Offset: 101, Timestamp: 1005, Key: []byte("b")}
	require.Equal(t, []Record{want}, collect(t, b))

	source := buildAll(t, BuilderOptions{}, 101, want)
	source.SetLeaderEpoch(7)
	builder := NewBuilder(BuilderOptions{})
	require.NoError(t, builder.Rebuild(source, 90000000))
	require.NoError(t, builder.AddAt(want))
	built, err := builder.Finish()
	require.NoError(t, err)
	require.Equal(t, sampleE, built.Bytes())
}

func TestWorkedSamplesFAndGLegacyEntries(t *testing.T) {
	f := view(t, sampleF)
	require.NoError(t, f.Verify())
	require.Equal(t, []int64{5, 5, 1000, 1}, []int64{f.BaseOffset(), f.LastOffset(), f.MaxTimestamp(), int64(f.Count())})
	require.Equal(t, NoEpoch, f.LeaderEpoch())
	require.Equal(t, []Record{{Offset: 5, Timestamp: 1000, Key: []byte("k"), Value: []byte("v")}}, collect(t, f))

	g := view(t, sampleG)
	require.NoError(t, g.Verify())
	require.Equal(t, NoTimestamp, g.MaxTimestamp())
	require.Equal(t, []Record{{Offset: 4, Timestamp: NoTimestamp, Key: []byte("k")}}, collect(t, g))
}

// Scenario: D007
func TestVarints(t *testing.T) {
	for _, row := range []struct {
		v     int64
		bytes string
	}{
		{0, "00"}, {-1, "01"}, {1, "02"}, {-2, "03"}, {63, "7e"}, {64, "8001"}, {-65, "8101"},
		{2147483647, "feffffff0f"}, {-2147483648, "ffffffff0f"},
	} {
		v, rest, ok := cutVarint(unhex(row.bytes + "99"))
		require.True(t, ok, row.bytes)
		require.Equal(t, int32(row.v), v)
		require.Len(t, rest, 1)
		long, rest, ok := cutVarlong(unhex(row.bytes + "99"))
		require.True(t, ok, row.bytes)
		require.Equal(t, row.v, long)
		require.Len(t, rest, 1)
		require.Equal(t, len(row.bytes)/2, varintSize(row.v))
	}
	for _, bad := range []string{"", "80", "8080", "ffffffff"} {
		_, _, ok := cutVarint(unhex(bad))
		require.False(t, ok, bad)
		_, _, ok = cutVarlong(unhex(bad))
		require.False(t, ok, bad)
	}
	_, _, ok := cutVarint(unhex("ffffffffff01"))
	require.False(t, ok, "five bytes that go on")
	_, _, ok = cutVarlong(unhex("ffffffffffffffffffff01"))
	require.False(t, ok, "ten bytes that go on")
}

func timeOf(ms int64) time.Time { return time.UnixMilli(ms) }
