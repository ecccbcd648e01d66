package log

import (
	"context"
	"errors"
	"time"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// tuning is the configuration of an open log and what follows from it. It is replaced as a whole and never changed, so that
// whoever takes it once does not mix the old with the new.
type tuning struct {
	Config  // effective: defaults filled in, fitted
	codec   targetCodec
	segOpts segment.Options
}

// targetCodec is compression.type, parsed once.
type targetCodec struct {
	codec        record.Codec
	fromProducer bool // "producer": encoded batches keep theirs, Append does not compress
}

var untuned tuning // of a Log that Open did not make

// cfg is the configuration as it is now.
func (l *Log) cfg() *tuning {
	if t := l.tuned.Load(); t != nil {
		return t
	}
	return &untuned
}

// SetConfig changes the configuration of an open log: c is what Open would be given, whole, and zero fields come from
// DirConfig.Defaults and Kafka as they do there. It is not remembered; who opens the log next says it again.
//
// What decides about single calls counts from the next one on: sizes, timestamps, compression, flushing, retention,
// compaction, delays. segment.bytes and segment.ms count for the active segment too, which rolls at the next append if
// it is past them; index settings, jitter and preallocation for segments that begin later, as with Kafka. What is there
// is not looked at again: a log that becomes compacted keeps its records without keys until compaction drops them.
//
// Durability and Visibility are settled when a log is opened. *ConfigError: they differ, or c cannot be used; nothing was
// changed. Else ctx's error, ErrClosed, ErrFailed.
func (l *Log) SetConfig(ctx context.Context, c Config) error {
	if err := l.admit(ctx); err != nil {
		return err
	}
	t, err := l.dir.tune(c)
	if err != nil {
		return err
	}
	if err := l.retune(ctx, t); err != nil {
		return err
	}
	l.dir.reflush(l)
	return nil
}

// retune makes t what the log goes by.
func (l *Log) retune(ctx context.Context, t *tuning) error {
	if err := l.write.lock(ctx); err != nil {
		return err
	}
	defer l.write.unlock()
	if err := l.ended(); err != nil {
		return err
	}
	const settled = "it is settled when the log is opened"
	switch old := l.cfg(); {
	case t.Durability != old.Durability:
		return &ConfigError{Field: "Durability", Value: t.Durability.String(), Reason: settled}
	case t.Visibility != old.Visibility:
		return &ConfigError{Field: "Visibility", Value: t.Visibility.String(), Reason: settled}
	}
	l.tuned.Store(t)
	for _, seg := range *l.list.Load() { // a truncation can make any of them the active one
		seg.SetRoll(t.segOpts.MaxBytes, t.segOpts.MaxAge)
	}
	l.producers.state.SetExpiry(boundMillis(t.ProducerExpiry))
	return nil
}

// tune fits a configuration to the root.
func (d *Dir) tune(c Config) (*tuning, error) {
	own := c
	c = c.inherit(d.cfg.Defaults).withDefaults()
	if err := errors.Join(c.Validate(), own.idle(c.MaxBytes)); err != nil {
		return nil, err
	}
	c = c.fitted()
	codec, err := parseTarget(c.CompressionType)
	if err != nil {
		return nil, err
	}
	return &tuning{c, codec, segmentOptions(c, d)}, nil
}

func segmentOptions(c Config, d *Dir) segment.Options {
	age := c.SegmentAge
	if c.Cleanup.Has(Compact) && c.Compaction.MaxLag > 0 && (age < 0 || c.Compaction.MaxLag < age) {
		age = c.Compaction.MaxLag
	}
	if age == Immediately {
		age = time.Nanosecond
	}
	return segment.Options{
		FS: d.fs, MaxBytes: c.SegmentBytes, MaxAge: age, JitterMax: c.SegmentJitter, IndexMaxBytes: c.IndexBytes,
		IndexIntervalBytes: c.IndexIntervalBytes, Preallocate: c.Preallocate, Map: d.cfg.Map, Budget: d.budget, Now: d.cfg.Now,
	}
}

func parseTarget(name string) (targetCodec, error) {
	if name == "producer" {
		return targetCodec{codec: record.None, fromProducer: true}, nil
	}
	codec, err := record.CodecByName(name)
	return targetCodec{codec: codec}, err
}

// reflush finds out anew how often to look for what is to be flushed.
func (d *Dir) reflush(l *Log) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.logs[l.tp] != l {
		return
	}
	d.flushEvery.Store(0)
	for _, other := range d.logs {
		d.flushWith(other)
	}
}

// Effective is the configuration that Open would give a log, every default filled in. *ConfigError: it would refuse c.
func (d *Dir) Effective(c Config) (Config, error) {
	t, err := d.tune(c)
	if err != nil {
		return Config{}, err
	}
	return t.Config, nil
}
