package log

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/vfs"
)

// DirConfig of a log root; the zero value is right for most. A zero interval is Kafka's default; Forever is never, and
// Immediately, where it makes sense, Kafka's 0. ParseDirConfig reads it from a broker's settings.
type DirConfig struct {
	FS          vfs.FS           // the root itself; nil: the operating system's directory named in OpenDir
	Defaults    Config           // what Dir.Open fills zero fields of a log's Config from
	Logger      *slog.Logger     // nil: silent
	Events      *Events          // nil: none
	Now         func() time.Time // clock for timestamps, age, retention and intervals; nil: time.Now
	LockTimeout time.Duration    // how long to wait for another owner; 0: not at all
	MaxMappings int              // mapped index files over all logs; 0: a quarter of Linux' default vm.max_map_count
	// MaxOpenFiles bounds the open files over all logs, beside those that are in use at the moment and a few of the root. The
	// one that was not used for longest is closed for the next, and opened again when it is needed; one with bytes that are
	// not synced is synced before. 0: half of what the process may open (RLIMIT_NOFILE), at most 32768.
	MaxOpenFiles int
	Map          index.MapMode // index.Never: read indexes without mapping them
	// Progress is called now and then while a partition is recovered, from the goroutine that opens it: bytes read, of how
	// many. It must not call the Dir.
	Progress func(tp TopicPartition, done, total int64)
	NoEvict  bool // trust the page cache in recovery: faster, but blind to an earlier failed sync

	// Manual: no goroutine is started. Background work is done by RunOnce, when the host calls it.
	Manual bool
	// RecoveryThreads is num.recovery.threads.per.data.dir: how many partitions OpenAll loads at a time. Default 2.
	RecoveryThreads int // at most 1024
	// SyncParallelism bounds the logs that background work and Close sync at a time. Default 16: a file system merges
	// syncs that run together, one after the other is an order of magnitude slower. 1 in a Manual Dir: all that RunOnce and
	// Close do to logs is done to one after the other, in the order of their names, so that a simulation plays the same twice.
	SyncParallelism int
	// InitialDelay is log.initial.task.delay.ms: how long after OpenDir the periodic work begins. Default 30 s.
	InitialDelay time.Duration
	// RetentionInterval is log.retention.check.interval.ms. Default 5 min.
	RetentionInterval time.Duration
	// CleanerBackoff is log.cleaner.backoff.ms: how often to look for logs to compact. Default 15 s; Forever is Kafka's
	// log.cleaner.enable=false.
	CleanerBackoff time.Duration
	// CleanerThreads is log.cleaner.threads: how many logs are compacted at a time. Default 1.
	CleanerThreads int // at most 64
	// CleanerMapBytes is log.cleaner.dedupe.buffer.size: memory for keys, shared out among the threads. 0: each cleaning
	// takes what Config.Compaction.MapBytes of its log allows.
	CleanerMapBytes int64
	// CleanerBytesPerSecond is log.cleaner.io.max.bytes.per.second, for reading and writing of all cleaning together. 0: each
	// log's own Config.Compaction.BytesPerSecond.
	CleanerBytesPerSecond int64
	// FlushScheduler is log.flush.scheduler.interval.ms: how often to look for logs whose flush.ms (Config.FlushInterval)
	// is over. By default as often as the shortest of these among the open logs, but no more than every 10 ms; Kafka's
	// default never looks, and then flush.ms means nothing.
	FlushScheduler time.Duration
	// CheckpointInterval is log.flush.offset.checkpoint.interval.ms and log.flush.start.offset.checkpoint.interval.ms: how
	// often recovery points, start offsets and high watermarks that moved are written to the root. Default 1 min.
	CheckpointInterval time.Duration
	// HighWatermarkInterval is replica.high.watermark.checkpoint.interval.ms, for logs whose high watermark is set from
	// outside (External); that of others follows from the log. Default 5 s.
	HighWatermarkInterval time.Duration
	// ProducerInterval is producer.id.expiration.check.interval.ms: how often a log that nobody appends to forgets old
	// producers. Default 10 min.
	ProducerInterval time.Duration
	// SlowSync is how long a sync may take before Events.SlowSync tells of it. Default 1 s.
	SlowSync time.Duration

	// MinFreeBytes is a reserve: appends that would leave less free space on the root's device are refused with ErrNoSpace,
	// so that retention, checkpoints and recovery have room to work in. 0: none, and then a log is opened without room, too: see
	// RecoveryReport.Unfiled. Kafka has no such setting.
	MinFreeBytes int64

	// ClusterID and NodeID are cluster.id and node.id of meta.properties. With a ClusterID, a root that belongs to another
	// cluster or node is refused (ErrIdentity), and one without the file gets it. Without, the file is left alone.
	ClusterID string
	NodeID    int32
}

const (
	maxRecoveryThreads = 1024
	maxCleanerThreads  = 64
)

// dirDefaults are Kafka's, and ours where Kafka has no such setting.
func (c DirConfig) withDefaults() DirConfig {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.MaxOpenFiles = or(c.MaxOpenFiles, defaultOpenFiles())
	c.RecoveryThreads = or(c.RecoveryThreads, 2)
	c.SyncParallelism = or(c.SyncParallelism, 16)
	c.InitialDelay = or(c.InitialDelay, 30*time.Second)
	c.RetentionInterval = or(c.RetentionInterval, 5*time.Minute)
	c.CleanerBackoff = or(c.CleanerBackoff, 15*time.Second)
	c.CleanerThreads = or(c.CleanerThreads, 1)
	c.CheckpointInterval = or(c.CheckpointInterval, time.Minute)
	c.HighWatermarkInterval = or(c.HighWatermarkInterval, 5*time.Second)
	c.ProducerInterval = or(c.ProducerInterval, 10*time.Minute)
	c.SlowSync = or(c.SlowSync, time.Second)
	return c
}

// validate is one *ConfigError, or several joined.
func (c DirConfig) validate() error {
	errs := []error{c.Defaults.Validate()}
	check := func(ok bool, field string, value any, reason string) {
		if !ok {
			errs = append(errs, &ConfigError{Field: "DirConfig." + field, Value: fmt.Sprint(value), Reason: reason})
		}
	}
	check(c.RecoveryThreads >= 0 && c.RecoveryThreads <= maxRecoveryThreads, "RecoveryThreads", c.RecoveryThreads, "not between 1 and 1024")
	check(c.SyncParallelism >= 0 && c.SyncParallelism <= 1024, "SyncParallelism", c.SyncParallelism, "not between 1 and 1024")
	check(c.LockTimeout >= 0, "LockTimeout", c.LockTimeout, "negative")
	check(c.MaxMappings >= 0, "MaxMappings", c.MaxMappings, "negative")
	check(c.Map <= index.Never, "Map", c.Map, "not one of the constants")
	check(c.MaxOpenFiles >= 0, "MaxOpenFiles", c.MaxOpenFiles, "negative")
	check(c.InitialDelay >= 0 || c.InitialDelay == Immediately || c.InitialDelay == Forever, "InitialDelay", c.InitialDelay, "negative")
	for _, interval := range []struct {
		field string
		value time.Duration
	}{
		{"RetentionInterval", c.RetentionInterval}, {"CleanerBackoff", c.CleanerBackoff}, {"FlushScheduler", c.FlushScheduler}, {"CheckpointInterval", c.CheckpointInterval},
		{"HighWatermarkInterval", c.HighWatermarkInterval}, {"ProducerInterval", c.ProducerInterval}, {"SlowSync", c.SlowSync},
	} {
		check(interval.value >= 0 || interval.value == Forever, interval.field, interval.value, "negative")
	}
	check(c.CleanerThreads >= 0 && c.CleanerThreads <= maxCleanerThreads, "CleanerThreads", c.CleanerThreads, "not between 1 and 64")
	check(c.CleanerMapBytes >= 0, "CleanerMapBytes", c.CleanerMapBytes, "negative")
	check(c.CleanerBytesPerSecond >= 0, "CleanerBytesPerSecond", c.CleanerBytesPerSecond, "negative")
	check(c.MinFreeBytes >= 0, "MinFreeBytes", c.MinFreeBytes, "negative")
	check(c.NodeID >= 0, "NodeID", c.NodeID, "negative")
	check(c.NodeID == 0 || c.ClusterID != "", "NodeID", c.NodeID, "a node id needs a ClusterID beside it")
	check(!strings.ContainsFunc(c.ClusterID, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }), "ClusterID", c.ClusterID, "a character that meta.properties cannot hold")
	if len(errs) > 1 && errs[0] == nil {
		errs = errs[1:]
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// defaultOpenFiles leaves half of what the process may open to the host, and to the files and folders that are open for the
// length of one call.
func defaultOpenFiles() int { return int(min(max(fileLimit()/2, 16), 32768)) }
