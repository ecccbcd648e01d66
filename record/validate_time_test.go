package record

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// Scenario: V007
func TestTimestampsOutsideTheWindowAreRefused(t *testing.T) {
	for _, c := range []Codec{None, Gzip} {
		for _, row := range []struct {
			stamp int64
			ok    bool
		}{{now - 1001, false}, {now - 1000, true}, {now + 1000, true}, {now + 1001, false}, {NoTimestamp, true}, {0, false}} {
			b := buildAll(t, BuilderOptions{Codec: c}, 0, keyed(row.stamp)...)
			_, err := validate(t, bytes.Clone(b.Bytes()), topic())
			if row.ok {
				require.NoError(t, err, row.stamp)
			} else {
				require.ErrorIs(t, err, ErrInvalidTimestamp, row.stamp)
			}
			o := topic()
			o.TimestampBefore, o.TimestampAfter = -1, -1
			_, err = validate(t, bytes.Clone(b.Bytes()), o)
			require.NoError(t, err, "no bounds")
			o.TimestampBefore, o.TimestampAfter = 1<<63-1, 1<<63-1
			_, err = validate(t, bytes.Clone(b.Bytes()), o)
			require.NoError(t, err, "Kafka's default bounds")
		}
	}
}

func TestNegativeTimestampsAreRefused(t *testing.T) {
	b := withHeader(buildAll(t, BuilderOptions{}, 0, keyed(now)...), func(h []byte) {
		binary.BigEndian.PutUint64(h[posBaseTimestamp:], ^uint64(4))
	})
	o := topic()
	o.TimestampBefore = -1
	_, err := validate(t, b.Bytes(), o)
	require.ErrorIs(t, err, ErrInvalidTimestamp)
}

// Scenario: V009
func TestInvalidTimestampWinsOverInvalidRecords(t *testing.T) {
	for _, c := range allCodecs {
		records := keyed(now, now-5000, now, now+5000, now, now)
		for i := range records {
			if i != 1 && i != 3 {
				records[i].Key = nil
			}
		}
		o := topic()
		o.Compacted = true
		_, err := validate(t, buildAll(t, BuilderOptions{Codec: c}, 0, records...).Bytes(), o)
		require.ErrorIs(t, err, ErrInvalidTimestamp)
		require.NotErrorIs(t, err, ErrInvalidRecord)
		var all *InvalidRecordsError
		require.ErrorAs(t, err, &all)
		require.Equal(t, 6, all.Total)
		for i, r := range all.Records {
			require.Equal(t, i, r.Index)
			require.Equal(t, i == 1 || i == 3, r.Timestamp)
		}
		var first *InvalidRecordError
		require.ErrorAs(t, err, &first)
		require.Equal(t, 0, first.Index)
	}
}

var producers = []*Producer{nil, {ID: 1324, Epoch: 10, BaseSequence: 984}, {ID: 1324, Epoch: 10, BaseSequence: 984, Transactional: true}}

// Scenario: V014
// Scenario: V015
func TestCreateTimeBatchOfTheTopicsCodecStaysAsItIs(t *testing.T) {
	for _, p := range producers {
		for _, c := range allCodecs {
			records := keyed(now-1, now+1, now)
			b := buildAll(t, BuilderOptions{Codec: c, Producer: p}, 0, records...)
			want := Batch{bytes.Clone(b.Bytes())}
			v, err := validate(t, b.Bytes(), topic())
			require.NoError(t, err)
			require.False(t, v.Rebuilt)
			require.Equal(t, want.Bytes(), v.Batch.Bytes())
			v.Place(100, 9)
			require.Equal(t, want.Bytes()[posMagic:], v.Batch.Bytes()[posMagic:], "offset and epoch only")
			require.Equal(t, now+1, v.MaxTimestamp)
			require.Equal(t, int64(-1), v.AppendTime)
			require.Equal(t, int64(102), v.Batch.LastOffset(), "the offset of the largest timestamp is the batch's last")
			require.Equal(t, int32(9), v.Batch.LeaderEpoch())
			sameProducer(t, want, v.Batch)
			for i, r := range collect(t, v.Batch) {
				require.Equal(t, records[i].Timestamp, r.Timestamp)
			}
		}
	}
}

func TestWrongMaxTimestampOfAProducerIsRepaired(t *testing.T) {
	for _, c := range []Codec{None, Gzip} {
		b := withHeader(buildAll(t, BuilderOptions{Codec: c}, 0, keyed(now-1, now+1, now)...), func(h []byte) {
			binary.BigEndian.PutUint64(h[posMaxTimestamp:], 77)
			h[posAttributes] = 0xff // unknown bits
		})
		v, err := validate(t, b.Bytes(), topic())
		require.NoError(t, err)
		require.Equal(t, now+1, v.Batch.MaxTimestamp())
		require.Equal(t, uint16(c), v.Batch.Attributes(), "attributes that are written again lose unknown bits")
	}
}

// Scenario: V017
func TestLogAppendTimeOnlyChangesTheHeader(t *testing.T) {
	for _, c := range allCodecs {
		b := buildAll(t, BuilderOptions{Codec: c}, 0, keyed(0, 0, 0)...)
		before := Batch{bytes.Clone(b.Bytes())}
		o := topic()
		o.TimestampType = LogAppendTime
		v, err := validate(t, b.Bytes(), o)
		require.NoError(t, err)
		require.False(t, v.Rebuilt)
		require.Equal(t, before.Size(), v.Batch.Size())
		require.Equal(t, LogAppendTime, v.Batch.TimestampType())
		require.Equal(t, now, v.Batch.MaxTimestamp())
		require.Equal(t, []int64{now, now}, []int64{v.MaxTimestamp, v.AppendTime})
		require.Equal(t, before.BaseTimestamp(), v.Batch.BaseTimestamp())
		require.Equal(t, before.Bytes()[HeaderSize:], v.Batch.Bytes()[HeaderSize:])
		for _, r := range collect(t, v.Batch) {
			require.Equal(t, now, r.Timestamp)
		}
	}
}

func TestLogAppendTimeFlagOfAProducer(t *testing.T) {
	flagged := func(c Codec) []byte {
		b := buildAll(t, BuilderOptions{Codec: c}, 0, keyed(now, now)...)
		b.SetAppendTime(now + 5)
		return b.Bytes()
	}
	for _, c := range []Codec{None, Gzip} {
		v, err := validate(t, flagged(c), topic())
		require.NoError(t, err, "a CreateTime topic takes it in and clears the flag")
		require.Equal(t, CreateTime, v.Batch.TimestampType())
		require.Equal(t, now+5, v.Batch.MaxTimestamp())

		o := topic()
		o.TimestampType = LogAppendTime
		_, err = validate(t, flagged(c), o)
		require.ErrorIs(t, err, ErrInvalidTimestamp, "a LogAppendTime topic does not")

		future := buildAll(t, BuilderOptions{Codec: c}, 0, keyed(now+1<<40)...)
		_, err = validate(t, future.Bytes(), o)
		require.NoError(t, err, "producers' times do not matter there")
	}
}

// Scenario: V018
func TestLogAppendTimeWithAnotherFormatOrCodec(t *testing.T) {
	o := topic()
	o.TimestampType = LogAppendTime
	o.CodecFromProducer, o.Codec = false, Gzip
	for name, raw := range map[string][]byte{
		"v0": oldSet(t, 0, None, keyed(0, 0, 0)...),
		"v1": oldSet(t, 1, Snappy, keyed(5, 6, 7)...),
		"v2": buildAll(t, BuilderOptions{}, 0, keyed(5, 6, 7)...).Bytes(),
	} {
		v, err := validate(t, raw, o)
		require.NoError(t, err, name)
		require.True(t, v.Rebuilt)
		require.Equal(t, []int64{now, now, now}, []int64{v.MaxTimestamp, v.AppendTime, v.Batch.MaxTimestamp()})
		v.Place(0, 0)
		require.Equal(t, int64(2), v.Batch.LastOffset())
		for _, r := range collect(t, v.Batch) {
			require.Equal(t, now, r.Timestamp)
		}
	}
}
