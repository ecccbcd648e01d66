package log

import (
	"errors"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/record"
)

func TestTheZeroConfigIsKafkasDefault(t *testing.T) {
	require.NoError(t, Config{}.Validate())
	require.Equal(t, map[string]string{
		"segment.bytes":                       "1073741824",
		"segment.ms":                          "604800000",
		"segment.jitter.ms":                   "0",
		"segment.index.bytes":                 "10485760",
		"index.interval.bytes":                "4096",
		"preallocate":                         "false",
		"max.message.bytes":                   "1048588",
		"retention.ms":                        "604800000",
		"retention.bytes":                     "-1",
		"cleanup.policy":                      "delete",
		"min.cleanable.dirty.ratio":           "0.5",
		"min.compaction.lag.ms":               "0",
		"max.compaction.lag.ms":               "9223372036854775807",
		"delete.retention.ms":                 "86400000",
		"log.cleaner.dedupe.buffer.size":      "134217728",
		"log.cleaner.io.max.bytes.per.second": "1.7976931348623157E308",
		"file.delete.delay.ms":                "60000",
		"message.timestamp.type":              "CreateTime",
		"message.timestamp.before.max.ms":     "9223372036854775807",
		"message.timestamp.after.max.ms":      "3600000",
		"compression.type":                    "producer",
		"min.insync.replicas":                 "1",
		"unclean.leader.election.enable":      "false",
		"flush.messages":                      "9223372036854775807",
		"flush.ms":                            "9223372036854775807",
		"producer.id.expiration.ms":           "86400000",
	}, Config{}.Kafka())
	require.Equal(t, Durable, Config{}.withDefaults().Durability, "our one deviation")
	c, err := ParseConfig(nil)
	require.NoError(t, err)
	require.Equal(t, Config{}, c)
}

// Kafka's zeros and negative numbers mean something; each has its own constant and is printed back.
func TestKafkasSpecialNumbersHaveNames(t *testing.T) {
	for _, row := range []struct {
		key, text string
		want      Config
	}{
		{"index.interval.bytes", "0", Config{IndexIntervalBytes: EveryBatch}},
		{"max.message.bytes", "0", Config{MaxMessageBytes: NoMessages}},
		{"retention.ms", "-1", Config{RetentionTime: Forever}},
		{"retention.ms", "0", Config{RetentionTime: Immediately}},
		{"retention.bytes", "-1", Config{RetentionBytes: Unlimited}},
		{"retention.bytes", "0", Config{RetentionBytes: ActiveOnly}},
		{"cleanup.policy", "", Config{Cleanup: NoCleanup}},
		{"cleanup.policy", "compact,delete", Config{Cleanup: Compact | Delete}},
		{"min.cleanable.dirty.ratio", "0", Config{Compaction: CompactionConfig{MinDirtyRatio: AnyDirt}}},
		{"min.compaction.lag.ms", foreverText, Config{Compaction: CompactionConfig{MinLag: Forever}}},
		{"delete.retention.ms", "0", Config{Compaction: CompactionConfig{DeleteRetention: Immediately}}},
		{"file.delete.delay.ms", "0", Config{FileDeleteDelay: Immediately}},
		{"message.timestamp.before.max.ms", "0", Config{TimestampBefore: Immediately}},
		{"message.timestamp.after.max.ms", "0", Config{TimestampAfter: Immediately}},
		{"message.timestamp.after.max.ms", foreverText, Config{TimestampAfter: Forever}},
		{"flush.ms", "0", Config{FlushInterval: Immediately}},
		{"flush.messages", "1", Config{FlushMessages: 1}},
		{"segment.ms", foreverText, Config{SegmentAge: Forever}},
		{"internal.segment.bytes", "5000", Config{SegmentBytes: 5000}},
		{"message.timestamp.type", "LogAppendTime", Config{TimestampType: record.LogAppendTime}},
		{"unclean.leader.election.enable", "true", Config{UncleanLeaderElection: true}},
		{"preallocate", "true", Config{Preallocate: true}},
	} {
		t.Run(row.key+"="+row.text, func(t *testing.T) {
			got, err := ParseConfig(map[string]string{row.key: row.text})
			require.NoError(t, err)
			require.Equal(t, row.want, got)
			require.Equal(t, row.text, got.Kafka()[row.key])
		})
	}
}

func TestTheMoreBindingKeyWins(t *testing.T) {
	hour := func(n int) time.Duration { return time.Duration(n) * time.Hour }
	for _, row := range []struct {
		keys string
		want time.Duration
	}{
		{"log.retention.hours=2", hour(2)},
		{"log.retention.hours=2 log.retention.minutes=60", hour(1)},
		{"log.retention.hours=2 log.retention.minutes=60 log.retention.ms=10800000", hour(3)},
		{"log.retention.hours=2 log.retention.minutes=60 log.retention.ms=10800000 retention.ms=14400000", hour(4)},
		{"log.retention.minutes=-1 log.retention.hours=5", Forever},
		{"log.retention.ms=-7", Forever},
		{"log.retention.hours=2147483647", Forever}, // 245,000 years
	} {
		c, err := ParseConfig(pairs(row.keys))
		require.NoError(t, err)
		require.Equal(t, row.want, c.RetentionTime, row.keys)
	}
	c, err := ParseConfig(pairs("log.roll.hours=3 log.roll.ms=1000 log.roll.jitter.hours=1 log.flush.scheduler.interval.ms=5 log.flush.interval.ms=6 " +
		"log.segment.bytes=2097152 internal.segment.bytes=9 segment.bytes=3145728"))
	require.NoError(t, err)
	require.Equal(t, Config{SegmentAge: time.Second, SegmentJitter: time.Hour, FlushInterval: 6 * time.Millisecond, SegmentBytes: 9}, c)
}

func pairs(text string) map[string]string {
	out := map[string]string{}
	for pair := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(pair, "=")
		out[key] = value
	}
	return out
}

func TestEveryBrokerKeyReachesTheFieldOfItsTopicKey(t *testing.T) {
	for _, s := range settings {
		for _, b := range s.broker {
			text := map[string]string{"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime", "preallocate": "true",
				"min.cleanable.dirty.ratio": "0.25", "segment.bytes": "2000000"}[s.key]
			if text == "" {
				text = "77"
			}
			got, err := ParseConfig(map[string]string{b.key: text})
			require.NoError(t, err, b.key)
			unit := or(b.unit, time.Millisecond)
			if unit != time.Millisecond {
				text = strconv.FormatInt(77*unit.Milliseconds(), 10)
			}
			require.Equal(t, text, got.Kafka()[s.key], b.key)
			require.NotEqual(t, Config{}, got, b.key)
		}
	}
}

func TestABadValueNamesKeyAndField(t *testing.T) {
	for _, row := range []struct{ key, text, field string }{
		{"segment.bytes", "1048575", "SegmentBytes"},
		{"segment.bytes", "2147483648", "SegmentBytes"},
		{"log.segment.bytes", "14", "SegmentBytes"},
		{"internal.segment.bytes", "0", "SegmentBytes"},
		{"segment.ms", "0", "SegmentAge"},
		{"segment.ms", "-1", "SegmentAge"},
		{"log.roll.hours", "0", "SegmentAge"},
		{"log.roll.hours", "2147483648", "SegmentAge"},
		{"segment.jitter.ms", "-1", "SegmentJitter"},
		{"segment.index.bytes", "11", "IndexBytes"},
		{"index.interval.bytes", "-1", "IndexIntervalBytes"},
		{"max.message.bytes", "-1", "MaxMessageBytes"},
		{"max.message.bytes", "2147483648", "MaxMessageBytes"},
		{"retention.ms", "-2", "RetentionTime"},
		{"retention.ms", "", "RetentionTime"},
		{"retention.ms", "7d", "RetentionTime"},
		{"retention.ms", "9223372036854775808", "RetentionTime"},
		{"log.retention.ms", "0", "RetentionTime"},
		{"log.retention.hours", "0", "RetentionTime"},
		{"cleanup.policy", "delete;compact", "Cleanup"},
		{"cleanup.policy", ",", "Cleanup"},
		{"min.cleanable.dirty.ratio", "1.01", "Compaction.MinDirtyRatio"},
		{"min.cleanable.dirty.ratio", "-0.1", "Compaction.MinDirtyRatio"},
		{"min.cleanable.dirty.ratio", "NaN", "Compaction.MinDirtyRatio"},
		{"min.cleanable.dirty.ratio", "0x1p-2", "Compaction.MinDirtyRatio"},
		{"max.compaction.lag.ms", "0", "Compaction.MaxLag"},
		{"log.cleaner.dedupe.buffer.size", "0", "Compaction.MapBytes"},
		{"log.cleaner.io.max.bytes.per.second", "0", "Compaction.BytesPerSecond"},
		{"file.delete.delay.ms", "-1", "FileDeleteDelay"},
		{"message.timestamp.type", "createtime", "TimestampType"},
		{"compression.type", "none", "CompressionType"},
		{"compression.gzip.level", "0", "CompressionLevel"},
		{"compression.gzip.level", "10", "CompressionLevel"},
		{"compression.lz4.level", "18", "CompressionLevel"},
		{"compression.zstd.level", "23", "CompressionLevel"},
		{"min.insync.replicas", "0", "MinInSyncReplicas"},
		{"unclean.leader.election.enable", "yes", "UncleanLeaderElection"},
		{"flush.messages", "0", "FlushMessages"},
		{"producer.id.expiration.ms", "0", "ProducerExpiry"},
		{"producer.id.expiration.ms", "2147483648", "ProducerExpiry"},
		{"no.such.key", "1", ""},
		{"remote.storage.enable", "true", ""},
	} {
		t.Run(row.key+"="+row.text, func(t *testing.T) {
			_, err := ParseConfig(map[string]string{row.key: row.text})
			var bad *ConfigError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, row.key, bad.Key)
			require.Equal(t, row.field, bad.Field)
			require.Equal(t, row.text, bad.Value)
			require.Contains(t, err.Error(), row.key)
		})
	}
}

func TestEveryMistakeIsReportedAtOnce(t *testing.T) {
	_, err := ParseConfig(pairs("retention.ms=-5"))
	require.ErrorContains(t, err, "below 0, and not -1")
	_, err = ParseConfig(pairs("segment.ms=0 nonsense=1 retention.ms=x"))
	joined, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok)
	require.Len(t, joined.Unwrap(), 3)
	// an overridden value is checked, too
	_, err = ParseConfig(pairs("log.retention.hours=many log.retention.ms=5"))
	require.ErrorContains(t, err, "log.retention.hours")
}

func TestAMisspeltKeyIsSuggested(t *testing.T) {
	for given, want := range map[string]string{
		"log.retention.checkinterval.ms":  "log.retention.check.interval.ms",
		" log.flush.interval. messages":   "log.flush.interval.messages",
		"Retention.Ms":                    "retention.ms",
		"log_cleaner_dedupe_buffer_size":  "log.cleaner.dedupe.buffer.size",
		"log.cleaner.min-cleanable.ratio": "log.cleaner.min.cleanable.ratio",
	} {
		_, err := ParseConfig(map[string]string{given: "1"})
		require.ErrorContains(t, err, "did you mean "+want+"?")
	}
	_, err := ParseConfig(map[string]string{strings.Repeat("k", 1<<20): "1"})
	require.NotContains(t, err.Error(), "did you mean")
}

func TestFieldsOutOfRangeAreNamed(t *testing.T) {
	for field, c := range map[string]Config{
		"SegmentBytes":               {SegmentBytes: -1},
		"SegmentAge":                 {SegmentAge: Immediately},
		"SegmentJitter":              {SegmentJitter: -5},
		"IndexBytes":                 {IndexBytes: 11},
		"IndexIntervalBytes":         {IndexIntervalBytes: -2},
		"MaxMessageBytes":            {MaxMessageBytes: -2},
		"RetentionTime":              {RetentionTime: 1500 * time.Microsecond},
		"RetentionBytes":             {RetentionBytes: -3},
		"Cleanup":                    {Cleanup: NoCleanup | Delete},
		"FileDeleteDelay":            {FileDeleteDelay: -3},
		"Compaction.MinDirtyRatio":   {Compaction: CompactionConfig{MinDirtyRatio: math.NaN()}},
		"Compaction.MinLag":          {Compaction: CompactionConfig{MinLag: time.Hour, MaxLag: time.Minute}},
		"Compaction.DeleteRetention": {Compaction: CompactionConfig{DeleteRetention: -9}},
		"Compaction.MapBytes":        {Compaction: CompactionConfig{MapBytes: -1}},
		"Compaction.BytesPerSecond":  {Compaction: CompactionConfig{BytesPerSecond: -2}},
		"TimestampType":              {TimestampType: 2},
		"TimestampAfter":             {TimestampAfter: -4},
		"CompressionType":            {CompressionType: "brotli"},
		"CompressionLevel":           {CompressionType: "zstd", CompressionLevel: 40},
		"MinInSyncReplicas":          {MinInSyncReplicas: -1},
		"Durability":                 {Durability: 3},
		"WhenFull":                   {WhenFull: 2},
		"Visibility":                 {Visibility: 3},
		"MaxBytes":                   {MaxBytes: -1},
		"FlushMessages":              {FlushMessages: -1},
		"ProducerExpiry":             {ProducerExpiry: 30 * 24 * time.Hour},
	} {
		var bad *ConfigError
		require.ErrorAs(t, c.Validate(), &bad, field)
		require.Equal(t, field, bad.Field)
		require.Contains(t, bad.Error(), field)
	}
	require.Error(t, Config{CompressionType: "snappy", CompressionLevel: 3}.Validate(), "snappy has no level")
	require.Error(t, Config{Compaction: CompactionConfig{MinLag: Forever, MaxLag: time.Hour}}.Validate())
	require.NoError(t, Config{Compaction: CompactionConfig{MinLag: Forever}}.Validate())
	require.NoError(t, Config{SegmentBytes: 100}.Validate(), "what internal.segment.bytes is for")
	err := Config{SegmentAge: -7, MaxBytes: -1}.Validate()
	require.ErrorContains(t, err, "segment.ms (Config.SegmentAge)")
	require.ErrorContains(t, err, "Config.MaxBytes")
}

func TestABadNumberIsToldWhichConstantsThereAre(t *testing.T) {
	require.ErrorContains(t, Config{RetentionBytes: -7}.Validate(), `retention.bytes (Config.RetentionBytes) = "-7": below 1, and not Unlimited or ActiveOnly`)
	require.ErrorContains(t, Config{RetentionTime: -7}.Validate(), "not above 0, and not Forever or Immediately")
}

func TestDropOldestWithoutACapIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	_, err := Open(dir, Config{WhenFull: DropOldest})
	require.ErrorContains(t, err, `Config.WhenFull = "drop-oldest": without MaxBytes a log is never full`)
	require.NoDirExists(t, dir)
	d, err := OpenDir(dir, DirConfig{Manual: true, Defaults: Config{WhenFull: DropOldest}})
	require.NoError(t, err, "for those that have a cap")
	defer d.Close()
	_, err = d.Open(t.Context(), TopicPartition{"t", 0}, Config{WhenFull: DropOldest})
	require.ErrorContains(t, err, "WhenFull")
	_, err = d.Open(t.Context(), TopicPartition{"t", 0}, Config{})
	require.NoError(t, err)
}

func TestAZeroFieldInheritsAndTheLevelBelongsToTheType(t *testing.T) {
	root := Config{SegmentBytes: 5000, CompressionType: "zstd", CompressionLevel: 7, Durability: Buffered, RetentionTime: Immediately, Preallocate: true}
	got := Config{RetentionTime: Forever}.inherit(root)
	require.Equal(t, Config{SegmentBytes: 5000, CompressionType: "zstd", CompressionLevel: 7, Durability: Buffered, RetentionTime: Forever, Preallocate: true}, got)
	require.Equal(t, 9, Config{CompressionType: "lz4"}.inherit(root).withDefaults().CompressionLevel)
	require.Equal(t, -1, Config{CompressionType: "gzip"}.withDefaults().CompressionLevel)
	require.Equal(t, 0, Config{}.withDefaults().CompressionLevel)
}

func TestLevelsOfOtherCodecsAreCheckedAndNoted(t *testing.T) {
	given := pairs("compression.type=zstd compression.zstd.level=-7 compression.gzip.level=5 compression.lz4.level=12")
	c, err := ParseConfig(given)
	require.NoError(t, err)
	require.Equal(t, Config{CompressionType: "zstd", CompressionLevel: -7}, c)
	notes := ConfigNotes(given)
	require.Len(t, notes, 2)
	require.Equal(t, "compression.gzip.level", notes[0].Key)
	require.False(t, notes[0].Obsolete)
}

func TestRemovedAndForeignKeysAreAcceptedAndNoted(t *testing.T) {
	given := pairs("replica.lag.max.messages=4000 message.format.version=2.8 log.message.format.version=2.8 retention.ms=5 " +
		"log.cleaner.threads=2 replica.lag.time.max.ms=30000 remote.storage.enable=false log.message.timestamp.difference.max.ms=1")
	c, err := ParseConfig(given)
	require.NoError(t, err)
	require.Equal(t, Config{RetentionTime: 5 * time.Millisecond}, c)
	obsolete := map[string]bool{}
	for _, n := range ConfigNotes(given) {
		require.NotEmpty(t, n.Text)
		obsolete[n.Key] = n.Obsolete
	}
	require.Equal(t, map[string]bool{
		"replica.lag.max.messages": true, "message.format.version": true, "log.message.format.version": true,
		"log.message.timestamp.difference.max.ms": true,
		"log.cleaner.threads":                     false, "replica.lag.time.max.ms": false, "remote.storage.enable": false,
	}, obsolete)
	require.Empty(t, ConfigNotes(pairs("segment.ms=5 no.such.key=1")))
}

func TestTopicKeysAreToldFromBrokerKeys(t *testing.T) {
	for key, want := range map[string]bool{"retention.ms": true, "cleanup.policy": true, "message.format.version": true,
		"log.cleaner.dedupe.buffer.size": false, "producer.id.expiration.ms": false, "log.retention.ms": false, "nonsense": false} {
		require.Equal(t, want, TopicKey(key), key)
	}
}

func TestTheSettingsOfRealTopicsAreUnderstood(t *testing.T) {
	for _, name := range golden.Cases() {
		given := golden.About(t, name).TopicConfig
		c, err := ParseConfig(given)
		require.NoError(t, err, name)
		printed := c.Kafka()
		for key, text := range given {
			require.Equal(t, text, printed[key], "%s %s", name, key)
		}
		for _, n := range ConfigNotes(given) {
			require.Contains(t, n.Text, "for replication", n.Key)
		}
	}
}

func TestNamesOfTheConstants(t *testing.T) {
	for want, got := range map[string]interface{ String() string }{
		"inherit": Inherit, "durable": Durable, "buffered": Buffered, "log.Durability(9)": Durability(9),
		"delete": Delete, "compact": Compact, "compact,delete": Compact | Delete, "": NoCleanup, "Cleanup(99)": Cleanup(99),
		"reject": Reject, "drop-oldest": DropOldest,
		"when-acknowledged": WhenAcknowledged, "when-written": WhenWritten, "external": External,
	} {
		require.Equal(t, want, got.String())
	}
	require.True(t, (Compact | Delete).Has(Compact))
	require.False(t, Delete.Has(Compact))
}

// legalTexts draws a legal value for each of Kafka's keys that Config has, from the whole range Kafka allows.
func legalTexts(t *rapid.T) map[string]string {
	whole := func(least, most int64) func(*rapid.T) string {
		edges := rapid.SampledFrom([]int64{least, least + 1, most - 1, most, max(least, 0), max(least, 1), max(least, 1<<20)})
		any := rapid.OneOf(edges, rapid.Int64Range(least, most))
		return func(t *rapid.T) string { return strconv.FormatInt(any.Draw(t, "n"), 10) }
	}
	pick := func(texts ...string) func(*rapid.T) string {
		return func(t *rapid.T) string { return rapid.SampledFrom(texts).Draw(t, "text") }
	}
	const i32, i64 = math.MaxInt32, math.MaxInt64
	legal := map[string]func(*rapid.T) string{
		"segment.bytes":                       whole(1<<20, i32),
		"internal.segment.bytes":              whole(1, i32),
		"segment.ms":                          whole(1, i64),
		"segment.jitter.ms":                   whole(0, i64),
		"segment.index.bytes":                 whole(12, i32),
		"index.interval.bytes":                whole(0, i32),
		"preallocate":                         pick("true", "false", "TRUE"),
		"max.message.bytes":                   whole(0, i32),
		"retention.ms":                        whole(-1, i64),
		"retention.bytes":                     whole(-1, i64),
		"cleanup.policy":                      pick("delete", "compact", "compact,delete", ""),
		"min.cleanable.dirty.ratio":           pick("0", "1", "0.5", "0.01", "1e-9"),
		"min.compaction.lag.ms":               whole(0, 1<<40),
		"max.compaction.lag.ms":               whole(1<<40, i64),
		"delete.retention.ms":                 whole(0, i64),
		"file.delete.delay.ms":                whole(0, i64),
		"message.timestamp.type":              pick("CreateTime", "LogAppendTime"),
		"message.timestamp.before.max.ms":     whole(0, i64),
		"message.timestamp.after.max.ms":      whole(0, i64),
		"compression.type":                    pick(compressionTypes...),
		"compression.gzip.level":              pick("-1", "1", "9"),
		"compression.lz4.level":               pick("1", "9", "17"),
		"compression.zstd.level":              pick("-131072", "-1", "0", "3", "22"),
		"min.insync.replicas":                 whole(1, i32),
		"unclean.leader.election.enable":      pick("true", "false"),
		"flush.messages":                      whole(1, i64),
		"flush.ms":                            whole(0, i64),
		"producer.id.expiration.ms":           whole(1, i32),
		"log.cleaner.dedupe.buffer.size":      whole(1, i64),
		"log.cleaner.io.max.bytes.per.second": pick("1.7976931348623157E308", "1048576", "1e6", "5.5"),
	}
	out := map[string]string{}
	for _, s := range settings {
		draw, ok := legal[s.key]
		if !ok {
			t.Fatalf("no generator for %s", s.key)
		}
		if rapid.Bool().Draw(t, s.key) {
			out[s.key] = draw(t)
		}
	}
	return out
}

func TestPrintingAndParsingAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := legalTexts(t)
		c, err := ParseConfig(given)
		if err != nil {
			t.Fatal(err)
		}
		printed := c.Kafka()
		again, err := ParseConfig(printed)
		if err != nil {
			t.Fatal(err)
		}
		want := c.withDefaults()
		want.Durability = Inherit // no key
		if want != again {
			t.Fatalf("%+v\nprinted as %v\nread as %+v", want, printed, again)
		}
		if err := again.Validate(); err != nil {
			t.Fatal(err)
		}
		for key, text := range given {
			n, err := strconv.ParseInt(text, 10, 64)
			millis := strings.HasSuffix(key, ".ms") && n > maxMillis // 292 years and more are for ever
			segment := key == "segment.bytes" || key == "internal.segment.bytes"
			if err == nil && !millis && !segment && !strings.HasSuffix(key, ".level") && printed[key] != text {
				t.Fatalf("%s=%s is printed as %s", key, text, printed[key])
			}
		}
	})
}

func FuzzParseConfig(f *testing.F) {
	for _, s := range settings {
		f.Add(s.key, "0")
		f.Add(s.key, "-1")
		f.Add(s.key, foreverText)
	}
	f.Add("compression.type", "zstd")
	f.Fuzz(func(t *testing.T, key, text string) {
		given := map[string]string{key: text}
		ConfigNotes(given)
		c, err := ParseConfig(given)
		if err != nil {
			var bad *ConfigError
			require.True(t, errors.As(err, &bad))
			return
		}
		again, err := ParseConfig(c.Kafka())
		require.NoError(t, err)
		require.Equal(t, c.Kafka(), again.Kafka())
	})
}

// Settings that no log looks at do not pass as if they did something.
func TestNotesNameSettingsWithoutEffectYet(t *testing.T) {
	notes := ConfigNotes(pairs("retention.ms=5 log.retention.hours=2 retention.bytes=7 file.delete.delay.ms=1 delete.retention.ms=9 min.insync.replicas=2 unclean.leader.election.enable=true segment.bytes=2000000"))
	keys := []string{}
	for _, n := range notes {
		keys = append(keys, n.Key)
		require.False(t, n.Obsolete)
		require.Contains(t, n.Text, "for replication")
	}
	require.Equal(t, []string{"min.insync.replicas", "unclean.leader.election.enable"}, keys)
}

// DropOldest takes whole segments: with few large ones nearly everything would go at once.
func TestDropOldestKeepsMostOfWhatFits(t *testing.T) {
	b := newBed(t, Config{MaxBytes: 100_000, WhenFull: DropOldest, MaxMessageBytes: 5_000})
	require.Equal(t, int64(12_500), b.Config().SegmentBytes)
	for range 200 {
		b.add(strings.Repeat("x", 1000))
		if s := b.Stats(); s.Offsets.LogStart > 0 {
			require.Greater(t, s.Bytes, int64(80_000))
		}
	}
	require.LessOrEqual(t, b.Stats().Bytes, int64(100_000))
	require.Positive(t, b.Offsets().LogStart)
}
