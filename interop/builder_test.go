package interop

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

var codecs = []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd}

// someRecords are records with everything a record may have: null and empty keys and values, headers with repeated, empty
// and non-ASCII names and null values, values of many sizes, timestamps in any order.
func someRecords(r *rand.Rand, n int) []record.Record {
	out := make([]record.Record, n)
	for i := range out {
		out[i] = record.Record{Timestamp: 1_700_000_000_000 + r.Int64N(1_000_000), Key: someBytes(r, 40), Value: someBytes(r, 300)}
		switch r.IntN(20) {
		case 0:
			out[i].Value = bytes.Repeat([]byte("ab"), 20_000+r.IntN(20_000))
		case 1:
			out[i].Timestamp = record.NoTimestamp
		}
		for range r.IntN(6) - 2 {
			out[i].Headers = append(out[i].Headers, record.Header{Key: []string{"", "h", "h", "größe", "trace-id"}[r.IntN(5)], Value: someBytes(r, 20)})
		}
	}
	return out
}

func someBytes(r *rand.Rand, most int) []byte {
	switch r.IntN(8) {
	case 0:
		return nil
	case 1:
		return []byte{}
	}
	b := make([]byte, 1+r.IntN(most))
	for i := range b {
		b[i] = "partition log 0123\x00\xff"[r.IntN(20)]
	}
	return b
}

// onWire is what Kafka should say about a record.
func onWire(rec record.Record, offset int64, ttype string) Record {
	w := Record{Offset: offset, Timestamp: rec.Timestamp, TimestampType: ttype, Key: rec.Key, Value: rec.Value, Headers: []Header{}}
	for _, h := range rec.Headers {
		w.Headers = append(w.Headers, Header(h))
	}
	return w
}

func TestKafkaReadsWhatTheBuilderEncodes(t *testing.T) {
	_, d := kafka(t)
	r := rand.New(rand.NewPCG(7, 7))
	for _, codec := range codecs {
		least, greatest, _ := codec.Levels()
		for i := range 40 {
			o := record.BuilderOptions{Codec: codec, Now: func() time.Time { return time.UnixMilli(1_800_000_000_000) }}
			if greatest > least && i%3 == 0 {
				o.Level = max(1, least) + r.IntN(min(greatest, 9))
			}
			if i%4 == 1 {
				o.TimestampType = record.LogAppendTime
			}
			if i%2 == 1 {
				o.Producer = &record.Producer{ID: r.Int64(), Epoch: int16(r.IntN(math.MaxInt16)), BaseSequence: r.Int32N(math.MaxInt32), Transactional: i%8 == 1}
			}
			base := []int64{0, 1, math.MaxUint32, 1 << 40}[r.IntN(4)]
			b := record.NewBuilder(o)
			b.SetBaseOffset(base)
			in := someRecords(r, 1+r.IntN(30))
			largest := int64(record.NoTimestamp)
			want := make([]Record, len(in))
			for k, rec := range in {
				require.NoError(t, b.Add(rec))
				largest = max(largest, rec.Timestamp)
				want[k] = onWire(rec, base+int64(k), o.TimestampType.String())
			}
			batch, err := b.Finish()
			require.NoError(t, err)
			batch.SetLeaderEpoch(int32(i))
			if o.TimestampType == record.LogAppendTime {
				largest = 1_800_000_000_000
				for k := range want {
					want[k].Timestamp = largest
				}
			}
			got, err := d.Parse(batch.Bytes())
			require.NoError(t, err)
			require.Len(t, got, 1)
			sameRecords(t, want, got[0].Records)
			got[0].Records = nil
			expect := Batch{Magic: 2, BaseOffset: base, LastOffset: base + int64(len(in)) - 1, Size: batch.Size(), Codec: codec.String(),
				TimestampType: o.TimestampType.String(), MaxTimestamp: largest, LeaderEpoch: int32(i), ProducerID: -1, ProducerEpoch: -1,
				BaseSequence: -1, Checksum: batch.Checksum()}
			if p := o.Producer; p != nil {
				expect.ProducerID, expect.ProducerEpoch, expect.BaseSequence, expect.Transactional = p.ID, p.Epoch, p.BaseSequence, p.Transactional
			}
			require.Equal(t, expect, got[0])
		}
	}
}

func TestKafkaAndTheBuilderMakeTheSamePlainBatch(t *testing.T) {
	_, d := kafka(t)
	r := rand.New(rand.NewPCG(8, 8))
	for i := range 60 {
		in := someRecords(r, 1+r.IntN(20))
		var o record.BuilderOptions
		ask := BuildOptions{}
		if i%2 == 0 {
			id, epoch, seq := int64(1000+i), int16(i), int32(i*3)
			o.Producer = &record.Producer{ID: id, Epoch: epoch, BaseSequence: seq, Transactional: i%4 == 0}
			ask.ProducerID, ask.ProducerEpoch, ask.BaseSequence, ask.Transactional = &id, &epoch, &seq, i%4 == 0
		}
		b := record.NewBuilder(o)
		for k, rec := range in {
			require.NoError(t, b.Add(rec))
			ask.Records = append(ask.Records, onWire(rec, int64(k), ""))
		}
		ours, err := b.Finish()
		require.NoError(t, err)
		theirs, err := d.Build(ask)
		require.NoError(t, err)
		require.Equal(t, theirs, ours.Bytes(), "batch %d", i)
	}
	for _, commit := range []bool{true, false} {
		theirs, err := d.Marker(commit, 0, 2000, 4000, 3, 9)
		require.NoError(t, err)
		ours := record.Marker(commit, record.Producer{ID: 4000, Epoch: 3}, 9, time.UnixMilli(2000))
		require.Equal(t, theirs, ours.Bytes(), "commit %v", commit)
	}
}

func TestBatchesKafkaBuildsReadBackTheSame(t *testing.T) {
	_, d := kafka(t)
	r := rand.New(rand.NewPCG(9, 9))
	dec := record.NewDecoder(record.Limits{})
	for _, magic := range []int8{0, 1, 2} {
		for _, codec := range codecs {
			if magic < 2 && codec == record.Zstd {
				continue // Kafka has no such thing
			}
			for i := range 12 {
				in := someRecords(r, 1+r.IntN(20))
				ask := BuildOptions{Magic: &magic, Codec: codec.String(), BaseOffset: int64(i) * 1000}
				want := make([]Record, len(in))
				for k, rec := range in {
					want[k] = onWire(rec, ask.BaseOffset+int64(k), "CreateTime")
					if magic < 2 {
						want[k].Headers = []Header{}
					}
					if magic == 0 {
						want[k].Timestamp, want[k].TimestampType = record.NoTimestamp, "NoTimestampType"
					}
				}
				ask.Records = want
				raw, err := d.Build(ask)
				require.NoError(t, err)
				var got []Record
				for len(raw) > 0 {
					batch, rest, err := record.Next(raw)
					require.NoError(t, err)
					require.NoError(t, batch.Verify())
					for rec, err := range batch.Records(dec) {
						require.NoError(t, err)
						got = append(got, onWire(rec.Clone(), rec.Offset, want[0].TimestampType))
					}
					raw = rest
				}
				require.Equal(t, fmt.Sprint(len(want)), fmt.Sprint(len(got)))
				sameRecords(t, want, got)
			}
		}
	}
}
