package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"

	"github.com/partlog/partlog/log"
)

func verifyCommand() *command {
	return &command{
		name: "verify", args: "DIR", summary: "read everything of a partition or a whole log root and report what is wrong",
		help: `
verify reads every byte that means something and prints a line for each thing that is not as it should be, with file,
position, offset and what it means: every batch (checksum, structure, every record, decompressed), the order of
offsets, leader epochs and segments, every entry of the indexes against the log, every producer snapshot and index of
aborted transactions against what the batches say up to there, the leader epoch file, the checkpoints and
clean-shutdown marker of the root, leftovers of interrupted work, and names a broker would stumble over. It finds what a
clean-shutdown marker hides. It takes no lock and changes nothing.

    partlog verify /var/lib/kafka/data && echo sound

DIR is a partition folder or a log root. Exit code 0: sound. 1: something was found. 2: something could not be looked
at. Zeros of a preallocated file, or half a batch, at the end of a log that was not stopped cleanly are found, too,
though the next open cuts them off and no acknowledged record need have been there: the line says so. Beside a running
writer the end of the last segment may be caught in the middle of an append; stop it, or look again. What is legal is
not reported: gaps left by compaction or retention, .deleted files and -delete folders that wait for their removal,
indexes of an unclean stop that an open rebuilds anyway, entries of brokers before 4.0 that name a later batch of the same
append, producers that are not known any more because their last record is old (producer.id.expiration.ms: give yours
with --config), deleted or compacted. Whether an index lacks entries depends on index.interval.bytes, which is guessed from the entries
there are: an index made anew under another one than its neighbours looks cut short unless --config says which.

With --json each finding is one object a line: file, position, offset (null where unknown), kind, detail. To mend what
was found see partlog repair.`,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := fl.Bool("json", false, "one JSON object a line and finding")
			s := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if err := want(args, "DIR"); err != nil {
					return err
				}
				c, err := s.config()
				if err != nil {
					return err
				}
				return runVerify(ctx, e, args[0], c, *asJSON)
			}
		},
	}
}

func runVerify(ctx context.Context, e *env, dir string, c log.Config, asJSON bool) error {
	t, err := lookAt(dir)
	if err != nil {
		return err
	}
	if entries, err := t.fs.ReadDir("."); err != nil {
		return err
	} else if t.isRoot && len(t.partitions) == 0 && !holdsRoot(entries) {
		return t.noPartition(dir)
	}
	p := &progress{e: e}
	defer p.done()
	o := t.verifyOptions(c)
	o.Progress = p.verified
	found, blind := 0, 0
	for f, err := range log.Verify(ctx, t.fs, o) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			found++
			err = writeFinding(e, f, asJSON)
			if err != nil {
				return err
			}
			continue
		}
		blind++
		p.done()
		fmt.Fprintf(e.err, "partlog verify: %s\n", sentence(err))
	}
	switch {
	case blind > 0:
		return &exit{code: exitFailed}
	case found > 0:
		return &exit{code: exitFound}
	}
	return nil
}

// verifyOptions say what to verify of the target.
func (t *target) verifyOptions(c log.Config) log.VerifyOptions {
	o := log.VerifyOptions{IndexInterval: c.IndexIntervalBytes, ProducerExpiry: c.ProducerExpiry}
	if !t.isRoot {
		o.Partitions = t.partitions
	}
	return o
}

func writeFinding(e *env, f log.Finding, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(e.out).Encode(describeFinding(f))
	}
	_, err := fmt.Fprintln(e.out, f)
	return err
}

// verifyAll counts what a finished verification found, for those who only need to know.
func verifyAll(ctx context.Context, e *env, t *target, c log.Config) (findings []log.Finding, err error) {
	p := &progress{e: e}
	defer p.done()
	o := t.verifyOptions(c)
	o.Progress = p.verified
	for f, bad := range log.Verify(ctx, t.fs, o) {
		if bad != nil {
			err = errors.Join(err, bad)
			continue
		}
		findings = append(findings, f)
	}
	return findings, err
}
