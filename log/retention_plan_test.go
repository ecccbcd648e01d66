package log

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/retention"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

func TestAPlanChangesNothing(t *testing.T) {
	trace := vfstest.NewTrace(vfs.Mem())
	b := newBedOn(t, trace, Config{RetentionTime: time.Second, RetentionBytes: 1})
	b.inSegments(same(5, 1)...)
	b.reopen()
	before, o := b.folder(""), b.Offsets()
	trace.Reset()
	plan := b.PlanRetention(b.now())
	require.True(t, plan.RollFirst)
	require.Len(t, plan.Drop, 5)
	require.EqualValues(t, 25, plan.NewStart)
	require.Zero(t, trace.Count(vfstest.OpWrite, vfstest.OpTruncate, vfstest.OpCreate, vfstest.OpRename, vfstest.OpRemove, vfstest.OpSync, vfstest.OpSyncData, vfstest.OpSyncDir, vfstest.OpLock), "%v", trace)
	require.Equal(t, before, b.folder(""))
	require.Equal(t, o, b.Offsets())
	done := b.retain()
	require.Equal(t, plan, done.Plan)
	require.Equal(t, plan.NewStart, b.Offsets().LogStart)
	require.Equal(t, plan.Freed, done.Freed)
	require.Empty(t, b.PlanRetention(b.now()).Drop)
	require.NoError(t, b.dir.Close())
	require.Equal(t, retention.Plan{NextDue: -1}, (&Log{}).PlanRetention(time.Now()))
	_, err := b.Retain(ctx)
	require.ErrorIs(t, err, ErrClosed)
	_, err = (&Log{}).Retain(ctx)
	require.ErrorIs(t, err, ErrClosed)
}

// A log at rest is not opened file by file to be told that nothing is old enough.
func TestAPlanReadsNoMoreTimeIndexesThanItMust(t *testing.T) {
	trace := vfstest.NewTrace(vfs.Mem())
	b := newBedOn(t, trace, Config{RetentionTime: time.Hour})
	b.inSegments(same(30, epoch2023)...)
	b.reopen()
	trace.Reset()
	require.Equal(t, retention.NotDue, b.PlanRetention(b.now()).HeldBy)
	require.LessOrEqual(t, trace.Count(vfstest.OpOpen), 4) // the files of one segment
	trace.Reset()
	b.PlanRetention(b.now())
	require.Zero(t, trace.Count(), "what was read once is known")
}

// A plan is not carried out on a log that is another one by now.
func TestAPlanIsForTheLogItWasMadeFor(t *testing.T) {
	for name, change := range map[string]func(b *bed){
		"a lower high watermark": func(b *bed) {
			_, err := b.SetHighWatermark(3)
			require.NoError(t, err)
		},
		"a truncation": func(b *bed) {
			_, err := b.Truncate(ctx, 12)
			require.NoError(t, err)
		},
		"another's drop": func(b *bed) { require.NoError(t, b.ResetTo(ctx, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, Config{Visibility: External, RetentionTime: time.Second})
			b.inSegments(1, 1, 1)
			_, err := b.SetHighWatermark(15)
			require.NoError(t, err)
			plan, cuts := b.planRetention(b.now())
			require.Len(t, plan.Drop, 3)
			change(b)
			before := b.bases()
			var r RetentionReport
			require.NoError(t, b.carryOut(ctx, &r, plan.Drop[:2], cuts))
			require.Zero(t, r.Dropped)
			require.Equal(t, before, b.bases())
		})
	}
}

func TestThePolicyIsThatOfTheSettings(t *testing.T) {
	for text, want := range map[string]retention.Policy{
		"":                                   {Delete: true, Bytes: retention.Unlimited, Time: 7 * 24 * time.Hour},
		"retention.ms=-1":                    {Delete: true, Bytes: retention.Unlimited, Time: retention.Forever},
		"retention.ms=0 retention.bytes=0":   {Delete: true, Bytes: retention.KeepNothing, Time: retention.Immediately},
		"retention.ms=1000 cleanup.policy=":  {Bytes: retention.Unlimited, Time: time.Second},
		"cleanup.policy=compact":             {Bytes: retention.Unlimited, Time: 7 * 24 * time.Hour},
		"cleanup.policy=compact,delete":      {Delete: true, Bytes: retention.Unlimited, Time: 7 * 24 * time.Hour},
		"log.retention.hours=1":              {Delete: true, Bytes: retention.Unlimited, Time: time.Hour},
		"log.retention.bytes=5":              {Delete: true, Bytes: 5, Time: 7 * 24 * time.Hour},
		"retention.bytes=-1 retention.ms=77": {Delete: true, Bytes: retention.Unlimited, Time: 77 * time.Millisecond},
	} {
		kafka := map[string]string{}
		for _, pair := range strings.Fields(text) {
			key, value, _ := strings.Cut(pair, "=")
			kafka[key] = value
		}
		c, err := ParseConfig(kafka)
		require.NoError(t, err)
		require.Empty(t, ConfigNotes(kafka), text)
		c = c.withDefaults()
		require.Equal(t, want, c.retention(), text)
	}
}
