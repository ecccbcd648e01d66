package compaction

import (
	"math"
	"time"

	"github.com/partlog/partlog/record"
)

// Named values for what Kafka writes as 0 or a negative number, where 0 is not the default.
const (
	AnyDirt     float64       = -1 // MinDirtyRatio: Kafka's 0, one byte not yet cleaned is enough
	Forever     time.Duration = -1 // MaxLag, DeleteRetention: never
	Immediately time.Duration = -2 // DeleteRetention: Kafka's 0, the next cleaning may drop what this one stamps
)

// Config is how a log is compacted. The zero value of every field is Kafka's default.
type Config struct {
	// MinDirtyRatio is min.cleanable.dirty.ratio: a log is cleaned when more than this part of its cleanable bytes is
	// dirty. 0 = 0.5, AnyDirt = Kafka's 0.
	MinDirtyRatio float64
	// MinLag is min.compaction.lag.ms: a segment with a record younger than that, by its timestamp, is left alone with
	// all behind it. 0 = none, Forever = nothing is cleaned.
	MinLag time.Duration
	// MaxLag is max.compaction.lag.ms: a log with dirty records older than that is cleaned whatever its ratio. 0 or
	// Forever = no limit.
	MaxLag time.Duration
	// DeleteRetention is delete.retention.ms: how long tombstones and end markers stay after the cleaning that first saw
	// them. 0 = 24 hours, Immediately = Kafka's 0, Forever = they stay.
	DeleteRetention time.Duration
	// MapBytes is log.cleaner.dedupe.buffer.size of one cleaner: the most memory that keys may take, 24 bytes each
	// however long they are. 0 = 128 MiB. Memory is taken as keys are met. A map that is full ends the dirty range where
	// it stands: the rest is left to the next run.
	MapBytes int64
	// MapLoad is log.cleaner.io.buffer.load.factor: the part of the map that may be in use, at most 1. 0 = 0.9.
	MapLoad float64
	// ExactKeys keeps the keys themselves, within MapBytes, instead of hashes of 128 bits. Hashes are seeded anew for
	// each run: a collision, which would drop a live record, is less likely than a fault of the memory they are in, and
	// nobody can choose keys that collide.
	ExactKeys bool
	// BytesPerSecond is log.cleaner.io.max.bytes.per.second, counting bytes read and bytes written. <= 0 = unlimited.
	BytesPerSecond int64
	// Limits bound what a compressed batch may unpack to. A batch beyond them is an *UncleanableError.
	Limits record.Limits
}

const (
	defaultDirtyRatio      = 0.5
	defaultDeleteRetention = 24 * time.Hour
	defaultMapBytes        = 128 << 20
	defaultMapLoad         = 0.9
)

func (c Config) withDefaults() Config {
	switch {
	case c.MinDirtyRatio < 0:
		c.MinDirtyRatio = 0
	case c.MinDirtyRatio == 0:
		c.MinDirtyRatio = defaultDirtyRatio
	}
	if c.MinLag < 0 {
		c.MinLag = math.MaxInt64
	}
	if c.MaxLag <= 0 {
		c.MaxLag = Forever
	}
	switch c.DeleteRetention {
	case 0:
		c.DeleteRetention = defaultDeleteRetention
	case Immediately:
		c.DeleteRetention = 0
	}
	if c.MapBytes <= 0 {
		c.MapBytes = defaultMapBytes
	}
	switch {
	case c.MapLoad <= 0 || c.MapLoad != c.MapLoad:
		c.MapLoad = defaultMapLoad
	case c.MapLoad > 1:
		c.MapLoad = 1
	}
	return c
}
