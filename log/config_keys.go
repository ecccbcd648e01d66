package log

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/partlog/partlog/record"
)

// setting ties one of Kafka's topic keys (or a broker key without a topic twin) to a field of Config.
type setting struct {
	key, field string
	broker     []synonym // the broker's names for it, most binding last; the topic key binds more than all
	topic      bool      // key is a topic setting

	parse func(c *Config, text string, from synonym) (reason string)
	print func(c *Config) (text string, ok bool) // of a filled-in Config; !ok: nothing to print
	show  func(c *Config) string                 // the field's value, for messages
	fill  func(c, from *Config)                  // zero takes the other's value
	check func(c *Config) (reason string)        // of a filled-in Config
}

// synonym is another key for a setting, with its own unit and range.
type synonym struct {
	key      string
	unit     time.Duration // of durations
	min, max int64         // in its own unit
}

// ParseConfig reads Kafka's topic settings and a broker's log settings. A topic setting binds more than the broker's
// key for the same thing, and the broker's milliseconds bind more than minutes, minutes more than hours. Every known
// value is checked, also one that another overrides. Settings that belong elsewhere (a broker's cleaner threads, its
// network, replication: ParseDirConfig and the ParseConfig of packages replica and replica/controller) or that Kafka removed
// are checked, too, accepted and have no effect here; ConfigNotes names them. Any other key is a *ConfigError, also one of a
// producer or consumer, and so is a bad value; several are joined. The result's fields without a key (Durability, MaxBytes,
// WhenFull, Visibility) are zero.
func ParseConfig(kafka map[string]string) (Config, error) {
	var c Config
	if err := c.read(kafka); err != nil {
		return c, err
	}
	return c, c.Validate()
}

// With is c with these of Kafka's settings over it, as a topic's own are over a broker's. All that ParseConfig says holds; what
// is given here counts also where it is Kafka's default and DirConfig.Defaults says something else. Another compression.type
// begins with its codec's default level.
func (c Config) With(kafka map[string]string) (Config, error) {
	if text, given := kafka["compression.type"]; given && strings.TrimSpace(text) != c.CompressionType {
		c.CompressionLevel = 0
	}
	if err := c.read(kafka); err != nil {
		return c, err
	}
	for i := range settings {
		s, alone := &settings[i], Config{}
		text, given := kafka[s.key]
		for _, b := range s.broker {
			if t, ok := kafka[b.key]; ok && !given {
				text, given = t, true
			}
		}
		if given && s.field != "CompressionLevel" && s.parse(&alone, strings.TrimSpace(text), synonym{key: s.key, unit: time.Millisecond}) == "" && alone == (Config{}) {
			c.said |= 1 << i
		}
	}
	return c, c.Validate()
}

// read takes the fields from the settings that are given.
func (c *Config) read(kafka map[string]string) error {
	var errs []error
	bad := func(key, field, value, reason string) {
		errs = append(errs, &ConfigError{key, field, value, reason})
	}
	known := make(map[string]bool, len(kafka))
	for i := range settings {
		s := &settings[i]
		own := synonym{key: s.key, unit: time.Millisecond, min: math.MinInt64, max: math.MaxInt64}
		for _, from := range append(slices.Clip(s.broker), own) {
			text, given := kafka[from.key]
			if !given {
				continue
			}
			known[from.key] = true
			if reason := s.parse(c, strings.TrimSpace(text), from); reason != "" {
				bad(from.key, s.field, text, reason)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(kafka)) {
		if known[key] {
			continue
		}
		if _, elsewhere := otherKeys[key]; !elsewhere {
			bad(key, "", kafka[key], unknownReason(key))
		} else if reason := checkOther(key, kafka[key]); reason != "" {
			bad(key, "", kafka[key], reason)
		}
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// Kafka prints the effective values under Kafka's topic keys, and under the broker's where there is no topic key:
// log.cleaner.* and producer.id.expiration.ms. A segment size below 1 MiB appears as internal.segment.bytes, a
// compression level only for the compression type in use. ParseConfig of the result gives the same settings.
func (c Config) Kafka() map[string]string {
	c = c.withDefaults()
	out := make(map[string]string, len(settings))
	for i := range settings {
		if text, ok := settings[i].print(&c); ok {
			out[settings[i].key] = text
		}
	}
	return out
}

// TopicKey says whether Kafka accepts the key as the setting of a topic; the other keys of Config.Kafka are broker
// settings.
func TopicKey(key string) bool {
	for i := range settings {
		if settings[i].key == key {
			return settings[i].topic
		}
	}
	return otherKeys[key].topic
}

const (
	kafkaMinSegmentBytes = 1 << 20
	foreverText          = "9223372036854775807"
	maxInt               = math.MaxInt32 // of settings that are a 32-bit number in Kafka
)

var (
	hours   = time.Hour
	minutes = time.Minute
	millis  = time.Millisecond
)

var settings = []setting{
	segmentBytes(),
	internalSegmentBytes(),
	duration("segment.ms", "SegmentAge", func(c *Config) *time.Duration { return &c.SegmentAge },
		span{min: 1, forever: foreverText},
		synonym{"log.roll.hours", hours, 1, maxInt}, synonym{"log.roll.ms", millis, 1, math.MaxInt64}),
	duration("segment.jitter.ms", "SegmentJitter", func(c *Config) *time.Duration { return &c.SegmentJitter },
		span{zeroDefault: true},
		synonym{"log.roll.jitter.hours", hours, 0, maxInt}, synonym{"log.roll.jitter.ms", millis, 0, math.MaxInt64}),
	number("segment.index.bytes", "IndexBytes", func(c *Config) *int64 { return &c.IndexBytes },
		limits[int64]{min: 12, max: maxInt}, "log.index.size.max.bytes"),
	number("index.interval.bytes", "IndexIntervalBytes", func(c *Config) *int64 { return &c.IndexIntervalBytes },
		limits[int64]{min: 0, max: maxInt, zero: EveryBatch, names: "EveryBatch"}, "log.index.interval.bytes"),
	flag("preallocate", "Preallocate", func(c *Config) *bool { return &c.Preallocate }, "log.preallocate"),
	number("max.message.bytes", "MaxMessageBytes", func(c *Config) *int { return &c.MaxMessageBytes },
		limits[int]{min: 0, max: maxInt, zero: NoMessages, names: "NoMessages"}, "message.max.bytes"),

	duration("retention.ms", "RetentionTime", func(c *Config) *time.Duration { return &c.RetentionTime },
		span{zero: Immediately, forever: "-1"},
		synonym{"log.retention.hours", hours, 1, maxInt}, synonym{"log.retention.minutes", minutes, 1, maxInt},
		synonym{"log.retention.ms", millis, 1, math.MaxInt64}),
	number("retention.bytes", "RetentionBytes", func(c *Config) *int64 { return &c.RetentionBytes },
		limits[int64]{min: 0, max: math.MaxInt64, zero: ActiveOnly, negative: Unlimited, names: "Unlimited or ActiveOnly"}, "log.retention.bytes"),
	cleanupPolicy(),
	ratio("min.cleanable.dirty.ratio", "Compaction.MinDirtyRatio",
		func(c *Config) *float64 { return &c.Compaction.MinDirtyRatio }, AnyDirt, "log.cleaner.min.cleanable.ratio"),
	duration("min.compaction.lag.ms", "Compaction.MinLag", func(c *Config) *time.Duration { return &c.Compaction.MinLag },
		span{zeroDefault: true, forever: foreverText}, synonym{"log.cleaner.min.compaction.lag.ms", millis, 0, math.MaxInt64}),
	duration("max.compaction.lag.ms", "Compaction.MaxLag", func(c *Config) *time.Duration { return &c.Compaction.MaxLag },
		span{min: 1, forever: foreverText}, synonym{"log.cleaner.max.compaction.lag.ms", millis, 1, math.MaxInt64}),
	duration("delete.retention.ms", "Compaction.DeleteRetention", func(c *Config) *time.Duration { return &c.Compaction.DeleteRetention },
		span{zero: Immediately, forever: foreverText}, synonym{"log.cleaner.delete.retention.ms", millis, 0, math.MaxInt64}),
	brokerOnly(number("log.cleaner.dedupe.buffer.size", "Compaction.MapBytes", func(c *Config) *int64 { return &c.Compaction.MapBytes },
		limits[int64]{min: 1, max: math.MaxInt64})),
	cleanerRate(),
	duration("file.delete.delay.ms", "FileDeleteDelay", func(c *Config) *time.Duration { return &c.FileDeleteDelay },
		span{zero: Immediately, forever: foreverText}, synonym{"log.segment.delete.delay.ms", millis, 0, math.MaxInt64}),

	timestampType(),
	duration("message.timestamp.before.max.ms", "TimestampBefore", func(c *Config) *time.Duration { return &c.TimestampBefore },
		span{zero: Immediately, forever: foreverText}, synonym{"log.message.timestamp.before.max.ms", millis, 0, math.MaxInt64}),
	duration("message.timestamp.after.max.ms", "TimestampAfter", func(c *Config) *time.Duration { return &c.TimestampAfter },
		span{zero: Immediately, forever: foreverText}, synonym{"log.message.timestamp.after.max.ms", millis, 0, math.MaxInt64}),

	compressionType(), // before the levels, which belong to it
	compressionLevel("gzip", -1, 1, 9),
	compressionLevel("lz4", 9, 1, 17),
	compressionLevel("zstd", 3, -131072, 22),

	number("min.insync.replicas", "MinInSyncReplicas", func(c *Config) *int { return &c.MinInSyncReplicas },
		limits[int]{min: 1, max: maxInt}),
	flag("unclean.leader.election.enable", "UncleanLeaderElection", func(c *Config) *bool { return &c.UncleanLeaderElection }),
	number("flush.messages", "FlushMessages", func(c *Config) *int64 { return &c.FlushMessages },
		limits[int64]{min: 1, max: math.MaxInt64}, "log.flush.interval.messages"),
	duration("flush.ms", "FlushInterval", func(c *Config) *time.Duration { return &c.FlushInterval },
		span{zero: Immediately, forever: foreverText},
		synonym{"log.flush.scheduler.interval.ms", millis, 0, math.MaxInt64}, synonym{"log.flush.interval.ms", millis, 0, math.MaxInt64}),
	brokerOnly(duration("producer.id.expiration.ms", "ProducerExpiry", func(c *Config) *time.Duration { return &c.ProducerExpiry },
		span{min: 1, max: maxInt})),
}

func segmentBytes() setting {
	s := number("segment.bytes", "SegmentBytes", func(c *Config) *int64 { return &c.SegmentBytes },
		limits[int64]{min: kafkaMinSegmentBytes, max: maxInt}, "log.segment.bytes")
	s.check = func(c *Config) string {
		return outside(c.SegmentBytes, 1, maxInt) // below Kafka's minimum it is internal.segment.bytes
	}
	print := s.print
	s.print = func(c *Config) (string, bool) {
		text, ok := print(c)
		return text, ok && c.SegmentBytes >= kafkaMinSegmentBytes
	}
	return s
}

func internalSegmentBytes() setting {
	s := number("internal.segment.bytes", "SegmentBytes", func(c *Config) *int64 { return &c.SegmentBytes },
		limits[int64]{min: 1, max: maxInt})
	s.check = func(*Config) string { return "" }
	print := s.print
	s.print = func(c *Config) (string, bool) {
		text, ok := print(c)
		return text, ok && c.SegmentBytes < kafkaMinSegmentBytes
	}
	return s
}

func cleanupPolicy() setting {
	parse := func(text string) (Cleanup, string) {
		if text == "" {
			return NoCleanup, ""
		}
		var set Cleanup
		for part := range strings.SplitSeq(text, ",") {
			switch strings.TrimSpace(part) {
			case "delete":
				set |= Delete
			case "compact":
				set |= Compact
			default:
				return 0, "not a list of delete and compact"
			}
		}
		return set, ""
	}
	return setting{
		key: "cleanup.policy", field: "Cleanup", topic: true, broker: []synonym{{key: "log.cleanup.policy"}},
		parse: func(c *Config, text string, _ synonym) string {
			set, reason := parse(text)
			if reason == "" {
				c.Cleanup = set
			}
			return reason
		},
		print: func(c *Config) (string, bool) { return c.Cleanup.String(), true },
		show:  func(c *Config) string { return c.Cleanup.String() },
		fill:  func(c, from *Config) { c.Cleanup = or(c.Cleanup, from.Cleanup) },
		check: func(c *Config) string {
			switch c.Cleanup {
			case Delete, Compact, Delete | Compact, NoCleanup:
				return ""
			}
			return "not a set of Delete and Compact, nor NoCleanup alone"
		},
	}
}

// cleanerRate is a floating point number in Kafka, whose default is the largest one.
func cleanerRate() setting {
	at := func(c *Config) *int64 { return &c.Compaction.BytesPerSecond }
	s := brokerOnly(number("log.cleaner.io.max.bytes.per.second", "Compaction.BytesPerSecond", at,
		limits[int64]{min: 1, max: math.MaxInt64, negative: Unlimited, names: "Unlimited"}))
	s.parse = func(c *Config, text string, _ synonym) string {
		f, reason := parseFloat(text)
		switch {
		case reason != "":
			return reason
		case f <= 0:
			return "not above 0"
		case f >= math.MaxInt64:
			*at(c) = Unlimited
		default:
			*at(c) = max(1, int64(f))
		}
		return ""
	}
	s.print = func(c *Config) (string, bool) {
		if *at(c) < 0 {
			return "1.7976931348623157E308", true
		}
		return strconv.FormatInt(*at(c), 10), true
	}
	return s
}

func timestampType() setting {
	names := [...]string{record.CreateTime: "CreateTime", record.LogAppendTime: "LogAppendTime"}
	text := func(c *Config) string {
		if int(c.TimestampType) < len(names) {
			return names[c.TimestampType]
		}
		return strconv.Itoa(int(c.TimestampType))
	}
	return setting{
		key: "message.timestamp.type", field: "TimestampType", topic: true, broker: []synonym{{key: "log.message.timestamp.type"}},
		parse: func(c *Config, text string, _ synonym) string {
			i := slices.Index(names[:], text)
			if i < 0 {
				return "neither CreateTime nor LogAppendTime"
			}
			c.TimestampType = record.TimestampType(i)
			return ""
		},
		print: func(c *Config) (string, bool) { return text(c), true },
		show:  text,
		fill:  func(c, from *Config) { c.TimestampType = or(c.TimestampType, from.TimestampType) },
		check: func(c *Config) string {
			if int(c.TimestampType) >= len(names) {
				return "neither CreateTime nor LogAppendTime"
			}
			return ""
		},
	}
}

var compressionTypes = []string{"uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"}

func compressionType() setting {
	return setting{
		key: "compression.type", field: "CompressionType", topic: true,
		parse: func(c *Config, text string, _ synonym) string {
			if !slices.Contains(compressionTypes, text) {
				return "not one of " + strings.Join(compressionTypes, ", ")
			}
			c.CompressionType = text
			return ""
		},
		print: func(c *Config) (string, bool) { return c.CompressionType, true },
		show:  func(c *Config) string { return c.CompressionType },
		fill:  func(c, from *Config) { c.CompressionType = or(c.CompressionType, from.CompressionType) },
		check: func(c *Config) string {
			switch c.CompressionType {
			case "gzip", "lz4", "zstd":
				return ""
			}
			if !slices.Contains(compressionTypes, c.CompressionType) {
				return "not one of " + strings.Join(compressionTypes, ", ")
			}
			if c.CompressionLevel != 0 {
				return "has no level, but Config.CompressionLevel is " + strconv.Itoa(c.CompressionLevel)
			}
			return ""
		},
	}
}

// compressionLevel is the level of one codec; it touches the field only when that codec is the compression type.
// lowest is the least level; the default may lie outside lowest to highest. 0 stands for the default.
func compressionLevel(codec string, normal, lowest, highest int) setting {
	inUse := func(c *Config) bool { return c.CompressionType == codec }
	check := func(level int) string {
		if level == normal {
			return ""
		}
		return outside(level, lowest, highest)
	}
	return setting{
		key: "compression." + codec + ".level", field: "CompressionLevel", topic: true,
		parse: func(c *Config, text string, _ synonym) string {
			n, reason := parseInt(text, -maxInt, maxInt)
			if reason == "" {
				reason = check(int(n))
			}
			if reason == "" && inUse(c) {
				c.CompressionLevel = int(n) // a legal 0 (zstd) is the default, too
			}
			return reason
		},
		print: func(c *Config) (string, bool) { return strconv.Itoa(c.CompressionLevel), inUse(c) },
		show:  func(c *Config) string { return strconv.Itoa(c.CompressionLevel) },
		fill: func(c, _ *Config) {
			if inUse(c) {
				c.CompressionLevel = or(c.CompressionLevel, normal)
			}
		},
		check: func(c *Config) string {
			if !inUse(c) {
				return ""
			}
			return check(c.CompressionLevel)
		},
	}
}
