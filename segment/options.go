package segment

import (
	"math"
	"time"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// EveryBatch for Options.IndexIntervalBytes is Kafka's index.interval.bytes=0: every batch but a segment's first
// gets an index entry.
const EveryBatch = -1

// Forever for Options.MaxAge means that age never rolls the segment.
const Forever time.Duration = -1

// maxBytes is what a position in an index entry can address; maxRelative what an offset in it can.
const (
	maxBytes    = math.MaxInt32
	maxRelative = math.MaxInt32
)

// Options of one segment. The zero value of every field but FS is Kafka's default.
type Options struct {
	FS                 vfs.FS
	MaxBytes           int64            // segment.bytes; 0 = 1 GiB
	MaxAge             time.Duration    // segment.ms, already lowered to max.compaction.lag.ms where that applies; 0 = 7 days, Forever = no limit
	JitterMax          time.Duration    // segment.jitter.ms; each segment draws its own below min(JitterMax, MaxAge)
	IndexMaxBytes      int64            // segment.index.bytes; 0 = 10 MiB
	IndexIntervalBytes int64            // index.interval.bytes; 0 = 4096, EveryBatch = Kafka's 0
	Preallocate        bool             // preallocate: Create makes the file MaxBytes long; it is trimmed by Seal and Close
	Map                index.MapMode    // whether sealed indexes may be mapped
	Budget             *index.Budget    // shared bound on mappings; nil = the process-wide one
	Whole              bool             // with ReadOnly: nobody appends any more, so a tail that is not whole batches is *CorruptError and not the end
	ReadOnly           bool             // no byte is written; damaged or missing indexes are built in memory; a live writer may be at work
	Suffix             string           // ".cleaned", ".swap", ".deleted": behind every file name; "" for live files
	Now                func() time.Time // nil = time.Now
	Limits             record.Limits    // of unpacking batches where a time is looked for
}

func (o Options) withDefaults() Options {
	if o.MaxBytes == 0 {
		o.MaxBytes = 1 << 30
	}
	o.MaxBytes = min(o.MaxBytes, maxBytes)
	if o.MaxAge == 0 {
		o.MaxAge = 7 * 24 * time.Hour
	}
	if o.IndexMaxBytes == 0 {
		o.IndexMaxBytes = 10 << 20
	}
	switch {
	case o.IndexIntervalBytes == 0:
		o.IndexIntervalBytes = 4096
	case o.IndexIntervalBytes < 0:
		o.IndexIntervalBytes = 0
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

func (o Options) index() index.Options {
	return index.Options{FS: o.FS, MaxBytes: o.IndexMaxBytes, Map: o.Map, Budget: o.Budget, ReadOnly: o.ReadOnly}
}
