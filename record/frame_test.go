package record

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Runs of records that are alike leave the bytes that the full encoder writes for each of them.
func TestRunsOfAlikeRecordsAreWrittenAsOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var recs []Record
		for range rapid.IntRange(1, 4).Draw(t, "runs") {
			like := Record{Key: drawBytes(t, "key"), Value: drawBytes(t, "value")}
			step := rapid.SampledFrom([]int64{0, 0, 1, 40, 4000}).Draw(t, "step")
			for i := range rapid.SampledFrom([]int{1, 2, 9, 70, 140}).Draw(t, "length") {
				r := like
				r.Timestamp = now + int64(i)*step
				switch rapid.IntRange(0, 100).Draw(t, "odd") {
				case 0:
					r.Key = nil
				case 1:
					r.Value = nil
				case 2:
					r.Key, r.Value = []byte{}, []byte{}
				case 3:
					r.Timestamp = now - 7
				case 4:
					r.Headers = []Header{{Key: "h"}}
				case 5:
					r.Timestamp = 0
				}
				recs = append(recs, r)
			}
		}
		b := NewBuilder(BuilderOptions{})
		want := make([]byte, HeaderSize)
		base, latest := recs[0].Timestamp, int64(math.MinInt64)
		if base == 0 {
			base = now
		}
		for i := 0; i < len(recs); i++ {
			if i > 0 {
				n := b.AddRefs(recs[i:], now, math.MaxInt)
				if i += n; i == len(recs) {
					break
				}
			}
			timestamp := recs[i].Timestamp
			if timestamp == 0 {
				timestamp = now
			}
			require.NoError(t, b.AddRef(&recs[i], timestamp))
		}
		for i := range recs {
			r := &recs[i]
			timestamp := r.Timestamp
			if timestamp == 0 {
				timestamp = now
			}
			latest = max(latest, timestamp)
			want = r.appendTo(want, r.bodySize(timestamp-base, int64(i)), timestamp-base, int64(i))
		}
		batch, err := b.Finish()
		require.NoError(t, err)
		require.Equal(t, want[HeaderSize:], batch.Bytes()[HeaderSize:])
		require.Equal(t, len(recs), batch.Count())
		require.Equal(t, int64(len(recs)), batch.NextOffset())
		require.Equal(t, latest, batch.MaxTimestamp())
		require.NoError(t, batch.Verify())
	})
}

func TestOrdinaryRunsAreWrittenByTheFrame(t *testing.T) {
	for _, r := range []Record{
		{Value: make([]byte, 100)},
		{Key: make([]byte, 16), Value: make([]byte, 100)},
		{Key: make([]byte, 36), Value: make([]byte, 1000)},
		{Key: make([]byte, 36)},
	} {
		for at, want := range map[int64]int{1: 63, 63: 1, 64: 8128, 8191: 1} {
			f, ok := frameOf(&r, 0, at)
			require.True(t, ok)
			recs := make([]Record, 9000)
			for i := range recs {
				recs[i] = r
			}
			out, n := f.appendTo(nil, recs, &batchTimes{now: now, base: now}, at, math.MaxInt)
			require.Equal(t, []int{want, want * f.size}, []int{n, len(out)})
			out, n = f.appendTo(nil, recs, &batchTimes{now: now, base: now}, at, f.size-1)
			require.Zero(t, n+len(out))
		}
	}
	_, ok := frameOf(&Record{Key: make([]byte, 200), Value: make([]byte, 200)}, 100, 100)
	require.False(t, ok, "its head does not fit into a word")
	_, ok = frameOf(&Record{Value: make([]byte, 10_000)}, 0, 1)
	require.False(t, ok, "its length takes three bytes")
}
