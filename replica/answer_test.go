package replica

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Trap: T33
func TestAnAnswerShowsTheHighWatermarkFromBeforeItsFetch(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.lead(1, 1, 2)
	l.produce(1, 1, 10)
	for _, c := range []struct{ offset, shown, then int64 }{{4, 0, 4}, {10, 4, 10}} {
		acts := l.fetchFrom(2, c.offset)
		require.Equal(t, c.shown, reply(t, acts, 1002).HighWatermark)
		require.Equal(t, c.then, l.p.Status().HighWatermark)
	}
}
