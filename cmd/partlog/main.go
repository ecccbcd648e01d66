// Command partlog looks into, verifies, mends and feeds Kafka partition folders and log roots, without a broker.
//
//	partlog cat orders-0                     records as JSON lines
//	partlog append orders-0 --from new.jsonl records from JSON lines
//	partlog info orders-0 --json             what a log opened here would say
//	partlog verify /var/lib/kafka/data       every finding, with file, position and meaning
//
// Reading takes no lock and changes no file. Writing takes the lock of the log root, so it refuses to run beside a
// broker. `partlog help` lists the commands, `partlog help COMMAND` explains one.
//
// It exits with 0 when all is well, 1 for damage, an unreadable file or a question without an answer, 2 when it could
// not do what was asked, 130 when it was interrupted. A reader of its output that goes away (| head) is all well.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Exit codes every command keeps to.
const (
	exitOK          = 0
	exitFound       = 1   // damage was found, a file was unreadable, or there is no answer
	exitFailed      = 2   // could not do what was asked
	exitInterrupted = 130 // Ctrl-C or SIGTERM, as a shell has it
)

// command is one verb. run gets the parsed flags' positional arguments.
type command struct {
	name    string
	args    string // "DIR", "DIR OFFSET", "FILE..."
	summary string // one line, lower case
	help    string // paragraphs and examples
	setup   func(fl *flag.FlagSet) func(ctx context.Context, e *env, args []string) error
}

// usage is how the command is called.
func (c *command) usage() string {
	return strings.TrimSpace("partlog " + c.name + " [flags] " + c.args)
}

// env is the world a command runs in, so that tests can give it another.
type env struct {
	in       io.Reader
	out, err io.Writer
	terminal bool // err is a terminal: progress may be shown
}

func main() {
	signal.Ignore(syscall.SIGPIPE) // a write to a closed pipe is an error like any other: what was begun is finished
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second Ctrl-C ends at once
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
	if len(args) == 0 {
		listCommands(e.err)
		return exitFailed
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "-help" || args[0] == "--help" {
		return help(e, args)
	}
	if args[0] == "-version" || args[0] == "--version" {
		args[0] = "version"
	}
	c := find(args[0])
	if c == nil {
		fmt.Fprintf(e.err, "partlog: no command %q; see partlog help\n", args[0])
		return exitFailed
	}
	fl := newFlags(c)
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

func newFlags(c *command) *flag.FlagSet {
	fl := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fl.SetOutput(io.Discard)
	return fl
}

func find(name string) *command {
	for _, c := range commands() {
		if c.name == name {
			return c
		}
	}
	return nil
}
