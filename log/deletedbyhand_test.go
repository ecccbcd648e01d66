package log

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Somebody makes room by removing the oldest segments by hand, under an open log. Retention, the bound of MaxBytes and a
// truncation would take these away: that they are gone already must not stop them, or the log grows until it is opened again.
func TestSegmentsThatWereRemovedByHandDoNotStopWhatWouldRemoveThem(t *testing.T) {
	for name, c := range map[string]struct {
		config  Config
		drop    func(b *bed) error
		removed int // the first of three segments
	}{
		"Retain": {Config{SegmentBytes: 1000, RetentionBytes: 1500}, func(b *bed) error { _, err := b.Retain(ctx); return err }, 0},
		"Retain, at once": {Config{SegmentBytes: 1000, RetentionBytes: 1500, FileDeleteDelay: Immediately},
			func(b *bed) error { _, err := b.Retain(ctx); return err }, 0},
		"DropOldest": {Config{SegmentBytes: 1000, MaxBytes: 10_000, WhenFull: DropOldest, MaxMessageBytes: 900}, func(b *bed) error {
			for range 40 {
				b.add(strings.Repeat("y", 400))
			}
			return nil
		}, 0},
		"DeleteRecords": {Config{SegmentBytes: 1000}, func(b *bed) error {
			if err := b.DeleteRecords(ctx, 15); err != nil {
				return err
			}
			_, err := b.Retain(ctx)
			return err
		}, 0},
		"Truncate": {Config{SegmentBytes: 1000}, func(b *bed) error { _, err := b.Truncate(ctx, 5); return err }, 3},
		"ResetTo":  {Config{SegmentBytes: 1000}, func(b *bed) error { return b.ResetTo(ctx, 500) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, c.config)
			for i := range 20 {
				b.add(strings.Repeat(fmt.Sprint(i%10), 400))
			}
			segments := b.SegmentInfos()
			require.Greater(t, len(segments), 5)
			for _, s := range segments[c.removed:][:3] {
				for _, kind := range []string{"log", "index", "timeindex"} {
					require.NoError(t, b.fs.Remove(fmt.Sprintf("t-0/%020d.%s", s.Base, kind)))
				}
			}
			require.NoError(t, c.drop(b))
			for _, s := range segments[c.removed:][:3] {
				require.NotContains(t, b.bases(), s.Base)
			}
			b.clock.advance(2 * time.Minute)
			_, err := b.Retain(ctx)
			require.NoError(t, err)
			end := b.Offsets().LogEnd
			b.add("more")
			b.reopen()
			require.Equal(t, end+1, b.Offsets().LogEnd)
			require.Equal(t, []int64{end}, b.readAll(end))
		})
	}
}
