//go:build logpoison

package record

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestViewKeptBeyondItsStepIsPoisoned(t *testing.T) {
	for _, c := range []Codec{Gzip, Snappy, LZ4, Zstd} {
		var kept []byte
		for r, err := range buildAll(t, BuilderOptions{Codec: c}, 0, keyed(1, 2, 3)...).Records(nil) {
			require.NoError(t, err)
			if kept != nil {
				require.Equal(t, bytes.Repeat([]byte{0xDB}, len(kept)), kept)
			}
			kept = r.Value
		}
		require.Equal(t, bytes.Repeat([]byte{0xDB}, len(kept)), kept)
	}
}
