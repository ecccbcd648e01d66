package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/partlog/partlog/log"
)

func deleteRecordsCommand() *command {
	one := changeCommand{
		name: "delete-records", args: "DIR OFFSET", summary: "raise the log start offset",
		help: `Makes OFFSET the log start offset, durably: records below it can no longer be read. -1 means the high watermark, that
is everything there is. Files go later, when a whole segment lies below the start and retention runs. An OFFSET at or
below the present start changes nothing.

  partlog delete-records orders-0 4711
  partlog delete-records orders-0 -1

With --offset-json-file the first argument is a log root, there is no OFFSET, and the file says what kafka-delete-records.sh
is told. Nothing is changed unless the whole file makes sense and all its partitions are there; it ends at the first one that
refuses its offset.

  partlog delete-records /var/lib/kafka/data --offset-json-file offsets.json
  {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "offset": 4711}]}`,
		offset: func(text string) (int64, error) {
			n, err := offsetArg(text)
			if err == nil && n < log.ToHighWatermark {
				err = usagef("OFFSET must be -1 (everything) or not negative")
			}
			return n, err
		},
		change: func(ctx context.Context, l *log.Log, offset int64) (string, error) {
			note := ""
			if offset != log.ToHighWatermark && offset <= l.Offsets().LogStart {
				note = "nothing to delete"
			}
			return note, l.DeleteRecords(ctx, offset)
		},
	}.command()
	c := *one
	c.setup = func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
		file := fl.String("offset-json-file", "", "take partitions and offsets from `FILE`, as kafka-delete-records.sh does, and the first argument as the log root")
		run := one.setup(fl)
		return func(ctx context.Context, e *env, args []string) error {
			if *file == "" {
				return run(ctx, e, args)
			}
			if err := want(args, "ROOT"); err != nil {
				return err
			}
			all, err := offsetsFile(*file)
			if err != nil {
				return err
			}
			for _, d := range all {
				if info, err := os.Stat(filepath.Join(args[0], d.folder)); err != nil || !info.IsDir() {
					return fmt.Errorf("%s: there is no partition %s in %s; nothing was changed", *file, d.folder, args[0])
				}
			}
			for _, d := range all {
				if err := run(ctx, e, []string{filepath.Join(args[0], d.folder), strconv.FormatInt(d.offset, 10)}); err != nil {
					return fmt.Errorf("%s: %w", d.folder, err)
				}
			}
			return nil
		}
	}
	return &c
}

// deletion is one entry of an offset file.
type deletion struct {
	folder string
	offset int64
}

// maxOffsetsFile bounds what is read of an offset file: a million entries have less.
const maxOffsetsFile = 64 << 20

// offsetsFile reads the format of kafka-delete-records.sh.
func offsetsFile(name string) ([]deletion, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxOffsetsFile {
		return nil, usagef("%s has %d bytes, more than %d", name, info.Size(), maxOffsetsFile)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var file struct {
		Version    int
		Partitions []struct {
			Topic             string
			Partition, Offset *int64
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, usagef("%s is not what kafka-delete-records.sh takes: %v", name, err)
	}
	switch {
	case file.Version != 1:
		return nil, usagef("%s has version %d; 1 is known", name, file.Version)
	case len(file.Partitions) == 0:
		return nil, usagef("%s names no partition", name)
	}
	seen := map[string]bool{}
	var all []deletion
	for i, p := range file.Partitions {
		if p.Partition == nil || p.Offset == nil || *p.Partition < 0 || *p.Partition > math.MaxInt32 || *p.Offset < log.ToHighWatermark {
			return nil, usagef("%s: entry %d needs a topic, a partition and an offset, which is -1 (everything) or not negative", name, i+1)
		}
		tp := log.TopicPartition{Topic: p.Topic, Partition: int32(*p.Partition)}
		if err := tp.Validate(); err != nil {
			return nil, usagef("%s: entry %d: %v", name, i+1, err)
		}
		if seen[tp.String()] {
			return nil, usagef("%s names %s twice", name, tp)
		}
		seen[tp.String()] = true
		all = append(all, deletion{tp.String(), *p.Offset})
	}
	return all, nil
}
