package record

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func batchWith(t testing.TB, c Codec, recs ...Record) Batch {
	t.Helper()
	b := NewBuilder(BuilderOptions{Codec: c})
	for _, r := range recs {
		require.NoError(t, b.Add(r))
	}
	out, err := b.Finish()
	require.NoError(t, err)
	v, err := View(bytes.Clone(out.Bytes()))
	require.NoError(t, err)
	return v
}

// Fits says what reading says, for every codec, on both sides of the limit.
func TestFitsSaysWhatReadingSays(t *testing.T) {
	noise := make([]byte, 300<<10)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	payloads := map[string][]byte{
		"zeros": make([]byte, 3<<20), "noise": noise, "short": []byte("value"),
		"mixed": bytes.Repeat(append(make([]byte, 999), noise[:1]...), 2000),
	}
	for name, value := range payloads {
		for _, c := range []Codec{None, Gzip, Snappy, LZ4, Zstd} {
			b := batchWith(t, c, Record{Timestamp: 1, Value: value})
			for _, limit := range []int{64, 1 << 10, 100 << 10, len(value), len(value) + 100, 64 << 20} {
				var want error
				for _, err := range b.Records(NewDecoder(Limits{MaxDecompressedBytes: limit})) {
					if err != nil {
						want = err
					}
				}
				got := NewDecoder(Limits{MaxDecompressedBytes: limit}).Fits(b)
				require.Equal(t, want == nil, got == nil, "%s %v %d: %v, reading: %v", name, c, limit, got, want)
				require.True(t, got == nil || errors.Is(got, ErrTooLarge))
			}
		}
	}
}

// A record with more headers than the limit has memory for cannot be read, however small it is.
func TestFitsCountsHeaders(t *testing.T) {
	headers := make([]Header, 60_000)
	for _, c := range []Codec{None, Zstd} {
		b := batchWith(t, c, Record{Timestamp: 1, Headers: headers})
		require.ErrorIs(t, NewDecoder(Limits{MaxDecompressedBytes: 1 << 20}).Fits(b), ErrTooLarge)
		require.NoError(t, NewDecoder(Limits{}).Fits(b))
	}
}

// Damage is for others to find.
func TestFitsDoesNotJudgeDamage(t *testing.T) {
	for _, c := range []Codec{Gzip, Snappy, LZ4} {
		b := batchWith(t, c, Record{Timestamp: 1, Value: make([]byte, 1000)})
		clear(b.b[HeaderSize:])
		require.NoError(t, NewDecoder(Limits{MaxDecompressedBytes: 1}).Fits(b))
	}
}

func TestFitsCostsNothingForOrdinaryBatches(t *testing.T) {
	d := NewDecoder(Limits{})
	for _, c := range []Codec{None, Snappy, LZ4, Zstd} {
		b := batchWith(t, c, Record{Timestamp: 1, Value: make([]byte, 10<<10)})
		require.Zero(t, testing.AllocsPerRun(100, func() { _ = d.Fits(b) }), c)
	}
}
