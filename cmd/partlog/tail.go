package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

func tailCommand() *command {
	return &command{
		name: "tail", args: "DIR", summary: "print the last records, and with -f those to come",
		help: `Prints the last records of a partition folder (or of a log root that holds exactly one) as JSON lines, like cat. With
-f it goes on with what a broker or another program appends, until Ctrl-C, which ends it with exit code 130. It takes no
lock and changes nothing. When the log is cut back or its old records are deleted while it follows, it says so on
standard error and goes on with what is there.

  partlog tail orders-0 -n 3
  partlog tail -f -n 0 orders-0 | jq -c '{offset, timestamp}'`,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			follow := fl.Bool("f", false, "follow: wait for more")
			count := fl.Int64("n", 10, "the last `N` records")
			isolation := isolationFlag(fl)
			digestOver := digestFlag(fl)
			configs := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if err := want(args, "DIR"); err != nil {
					return err
				}
				if *count < 0 {
					return usagef("-n must not be negative")
				}
				if _, err := configs.config(); err != nil {
					return err
				}
				configs.notes(e)
				r, err := openReader(e, args[0], true)
				if err != nil {
					return err
				}
				defer r.Close()
				p := &printer{lines: lines{w: e.out, digestOver: *digestOver}, reader: r, isolation: *isolation, dec: record.NewDecoder(record.Limits{})}
				return tail(ctx, e, p, *count, *follow)
			}
		},
	}
}

func tail(ctx context.Context, e *env, p *printer, count int64, follow bool) error {
	from, err := p.lastRecords(ctx, count)
	if err != nil {
		return err
	}
	everything := selection{to: math.MaxInt64, max: math.MaxInt64}
	from, err = p.print(ctx, from, &everything)
	if flushed := p.flush(); flushed != nil {
		return flushed
	}
	if !follow {
		if errors.Is(err, log.ErrOffsetOutOfRange) {
			return nil // cut or deleted since we looked
		}
		return err
	}
	if err == nil || errors.Is(err, log.ErrOffsetOutOfRange) {
		err = p.follow(ctx, e, from)
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return &exit{code: exitInterrupted} // how one leaves tail -f: nothing to say
	}
	return err
}

// lastRecords is the offset of the count-th last record. It looks back in steps that double: gaps and markers take
// offsets too.
func (p *printer) lastRecords(ctx context.Context, count int64) (int64, error) {
	o := p.reader.Offsets()
	if count == 0 {
		return o.LogEnd, nil
	}
	for back := count; ; back *= 2 {
		from := o.LogStart
		if back > 0 && o.LogEnd-back > o.LogStart {
			from = o.LogEnd - back
		}
		n, err := p.count(ctx, from)
		if err != nil {
			return 0, err
		}
		if n >= count {
			return p.skip(ctx, from, n-count)
		}
		if from == o.LogStart {
			return from, nil
		}
	}
}

// count is the number of records from an offset on.
func (p *printer) count(ctx context.Context, from int64) (n int64, err error) {
	for b, err := range p.reader.Batches(ctx, from, log.WithIsolation(p.isolation)) {
		switch {
		case errors.Is(err, log.ErrOffsetOutOfRange):
			return 0, nil // cut or deleted since we looked
		case err != nil:
			return n, err
		case b.Control():
		case b.Magic() >= 2 && b.BaseOffset() >= from:
			n += int64(b.Count())
		default:
			for r, err := range b.Records(p.dec) {
				if err != nil {
					return n, p.damage(ctx, b, err)
				}
				if r.Offset >= from {
					n++
				}
			}
		}
	}
	return n, nil
}

// skip is the offset of the record that comes n records after from.
func (p *printer) skip(ctx context.Context, from, n int64) (int64, error) {
	if n == 0 {
		return from, nil
	}
	for b, err := range p.reader.Batches(ctx, from, log.WithIsolation(p.isolation)) {
		if errors.Is(err, log.ErrOffsetOutOfRange) {
			return from, nil
		}
		if err != nil {
			return from, err
		}
		if b.Control() {
			continue
		}
		for r, err := range b.Records(p.dec) {
			switch {
			case err != nil:
				return from, p.damage(ctx, b, err)
			case r.Offset < from:
			case n == 0:
				return r.Offset, nil
			default:
				n--
			}
		}
		from = b.NextOffset()
	}
	return from, nil
}

// How often a follower looks, ever more seldom while nothing happens.
const (
	lookFirst = 5 * time.Millisecond
	lookMost  = 200 * time.Millisecond
)

// follow prints what comes from an offset on until ctx ends.
func (p *printer) follow(ctx context.Context, e *env, from int64) error {
	everything := selection{to: math.MaxInt64, max: math.MaxInt64}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := lookFirst; ; pause = min(2*pause, lookMost) {
		next, err := p.print(ctx, from, &everything)
		if flushed := p.flush(); flushed != nil {
			return flushed
		}
		var gone *log.OffsetRangeError
		switch {
		case errors.As(err, &gone) && next < gone.LogStart:
			fmt.Fprintf(e.err, "note: the log now starts at %d; going on there\n", gone.LogStart)
			next = gone.LogStart
		case gone != nil:
			fmt.Fprintf(e.err, "note: the log was cut back to %d; going on there\n", gone.LogEnd)
			next = gone.LogEnd
		case err != nil:
			return err
		}
		if next != from {
			from, pause = next, lookFirst
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
