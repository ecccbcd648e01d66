package log

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

// A compaction replaced a segment, then retention or a truncation took its successor, which has the same name: who reads the
// old one goes on reading the old one.
func TestReadersOfAReplacedSegmentAreNotGivenItsSuccessor(t *testing.T) {
	for name, drop := range map[string]func(b *bed) error{
		"retention":    func(b *bed) error { require.NoError(t, b.DeleteRecords(ctx, 3)); b.retain(); return nil },
		"a truncation": func(b *bed) error { _, err := b.Truncate(ctx, 0); return err },
		"a reset":      func(b *bed) error { return b.ResetTo(ctx, 100) },
	} {
		t.Run(name, func(t *testing.T) {
			c := compacting
			c.Cleanup, c.RetentionTime, c.FileDeleteDelay = Compact|Delete, Forever, time.Minute
			b := newBedOn(t, vfs.Mem(), c)
			b.put("a", "1", "b", "1")
			require.NoError(t, b.Roll(ctx))
			b.put("a", "2")
			require.NoError(t, b.Roll(ctx))
			b.put("c", "1")
			old, err := b.Fetch(ctx, 0, FetchOptions{Isolation: LogEnd})
			require.NoError(t, err)
			defer old.Close()
			var want strings.Builder
			_, err = old.WriteTo(&want)
			require.NoError(t, err)
			res, err := b.Compact(ctx, CompactOptions{Force: true})
			require.NoError(t, err)
			require.Equal(t, int64(1), res.Superseded)
			require.NoError(t, drop(b))
			var got strings.Builder
			_, err = old.WriteTo(&got)
			require.NoError(t, err)
			require.Equal(t, want.String(), got.String())
			b.clock.advance(2 * time.Minute)
			b.retain()
			for _, name := range b.folder("") {
				require.NotContains(t, name, ".deleted")
			}
		})
	}
}
