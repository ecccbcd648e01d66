package record

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/stretchr/testify/require"
)

// oldEntry encodes one message of magic 0 or 1.
func oldEntry(magic byte, attributes byte, offset, timestamp int64, key, value []byte) []byte {
	body := []byte{0, 0, 0, 0, magic, attributes}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(timestamp))
	}
	for _, b := range [][]byte{key, value} {
		if b == nil {
			body = binary.BigEndian.AppendUint32(body, 0xffffffff)
			continue
		}
		body = append(binary.BigEndian.AppendUint32(body, uint32(len(b))), b...)
	}
	binary.BigEndian.PutUint32(body, crc32.ChecksumIEEE(body[4:]))
	entry := binary.BigEndian.AppendUint64(nil, uint64(offset))
	entry = binary.BigEndian.AppendUint32(entry, uint32(len(body)))
	return append(entry, body...)
}

// oldSet encodes records as entries of their own or, with a codec, as one wrapper.
func oldSet(t testing.TB, magic byte, c Codec, records ...Record) []byte {
	t.Helper()
	var set []byte
	for _, r := range records {
		set = append(set, oldEntry(magic, 0, r.Offset, r.Timestamp, r.Key, r.Value)...)
	}
	if c == None {
		return set
	}
	value, err := compress(nil, set, c, 0)
	require.NoError(t, err)
	last := records[len(records)-1]
	return oldEntry(magic, byte(c), last.Offset, last.Timestamp, nil, value)
}

// Scenario: V001
func TestInnerOffsetsThatAreAllZeroAreRefusedInV2AndRepairedInOlderFormats(t *testing.T) {
	zero := zeroDeltas(t, Gzip, 20)
	_, err := validate(t, zero.Bytes(), topic())
	require.ErrorIs(t, err, ErrInvalidRecord)
	var records *InvalidRecordsError
	require.ErrorAs(t, err, &records)
	require.Equal(t, 19, records.Total)

	for _, magic := range []byte{0, 1} {
		same := keyed(make([]int64, 20)...)
		for i := range same {
			same[i].Offset, same[i].Timestamp = 0, now
		}
		v, err := validate(t, oldSet(t, magic, Gzip, same...), topic())
		require.NoError(t, err)
		v.Place(5, 1)
		requireOffsets(t, v.Batch, 5, 20)
	}
}

// Scenario: V002
func TestOnlyUncompressedLegacyEntriesMayComeInNumbers(t *testing.T) {
	one := keyed(now)
	for _, c := range allCodecs {
		b := buildAll(t, BuilderOptions{Codec: c}, 0, one...).Bytes()
		_, err := validate(t, append(bytes.Clone(b), b...), topic())
		require.ErrorIs(t, err, ErrInvalidRecord, c)
	}
	for _, magic := range []byte{0, 1} {
		wrapper := oldSet(t, magic, Gzip, one...)
		_, err := validate(t, append(bytes.Clone(wrapper), wrapper...), topic())
		require.ErrorIs(t, err, ErrInvalidRecord)
		_, err = validate(t, append(oldSet(t, magic, None, one...), wrapper...), topic())
		require.ErrorIs(t, err, ErrInvalidRecord, "a wrapper behind an entry")

		v, err := validate(t, oldSet(t, magic, None, keyed(now, now)...), topic())
		require.NoError(t, err)
		require.Equal(t, 2, v.Count)
	}
	_, err := validate(t, append(oldSet(t, 0, None, one...), oldSet(t, 1, None, one...)...), topic())
	require.ErrorIs(t, err, ErrInvalidRecord, "mixed formats")
	_, err = NewDecoder(Limits{}).Validate(nil, topic())
	require.ErrorIs(t, err, ErrInvalidRecord, "no batch")
}

// Scenario: V004
func TestInnerMagicOtherThanTheWrappersIsAnErrorOfEveryRecord(t *testing.T) {
	var set []byte
	for i := range 20 {
		set = append(set, oldEntry(0, 0, int64(i), 0, []byte("k"), []byte("v"))...)
	}
	value, err := compress(nil, set, Gzip, 0)
	require.NoError(t, err)
	_, err = validate(t, oldEntry(1, byte(Gzip), 19, now, nil, value), topic())
	require.ErrorIs(t, err, ErrInvalidRecord)
	var records *InvalidRecordsError
	require.ErrorAs(t, err, &records)
	require.Equal(t, 20, records.Total)
	require.Len(t, records.Records, 20)
}

// Scenario: V020
// Scenario: V021
//
// Older formats come in as magic 2. The way back, which Kafka had for old consumers, is not offered: no entry point takes a
// target format.
func TestOlderFormatsBecomeOneBatchWithoutProducer(t *testing.T) {
	for _, magic := range []byte{0, 1} {
		for _, c := range []Codec{None, Gzip, Snappy, LZ4} {
			records := keyed(now-1, now+1, now)
			v, err := validate(t, oldSet(t, magic, c, records...), topic())
			require.NoError(t, err)
			require.True(t, v.Rebuilt)
			require.Equal(t, int8(2), v.Batch.Magic())
			require.Equal(t, c, v.Batch.Codec())
			id, epoch, sequence := v.Batch.Producer()
			require.Equal(t, []int64{-1, -1, -1}, []int64{id, int64(epoch), int64(sequence)})
			require.False(t, v.Batch.Transactional())
			if magic == 0 {
				require.Equal(t, NoTimestamp, v.MaxTimestamp)
				for i := range records {
					records[i].Timestamp = NoTimestamp
				}
			} else {
				require.Equal(t, now+1, v.MaxTimestamp)
			}
			require.Equal(t, records, collect(t, v.Batch))
		}
	}
	_, err := validate(t, oldEntry(1, byte(Zstd), 0, now, nil, []byte("x")), topic())
	require.ErrorIs(t, err, ErrCodec, "zstd before magic 2")
	inner := oldEntry(1, byte(Gzip), 0, now, nil, []byte("x"))
	value, err := compress(nil, inner, Gzip, 0)
	require.NoError(t, err)
	_, err = validate(t, oldEntry(1, byte(Gzip), 0, now, nil, value), topic())
	require.ErrorIs(t, err, ErrInvalidRecord, "a wrapper inside a wrapper")
}
