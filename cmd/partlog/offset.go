package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

func offsetCommand() *command {
	return &command{
		name: "offset", args: "DIR", summary: "find the offset of a time, or the first or last one",
		help: `Prints one offset of a partition folder (or of a log root that holds exactly one), the timestamp of the record there
(-1 if it has none, or for --earliest and --latest) and its leader epoch (-1 if unknown), separated by tabs. It takes no
lock and changes nothing. If there is no such record it says so and exits with 1.

  --time T          the first record whose timestamp is at or after T, as Kafka's ListOffsets finds it
  --earliest        the log start offset
  --latest          the log end offset: where the next record will go (Kafka's --time -1; -2 is --earliest, -3 the next)
  --max-timestamp   the first record with the largest timestamp

  partlog offset orders-0 --time 2026-01-31T12:00:00Z
  partlog cat orders-0 --from $(partlog offset orders-0 --time 1769860800000 | cut -f1)`,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			var q offsetQuery
			fl.Var(&q.time, "time", "`TIME` in Unix milliseconds, as 2026-01-31T12:00:00Z, or as 2026-01-31 (midnight, UTC)")
			fl.BoolVar(&q.earliest, "earliest", false, "the log start offset")
			fl.BoolVar(&q.latest, "latest", false, "the log end offset")
			fl.BoolVar(&q.max, "max-timestamp", false, "the first record with the largest timestamp")
			asJSON := fl.Bool("json", false, "print a JSON object with offset, timestamp and leaderEpoch")
			configs := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if err := want(args, "DIR"); err != nil {
					return err
				}
				if err := q.check(); err != nil {
					return err
				}
				if _, err := configs.config(); err != nil {
					return err
				}
				configs.notes(e)
				at, err := q.answer(ctx, e, args[0])
				if err != nil {
					return err
				}
				format := "%d\t%d\t%d\n"
				if *asJSON {
					format = `{"offset":%d,"timestamp":%d,"leaderEpoch":%d}` + "\n"
				}
				_, err = fmt.Fprintf(e.out, format, at.Offset, at.Timestamp, at.LeaderEpoch)
				return err
			}
		},
	}
}

// offsetQuery is which offset is asked for.
type offsetQuery struct {
	time                  millis
	earliest, latest, max bool
}

func (q *offsetQuery) check() error {
	asked := 0
	for _, set := range []bool{q.time.set, q.earliest, q.latest, q.max} {
		if set {
			asked++
		}
	}
	if asked != 1 {
		return usagef("want one of --time, --earliest, --latest and --max-timestamp")
	}
	if !q.time.set || q.time.ms >= 0 {
		return nil
	}
	switch q.time.ms { // the numbers Kafka has for these
	case -1:
		q.latest = true
	case -2:
		q.earliest = true
	case -3:
		q.max = true
	default:
		return usagef("--time must not be before 1970")
	}
	return nil
}

func (q *offsetQuery) answer(ctx context.Context, e *env, dir string) (log.At, error) {
	r, err := openReader(e, dir, false)
	if err != nil {
		return log.At{}, err
	}
	defer r.Close()
	var at log.At
	var none string
	switch {
	case q.earliest:
		return earliest(ctx, dir, r)
	case q.latest:
		return latest(ctx, dir, r)
	case q.max:
		at, err = r.OffsetOfMaxTime(ctx)
		none = "no record has a timestamp"
	default:
		at, err = r.OffsetForTime(ctx, time.UnixMilli(q.time.ms))
		none = fmt.Sprintf("no record has a timestamp at or after %d (%s)", q.time.ms, time.UnixMilli(q.time.ms).UTC().Format(time.RFC3339Nano))
	}
	if errors.Is(err, log.ErrNotFound) {
		return at, &exit{exitFound, errors.New(none)}
	}
	return at, err
}

// earliest is the log start, with the epoch of the batch there.
func earliest(ctx context.Context, dir string, r *log.Reader) (log.At, error) {
	at := log.At{Offset: r.Offsets().LogStart, Timestamp: record.NoTimestamp, LeaderEpoch: record.NoEpoch}
	for b, err := range r.Batches(ctx, at.Offset) {
		if err != nil {
			return at, err
		}
		at.LeaderEpoch = b.LeaderEpoch()
		return at, nil
	}
	at.LeaderEpoch, _ = checkpointEpoch(dir, at.Offset)
	return at, nil
}

// latest is the log end, with the latest leader epoch that has records.
func latest(ctx context.Context, dir string, r *log.Reader) (log.At, error) {
	at := log.At{Offset: r.Offsets().LogEnd, Timestamp: record.NoTimestamp, LeaderEpoch: record.NoEpoch}
	if epoch, err := checkpointEpoch(dir, at.Offset-1); err == nil { // one that begins at the end is forgotten when a log is opened
		at.LeaderEpoch = epoch
	}
	if at.Offset == r.Offsets().LogStart {
		return at, nil
	}
	for b, err := range r.Batches(ctx, at.Offset-1) {
		if err != nil {
			return at, err
		}
		at.LeaderEpoch = max(at.LeaderEpoch, b.LeaderEpoch())
	}
	return at, nil
}

// checkpointEpoch is the last epoch of the folder's epoch file that begins at or below an offset; -1 if there is none.
func checkpointEpoch(dir string, offset int64) (int32, error) {
	t, err := lookAt(dir)
	if err != nil {
		return record.NoEpoch, err
	}
	folder := t.folder
	if folder == "" && len(t.partitions) == 1 {
		folder = t.partitions[0].String()
	}
	return epochAt(t.fs, folder+"/"+checkpoint.LeaderEpochs, offset)
}

func epochAt(fsys vfs.FS, file string, offset int64) (int32, error) {
	entries, err := checkpoint.ReadEpochs(fsys, file)
	epoch := record.NoEpoch
	for _, e := range entries {
		if e.StartOffset <= offset {
			epoch = max(epoch, e.Epoch)
		}
	}
	return epoch, err
}
