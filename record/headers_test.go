package record

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// manyHeaders is a batch of one record with n headers of two bytes each.
func manyHeaders(t testing.TB, c Codec, n int) Batch {
	t.Helper()
	body := []byte{0, 0, 0, 1, 1}
	body = binary.AppendVarint(body, int64(n))
	body = append(body, bytes.Repeat([]byte{0, 1}, n)...)
	records := append(binary.AppendVarint(nil, int64(len(body))), body...)
	packed, err := compress(make([]byte, HeaderSize), records, c, 0)
	require.NoError(t, err)
	h := header{leaderEpoch: NoEpoch, producerID: -1, epoch: -1, baseSequence: -1, count: 1}
	h.write(packed, c)
	b := Batch{packed}
	b.stampChecksum()
	require.NoError(t, b.Verify())
	return b
}

// Two bytes encoded are forty in memory: a payload within its limit must not become twenty times as much.
func TestHeadersAreWithinTheLimitToo(t *testing.T) {
	const limit = 4 << 20
	for _, c := range []Codec{None, Gzip, Zstd} {
		d := NewDecoder(Limits{MaxDecompressedBytes: limit})
		most := limit / headerBytes
		for r, err := range manyHeaders(t, c, most).Records(d) {
			require.NoError(t, err)
			require.Len(t, r.Headers, most)
		}
		bomb := manyHeaders(t, c, limit/2-100)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d = NewDecoder(Limits{MaxDecompressedBytes: limit})
		for _, err := range bomb.Records(d) {
			require.ErrorIs(t, err, ErrTooLarge)
		}
		_, err := d.Validate(bomb.Bytes(), ValidateOptions{CodecFromProducer: true, TimestampBefore: -1, TimestampAfter: -1})
		require.ErrorIs(t, err, ErrTooLarge)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(3*limit), c.String())
	}
}

func TestTheLastHeaderOfANameCounts(t *testing.T) {
	r := Record{Headers: []Header{{Key: "a", Value: []byte("1")}, {Key: "b"}, {Key: "a", Value: []byte("2")}}}
	v, ok := r.Header("a")
	require.True(t, ok)
	require.Equal(t, []byte("2"), v)
	v, ok = r.Header("b")
	require.True(t, ok, "a null value is not the lack of one")
	require.Nil(t, v)
	_, ok = r.Header("A")
	require.False(t, ok)
	_, ok = Record{}.Header("")
	require.False(t, ok)
}
