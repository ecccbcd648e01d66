package log

import (
	"strconv"
	"strings"
	"time"

	"github.com/partlog/partlog/internal/checkpoint"
)

// ParseDirConfig reads a broker's settings, as they stand in its server.properties, into the configuration of a log root:
// log.cleaner.*, log.retention.check.interval.ms and the others that DirConfig's fields name. Defaults is what ParseConfig
// makes of the same settings. Kafka's values without a twin here become what comes closest: log.cleaner.enable=false or
// log.cleaner.threads=0 is CleanerBackoff Forever, a pause of 0 is 1 ms, and of log.flush.offset.checkpoint.interval.ms and
// log.flush.start.offset.checkpoint.interval.ms the shorter one counts, 0 as if it were not given. The folder (log.dirs) is for
// OpenDir, and node.id for NodeID, which goes with a ClusterID. Errors are *ConfigError, several joined, as of ParseConfig.
func ParseDirConfig(kafka map[string]string) (DirConfig, error) {
	var c DirConfig
	var err error
	if c.Defaults, err = ParseConfig(kafka); err != nil {
		return c, err
	}
	given := func(key string) (n int64, ok bool) { // ParseConfig has checked it
		text, ok := kafka[key]
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		return n, ok && err == nil
	}
	for _, s := range []struct {
		key  string
		at   *time.Duration
		zero time.Duration
	}{
		{"log.retention.check.interval.ms", &c.RetentionInterval, 0},
		{"log.initial.task.delay.ms", &c.InitialDelay, Immediately},
		{"log.cleaner.backoff.ms", &c.CleanerBackoff, time.Millisecond},
		{"log.flush.scheduler.interval.ms", &c.FlushScheduler, time.Millisecond},
		{"producer.id.expiration.check.interval.ms", &c.ProducerInterval, 0},
		{"replica.high.watermark.checkpoint.interval.ms", &c.HighWatermarkInterval, 0},
	} {
		if n, ok := given(s.key); ok {
			*s.at = interval(n, s.zero)
		}
	}
	for _, key := range []string{"log.flush.offset.checkpoint.interval.ms", "log.flush.start.offset.checkpoint.interval.ms"} {
		if n, ok := given(key); ok && n > 0 && (c.CheckpointInterval == 0 || interval(n, 0) < c.CheckpointInterval) {
			c.CheckpointInterval = interval(n, 0)
		}
	}
	if n, ok := given("num.recovery.threads.per.data.dir"); ok {
		c.RecoveryThreads = int(min(n, maxRecoveryThreads))
	}
	if n, ok := given("log.cleaner.threads"); ok {
		c.CleanerThreads = int(min(n, maxCleanerThreads))
		if n == 0 {
			c.CleanerBackoff = Forever
		}
	}
	if strings.EqualFold(strings.TrimSpace(kafka["log.cleaner.enable"]), "false") {
		c.CleanerBackoff = Forever
	}
	// What a broker's cleaners share is not each log's.
	c.CleanerMapBytes, c.Defaults.Compaction.MapBytes = c.Defaults.Compaction.MapBytes, 0
	c.CleanerBytesPerSecond, c.Defaults.Compaction.BytesPerSecond = max(c.Defaults.Compaction.BytesPerSecond, 0), 0
	if f, bad := parseFloat(strings.TrimSpace(kafka["log.cleaner.io.buffer.load.factor"])); bad == "" && f > 0 && f <= 1 {
		c.Defaults.Compaction.MapLoad = f
	}
	return c, c.validate()
}

// interval is n milliseconds, and zero for none.
func interval(n int64, zero time.Duration) time.Duration {
	switch {
	case n <= 0:
		return zero
	case n > maxMillis:
		return Forever
	}
	return time.Duration(n) * time.Millisecond
}

// ParseProperties reads the text of a file in which Java programs keep their settings, as a broker's server.properties: lines of
// key=value, comments, escapes and lines that go on. It is for ParseDirConfig and ParseConfig. Of a key that stands twice the
// last value counts, and nothing is an error: what is no setting has a key that those refuse.
func ParseProperties(file []byte) map[string]string { return checkpoint.ParseProperties(file) }

// share is each of n's part of a total, and 0 only for a total of 0.
func share(total int64, n int) int64 {
	if total <= 0 {
		return 0
	}
	return max(total/int64(max(n, 1)), 1)
}
