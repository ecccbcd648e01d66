package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

func catCommand() *command {
	return &command{
		name: "cat", args: "DIR", summary: "print records as JSON lines",
		help: `Prints the records of a partition folder, or of a log root that holds exactly one, in offset order and one JSON
object a line. Keys, values and header values are base64 or null; timestamps are Unix milliseconds, -1 for none.
Control records (transaction markers) are left out; with --isolation read_committed also records of aborted
transactions, and everything from the first open one on. It takes no lock and changes nothing, so it may run beside a
broker. It reads up to the last whole batch whose checksum is right; where there is damage before that, what stands
before the damage is printed, the error names file, position and offset, and the exit code is 1.

  partlog cat /var/lib/kafka/data/orders-0 --from 1000 --max 10
  partlog cat orders-0 --since 2026-01-31 --until 2026-01-31T12:00:00Z
  partlog cat orders-0 | jq -r '.value | @base64d'

--from and --to are offsets and limit where reading starts and ends; the record at --to is not printed. --since and
--until are times: every record in the range of offsets is looked at, since the times of a log need not ascend (see
"partlog offset" for a quick way to where a time begins). A date alone is its midnight, UTC. Records without a timestamp
are in no range of times.`,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			var s selection
			s.flags(fl)
			isolation := isolationFlag(fl)
			digestOver := digestFlag(fl)
			configs := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if err := want(args, "DIR"); err != nil {
					return err
				}
				if _, err := configs.config(); err != nil {
					return err
				}
				configs.notes(e)
				r, err := openReader(e, args[0], false)
				if err != nil {
					return err
				}
				defer r.Close()
				return cat(ctx, e, r, s, *isolation, *digestOver)
			}
		},
	}
}

// selection is what cat prints of a log.
type selection struct {
	from, to     int64
	since, until millis
	max          int64
}

func (s *selection) flags(fl *flag.FlagSet) {
	s.from, s.to, s.max = 0, math.MaxInt64, math.MaxInt64
	least := func(at *int64, what string) func(string) error {
		return func(text string) error {
			n, err := offsetArg(text)
			if err == nil && n < 0 {
				err = fmt.Errorf("a negative %s", what)
			}
			*at = n
			return err
		}
	}
	fl.Func("from", "first `OFFSET` to print; one below the log start means the log start", least(&s.from, "offset"))
	fl.Func("to", "`OFFSET` to stop before", least(&s.to, "offset"))
	fl.Var(&s.since, "since", "only records at or after this `TIME` (Unix milliseconds, 2026-01-31T12:00:00Z, or 2026-01-31)")
	fl.Var(&s.until, "until", "only records before this `TIME`")
	fl.Func("max", "at most `N` records", least(&s.max, "number"))
}

// skips says whether no record of a batch can be in the range of times. Only a batch of format 2 speaks for all of its
// records.
func (s *selection) skips(b record.Batch) bool {
	return s.since.set && b.Magic() >= 2 && b.MaxTimestamp() < s.since.ms
}

func (s *selection) has(r *record.Record) bool {
	if !s.since.set && !s.until.set {
		return true
	}
	return r.Timestamp != record.NoTimestamp &&
		(!s.since.set || r.Timestamp >= s.since.ms) && (!s.until.set || r.Timestamp < s.until.ms)
}

func isolationFlag(fl *flag.FlagSet) *log.Isolation {
	isolation := log.ReadUncommitted
	fl.Func("isolation", "`LEVEL` read_uncommitted (the default), read_committed, or log_end; beside a writer the first and the last show all whole batches", func(text string) error {
		switch text {
		case "read_uncommitted":
			isolation = log.ReadUncommitted
		case "log_end":
			isolation = log.LogEnd
		case "read_committed":
			isolation = log.ReadCommitted
		default:
			return errors.New("want read_uncommitted, read_committed or log_end")
		}
		return nil
	})
	return &isolation
}

func digestFlag(fl *flag.FlagSet) *int {
	limit := keepAll
	fl.Func("digest-over", "print keys and values of more than `N` bytes as length and sha256", func(text string) error {
		n, err := offsetArg(text)
		if err == nil && (n < 0 || n > math.MaxInt32) {
			err = errors.New("want a number of bytes")
		}
		limit = int(n)
		return err
	})
	return &limit
}

// cat prints the selection. What was read before an error is on e.out.
func cat(ctx context.Context, e *env, r *log.Reader, s selection, isolation log.Isolation, digestOver int) error {
	p := printer{lines: lines{w: e.out, digestOver: digestOver}, reader: r, isolation: isolation}
	o := r.Offsets()
	if s.from > o.LogEnd {
		fmt.Fprintf(e.err, "note: there is no offset %d: %s\n", s.from, holding(o.LogStart, o.LogEnd))
	}
	next := max(s.from, o.LogStart)
	for {
		var err error
		next, err = p.print(ctx, next, &s)
		var gone *log.OffsetRangeError
		if errors.As(err, &gone) && next < gone.LogStart {
			next = gone.LogStart // deleted while we came to it
			continue
		}
		if gone != nil {
			err = nil // the log ends before
		}
		if flushed := p.flush(); flushed != nil {
			return flushed
		}
		return err
	}
}

// printer prints records of a reader.
type printer struct {
	lines
	reader    *log.Reader
	isolation log.Isolation
	dec       *record.Decoder
}

// print prints what s selects of the log from an offset on, up to its present end, and returns where to go on.
func (p *printer) print(ctx context.Context, from int64, s *selection) (next int64, err error) {
	if p.dec == nil {
		p.dec = record.NewDecoder(record.Limits{})
	}
	if from >= s.to || s.max <= 0 {
		return from, nil
	}
	for b, err := range p.reader.Batches(ctx, from, log.WithIsolation(p.isolation)) {
		if err != nil {
			return from, err
		}
		if b.Magic() >= 2 && b.BaseOffset() >= s.to {
			return from, nil
		}
		if !b.Control() && !s.skips(b) {
			more, err := p.batch(ctx, b, from, s)
			if !more || err != nil {
				return from, err
			}
		}
		if from = b.NextOffset(); from >= s.to {
			return from, nil // what stands behind is nobody's question
		}
	}
	return from, nil
}

// batch prints the records of one batch.
func (p *printer) batch(ctx context.Context, b record.Batch, from int64, s *selection) (more bool, err error) {
	kind := timestampTypeOf(b)
	for r, err := range b.Records(p.dec) {
		switch {
		case err != nil:
			return false, p.damage(ctx, b, err)
		case r.Offset < from || !s.has(&r):
			continue
		case r.Offset >= s.to || s.max <= 0:
			return false, nil
		}
		if err := p.record(&r, kind); err != nil {
			return false, err
		}
		s.max--
	}
	return s.max > 0, nil
}

// damage is the error of a batch whose records cannot be decoded, as the reader words it: with file and position.
func (p *printer) damage(ctx context.Context, b record.Batch, cause error) error {
	at := max(b.BaseOffset(), p.reader.Offsets().LogStart)
	for _, err := range p.reader.Records(ctx, at, log.WithMaxOffset(b.NextOffset())) {
		if err != nil {
			return err
		}
	}
	return &log.CorruptError{File: p.reader.TopicPartition().String(), Position: -1, Offset: b.BaseOffset(),
		Intact: [2]int64{b.BaseOffset(), b.NextOffset()}, Err: cause}
}
