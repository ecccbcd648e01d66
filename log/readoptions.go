package log

import (
	"fmt"
	"math"

	"github.com/partlog/partlog/record"
)

// Isolation says how far a reader sees, isolation.level in Kafka's consumers.
//
// What ReadCommitted promises is less than a transaction of a database does. A reader sees of each transaction in one log
// nothing until it ended, and then all of it or none; but it may begin in the middle of one, pass some of its records over by
// asking for a later offset, or find that retention or compaction took the first of them: segments of different age, and the
// partitions that one transaction wrote to, go at different times.
type Isolation uint8

const (
	ReadUncommitted Isolation = iota // to the high watermark
	ReadCommitted                    // to the last stable offset, without aborted transactions and markers
	LogEnd                           // everything written: replicas and tools
)

// Reset says what an iterator does at an offset the log does not have, at its start or later.
type Reset uint8

const (
	FailIfGone Reset = iota // *OffsetRangeError
	Earliest                // go on at the log start
	Latest                  // go on at the bound
)

// ReadOption of Records, Batches and Follow.
type ReadOption interface{ apply(*readOptions) }

type readOptions struct {
	isolation Isolation
	end       int64 // exclusive
	reset     Reset
	limits    record.Limits // zero: the view's
}

type readOption func(*readOptions)

func (f readOption) apply(o *readOptions) { f(o) }

// WithIsolation sets how far the reader sees; the default is ReadUncommitted. What is no constant ends the iteration with a
// *ConfigError.
func WithIsolation(i Isolation) ReadOption {
	return readOption(func(o *readOptions) { o.isolation = i })
}

// WithMaxOffset ends the iteration before offset end.
func WithMaxOffset(end int64) ReadOption { return readOption(func(o *readOptions) { o.end = end }) }

// WithReset sets what happens when the offset is gone; the default is FailIfGone. What is no constant is a *ConfigError.
func WithReset(r Reset) ReadOption { return readOption(func(o *readOptions) { o.reset = r }) }

// WithLimits sets what one batch may cost to unpack, for Records and Follow; batches that need more end the iteration with
// ErrTooLarge. Appends refuse what the default limits would not read, so only logs written elsewhere need others. Encoded
// batches of any size are read.
func WithLimits(l record.Limits) ReadOption { return readOption(func(o *readOptions) { o.limits = l }) }

func collect(options []ReadOption) readOptions {
	if len(options) == 0 {
		return readOptions{end: math.MaxInt64}
	}
	o := readOptions{end: math.MaxInt64}
	for _, option := range options {
		if option != nil {
			option.apply(&o)
		}
	}
	return o
}

// validate refuses what is no constant.
func (o *readOptions) validate() error {
	bad := func(field string, value uint8) error {
		return &ConfigError{Field: "ReadOptions." + field, Value: fmt.Sprint(value), Reason: "not one of the constants"}
	}
	switch {
	case o.isolation > LogEnd:
		return bad("Isolation", uint8(o.isolation))
	case o.reset > Latest:
		return bad("Reset", uint8(o.reset))
	}
	return nil
}

// bound is the offset that a reader of this isolation may not reach.
func (o Offsets) bound(i Isolation) int64 {
	switch i {
	case LogEnd:
		return o.LogEnd
	case ReadCommitted:
		return o.LastStable
	}
	return o.HighWatermark
}
