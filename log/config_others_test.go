package log

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A broker's settings that a Config has no field for are checked like all others: a typing error is not taken for a setting.
func TestSettingsOfOtherPartsAreCheckedAsKafkaChecksThem(t *testing.T) {
	for _, row := range []struct{ key, good, bad string }{
		{"log.retention.check.interval.ms", "1", "0"},
		{"log.initial.task.delay.ms", "0", "-1"},
		{"log.flush.offset.checkpoint.interval.ms", "0", "2147483648"},
		{"log.flush.start.offset.checkpoint.interval.ms", "60000", "-1"},
		{"num.recovery.threads.per.data.dir", "1", "0"},
		{"log.cleaner.enable", "TRUE", "yes"},
		{"log.cleaner.threads", "0", "-1"},
		{"log.cleaner.threads", " 2 ", "two"},
		{"log.cleaner.io.buffer.load.factor", "0.9", "most"},
		{"log.cleaner.io.buffer.size", "524288", "512k"},
		{"log.cleaner.backoff.ms", "0", "-1"},
		{"producer.id.expiration.check.interval.ms", "1", "0"},
		{"transaction.partition.verification.enable", "false", "0"},
		{"transaction.max.timeout.ms", "900000", "0"},
		{"replica.lag.time.max.ms", "30000", "30s"},
		{"replica.fetch.max.bytes", "1048576", "-1"},
		{"replica.fetch.min.bytes", "1", "1.5"},
		{"replica.fetch.wait.max.ms", "500", ""},
		{"replica.fetch.backoff.ms", "0", "-1"},
		{"replica.high.watermark.checkpoint.interval.ms", "5000", "soon"},
		{"auto.leader.rebalance.enable", "false", "no"},
		{"leader.imbalance.per.broker.percentage", "0", "10%"},
		{"leader.imbalance.check.interval.seconds", "300", "0"},
		{"default.replication.factor", "3", "0"},
		{"num.partitions", "1", "0"},
		{"broker.id", "-1", "first"},
		{"offsets.topic.num.partitions", "50", "0"},
		{"transaction.state.log.num.partitions", "50", "0"},
		{"leader.replication.throttled.replicas", "0:1, 3:2", "0-1"},
		{"follower.replication.throttled.replicas", "*", "*:1"},
		{"local.retention.ms", "-2", "-3"},
	} {
		_, err := ParseConfig(map[string]string{row.key: row.good})
		require.NoError(t, err, row.key)
		_, err = ParseConfig(map[string]string{row.key: row.bad})
		var bad *ConfigError
		require.ErrorAs(t, err, &bad, "%s=%s", row.key, row.bad)
		require.Equal(t, row.key, bad.Key)
		require.Equal(t, row.bad, bad.Value)
	}
}

// A setting of a producer or consumer does nothing in a log, whatever its value is.
func TestSettingsOfClientsAreRefusedAndNamedAsTheirs(t *testing.T) {
	for key, whose := range map[string]string{"linger.ms": "producers", "isolation.level": "consumers", "request.timeout.ms": "producers and consumers"} {
		_, err := ParseConfig(map[string]string{key: "1"})
		var bad *ConfigError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, "a setting of "+whose+", not of a log", bad.Reason)
		require.Empty(t, ConfigNotes(map[string]string{key: "1"}), "it is refused")
	}
}

func TestAKeyWithTwoWrongLettersIsSuggested(t *testing.T) {
	for given, meant := range map[string]string{
		"repca.lag.time.max.ms": "replica.lag.time.max.ms", "repca.lag.max.messages": "replica.lag.max.messages",
		"log.retention.checkinterval.ms": "log.retention.check.interval.ms", "log flush interval messages": "log.flush.interval.messages",
		"retension.ms": "retention.ms", "clenup.policy": "cleanup.policy", "enable.idompotence": "enable.idempotence",
	} {
		_, err := ParseConfig(map[string]string{given: "1"})
		require.ErrorContains(t, err, "did you mean "+meant+"?", given)
	}
	for _, given := range []string{"x", "retainment.ms", "flush", strings.Repeat("a", 5000)} {
		_, err := ParseConfig(map[string]string{given: "1"})
		require.Error(t, err)
		require.NotContains(t, err.Error(), "did you mean")
	}
}

func TestABrokersPropertiesAreTheConfigurationOfALogRoot(t *testing.T) {
	given := ParseProperties([]byte("# a broker\r\nprocess.roles=broker,controller\nnode.id : 3\nlisteners=PLAINTEXT://:9092,\\\n   CONTROLLER://:9093\n" +
		"log.dirs=/tmp/kraft-combined-logs\nnum.partitions=1\nnum.recovery.threads.per.data.dir=4\noffsets.topic.replication.factor=1\n" +
		"log.retention.hours=168\nlog.segment.bytes = 2097152\nlog.retention.check.interval.ms=300000\nlog.cleaner.threads=2\n" +
		"log.cleaner.dedupe.buffer.size=4194304\nlog.cleaner.io.max.bytes.per.second=1000000\nlog.cleaner.io.buffer.load.factor=0.8\nlog.cleaner.backoff.ms=0\n" +
		"log.initial.task.delay.ms=0\nlog.flush.scheduler.interval.ms=100\nlog.flush.offset.checkpoint.interval.ms=30000\n" +
		"log.flush.start.offset.checkpoint.interval.ms=20000\nreplica.high.watermark.checkpoint.interval.ms=1000\n" +
		"producer.id.expiration.check.interval.ms=9000\nlog.preallocate=true\n"))
	require.Equal(t, "PLAINTEXT://:9092,CONTROLLER://:9093", given["listeners"])
	c, err := ParseDirConfig(given)
	require.NoError(t, err)
	require.Equal(t, DirConfig{
		Defaults: Config{RetentionTime: 168 * time.Hour, SegmentBytes: 2097152, Preallocate: true, FlushInterval: 100 * time.Millisecond,
			Compaction: CompactionConfig{MapLoad: 0.8}},
		RecoveryThreads: 4, RetentionInterval: 5 * time.Minute, CleanerThreads: 2, CleanerMapBytes: 4194304, CleanerBytesPerSecond: 1000000,
		CleanerBackoff: time.Millisecond, InitialDelay: Immediately, FlushScheduler: 100 * time.Millisecond, CheckpointInterval: 20 * time.Second,
		HighWatermarkInterval: time.Second, ProducerInterval: 9 * time.Second,
	}, c)
	d, err := OpenDir(t.TempDir(), c)
	require.NoError(t, err)
	require.NoError(t, d.Close())

	c, err = ParseDirConfig(nil)
	require.NoError(t, err)
	require.Equal(t, DirConfig{}, c, "zero is the default")
	for _, off := range []string{"log.cleaner.enable=False", "log.cleaner.threads=0"} {
		c, err = ParseDirConfig(pairs(off))
		require.NoError(t, err)
		require.Equal(t, Forever, c.CleanerBackoff, off)
	}
	c, err = ParseDirConfig(pairs("log.cleaner.threads=100000 num.recovery.threads.per.data.dir=100000 log.retention.check.interval.ms=9223372036854775807 log.flush.offset.checkpoint.interval.ms=0"))
	require.NoError(t, err)
	require.Equal(t, DirConfig{CleanerThreads: 64, RecoveryThreads: 1024, RetentionInterval: Forever}, c)
	_, err = ParseDirConfig(pairs("log.cleaner.threads=x log.segment.bytes=1 no.such.key=1"))
	var bad *ConfigError
	require.True(t, errors.As(err, &bad))
	require.Len(t, strings.Split(err.Error(), "\n"), 3)
}

// Shares of a limit that is smaller than the number of those who share are not zero: that would be no limit.
func TestAShareOfALimitIsALimit(t *testing.T) {
	require.Equal(t, int64(1), share(3, 64))
	require.Equal(t, int64(50), share(100, 2))
	require.Zero(t, share(0, 2))
}
