package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

const now = int64(1700000000000)

var allCodecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// topic is a plain topic whose timestamps may be a second off.
func topic() ValidateOptions {
	return ValidateOptions{CodecFromProducer: true, Now: now, TimestampBefore: 1000, TimestampAfter: 1000}
}

func keyed(stamps ...int64) []Record {
	records := make([]Record, len(stamps))
	for i, ts := range stamps {
		records[i] = Record{Offset: int64(i), Timestamp: ts, Key: fmt.Appendf(nil, "key-%d", i), Value: bytes.Repeat([]byte{'v'}, 50)}
	}
	return records
}

// withHeader changes header bytes of a copy and stamps the CRC again.
func withHeader(b Batch, change func(h []byte)) Batch {
	c := Batch{bytes.Clone(b.Bytes())}
	change(c.b)
	c.stampChecksum()
	return c
}

func validate(t testing.TB, raw []byte, o ValidateOptions) (Validated, error) {
	t.Helper()
	before := bytes.Clone(raw)
	if o.Origin == Client {
		_, err := Check(raw, CheckOptions{})
		require.NoError(t, err)
	}
	v, err := NewDecoder(Limits{}).Validate(raw, o)
	if err != nil {
		require.Equal(t, before, raw, "a refused batch stays as it is")
		require.Equal(t, Validated{}, v)
		return v, err
	}
	if v.Rebuilt {
		require.Equal(t, before, raw, "the source of a rebuilt batch stays as it is")
	}
	require.NoError(t, v.Batch.Verify())
	return v, nil
}

// zeroDeltas is a batch of n records whose offset deltas are all 0.
func zeroDeltas(t testing.TB, c Codec, n int) Batch {
	t.Helper()
	var payload []byte
	for range n {
		r := Record{Key: []byte("k"), Value: []byte("v")}
		payload = r.appendTo(payload, r.bodySize(0, 0), 0, 0)
	}
	b, err := compress(make([]byte, HeaderSize), payload, c, 0)
	require.NoError(t, err)
	h := header{leaderEpoch: -1, baseTime: now, maxTime: now, producerID: -1, epoch: -1, baseSequence: -1, count: int32(n), lastDelta: int32(n - 1)}
	h.write(b, c)
	Batch{b}.stampChecksum()
	return Batch{b}
}

func requireOffsets(t testing.TB, b Batch, base int64, n int) {
	t.Helper()
	records := collect(t, b)
	require.Len(t, records, n)
	require.Equal(t, base, b.BaseOffset())
	require.Equal(t, base+int64(n)-1, b.LastOffset())
	for i, r := range records {
		require.Equal(t, base+int64(i), r.Offset)
	}
}

// Scenario: V005
func TestRecordCountMustBeTheNumberOfOffsets(t *testing.T) {
	for _, c := range []Codec{None, Gzip} {
		b := buildAll(t, BuilderOptions{Codec: c}, 0, keyed(now, now, now)...)
		_, err := validate(t, bytes.Clone(b.Bytes()), topic())
		require.NoError(t, err)
		for _, delta := range []int32{0, 15, -3} {
			bad := withHeader(b, func(h []byte) { binary.BigEndian.PutUint32(h[posLastOffsetDelta:], uint32(delta)) })
			_, err := validate(t, bad.Bytes(), topic())
			require.ErrorIs(t, err, ErrInvalidRecord, delta)
			o := topic()
			o.Origin = Coordinator
			_, err = validate(t, bad.Bytes(), o)
			require.ErrorIs(t, err, ErrInvalidRecord, delta)
		}
		for _, count := range []int32{0, -1} {
			bad := withHeader(b, func(h []byte) {
				binary.BigEndian.PutUint32(h[posLastOffsetDelta:], uint32(count-1))
				binary.BigEndian.PutUint32(h[posCount:], uint32(count))
			})
			_, err := validate(t, bad.Bytes(), topic())
			require.ErrorIs(t, err, ErrInvalidRecord, count)
		}
	}
}

func TestManyInvalidRecordsAreCountedAndOnlyTheFirstListed(t *testing.T) {
	b := NewBuilder(BuilderOptions{})
	for range 3000 {
		require.NoError(t, b.Add(Record{Timestamp: now}))
	}
	batch, err := b.Finish()
	require.NoError(t, err)
	o := topic()
	o.Compacted = true
	_, err = validate(t, batch.Bytes(), o)
	var all *InvalidRecordsError
	require.ErrorAs(t, err, &all)
	require.Equal(t, 3000, all.Total)
	require.Len(t, all.Records, maxRecordErrors)
	require.Contains(t, err.Error(), "3000 invalid records")
}

func TestAnErrorWithoutRecordsCanBePrinted(t *testing.T) {
	err := error(&InvalidRecordsError{Total: 1})
	require.NotEmpty(t, err.Error())
	var one *InvalidRecordError
	require.False(t, errors.As(err, &one))
	require.ErrorIs(t, err, ErrInvalidRecord)
}

// Scenario: V011
func TestProducerIDNeedsASequence(t *testing.T) {
	b := buildAll(t, BuilderOptions{Producer: &Producer{ID: 1324, Epoch: 10, BaseSequence: 984}}, 0, keyed(now)...)
	bad := withHeader(b, func(h []byte) { binary.BigEndian.PutUint32(h[posBaseSequence:], 0xfffffffe) })
	_, err := validate(t, bad.Bytes(), topic())
	require.ErrorIs(t, err, ErrInvalidRecord)
	bad = withHeader(b, func(h []byte) { binary.BigEndian.PutUint16(h[posProducerEpoch:], 0xffff) })
	_, err = validate(t, bad.Bytes(), topic())
	require.ErrorIs(t, err, ErrInvalidRecord)
	bad = withHeader(b, func(h []byte) {
		binary.BigEndian.PutUint64(h[posProducerID:], 1<<64-1)
		h[posAttributes+1] |= attrTransactional
	})
	_, err = validate(t, bad.Bytes(), topic())
	require.ErrorIs(t, err, ErrInvalidRecord, "transactional without a producer")
}

// Scenario: V012
func TestCompactedTopicNeedsKeys(t *testing.T) {
	for _, source := range allCodecs {
		for _, target := range allCodecs {
			o := topic()
			o.Compacted, o.CodecFromProducer, o.Codec = true, false, target
			records := keyed(now, now, now)
			records[1].Key = nil
			_, err := validate(t, buildAll(t, BuilderOptions{Codec: source}, 0, records...).Bytes(), o)
			require.ErrorIs(t, err, ErrInvalidRecord)
			var all *InvalidRecordsError
			require.ErrorAs(t, err, &all)
			require.Equal(t, 1, all.Total)
			require.Equal(t, 1, all.Records[0].Index)

			records[1].Key = []byte{}
			_, err = validate(t, buildAll(t, BuilderOptions{Codec: source}, 0, records...).Bytes(), o)
			require.NoError(t, err, "an empty key is a key")
		}
	}
	o := topic()
	o.Compacted = true
	_, err := validate(t, oldEntry(1, 0, 0, now, nil, []byte("v")), o)
	require.ErrorIs(t, err, ErrInvalidRecord)
}

// Scenario: V013
func TestOffsetsAreReassignedFromTheLogsEnd(t *testing.T) {
	records := keyed(now, now, now)
	for _, c := range []Codec{None, Gzip} {
		for name, raw := range map[string][]byte{
			"v0": oldSet(t, 0, c, records...),
			"v1": oldSet(t, 1, c, records...),
			"v2": buildAll(t, BuilderOptions{Codec: c}, 0, records...).Bytes(),
		} {
			v, err := validate(t, raw, topic())
			require.NoError(t, err, name)
			v.Place(1234567, 3)
			require.NoError(t, v.Batch.Verify())
			require.Equal(t, int32(3), v.Batch.LeaderEpoch())
			require.Equal(t, c, v.Batch.Codec())
			requireOffsets(t, v.Batch, 1234567, 3)
		}
	}
}

func sameProducer(t testing.TB, want, got Batch) {
	t.Helper()
	id, epoch, sequence := want.Producer()
	gotID, gotEpoch, gotSequence := got.Producer()
	require.Equal(t, []int64{id, int64(epoch), int64(sequence)}, []int64{gotID, int64(gotEpoch), int64(gotSequence)})
	require.Equal(t, want.Transactional(), got.Transactional())
	require.Equal(t, want.Control(), got.Control())
}

func TestUnknownAttributeBitsStayWhereNothingElseChanges(t *testing.T) {
	b := withHeader(buildAll(t, BuilderOptions{}, 0, keyed(now)...), func(h []byte) {
		h[posAttributes], h[posAttributes+1] = 0xa5, 0x80|attrDeleteHorizon
	})
	want := bytes.Clone(b.Bytes())
	v, err := validate(t, b.Bytes(), topic())
	require.NoError(t, err)
	require.Equal(t, want, v.Batch.Bytes())

	o := topic()
	o.CodecFromProducer, o.Codec = false, LZ4
	v, err = validate(t, b.Bytes(), o)
	require.NoError(t, err)
	require.Equal(t, uint16(LZ4), v.Batch.Attributes())
}

// Scenario: V016
// Scenario: V025
func TestOtherCodecIsRecompressed(t *testing.T) {
	for _, p := range producers {
		for _, source := range allCodecs {
			for _, target := range allCodecs {
				if source == target {
					continue
				}
				records := keyed(now-1, now+1, now)
				records[1].Headers = []Header{{Key: "h", Value: []byte("x")}, {Key: "n"}}
				b := buildAll(t, BuilderOptions{Codec: source, Producer: p}, 0, records...)
				o := topic()
				o.CodecFromProducer, o.Codec = false, target
				v, err := validate(t, b.Bytes(), o)
				require.NoError(t, err)
				require.True(t, v.Rebuilt)
				require.Equal(t, target, v.Batch.Codec())
				require.Equal(t, CreateTime, v.Batch.TimestampType())
				require.Equal(t, now+1, v.MaxTimestamp)
				require.Equal(t, now+1, v.Batch.MaxTimestamp())
				require.Equal(t, 3, v.Count)
				sameProducer(t, b, v.Batch)
				require.Equal(t, records, collect(t, v.Batch))
				v.Place(40, 2)
				require.Equal(t, int64(42), v.Batch.LastOffset())
			}
		}
	}
}

// Scenario: V022
func TestControlBatchOfAProducerIsRefused(t *testing.T) {
	_, err := validate(t, Marker(true, Producer{ID: 1, Epoch: 1}, 0, timeOf(now)).Bytes(), topic())
	require.ErrorIs(t, err, ErrInvalidRecord)
	for _, p := range producers {
		b := withHeader(buildAll(t, BuilderOptions{Producer: p}, 0, keyed(now)...), func(h []byte) { h[posAttributes+1] |= attrControl })
		_, err = validate(t, b.Bytes(), topic())
		require.ErrorIs(t, err, ErrInvalidRecord, "whatever its sequence")
	}
}

// Scenario: V023
func TestControlBatchOfTheCoordinatorIsNeverCompressed(t *testing.T) {
	o := topic()
	o.Origin, o.CodecFromProducer, o.Codec, o.Compacted = Coordinator, false, Snappy, true
	marker := Marker(true, Producer{ID: 1, Epoch: 1}, 0, timeOf(now))
	want := bytes.Clone(marker.Bytes())
	v, err := validate(t, marker.Bytes(), o)
	require.NoError(t, err)
	require.False(t, v.Rebuilt)
	require.Equal(t, want, v.Batch.Bytes())
	v.Place(9, 4)
	require.Equal(t, int64(9), v.Batch.BaseOffset())
}

// Scenario: V024
func TestSameCodecAtAnotherLevelStaysAsItIs(t *testing.T) {
	b := buildAll(t, BuilderOptions{Codec: Gzip, Level: 9}, 0, keyed(now, now)...)
	want := bytes.Clone(b.Bytes())
	o := topic()
	o.CodecFromProducer, o.Codec, o.Level = false, Gzip, 1
	v, err := validate(t, b.Bytes(), o)
	require.NoError(t, err)
	require.Equal(t, want, v.Batch.Bytes())
}

// Scenario: V027
func TestLastOffsetThatDoesNotMatchTheRecordsIsRefused(t *testing.T) {
	records := keyed(now, now, now)
	records[1].Offset, records[2].Offset = 2, 3
	for _, c := range allCodecs {
		b := buildAll(t, BuilderOptions{Codec: c}, 0, records...)
		_, err := validate(t, b.Bytes(), topic())
		require.ErrorIs(t, err, ErrInvalidRecord, "three records for four offsets")

		patched := withHeader(b, func(h []byte) { binary.BigEndian.PutUint32(h[posLastOffsetDelta:], 2) })
		v, err := validate(t, bytes.Clone(patched.Bytes()), topic())
		if c == None { // Kafka does not look at the deltas of plain batches
			require.NoError(t, err)
			require.Equal(t, patched.Bytes(), v.Batch.Bytes())
			continue
		}
		require.ErrorIs(t, err, ErrInvalidRecord)
		o := topic()
		o.CodecFromProducer = false
		v, err = validate(t, patched.Bytes(), o)
		require.NoError(t, err, "a batch that is built anew gets offsets in order")
		requireOffsets(t, v.Batch, 0, 3)
	}
}

// Scenario: V028
func TestStoredCodecIsTheTopicsOrTheProducers(t *testing.T) {
	for _, source := range allCodecs {
		for _, setting := range []string{"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"} {
			o := topic()
			want := source
			if o.CodecFromProducer = setting == "producer"; !o.CodecFromProducer {
				c, err := CodecByName(setting)
				require.NoError(t, err)
				o.Codec, want = c, c
			}
			b := buildAll(t, BuilderOptions{Codec: source}, 0, keyed(now, now)...)
			v, err := validate(t, b.Bytes(), o)
			require.NoError(t, err)
			require.Equal(t, want, v.Batch.Codec())
			require.Equal(t, source != want, v.Rebuilt)
		}
	}
}

func TestRecordCountOtherThanDeclaredIsRefused(t *testing.T) {
	for _, c := range allCodecs {
		for _, n := range []int32{2, 4} {
			b := withHeader(buildAll(t, BuilderOptions{Codec: c}, 0, keyed(now, now, now)...), func(h []byte) {
				binary.BigEndian.PutUint32(h[posLastOffsetDelta:], uint32(n-1))
				binary.BigEndian.PutUint32(h[posCount:], uint32(n))
			})
			_, err := validate(t, b.Bytes(), topic())
			require.ErrorIs(t, err, ErrInvalidRecord)
		}
	}
}

func TestRebuiltBatchAboveTheLimitIsTooLarge(t *testing.T) {
	records := keyed(now)
	records[0].Value = make([]byte, 5000)
	b := buildAll(t, BuilderOptions{Codec: Zstd}, 0, records...)
	o := topic()
	o.CodecFromProducer, o.MaxBatchBytes = false, 4000
	_, err := validate(t, b.Bytes(), o)
	require.ErrorIs(t, err, ErrTooLarge)
	_, err = NewDecoder(Limits{MaxDecompressedBytes: 1000}).Validate(b.Bytes(), topic())
	require.ErrorIs(t, err, ErrTooLarge, "what decompresses beyond the decoder's limit")
}

func TestTheTopicsCodecIsNotLookedAtIfItIsTheProducers(t *testing.T) {
	o := topic()
	o.Codec, o.CodecFromProducer = 9, true
	for _, raw := range [][]byte{buildAll(t, BuilderOptions{}, 0, keyed(now)...).Bytes(), oldEntry(1, 0, 0, now, []byte("k"), nil)} {
		v, err := NewDecoder(Limits{}).Validate(raw, o)
		require.NoError(t, err)
		require.Equal(t, None, v.Batch.Codec())
	}
	o.CodecFromProducer = false
	_, err := NewDecoder(Limits{}).Validate(buildAll(t, BuilderOptions{}, 0, keyed(now)...).Bytes(), o)
	require.ErrorIs(t, err, ErrCodec)
}

func TestUnknownCodecAndGivenOffsetsAreRefused(t *testing.T) {
	b := withHeader(buildAll(t, BuilderOptions{}, 0, keyed(now)...), func(h []byte) { h[posAttributes+1] = 6 })
	_, err := validate(t, b.Bytes(), topic())
	require.ErrorIs(t, err, ErrCodec)
	for _, origin := range []Origin{Replication, RaftLeader} {
		o := topic()
		o.Origin = origin
		_, err = NewDecoder(Limits{}).Validate(b.Bytes(), o)
		require.Error(t, err)
	}
}

func TestValidateInPlaceAllocatesNothing(t *testing.T) {
	b := buildAll(t, BuilderOptions{}, 0, keyed(now, now+1, now+2)...)
	d := NewDecoder(Limits{})
	for _, kind := range []TimestampType{CreateTime, LogAppendTime} {
		o := topic()
		o.TimestampType = kind
		require.Zero(t, testing.AllocsPerRun(100, func() {
			b.setMaxTimestamp(CreateTime, now)
			v, err := d.Validate(b.Bytes(), o)
			if err != nil {
				t.Fatal(err)
			}
			v.Place(1000, 5)
			b.SetBaseOffset(0)
		}))
	}
}
