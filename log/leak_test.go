//go:build logpoison

package log

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What Fetch returned and nobody closed is reported; what was closed is not.
func TestADroppedFetchedIsReported(t *testing.T) {
	b := newBed(t, Config{})
	b.add("a")
	for _, forget := range []bool{false, true} {
		func() {
			f, err := b.Fetch(ctx, 0, FetchOptions{})
			require.NoError(t, err)
			if !forget {
				require.NoError(t, f.Close())
			}
		}()
		for end := time.Now().Add(time.Second); time.Now().Before(end) && b.Stats().Leaked == 0; time.Sleep(time.Millisecond) {
			runtime.GC()
			if !forget && time.Until(end) < 900*time.Millisecond {
				break
			}
		}
		want := int64(0)
		if forget {
			want = 1
		}
		require.Equal(t, want, b.Stats().Leaked)
	}
}
