// Command partlog looks into, verifies, mends and feeds Kafka partition folders and log roots, without a broker.
//
//	partlog cat orders-0                     records as JSON lines
//	partlog append orders-0 --from new.jsonl records from JSON lines
//	partlog info orders-0 --json             what a log opened here would say
//	partlog verify /var/lib/kafka/data       every finding, with file, position and meaning
//
// Reading takes no lock and changes no file. Writing takes the lock of the log root, so it refuses to run beside a
// broker. `partlog help` lists the commands, `partlog help COMMAND` explains one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes every command keeps to.
const (
	exitOK     = 0
	exitFound  = 1 // damage was found, or a file was unreadable
	exitFailed = 2 // could not do what was asked
)

// command is one verb. run gets the parsed flags' positional arguments.
type command struct {
	name    string
	args    string // "DIR", "DIR OFFSET", "FILE..."
	summary string // one line, lower case
	help    string // paragraphs and examples
	setup   func(fl *flag.FlagSet) func(ctx context.Context, e *env, args []string) error
}

// env is the world a command runs in, so that tests can give it another.
type env struct {
	in       io.Reader
	out, err io.Writer
	terminal bool // err is a terminal: progress may be shown
}

// exit is an error that carries its own exit code; a nil cause prints nothing more.
type exit struct {
	code  int
	cause error
}

func (e *exit) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.cause.Error()
}

func (e *exit) Unwrap() error { return e.cause }

// usageError is a call that makes no sense as it stands.
type usageError struct{ reason string }

func (e *usageError) Error() string { return e.reason }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code := run(ctx, &env{in: os.Stdin, out: os.Stdout, err: os.Stderr, terminal: isTerminal(os.Stderr)}, os.Args[1:])
	stop()
	os.Exit(code)
}

// isTerminal says whether f is a character device: a person looks at it.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// run does one call and returns its exit code.
func run(ctx context.Context, e *env, args []string) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		return help(e, args)
	}
	c := find(args[0])
	if c == nil {
		fmt.Fprintf(e.err, "partlog: no command %q; see partlog help\n", args[0])
		return exitFailed
	}
	fl := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fl.SetOutput(io.Discard)
	do := c.setup(fl)
	rest, err := parse(fl, args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return help(e, []string{"help", c.name})
	}
	if err == nil {
		err = do(ctx, e, rest)
	}
	return report(ctx, e, c, err)
}

// report prints an error as one sentence and gives its exit code.
func report(ctx context.Context, e *env, c *command, err error) int {
	var ended *exit
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(e.err, "partlog %s: %s\nusage: partlog %s [flags] %s; see partlog help %s\n", c.name, usage.reason, c.name, c.args, c.name)
		return exitFailed
	case errors.As(err, &ended):
		if ended.cause != nil {
			fmt.Fprintf(e.err, "partlog %s: %v\n", c.name, ended.cause)
		}
		return ended.code
	case errors.Is(err, syscall.EPIPE): // the reader of our output has gone: not our trouble
		return exitOK
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintf(e.err, "partlog %s: interrupted\n", c.name)
		return 130
	}
	fmt.Fprintf(e.err, "partlog %s: %v\n", c.name, err)
	return exitFailed
}

// parse lets flags stand before, between and behind the other arguments.
func parse(fl *flag.FlagSet, args []string) (rest []string, err error) {
	for {
		if err := fl.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			return nil, &usageError{err.Error()}
		}
		left := fl.Args()
		if n := len(args) - len(left); n > 0 && args[n-1] == "--" {
			return append(rest, left...), nil
		}
		if len(left) == 0 {
			return rest, nil
		}
		rest, args = append(rest, left[0]), left[1:]
	}
}

func find(name string) *command {
	for _, c := range commands() {
		if c.name == name {
			return c
		}
	}
	return nil
}

// help prints the list of commands, or all about one.
func help(e *env, args []string) int {
	if len(args) > 1 {
		c := find(args[1])
		if c == nil {
			fmt.Fprintf(e.err, "partlog: no command %q; see partlog help\n", args[1])
			return exitFailed
		}
		fmt.Fprintf(e.out, "usage: partlog %s [flags] %s\n\n%s: %s\n\n%s\n\nflags:\n", c.name, c.args, c.name, c.summary, c.help)
		fl := flag.NewFlagSet(c.name, flag.ContinueOnError)
		fl.SetOutput(e.out)
		c.setup(fl)
		fl.PrintDefaults()
		return exitOK
	}
	fmt.Fprint(e.out, "partlog reads, verifies, mends and feeds Kafka partition folders (topic-0) and log roots.\n\nusage: partlog COMMAND [flags] DIR\n\n")
	for _, c := range commands() {
		fmt.Fprintf(e.out, "  %-15s %s\n", c.name, c.summary)
	}
	fmt.Fprint(e.out, "\npartlog help COMMAND explains one. Reading takes no lock and changes nothing; writing takes the root's lock.\n")
	return exitOK
}
