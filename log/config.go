package log

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/record"
)

// Config of one log. The zero value is Kafka's default in every field but Durability, which is safer here. A field's zero
// always means "the default"; where Kafka gives 0 or a negative number a meaning of its own, a named constant says it.
// Durations are whole milliseconds. Config is comparable and holds no pointers.
//
// ParseConfig reads Kafka's settings and Kafka prints them; Validate says what is out of range.
type Config struct {
	// SegmentBytes is segment.bytes: a .log file never grows past it, unless a follower's batch alone does. Default 1 GiB, at
	// most 2 GiB - 1. Kafka's key has a minimum of 1 MiB; smaller values are what its topic setting internal.segment.bytes is
	// for, and are printed as that.
	SegmentBytes int64
	// SegmentAge is segment.ms: a new segment begins when the timestamps in the active one span more. Default 7 days.
	SegmentAge time.Duration
	// SegmentJitter is segment.jitter.ms: up to this much is taken off SegmentAge at random, so that many logs do not
	// roll at once. Default 0.
	SegmentJitter time.Duration
	// IndexBytes is segment.index.bytes: a full index begins a new segment. Default 10 MiB, at least 12.
	IndexBytes int64
	// IndexIntervalBytes is index.interval.bytes: one index entry after each that many bytes of log. Default 4096;
	// EveryBatch for Kafka's 0.
	IndexIntervalBytes int64
	// Preallocate is preallocate: new segments reserve their full size on the device.
	Preallocate bool
	// MaxMessageBytes is max.message.bytes, the largest batch accepted from a client. Default 1 MiB + 12; NoMessages
	// for Kafka's 0.
	MaxMessageBytes int

	// RetentionTime is retention.ms: segments whose largest timestamp is older go when Retain is called. Default 7 days;
	// Forever for Kafka's -1, Immediately for 0.
	RetentionTime time.Duration
	// RetentionBytes is retention.bytes: the oldest segments go when Retain is called, as long as that much is left. It is
	// no cap between the calls; MaxBytes is. Default Unlimited (Kafka's -1); ActiveOnly for Kafka's 0.
	RetentionBytes int64
	// Cleanup is cleanup.policy, a set. Default Delete; NoCleanup for Kafka's empty list. Without Delete, DeleteRecords
	// refuses, and only segments below the log start go; with Compact, every record needs a key.
	Cleanup Cleanup
	// Compaction is for logs whose Cleanup has Compact. MaxLag also rolls their segments, as SegmentAge does.
	Compaction CompactionConfig
	// FileDeleteDelay is file.delete.delay.ms: how long the files of segments that Retain dropped stay, marked .deleted.
	// Readers do not need it. Default 1 minute; Immediately for 0. It is not waited for at Close, nor where MaxBytes is set
	// or the device has no room for another segment. A log without Dir has no timer and looks when Retain is called.
	FileDeleteDelay time.Duration

	// TimestampType is message.timestamp.type. Default CreateTime.
	TimestampType record.TimestampType
	// TimestampBefore and TimestampAfter are message.timestamp.before.max.ms and message.timestamp.after.max.ms: how
	// far behind or ahead of the clock a client's timestamp may be. Defaults Forever and 1 hour; Immediately for 0.
	TimestampBefore, TimestampAfter time.Duration

	// CompressionType is compression.type: "producer" (the default: batches stay as they come), "uncompressed",
	// "gzip", "snappy", "lz4" or "zstd".
	CompressionType string
	// CompressionLevel is compression.<codec>.level of CompressionType: gzip 1 to 9 or -1, lz4 1 to 17, zstd -131072
	// to 22. 0 is the codec's default (-1, 9, 3), and the only value for the other types.
	CompressionLevel int

	// MinInSyncReplicas is min.insync.replicas. A log does not look at it; whoever replicates the log gives it to package
	// replica (Config.MinISR). Default 1.
	MinInSyncReplicas int
	// UncleanLeaderElection is unclean.leader.election.enable. A log does not look at it; the controller of a cluster does.
	UncleanLeaderElection bool

	// Durability is what an acknowledged append means. Default Durable, where Kafka has Buffered: a broker leaves
	// syncing to the operating system because replicas keep its records safe, and an embedded log has none.
	Durability Durability
	// FlushMessages is flush.messages: a Buffered log syncs after that many records. Default never.
	FlushMessages int64
	// FlushInterval is flush.ms: a Buffered log syncs when records are that old. Default Forever; Immediately for 0. A
	// log without Dir has no timer and looks at the clock when it is called.
	FlushInterval time.Duration

	// MaxBytes is a hard cap for the log's .log files, in bytes; 0 for none. Kafka has no such setting.
	MaxBytes int64
	// WhenFull says what an append does that would pass MaxBytes: ErrFull, or the oldest segments go first. Either way one
	// that is larger than MaxBytes is ErrFull. DropOldest without MaxBytes is refused; under it
	// segments have at most half of MaxBytes, whatever SegmentBytes says (an eighth, if the largest message fits): only
	// whole ones can go.
	WhenFull WhenFull
	// Visibility says what moves the high watermark.
	Visibility Visibility

	// ProducerExpiry is producer.id.expiration.ms: a producer without an open transaction is forgotten when its last
	// record is that old; one whose last record has no time, when it was appended, or the log opened, that long ago (Kafka
	// forgets it at once). Default 1 day, at most 2^31-1 ms (24 days): like Kafka's it cannot be never. Until then it takes
	// about 190 bytes of memory, 100,000 of them 19 MB, and 46 bytes in each snapshot, which a roll and a close write.
	ProducerExpiry time.Duration

	// said marks the settings (by their index) that With was given and whose value is the zero of their field: they are not
	// taken from elsewhere.
	said uint64
}

// CompactionConfig is the part of Config that compaction uses; zero fields are Kafka's defaults.
type CompactionConfig = compaction.Config

// Named values for what Kafka writes as 0 or a negative number.
const (
	EveryBatch  int64         = -1                 // IndexIntervalBytes: Kafka's 0, an index entry for each batch after the first
	Unlimited   int64         = -1                 // RetentionBytes, BytesPerSecond: no limit
	ActiveOnly  int64         = -2                 // RetentionBytes: Kafka's 0, everything may go: a new, empty active segment is left
	NoMessages  int           = -1                 // MaxMessageBytes: Kafka's 0, every append is refused
	AnyDirt     float64       = compaction.AnyDirt // MinDirtyRatio: Kafka's 0, one record not yet compacted is enough
	Forever     time.Duration = -1                 // any duration: Kafka's -1 or 2^63-1, never
	Immediately time.Duration = -2                 // any duration: Kafka's 0, where 0 is not the default
)

// Durability says what an acknowledged append means.
type Durability uint8

const (
	Inherit  Durability = iota // in AppendOptions: the log's; in Config: Durable
	Durable                    // on the device: fsynced, shared with concurrent appends
	Buffered                   // handed to the operating system: survives the process, not the power (Kafka's default)
)

// String is "inherit", "durable" or "buffered".
func (d Durability) String() string { return name(d, "inherit", "durable", "buffered") }

// Cleanup is cleanup.policy: a set of Delete and Compact, or NoCleanup.
type Cleanup uint8

const (
	Delete    Cleanup = 1 << iota // whole old segments go, by time, size and start offset (Retain)
	Compact                       // the last record of each key stays (Compact)
	NoCleanup                     // Kafka's empty list: nothing ever goes but by DeleteRecords
)

// Has says whether all of p is in the set.
func (c Cleanup) Has(p Cleanup) bool { return c&p == p }

// String is Kafka's spelling: "compact,delete", "" for NoCleanup.
func (c Cleanup) String() string {
	switch c {
	case NoCleanup:
		return ""
	case Delete, 0:
		return "delete"
	case Compact:
		return "compact"
	case Compact | Delete:
		return "compact,delete"
	default:
		return "Cleanup(" + strconv.Itoa(int(c)) + ")"
	}
}

// WhenFull says what happens at Config.MaxBytes.
type WhenFull uint8

const (
	Reject     WhenFull = iota // the append is refused with ErrFull
	DropOldest                 // whole segments go, oldest first, whatever retention says, but none above the high watermark (ErrFull)
)

// String is "reject" or "drop-oldest".
func (w WhenFull) String() string { return name(w, "reject", "drop-oldest") }

// Visibility says what moves the high watermark, and so what readers see.
type Visibility uint8

const (
	WhenAcknowledged Visibility = iota // a Durable log shows only what is on the device; a Buffered one everything written
	WhenWritten                        // everything written, Kafka's behaviour for a single replica: power loss may take back what was read
	External                           // only SetHighWatermark moves it (package replica)
)

// String is "when-acknowledged", "when-written" or "external".
func (v Visibility) String() string { return name(v, "when-acknowledged", "when-written", "external") }

func name[T ~uint8](v T, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%T(%d)", v, uint8(v))
}

// ConfigError names a setting that cannot be used.
type ConfigError struct {
	Key    string // Kafka's key; "" for a field Kafka does not have
	Field  string // the field of Config, "Compaction.MinLag", or of other options, "FetchOptions.MaxBytes"; "" for a key that is unknown
	Value  string // as given
	Reason string
}

func (e *ConfigError) Error() string {
	what := e.Key
	switch {
	case e.Key == "" && (strings.Contains(e.Field, "Options.") || strings.HasPrefix(e.Field, "DirConfig.")):
		what = e.Field
	case e.Key == "":
		what = "Config." + e.Field
	case e.Field != "":
		what = e.Key + " (Config." + e.Field + ")"
	}
	return fmt.Sprintf("log: setting %s = %q: %s", what, e.Value, e.Reason)
}

// defaults are Kafka's, but for Durability.
var defaults = Config{
	SegmentBytes:       1 << 30,
	SegmentAge:         7 * 24 * time.Hour,
	IndexBytes:         10 << 20,
	IndexIntervalBytes: 4096,
	MaxMessageBytes:    1<<20 + 12,
	RetentionTime:      7 * 24 * time.Hour,
	RetentionBytes:     Unlimited,
	Cleanup:            Delete,
	Compaction: CompactionConfig{
		MinDirtyRatio:   0.5,
		MaxLag:          Forever,
		DeleteRetention: 24 * time.Hour,
		MapBytes:        128 << 20,
		BytesPerSecond:  Unlimited,
	},
	FileDeleteDelay:   time.Minute,
	TimestampBefore:   Forever,
	TimestampAfter:    time.Hour,
	CompressionType:   "producer",
	MinInSyncReplicas: 1,
	Durability:        Durable,
	FlushMessages:     math.MaxInt64,
	FlushInterval:     Forever,
	ProducerExpiry:    24 * time.Hour,
}

// withDefaults is the effective configuration: every zero field filled in.
func (c Config) withDefaults() Config { return c.inherit(defaults) }

// fitted lowers SegmentBytes where DropOldest could only drop nearly everything.
func (c Config) fitted() Config {
	if c.WhenFull == DropOldest && c.MaxBytes > 0 && c.SegmentBytes > c.MaxBytes/2 {
		c.SegmentBytes = max(c.MaxBytes/8, min(int64(c.MaxMessageBytes), c.MaxBytes/2), 1)
	}
	return c
}

// idle refuses what a log is told to do when it is full, if its cap is none: it never is. Defaults of a Dir may say it.
func (c Config) idle(maxBytes int64) error {
	if c.WhenFull == DropOldest && maxBytes == 0 {
		return &ConfigError{Field: "WhenFull", Value: c.WhenFull.String(), Reason: "without MaxBytes a log is never full"}
	}
	return nil
}

// inherit fills c's zero fields from another configuration. A set switch (bool) of either one stays set.
func (c Config) inherit(from Config) Config {
	if c.CompressionType == "" && c.CompressionLevel == 0 {
		c.CompressionLevel = from.CompressionLevel // the level belongs to the type
	}
	for i := range settings {
		if c.said>>i&1 == 0 {
			settings[i].fill(&c, &from)
		}
	}
	c.Durability = or(c.Durability, from.Durability)
	c.MaxBytes = or(c.MaxBytes, from.MaxBytes)
	c.WhenFull = or(c.WhenFull, from.WhenFull)
	c.Visibility = or(c.Visibility, from.Visibility)
	c.Compaction.MapLoad = or(c.Compaction.MapLoad, from.Compaction.MapLoad)
	c.Compaction.ExactKeys = c.Compaction.ExactKeys || from.Compaction.ExactKeys
	c.Compaction.Limits = or(c.Compaction.Limits, from.Compaction.Limits)
	return c
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Validate checks every field after its default is filled in. The error is a *ConfigError, or several joined.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	for i := range settings {
		if reason := settings[i].check(&c); reason != "" {
			errs = append(errs, &ConfigError{settings[i].key, settings[i].field, settings[i].show(&c), reason})
		}
	}
	own := func(ok bool, field string, value any, reason string) {
		if !ok {
			errs = append(errs, &ConfigError{"", field, fmt.Sprint(value), reason})
		}
	}
	own(c.Durability <= Buffered, "Durability", c.Durability, "not one of the constants")
	own(c.WhenFull <= DropOldest, "WhenFull", c.WhenFull, "not one of the constants")
	own(c.Visibility <= External, "Visibility", c.Visibility, "not one of the constants")
	own(c.Compaction.MapLoad >= 0 && c.Compaction.MapLoad <= 1, "Compaction.MapLoad", c.Compaction.MapLoad, "not between 0 and 1")
	own(c.MaxBytes >= 0, "MaxBytes", c.MaxBytes, "negative")
	if lag := c.Compaction; lag.MaxLag != Forever && (lag.MinLag == Forever || lag.MinLag > lag.MaxLag) {
		errs = append(errs, &ConfigError{"min.compaction.lag.ms", "Compaction.MinLag", lag.MinLag.String(),
			"above max.compaction.lag.ms (" + lag.MaxLag.String() + ")"})
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}
