//go:build logpoison

package record

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestViewKeptBeyondItsStepIsPoisoned(t *testing.T) {
	poisoned := func(kept []byte) {
		t.Helper()
		require.Equal(t, string(bytes.Repeat([]byte{0xDB}, len(kept))), string(kept))
	}
	for _, c := range []Codec{Gzip, Snappy, LZ4, Zstd} {
		for magic := range int8(3) {
			if magic < 2 && c == Zstd {
				continue
			}
			b := buildAll(t, BuilderOptions{Codec: c}, 0, keyed(1, 2, 3)...)
			if magic < 2 {
				inner := []legacyEntry{message(0, magic, 1, "a", "1"), message(1, magic, 2, "b", "2")}
				var err error
				b, err = View(appendLegacy(nil, legacyEntry{offset: 1, magic: magic, codec: c, inner: inner}))
				require.NoError(t, err)
			}
			var kept []byte
			for r, err := range b.Records(nil) {
				require.NoError(t, err)
				poisoned(kept)
				kept = r.Value
			}
			require.NotEmpty(t, kept)
			poisoned(kept)
		}
	}
}
