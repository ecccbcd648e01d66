package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/partlog/partlog/log"
)

func appendCommand() *command {
	return &command{
		name: "append", args: "DIR", summary: "append records from JSON lines",
		help: `Appends records to a partition folder (created if it does not exist), or to the only one of a log root, and prints
the base offset of each batch once it is on the device (with --ack buffered: once it is handed to the operating
system). The input is what cat prints: one JSON object a line. Offsets in it are ignored. Timestamps are kept; a line
without one gets the time it is read. A missing key or value is null, missing headers are none.

  partlog append data/orders-0 --from new.jsonl --codec zstd --batch 100
  partlog cat old/orders-0 | partlog append new/orders-0 --from - --config segment.bytes=104857600
  echo '{"key":"azE=","value":"djE="}' | partlog append data/orders-0

A batch is written when it has --batch records or is as large as max.message.bytes (or a segment) allows, and when no
further line comes within --linger. A line that cannot be read or appended is named by its number: every line before
it is then in the log, nothing from it on. Timestamps must not be more than an hour ahead of the clock, unless
--config message.timestamp.after.max.ms says otherwise. It takes the lock of the log root, which for a partition folder
is the directory above it, and leaves it as a cleanly stopped broker does. Ctrl-C keeps what was written, makes it
durable, and exits with 130.

With --producer the batches carry a producer id, epoch and sequence numbers: a batch that is appended again (same
sequence) is recognised and not written twice, its first offset is printed. With --txn they are one transaction, which
a marker ends behind the last line; read-committed readers see its records from then on, or, aborted, never. An empty
input ends a transaction that was left open.

Kafka keeps a topic's settings outside of its folders: give those that matter (segment.bytes, max.message.bytes,
message.timestamp.type, …) with --config.`,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			var o appendOptions
			o.flags(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if err := want(args, "DIR"); err != nil {
					return err
				}
				return o.run(ctx, e, args[0])
			}
		},
	}
}

// appendOptions are the flags of append.
type appendOptions struct {
	from     string
	batch    int
	codec    string
	epoch    *int32
	buffered bool
	linger   time.Duration
	json     bool
	producer production
	configs  settings
}

func (o *appendOptions) flags(fl *flag.FlagSet) {
	fl.StringVar(&o.from, "from", "-", "`FILE` of JSON lines; - is standard input")
	fl.IntVar(&o.batch, "batch", 500, "`N` records a batch at most")
	fl.StringVar(&o.codec, "codec", "", "`NAME` none, gzip, snappy, lz4 or zstd; the same as --config compression.type=NAME")
	fl.Func("leader-epoch", "`N` leader epoch to begin before the first batch; not below the log's", func(text string) error {
		n, err := offsetArg(text)
		if err != nil || n < 0 || n > 1<<31-1 {
			return errors.New("want a number from 0 to 2147483647")
		}
		epoch := int32(n)
		o.epoch = &epoch
		return nil
	})
	fl.Func("ack", "`WHEN` a base offset is printed: durable (the default) or buffered", func(text string) error {
		if text != "durable" && text != "buffered" {
			return errors.New("want durable or buffered")
		}
		o.buffered = text == "buffered"
		return nil
	})
	fl.DurationVar(&o.linger, "linger", time.Second, "`TIME` to wait for more lines before an unfinished batch is written")
	fl.BoolVar(&o.json, "json", false, "print baseOffset, lastOffset and records of each batch as a JSON object")
	o.producer.flags(fl)
	o.configs = configFlag(fl)
}

// config is the log's configuration, --codec included.
func (o *appendOptions) config() (log.Config, error) {
	if p := o.producer; p.ending != "" && !p.Transactional {
		return log.Config{}, usagef("%s is for the transaction of --txn", p.ending)
	}
	if o.batch < 1 {
		return log.Config{}, usagef("--batch must be at least 1")
	}
	if o.linger < 0 {
		return log.Config{}, usagef("--linger must not be negative")
	}
	codec := o.codec
	if codec == "none" {
		codec = "uncompressed"
	}
	switch set, ok := o.configs["compression.type"]; {
	case codec == "":
	case ok && set != codec:
		return log.Config{}, usagef("--codec %s and --config compression.type=%s contradict each other", o.codec, set)
	default:
		o.configs["compression.type"] = codec
	}
	c, err := o.configs.config()
	if o.buffered {
		c.Durability = log.Buffered
	}
	return c, err
}

func (o *appendOptions) run(ctx context.Context, e *env, dir string) error {
	c, err := o.config()
	if err != nil {
		return err
	}
	in, err := o.open(e)
	if err != nil {
		return err
	}
	defer in.Close()
	t, err := locate(dir)
	if err != nil {
		return err
	}
	w, err := openForWriting(ctx, e, t, o.configs, c)
	if err != nil {
		return err
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	a := newAppender(w, e, o)
	return a.finish(a.consume(ctx, readLines(reading, in)))
}

func (o *appendOptions) open(e *env) (io.ReadCloser, error) {
	if o.from == "-" {
		return io.NopCloser(e.in), nil
	}
	f, err := os.Open(o.from)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, errors.Join(fmt.Errorf("%s is a directory, want a file of JSON lines", o.from), f.Close())
	}
	return f, nil
}
