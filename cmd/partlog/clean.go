package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/log"
)

// policyKey is the setting that says whether a log may be compacted, which its folder does not.
const policyKey = "cleanup.policy"

func cleanCommand() *command {
	return &command{
		name: "clean", args: "DIR", summary: "compact a log: of all records with one key the last stays",
		help: `Compacts a log once, up to the active segment, as a broker's cleaner does, due or not: of all records with one key the last
stays, records of aborted transactions go, and tombstones and transaction markers go once they are older than
delete.retention.ms (24 hours) since the cleaning that saw them first. Offsets never change. What it may not touch it leaves:
the active segment, what lies behind an open transaction, what is younger than min.compaction.lag.ms. It writes
cleaner-offset-checkpoint, so that a broker goes on where this ended.

  partlog plan compaction prices-0 --dry-run                  what would go
  partlog clean prices-0
  partlog clean prices-0 --config delete.retention.ms=0       tombstones stamped before go now, new ones the next time
  partlog clean prices-0 --rate 10000000 --map-bytes 64000000

A folder does not say what its topic's cleanup.policy is. To ask for clean is to say that it compacts; but records without a
key, which a compacted topic cannot have and a compaction drops, make clean refuse, and so does --config cleanup.policy=delete.
With --config cleanup.policy=compact the question is settled: such records go, and the log is not read beforehand to look
for them.

It takes the lock of the log root, which for a partition folder is the directory above it, and leaves the root as a cleanly
stopped broker does. Interrupted, killed or out of space, it leaves whole segments, old ones or new ones: the next open
removes what is left over, and the next clean goes on. It needs free space for one new segment at a time, beside the old ones.

Exit code 1: the log is damaged; what lies in front of the damage was cleaned.`,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := fl.Bool("json", false, "print what the log was and is, and what went, as a JSON object")
			now := nowFlag(fl)
			mapBytes := fl.Int64("map-bytes", 0, "`BYTES` of memory for keys, 24 for each (default 128 MiB); what does not fit is for the next clean")
			rate := fl.Int64("rate", 0, "read and write no more than `BYTES` a second (default no limit)")
			s := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if err := want(args, "DIR"); err != nil {
					return err
				}
				if *mapBytes < 0 || *rate < 0 {
					return usagef("--map-bytes and --rate cannot be negative")
				}
				return runClean(ctx, e, args[0], s, *now, *asJSON, log.CompactOptions{Force: true, MapBytes: *mapBytes, BytesPerSecond: *rate})
			}
		},
	}
}

func runClean(ctx context.Context, e *env, dir string, s settings, now millis, asJSON bool, o log.CompactOptions) error {
	c, err := s.config()
	if err != nil {
		return err
	}
	policy, said := s[policyKey]
	if said && !c.Cleanup.Has(log.Compact) {
		return worded(log.ErrPolicy, "with %s=%s nothing is compacted; say %s=compact, or leave it out", policyKey, policy, policyKey)
	}
	if !said {
		c.Cleanup = log.Compact
	}
	t, err := lookAt(dir)
	if err != nil {
		return err
	}
	w, err := openAt(ctx, e, t, s, c, now.clock())
	if err != nil {
		return err
	}
	p := &progress{e: e}
	o.Progress = showCleaning(p, w.Log)
	before := stateOf(w.Log)
	res, err := w.clean(ctx, o, !said)
	p.done()
	after, held := stateOf(w.Log), w.cleaningHeld(now)
	if err = errors.Join(cleaningError(err), w.close()); err != nil && res.Groups == 0 {
		if ctx.Err() != nil {
			return &stoppedError{err, "the log is as it was"}
		}
		return err
	}
	result := describeCleaning(res)
	if ctx.Err() != nil && err != nil {
		err = &stoppedError{err, fmt.Sprintf("%s of segments were cleaned, the others are as they were", counted(res.Groups, "group"))}
	}
	if asJSON {
		text, bad := json.Marshal(result)
		if bad != nil {
			return bad
		}
		_, printed := fmt.Fprintf(e.out, `{"partition":"%s","before":%s,"after":%s,"result":%s}`+"\n", w.TopicPartition(), before.json(), after.json(), text)
		return errors.Join(err, printed)
	}
	note := result.String()
	if res.Read.Bytes == 0 {
		note = fmt.Sprintf("nothing to clean%s; clean up to offset %d", held, res.FirstDirty)
	}
	if res.MapFull {
		note += "; there were more keys than memory for them: clean again for the rest"
	}
	_, printed := fmt.Fprintf(e.out, "%s: was %s; is %s (%s)\n", w.TopicPartition(), before, after, note)
	return errors.Join(err, printed)
}

// cleaningHeld says what keeps a compaction from going on: " below the active segment".
func (w *writing) cleaningHeld(now millis) string {
	p, err := w.PlanCompaction(now.clock()())
	switch {
	case err != nil:
		return ""
	case p.Hold == compaction.ByActive:
		return " below the active segment"
	}
	return fmt.Sprintf(": held at offset %d by %v", p.Uncleanable, p.Hold)
}

// clean compacts. If it is careful a log with records that have no key is refused.
func (w *writing) clean(ctx context.Context, o log.CompactOptions, careful bool) (compaction.Result, error) {
	if careful {
		trial := o
		trial.DryRun = true
		res, err := w.Compact(ctx, trial)
		if res.Unkeyed > 0 {
			return compaction.Result{}, worded(log.ErrPolicy, "%s without a key would be dropped: this does not look like the log of a compacted topic; if it is one, say --config %s=compact",
				counted(res.Unkeyed, "record"), policyKey)
		}
		if err != nil && !errors.Is(err, log.ErrCorrupt) {
			return compaction.Result{}, err
		}
	}
	return w.Compact(ctx, o)
}
