package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/partlog/partlog/log"
)

// changeCommand is a command that opens a log for writing, does one thing to it, and says what the log was and is.
type changeCommand struct {
	name, args, summary, help string
	// offset reads the second argument; nil if the command has none.
	offset func(text string) (int64, error)
	change func(ctx context.Context, l *log.Log, offset int64) (note string, err error)
}

func (c changeCommand) command() *command {
	return &command{
		name: c.name, args: c.args, summary: c.summary,
		help: c.help + `

It takes the lock of the log root, which for a partition folder is the directory above it, asks nothing, and leaves the
root as a cleanly stopped broker does. Interrupted or killed, it leaves the log as it was or as it was to become, or, when
records are cut off, at a batch boundary between the two.`,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := fl.Bool("json", false, "print what the log was and is as a JSON object")
			configs := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				names := []string{"DIR"}
				if c.offset != nil {
					names = append(names, "OFFSET")
				}
				if err := want(args, names...); err != nil {
					return err
				}
				offset, err := int64(0), error(nil)
				if c.offset != nil {
					if offset, err = c.offset(args[1]); err != nil {
						return err
					}
				}
				return c.run(ctx, e, args[0], offset, configs, *asJSON)
			}
		},
	}
}

func (c changeCommand) run(ctx context.Context, e *env, dir string, offset int64, configs settings, asJSON bool) error {
	config, err := configs.config()
	if err != nil {
		return err
	}
	t, err := lookAt(dir)
	if err != nil {
		return err
	}
	w, err := openForWriting(ctx, e, t, configs, config)
	if err != nil {
		return err
	}
	before := stateOf(w.Log)
	note, err := c.change(ctx, w.Log, offset)
	after := stateOf(w.Log)
	if err = errors.Join(err, w.close()); err != nil {
		return err
	}
	if asJSON {
		_, err = fmt.Fprintf(e.out, `{"partition":"%s","before":%s,"after":%s}`+"\n", w.TopicPartition(), before.json(), after.json())
		return err
	}
	if note != "" {
		note = " (" + note + ")"
	}
	_, err = fmt.Fprintf(e.out, "%s: was %s; is %s%s\n", w.TopicPartition(), before, after, note)
	return err
}

// logState is what a change is about.
type logState struct {
	start, end int64
	segments   int
}

func stateOf(l *log.Log) logState {
	o := l.Offsets()
	return logState{start: o.LogStart, end: o.LogEnd, segments: len(l.SegmentInfos())}
}

func (s logState) String() string {
	return fmt.Sprintf("log start %d, log end %d, segments %d", s.start, s.end, s.segments)
}

func (s logState) json() string {
	return fmt.Sprintf(`{"logStartOffset":%d,"logEndOffset":%d,"segments":%d}`, s.start, s.end, s.segments)
}

// notNegative reads an offset of the log.
func notNegative(text string) (int64, error) {
	n, err := offsetArg(text)
	if err == nil && n < 0 {
		err = usagef("OFFSET must not be negative")
	}
	return n, err
}

func truncateCommand() *command {
	return changeCommand{
		name: "truncate", args: "DIR OFFSET", summary: "cut off the end of a log",
		help: `Removes every batch that holds OFFSET or a later one, durably, as a follower does whose leader has something else
there. The log then ends at OFFSET, or below it if OFFSET lay inside a batch. An OFFSET at or behind the end removes
nothing; one below the first segment leaves an empty log that starts there.

  partlog truncate orders-0 4711`,
		offset: notNegative,
		change: func(ctx context.Context, l *log.Log, offset int64) (string, error) {
			before := l.Offsets().LogEnd
			end, err := l.Truncate(ctx, offset)
			switch {
			case err != nil:
				return "", err
			case offset >= before:
				return "nothing to cut off", nil
			case end < offset:
				return fmt.Sprintf("%d lay inside the batch that began at %d", offset, end), nil
			}
			return "", nil
		},
	}.command()
}
