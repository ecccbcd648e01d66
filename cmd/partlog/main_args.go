package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parse lets flags stand before, between and behind the other arguments, and numbers be negative.
func parse(fl *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		err := fl.Parse(args)
		left := fl.Args()
		if err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			if number := args[len(args)-len(left)-1]; isNegative(number) && strings.HasPrefix(err.Error(), "flag provided but not defined") {
				rest, args = append(rest, number), left
				continue
			}
			return nil, usagef("%s", flagError(err.Error()))
		}
		if n := len(args) - len(left); n > 0 && args[n-1] == "--" {
			return append(rest, left...), nil
		}
		if len(left) == 0 {
			return rest, nil
		}
		rest, args = append(rest, left[0]), left[1:]
	}
}

// flagError is what package flag says of an argument, as this program spells its flags.
func flagError(text string) string {
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		return "there is no flag " + dashed(name)
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		return dashed(name) + " needs a value"
	}
	before, after, ok := strings.Cut(text, "for flag -")
	if !ok { // of a switch
		if before, after, ok = strings.Cut(text, " for -"); !ok {
			return text
		}
		before += " "
	}
	name, reason, _ := strings.Cut(after, ": ")
	if reason == "parse error" {
		reason = "want a whole number"
		if strings.HasPrefix(before, "invalid boolean") {
			reason = "want true or false"
		}
	}
	return strings.Replace(before, "invalid boolean value", "invalid value", 1) + "for flag " + dashed(name) + ": " + reason
}

// dashed is a flag as it is typed.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func isNegative(arg string) bool {
	n, err := strconv.ParseInt(arg, 10, 64)
	return err == nil && n < 0
}

// want checks the number of positional arguments.
func want(args []string, names ...string) error {
	if len(args) < len(names) {
		return usagef("%s is missing", names[len(args)])
	}
	if len(args) > len(names) {
		return usagef("unexpected argument %q", args[len(names)])
	}
	if i := slices.Index(args, ""); i >= 0 {
		return usagef("%s is empty", names[i])
	}
	return nil
}

// offsetArg reads a record offset.
func offsetArg(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, usagef("%q is not an offset", text)
	}
	return n, nil
}

// millis is a flag that holds a time in Unix milliseconds, given as that, as RFC 3339, or as a date: its midnight, UTC.
type millis struct {
	ms  int64
	set bool
}

func (m *millis) String() string { return "" }

func (m *millis) Set(text string) error {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t, bad := time.Parse(time.RFC3339Nano, text)
		if bad != nil {
			t, bad = time.Parse(time.DateOnly, text)
		}
		if bad != nil {
			return errors.New("want Unix milliseconds, a time as 2026-01-31T12:00:00Z, or a date as 2026-01-31")
		}
		ms = t.UnixMilli()
	}
	m.ms, m.set = ms, true
	return nil
}

// nowFlag is --now, for commands whose answer depends on the time.
func nowFlag(fl *flag.FlagSet) *millis {
	now := &millis{}
	fl.Var(now, "now", "take `TIME` (Unix milliseconds, or 2026-01-31T12:00:00Z) for the present")
	return now
}

// clock is the time given, or the real one.
func (m millis) clock() func() time.Time {
	if m.set {
		return func() time.Time { return time.UnixMilli(m.ms) }
	}
	return time.Now
}

// help prints the list of commands, or all about one.
func help(e *env, args []string) int {
	if len(args) < 2 {
		listCommands(e.out)
		return exitOK
	}
	c := find(args[1])
	if c == nil {
		fmt.Fprintf(e.err, "partlog: no command %q; see partlog help\n", args[1])
		return exitFailed
	}
	fl := newFlags(c)
	c.setup(fl)
	fmt.Fprintf(e.out, "usage: %s\n\n%s: %s\n\n%s\n", c.usage(), c.name, c.summary, strings.TrimSpace(c.help))
	heading := "\nflags:\n"
	fl.VisitAll(func(f *flag.Flag) {
		fmt.Fprint(e.out, heading)
		heading = ""
		describeFlag(e.out, f)
	})
	return exitOK
}

func describeFlag(w io.Writer, f *flag.Flag) {
	value, usage := flag.UnquoteUsage(f)
	if value != "" {
		value = " " + value
	}
	if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "false" {
		usage += " (default " + f.DefValue + ")"
	}
	fmt.Fprintf(w, "  %s%s\n      %s\n", dashed(f.Name), value, usage)
}

func listCommands(w io.Writer) {
	fmt.Fprint(w, "partlog reads, verifies, mends and feeds Kafka partition folders (topic-0) and log roots.\n\nusage: partlog COMMAND [flags] DIR\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-15s %s\n", c.name, c.summary)
	}
	fmt.Fprint(w, "\npartlog help COMMAND explains one. Reading takes no lock and changes nothing; writing takes the root's lock.\n")
}
