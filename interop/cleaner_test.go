package interop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/internal/txnindex"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// TestCleanersLeaveTheSame cleans random folders with Kafka's cleaner and with ours, several times, with a clock that moves past
// horizons, and goes on with what either of both has left.
func TestCleanersLeaveTheSame(t *testing.T) {
	_, d := kafka(t)
	seed := uint64(rounds(t, "PARTLOG_INTEROP_SEED", 5))
	var sum cleanings
	for i := range rounds(t, "PARTLOG_INTEROP_FOLDERS", 30) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			c := &cleaning{folder: newFolder(t, r, cleaningConfig(r)), d: d, sum: &sum}
			c.aged = r.IntN(2) == 0
			c.play(2 + r.IntN(4))
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("%+v", sum)
}

// cleanings counts what was compared.
type cleanings struct {
	Cleanings, NotDue, MapFull, Batches, Records, Horizons, Empty, Aborted int
	Interrupted                                                            int
	KafkaKeptMore                                                          int // see mistakesCommitted
}

type cleaning struct {
	*folder
	d       *Driver
	sum     *cleanings
	cleaned int64 // when, last
}

func cleaningConfig(r *rand.Rand) map[string]string {
	pick := func(values ...string) string { return values[r.IntN(len(values))] }
	c := map[string]string{
		"cleanup.policy":            pick("compact", "compact", "compact,delete"),
		"internal.segment.bytes":    pick("1500", "4000", "20000", "1000000"),
		"segment.index.bytes":       "100000",
		"index.interval.bytes":      pick("0", "300", "4096"),
		"retention.ms":              "-1",
		"delete.retention.ms":       pick("0", "1000", "60000", "3600000", "3600000", "3600000", "86400000"),
		"min.cleanable.dirty.ratio": pick("0", "0.1", "0.5"),
		"max.message.bytes":         "1000000",
	}
	if r.IntN(3) == 0 {
		c["min.compaction.lag.ms"] = pick("1", "5000", "60000", "3600000")
	}
	if r.IntN(3) == 0 {
		c["max.compaction.lag.ms"] = pick("4000000", "40000000")
	}
	return c
}

func (c *cleaning) play(times int) {
	defer func() {
		if c.t.Failed() {
			c.t.Logf("config %v\nwhat happened:\n%s", c.config, strings.Join(c.story[max(0, len(c.story)-120):], "\n"))
		}
	}()
	for i := range times {
		if i == 0 || c.r.IntN(3) > 0 {
			c.fill(5 + c.r.IntN(40))
		}
		if c.r.IntN(4) == 0 {
			c.interrupt()
		}
		retention, err := strconv.ParseInt(c.config["delete.retention.ms"], 10, 64)
		require.NoError(c.t, err)
		if retention < expiry && c.r.IntN(2) == 0 { // exactly to the horizons that were set last, or just before
			c.now = max(c.now, c.cleaned+retention-c.r.Int64N(2))
		} else {
			c.now += []int64{0, 0, 999, 60_000, 60_000, 4_000_000, 90_000_000}[c.r.IntN(7)]
		}
		c.cleaned = c.now
		c.clean()
		if c.t.Failed() {
			return
		}
	}
}

// clean cleans once on both sides.
func (c *cleaning) clean() {
	t := c.t
	o := CleanOptions{Force: c.r.IntN(3) > 0, Map: 1 << 20, Load: 0.9, Buffer: []int{300, 4000, 1 << 17}[c.r.IntN(3)]}
	if c.r.IntN(4) == 0 {
		o.Map = 24 * (3 + c.r.IntN(25))
	}
	c.note("-- clean at %d, %+v", c.now, o)
	ourRoot, theirRoot := copyRoot(t, c.root), copyRoot(t, c.root)
	theirs := c.byKafka(theirRoot, o)
	c.note("%+v", theirs)
	mistaken := mistakesCommitted(facts(t, filepath.Join(c.root, folderTopic+"-0")), theirs)
	next := c.byUs(ourRoot, o, theirs)
	if theirs.NextDirty != 0 && !mistaken {
		require.Equal(t, theirs.NextDirty, next, "next dirty offset")
	}
	want, got := facts(t, filepath.Join(theirRoot, folderTopic+"-0")), facts(t, filepath.Join(ourRoot, folderTopic+"-0"))
	c.sum.Cleanings++
	c.sum.Batches += len(want.Batches)
	c.sum.Records += len(want.Records)
	c.sum.Aborted += len(want.Aborted)
	for _, b := range want.Batches {
		if b.Horizon != nil {
			c.sum.Horizons++
		}
		if b.Count == 0 {
			c.sum.Empty++
		}
	}
	if mistaken && theirs.NextDirty > next { // it has more room in its map
		c.sum.KafkaKeptMore++
		c.root = ourRoot
		return
	}
	if mistaken && len(want.Records) > len(got.Records) {
		c.sum.KafkaKeptMore++
		kept := map[int64]bool{}
		for _, r := range want.Records {
			kept[r.Offset] = true
		}
		for _, r := range got.Records {
			require.True(t, kept[r.Offset], "only ours has offset %d", r.Offset)
		}
		c.root = ourRoot
		return
	}
	sameFacts(t, want, got)
	if t.Failed() {
		return
	}
	c.root = []string{ourRoot, theirRoot}[c.r.IntN(2)]
}

// mistakesCommitted says that Kafka may take committed records for aborted ones when it fills its map, and keep what they
// supersede: where the first dirty offset lies inside of a segment it begins there, with all aborted transactions of that
// segment, also those that ended further in front. Of their producers it leaves out what comes next.
func mistakesCommitted(before cleanedFacts, theirs Cleaned) bool {
	begins := int64(0)
	for _, base := range before.Bases {
		if base <= theirs.FirstDirty {
			begins = base
		}
	}
	return slices.ContainsFunc(before.Aborted, func(e txnindex.Entry) bool { return begins <= e.LastOffset && e.LastOffset < theirs.FirstDirty })
}

// interrupt lets Kafka clean until it looks for the nth time whether it shall stop, and ends it as a kill would: both go on from
// what it left behind.
func (c *cleaning) interrupt() {
	l, err := c.d.Open(OpenOptions{Root: c.root, Topic: folderTopic, Config: c.config, NowMs: c.now, ProducerExpirationMs: expiry})
	require.NoError(c.t, err)
	n := c.r.IntN(8)
	_, err = l.Clean(CleanOptions{Force: true, Buffer: 300, InterruptAfter: &n})
	c.note("-- clean at %d, interrupted: %v", c.now, err)
	if err == nil {
		require.NoError(c.t, l.Close())
		return
	}
	var asked *KafkaError
	require.ErrorAs(c.t, err, &asked)
	require.Equal(c.t, "as asked for", asked.Message)
	c.sum.Interrupted++
	require.NoError(c.t, l.Abandon())
}

func (c *cleaning) byKafka(root string, o CleanOptions) Cleaned {
	l, err := c.d.Open(OpenOptions{Root: root, Topic: folderTopic, Config: c.config, NowMs: c.now, ProducerExpirationMs: expiry})
	require.NoError(c.t, err)
	got, err := l.Clean(o)
	require.NoError(c.t, err)
	require.NoError(c.t, l.Close())
	return got
}

// byUs cleans with ours, and compares the choice.
func (c *cleaning) byUs(root string, o CleanOptions, theirs Cleaned) (nextDirty int64) {
	t, ctx := c.t, context.Background()
	d, l := c.open(root, func(k *log.Config) { k.Compaction.MapLoad = o.Load })
	plan, err := l.PlanCompaction(time.UnixMilli(c.now))
	require.NoError(t, err)
	require.Equal(t, theirs.Due, plan.Due, "due: %+v", plan)
	if !theirs.Due {
		c.sum.NotDue++
	}
	if theirs.Due || o.Force {
		require.Equal(t, [4]int64{theirs.FirstDirty, theirs.Uncleanable, theirs.CleanBytes, theirs.CleanableBytes},
			[4]int64{plan.FirstDirty, max(plan.Uncleanable, plan.FirstDirty), plan.CleanBytes, plan.CleanableBytes}, "first dirty, uncleanable, clean bytes, cleanable bytes")
	}
	res, err := l.Compact(ctx, log.CompactOptions{Force: o.Force, MapBytes: int64(o.Map)})
	if !errors.Is(err, compaction.ErrMapTooSmall) {
		require.NoError(t, err)
	}
	c.note("%+v", res)
	if res.MapFull {
		c.sum.MapFull++
	}
	require.NoError(t, d.Close())
	return res.FirstDirty
}

// cleanedFacts are what must be alike after both cleanings.
type cleanedFacts struct {
	Bases      []int64
	Batches    []cleanedBatch
	Records    []Record
	Aborted    []txnindex.Entry
	Checkpoint string
}

type cleanedBatch struct {
	Segment          int64
	Base, Last       int64
	Magic            int8
	Attributes       uint16
	Count            int
	Epoch            int32
	BaseTime, Newest int64
	Horizon          *int64
	Producer         int64
	ProducerEpoch    int16
	Sequence         int32
	Sum              uint32 // of uncompressed ones
}

func facts(t *testing.T, dir string) (f cleanedFacts) {
	t.Helper()
	for _, name := range sorted(t, filepath.Join(dir, "*.log")) {
		base, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(name), ".log"), 10, 64)
		require.NoError(t, err)
		f.Bases = append(f.Bases, base)
		raw, err := os.ReadFile(name)
		require.NoError(t, err)
		for len(raw) > 0 {
			var b record.Batch
			b, raw, err = record.Next(raw)
			require.NoError(t, err)
			require.NoError(t, b.Verify())
			x := cleanedBatch{Segment: base, Base: b.BaseOffset(), Last: b.LastOffset(), Magic: b.Magic(), Attributes: b.Attributes(), Count: b.Count(),
				Epoch: b.LeaderEpoch(), BaseTime: b.BaseTimestamp(), Newest: b.MaxTimestamp()}
			x.Producer, x.ProducerEpoch, x.Sequence = b.Producer()
			if ms, ok := b.DeleteHorizon(); ok {
				x.Horizon = &ms
			}
			if b.Codec() == record.None {
				x.Sum = b.Checksum()
			}
			f.Batches = append(f.Batches, x)
			for r, err := range b.Records(nil) {
				require.NoError(t, err)
				f.Records = append(f.Records, onWire(r.Clone(), r.Offset, b.TimestampType().String()))
			}
		}
		raw, err = os.ReadFile(strings.TrimSuffix(name, ".log") + ".txnindex")
		if !os.IsNotExist(err) {
			require.NoError(t, err)
		}
		for ; len(raw) >= txnindex.EntrySize; raw = raw[txnindex.EntrySize:] {
			e, version := txnindex.Decode(raw)
			require.Zero(t, version)
			f.Aborted = append(f.Aborted, e)
		}
	}
	all, err := checkpoint(filepath.Join(filepath.Dir(dir), cleanerFile))
	require.NoError(t, err)
	tp, err := log.ParseTopicPartition(filepath.Base(dir))
	require.NoError(t, err)
	f.Checkpoint = all[fmt.Sprintf("%s %d", tp.Topic, tp.Partition)]
	return f
}

func sorted(t *testing.T, pattern string) []string {
	names, err := filepath.Glob(pattern)
	require.NoError(t, err)
	sort.Strings(names)
	return names
}

func sameFacts(t *testing.T, want, got cleanedFacts) {
	t.Helper()
	for i := range min(len(want.Batches), len(got.Batches)) {
		require.Equal(t, want.Batches[i], got.Batches[i], "batch %d: Kafka's and ours", i)
	}
	require.Len(t, got.Batches, len(want.Batches), "batches")
	sameRecords(t, want.Records, got.Records)
	require.Equal(t, want.Bases, got.Bases, "segments")
	require.Equal(t, want.Aborted, got.Aborted, "aborted transactions")
	require.Equal(t, want.Checkpoint, got.Checkpoint, "checkpoint")
}

// TestCleanersLeaveTheSameOfGoldenFolders does it with folders that a broker wrote, also those of old formats.
func TestCleanersLeaveTheSameOfGoldenFolders(t *testing.T) {
	_, d := kafka(t)
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			about := golden.About(t, name)
			config := maps.Clone(about.TopicConfig)
			if config == nil {
				config = map[string]string{}
			}
			config["cleanup.policy"], config["delete.retention.ms"], config["retention.ms"] = "compact", "1000", "-1"
			c, err := log.ParseConfig(config)
			require.NoError(t, err)
			root, now := golden.Copy(t, name), about.OpenedAtMs
			for range 3 {
				ourRoot, theirRoot := copyRoot(t, root), copyRoot(t, root)
				l, err := d.Open(OpenOptions{Root: theirRoot, Topic: about.Topic, Config: config, NowMs: now})
				require.NoError(t, err)
				_, err = l.Roll()
				require.NoError(t, err)
				theirs, err := l.Clean(CleanOptions{Force: true})
				require.NoError(t, err)
				require.NoError(t, l.Close())

				dir, err := log.OpenDir(ourRoot, log.DirConfig{Now: func() time.Time { return time.UnixMilli(now) }, Manual: true})
				require.NoError(t, err)
				ours, err := dir.Open(context.Background(), log.TopicPartition{Topic: about.Topic}, c)
				require.NoError(t, err)
				require.NoError(t, ours.Roll(context.Background()))
				res, err := ours.Compact(context.Background(), log.CompactOptions{Force: true})
				require.NoError(t, err)
				require.NoError(t, dir.Close())
				root = ourRoot
				if theirs.NextDirty == 0 {
					continue
				}
				require.Equal(t, theirs.NextDirty, res.FirstDirty)
				if name == "legacy-v1" { // Kafka makes new batches of what is left of an old compressed set, ours old entries
					want, got := facts(t, filepath.Join(theirRoot, about.Topic+"-0")), facts(t, filepath.Join(ourRoot, about.Topic+"-0"))
					for _, rs := range [][]Record{want.Records, got.Records} {
						for i := range rs {
							rs[i].TimestampType = ""
						}
					}
					sameRecords(t, want.Records, got.Records)
					require.Equal(t, want.Bases, got.Bases)
				} else {
					sameFacts(t, facts(t, filepath.Join(theirRoot, about.Topic+"-0")), facts(t, filepath.Join(ourRoot, about.Topic+"-0")))
				}
				now += 2000
			}
		})
	}
}
