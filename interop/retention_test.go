package interop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

// TestRetentionLetsTheSameSegmentsGo runs Kafka's deletion of old segments and ours on random folders, settings, high watermarks
// and times.
func TestRetentionLetsTheSameSegmentsGo(t *testing.T) {
	_, d := kafka(t)
	seed := uint64(rounds(t, "PARTLOG_INTEROP_SEED", 5))
	sum := map[string]int{}
	for i := range rounds(t, "PARTLOG_INTEROP_FOLDERS", 30) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, uint64(1000+i)))
			f := newFolder(t, r, map[string]string{"internal.segment.bytes": "20000", "segment.index.bytes": "100000", "index.interval.bytes": "300", "max.message.bytes": "1000000"})
			f.aged = true
			for range 2 + r.IntN(4) {
				f.retain(d, sum)
				if t.Failed() {
					return
				}
			}
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("%v", sum)
}

// retain compares one run of both.
func (f *folder) retain(d *Driver, sum map[string]int) {
	t, r, ctx := f.t, f.r, context.Background()
	defer func() {
		if t.Failed() {
			t.Logf("config %v\nwhat happened:\n%s", f.config, strings.Join(f.story[max(0, len(f.story)-120):], "\n"))
		}
	}()
	pick := func(values ...string) string { return values[r.IntN(len(values))] }
	if r.IntN(4) > 0 {
		f.config["cleanup.policy"] = "delete" // the folder is filled without regard for keys anyway
		f.fill(3 + r.IntN(30))
	}
	f.now += []int64{0, 1000, 100_000, 3_600_000}[r.IntN(4)]
	f.config["cleanup.policy"] = pick("delete", "delete", "delete", "compact", "compact,delete")
	f.config["retention.ms"] = pick("-1", "0", "1", "1000", "30000", "100000", "3600000", "20000000")
	f.config["retention.bytes"] = pick("-1", "-1", "0", "1", "1000", "5000", "20000", "1000000")
	before := segmentSizes(t, f.root)
	if len(before) > 0 && r.IntN(4) == 0 { // exactly at the border
		total := int64(0)
		for _, s := range before {
			total += s[1]
		}
		total -= before[0][1]
		f.config["retention.bytes"] = fmt.Sprint(max(0, total-r.Int64N(2)))
	}

	ourRoot, theirRoot := copyRoot(t, f.root), copyRoot(t, f.root)
	l, err := d.Open(OpenOptions{Root: theirRoot, Topic: folderTopic, Config: f.config, NowMs: f.now, ProducerExpirationMs: expiry})
	require.NoError(t, err)
	dir, ours := f.open(ourRoot, func(c *log.Config) { c.Visibility = log.External })
	start, end := l.Opened.LogStartOffset, l.Opened.LogEndOffset
	hw := end
	if r.IntN(3) == 0 && end > start {
		hw = start + r.Int64N(end-start+1)
	}
	raise := start
	if r.IntN(3) == 0 && hw > start {
		raise = start + r.Int64N(hw-start+1)
	}
	f.note("-- retain at %d, start %d to %d, high watermark %d, end %d, %v", f.now, start, raise, hw, end, f.config)
	require.NoError(t, l.SetHighWatermark(hw))
	_, err = ours.SetHighWatermark(hw)
	require.NoError(t, err)
	if raise > start && f.config["cleanup.policy"] != "compact" { // a broker refuses it then, too
		_, err = l.DeleteRecords(raise)
		require.NoError(t, err)
		require.NoError(t, ours.DeleteRecords(ctx, raise))
	}

	deleted, err := l.DeleteOldSegments()
	require.NoError(t, err)
	plan := ours.PlanRetention(time.UnixMilli(f.now))
	report, err := ours.Retain(ctx)
	require.NoError(t, err)
	f.note("Kafka deleted %d, ours %+v", deleted, report)
	require.Equal(t, plan, report.Plan)
	require.Equal(t, deleted, report.Dropped, "segments deleted")
	theirs, err := l.State()
	require.NoError(t, err)
	var want, got []int64
	for _, s := range theirs.Segments {
		want = append(want, s.BaseOffset)
	}
	for _, s := range ours.SegmentInfos() {
		got = append(got, s.Base)
	}
	require.Equal(t, want, got, "segments left")
	o := ours.Offsets()
	require.Equal(t, [3]int64{theirs.LogStartOffset, theirs.LogEndOffset, theirs.HighWatermark}, [3]int64{o.LogStart, o.LogEnd, o.HighWatermark}, "start, end, high watermark")
	require.Equal(t, theirs.LogStartOffset, plan.NewStart, "the plan's start")
	sum["runs"]++
	sum["segments"] += len(before)
	sum["deleted"] += deleted
	if plan.RollFirst {
		sum["all went"]++
	}
	sum[fmt.Sprint("held by ", plan.HeldBy)]++
	for _, x := range plan.Drop {
		sum[fmt.Sprint("by ", x.Reason)]++
	}
	require.NoError(t, l.Close())
	require.NoError(t, dir.Close())
	require.Equal(t, segmentSizes(t, theirRoot), segmentSizes(t, ourRoot), "files left")
	f.root = []string{ourRoot, theirRoot}[r.IntN(2)]
}

// segmentSizes are base and size of each .log.
func segmentSizes(t *testing.T, root string) (all [][2]int64) {
	for _, name := range sorted(t, filepath.Join(root, folderTopic+"-0", "*.log")) {
		info, err := os.Stat(name)
		require.NoError(t, err)
		base, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(name), ".log"), 10, 64)
		require.NoError(t, err)
		all = append(all, [2]int64{base, info.Size()})
	}
	return all
}
