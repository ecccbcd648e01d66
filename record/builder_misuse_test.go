package record

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// The header's numbers are what records count from: once one is there, changing them would move it.
func TestWhatRecordsCountFromCannotChangeAfterTheFirst(t *testing.T) {
	for name, late := range map[string]func(b *Builder){
		"base offset":    func(b *Builder) { b.SetBaseOffset(100) },
		"delete horizon": func(b *Builder) { b.SetDeleteHorizon(1000) },
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBuilder(BuilderOptions{})
			require.NoError(t, b.Add(Record{Timestamp: 7}))
			late(b)
			require.ErrorContains(t, b.Add(Record{Timestamp: 8}), "after Add")
			_, err := b.Finish()
			require.ErrorContains(t, err, "after Add")
			b.Reset()
			require.NoError(t, b.Add(Record{Timestamp: 7}))
			_, err = b.Finish()
			require.NoError(t, err)
		})
	}
}

func TestANewProducerForgivesNoOtherMistake(t *testing.T) {
	b := NewBuilder(BuilderOptions{})
	b.SetDeleteHorizon(-5)
	b.SetProducer(nil)
	require.ErrorIs(t, b.Add(Record{Timestamp: 7}), ErrInvalidRecord)
	_, err := b.Finish()
	require.ErrorIs(t, err, ErrInvalidRecord)
}

// A leader stores a producer's odd header bits and odd times as they are. Compaction must get past such a batch.
func TestOddTimesOfAStoredBatchAreRebuiltAsTheyAre(t *testing.T) {
	horizon := func(h []byte) { h[posAttributes+1] |= attrDeleteHorizon }
	for _, row := range []struct {
		name    string
		base    int64
		change  func(h []byte)
		max     int64
		stamps  []int64
		horizon bool
	}{
		{"a horizon bit without a horizon", NoTimestamp, horizon, 4, []int64{-1, 4}, false},
		{"a horizon", 50, horizon, 4, []int64{50, 55}, true},
		{"times before 1970", -100, func([]byte) {}, -95, []int64{-100, -95}, false},
		{"times at the ends of the scale", math.MinInt64, func([]byte) {}, math.MinInt64 + 5, []int64{math.MinInt64, math.MinInt64 + 5}, false},
		{"LogAppendTime without a time", 3, func(h []byte) { h[posAttributes+1] |= attrLogAppendTime }, NoTimestamp, []int64{-1, -1}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := NewBuilder(BuilderOptions{})
			for i, ms := range []int64{0, 5} {
				require.NoError(t, b.AddAt(Record{Offset: int64(i), Timestamp: ms, Value: []byte("v")}))
			}
			plain, err := b.Finish()
			require.NoError(t, err)
			src := withHeader(plain, func(h []byte) {
				binary.BigEndian.PutUint64(h[posBaseTimestamp:], uint64(row.base))
				binary.BigEndian.PutUint64(h[posMaxTimestamp:], uint64(row.max))
				row.change(h)
			})
			require.NoError(t, src.Verify())

			require.NoError(t, b.Rebuild(src, NoTimestamp))
			for r, err := range src.Records(nil) {
				require.NoError(t, err)
				require.NoError(t, b.AddAt(r))
			}
			got, err := b.Finish()
			require.NoError(t, err)
			require.NoError(t, got.Verify())
			var stamps []int64
			for r, err := range got.Records(nil) {
				require.NoError(t, err)
				stamps = append(stamps, r.Timestamp)
			}
			require.Equal(t, row.stamps, stamps)
			require.Equal(t, row.stamps[1], got.MaxTimestamp())
			_, ok := got.DeleteHorizon()
			require.Equal(t, row.horizon, ok)
		})
	}
}
