package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/retention"
)

func retainCommand() *command {
	return &command{
		name: "retain", args: "DIR", summary: "delete the segments that retention lets go",
		help: `Drops the oldest segments of a log as a broker does every five minutes: those below the log start, then those by which
the log is larger than retention.bytes, then those whose largest timestamp is more than retention.ms ago. Only whole segments
go, none that reaches above the high watermark, and the active one only if everything is too old: it is rolled first, so an
empty one is left. A cleanup.policy without delete lets only segments below the log start go.

The settings are Kafka's defaults (retention.ms is 7 days), not those of the topic, which a broker keeps elsewhere: give them
with --config, and see first what would go:

  partlog plan retention orders-0 --config retention.ms=86400000
  partlog retain orders-0 --config retention.ms=86400000
  partlog retain orders-0 --config retention.bytes=1073741824 --config retention.ms=-1

No free space is needed to free space, and the files are gone when the command returns. A log that was not stopped cleanly is
recovered first; indexes that there is no room for are made once there is. It takes the lock of the log root, which for a
partition folder is the directory above it, and leaves the root as a cleanly stopped broker does. Interrupted or killed, it
leaves the log as it was, or with fewer of its oldest segments: the next open removes what is left of them.`,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := fl.Bool("json", false, "print what the log was and is, and what went, as a JSON object")
			now := nowFlag(fl)
			s := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if err := want(args, "DIR"); err != nil {
					return err
				}
				return runRetain(ctx, e, args[0], s, *now, *asJSON)
			}
		},
	}
}

func runRetain(ctx context.Context, e *env, dir string, s settings, now millis, asJSON bool) error {
	c, err := s.config()
	if err != nil {
		return err
	}
	t, err := lookAt(dir)
	if err != nil {
		return err
	}
	w, err := openAt(ctx, e, t, s, c, now.clock())
	if err != nil {
		return err
	}
	before := stateOf(w.Log)
	r, err := w.Retain(ctx)
	after := stateOf(w.Log)
	if err = errors.Join(err, w.close()); err != nil && r.Dropped == 0 {
		return err
	}
	if asJSON {
		plan, bad := json.Marshal(describePlan(r.Plan))
		if bad != nil {
			return bad
		}
		_, printed := fmt.Fprintf(e.out, `{"partition":"%s","before":%s,"after":%s,"dropped":%d,"freedBytes":%d,"plan":%s}`+"\n",
			w.TopicPartition(), before.json(), after.json(), r.Dropped, r.Freed, plan)
		return errors.Join(err, printed)
	}
	note := "nothing to drop; " + held(r.Plan, "the oldest segment")
	if r.Dropped > 0 {
		note = fmt.Sprintf("%s dropped, %s", counted(r.Dropped, "segment"), counted(r.Freed, "byte"))
	}
	_, printed := fmt.Fprintf(e.out, "%s: was %s; is %s (%s)\n", w.TopicPartition(), before, after, note)
	return errors.Join(err, printed)
}

var retentionPlanning = planning{
	name: "retention",
	help: `
plan retention says which segments partlog retain, or a broker with the same settings, would delete now and for which of the
three reasons (start offset, size, age), where the log would start then, what keeps the next segment, and when that one will
be old enough.

  partlog plan retention orders-0 --config retention.ms=86400000
  partlog plan retention orders-0 --now 2026-03-01T00:00:00Z     a month from now
  partlog plan retention /var/lib/kafka/data --json | jq .freedBytes

What keeps a segment: "not due"; "high watermark": it is due, but readers have not been shown all of it; "future timestamp":
one of its records lies ahead of the clock, so age takes neither it nor any behind it; "empty active segment"; "cleanup
policy": the policy does not contain delete. With --json nextDue is null if age will not ask for the next segment.`,
	look: func(_ context.Context, e *env, l *log.Log, ask planQuestion) error {
		now := ask.now
		plan := l.PlanRetention(now)
		if ask.json {
			d, start := describePlan(plan), l.Offsets().LogStart
			d.Partition, d.Now, d.LogStartOffset = l.TopicPartition().String(), now.UnixMilli(), &start
			return json.NewEncoder(e.out).Encode(d)
		}
		return printPlan(e.out, l, plan)
	},
}

// planInfo is a plan as JSON. What stands in front is left out where the plan was carried out.
type planInfo struct {
	Partition         string     `json:"partition,omitempty"`
	Now               int64      `json:"now,omitempty"`
	LogStartOffset    *int64     `json:"logStartOffset,omitempty"`
	NewLogStartOffset int64      `json:"newLogStartOffset"`
	FreedBytes        int64      `json:"freedBytes"`
	RollFirst         bool       `json:"rollFirst"`
	HeldBy            string     `json:"heldBy"`
	NextDue           *int64     `json:"nextDue"`
	Drop              []dropInfo `json:"drop"`
}

type dropInfo struct {
	BaseOffset int64  `json:"baseOffset"`
	NextOffset int64  `json:"nextOffset"`
	Bytes      int64  `json:"bytes"`
	Reason     string `json:"reason"`
}

func describePlan(p retention.Plan) planInfo {
	d := planInfo{NewLogStartOffset: p.NewStart, FreedBytes: p.Freed, RollFirst: p.RollFirst, HeldBy: p.HeldBy.String(), Drop: []dropInfo{}}
	if p.NextDue >= 0 {
		d.NextDue = &p.NextDue
	}
	for _, s := range p.Drop {
		d.Drop = append(d.Drop, dropInfo{s.Base, s.End, s.Bytes, s.Reason.String()})
	}
	return d
}

func printPlan(w io.Writer, l *log.Log, p retention.Plan) error {
	state, what := stateOf(l), "the oldest segment"
	_, err := fmt.Fprintf(w, "%s: %d of %s would go, %s; log start %d, then %d\n", l.TopicPartition(), len(p.Drop),
		counted(state.segments, "segment"), counted(p.Freed, "byte"), state.start, p.NewStart)
	for _, d := range p.Drop {
		if err == nil {
			_, err = fmt.Fprintf(w, "  %s, %s: %v\n", span(d.Base, max(d.End, d.Base+1)), counted(d.Bytes, "byte"), d.Reason)
		}
		what = "the next segment"
	}
	if err != nil {
		return err
	}
	if p.RollFirst {
		_, err = fmt.Fprintf(w, "  the active segment is rolled first: an empty one is left, which begins at offset %d\n", p.NewStart)
		return err
	}
	_, err = fmt.Fprintf(w, "  %s\n", held(p, what))
	return err
}

// held says what keeps the first segment that stays.
func held(p retention.Plan, what string) string {
	text := fmt.Sprintf("%s stays: %v", what, p.HeldBy)
	if p.NextDue >= 0 {
		text += "; old enough from " + time.UnixMilli(p.NextDue).UTC().Format("2006-01-02T15:04:05.000Z") + " on"
	}
	return text
}
