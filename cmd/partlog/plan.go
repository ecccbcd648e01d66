package main

import (
	"context"
	"flag"
	"slices"
	"strings"
	"time"

	"github.com/partlog/partlog/log"
)

// planning is one kind of plan: what some change would do to a log, without doing it.
type planning struct {
	name string // the word behind plan
	help string // a paragraph, and what the JSON holds
	look func(ctx context.Context, e *env, l *log.Log, ask planQuestion) error
	// counts: the plan can be made sure of by reading and counting, --dry-run.
	counts bool
}

// planQuestion is how a plan is asked for.
type planQuestion struct {
	settings settings
	now      time.Time
	json     bool
	dryRun   bool
}

// plannings are the kinds in the order of the help.
var plannings = []planning{retentionPlanning, compactionPlanning}

func planCommand() *command {
	var names, texts []string
	for _, p := range plannings {
		names, texts = append(names, p.name), append(texts, strings.TrimSpace(p.help))
	}
	return &command{
		name: "plan", args: strings.Join(names, "|") + " DIR", summary: "what " + strings.Join(names, " or ") + " would do, without doing it",
		help: strings.Join(texts, "\n\n") + `

DIR is a partition folder, or a log root for all its partitions. The settings are Kafka's defaults: a broker keeps a topic's
own elsewhere, so give them with --config. The log is opened as a writer would, over a copy-on-write view in memory: no byte
changes, no lock is taken, and it works beside a broker.`,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := fl.Bool("json", false, "one JSON object a line and partition")
			dryRun := fl.Bool("dry-run", false, "compaction: read the log and count what would be dropped, too")
			now := nowFlag(fl)
			s := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if len(args) == 1 && !slices.Contains(names, args[0]) {
					return usagef("no plan %q; want %s, and DIR behind it", args[0], strings.Join(names, " or "))
				}
				if err := want(args, strings.Join(names, " or "), "DIR"); err != nil {
					return err
				}
				for _, p := range plannings {
					if p.name != args[0] {
						continue
					}
					if *dryRun && !p.counts {
						return usagef("--dry-run is for plan compaction; a plan of %s is exact without", p.name)
					}
					return runPlan(ctx, e, p, args[1], *now, planQuestion{settings: s, json: *asJSON, dryRun: *dryRun})
				}
				return usagef("no plan %q; want %s", args[0], strings.Join(names, " or "))
			}
		},
	}
}

func runPlan(ctx context.Context, e *env, p planning, dir string, now millis, ask planQuestion) error {
	c, err := ask.settings.config()
	if err != nil {
		return err
	}
	t, err := lookAtAll(dir)
	if err != nil {
		return err
	}
	ask.settings.notes(e)
	t.notePassed(e)
	clock := now.clock()
	return t.each(ctx, e, "plan", func(tp log.TopicPartition) error {
		return viewed(ctx, e, t, tp, c, clock, func(l *log.Log) error {
			ask.now = clock()
			return p.look(ctx, e, l, ask)
		})
	})
}
