package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/segment"
)

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

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// wordedError says in the words of this command what cause means, which errors.Is still finds.
type wordedError struct {
	text  string
	cause error
}

func (e *wordedError) Error() string { return e.text }
func (e *wordedError) Unwrap() error { return e.cause }

func worded(cause error, format string, args ...any) error {
	return &wordedError{fmt.Sprintf(format, args...), cause}
}

// report prints an error as one sentence and gives its exit code.
func report(ctx context.Context, e *env, c *command, err error) int {
	var ended *exit
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(e.err, "partlog %s: %s\nusage: %s; see partlog help %s\n", c.name, usage.reason, c.usage(), c.name)
		return exitFailed
	case errors.As(err, &ended):
		if ended.cause != nil {
			fmt.Fprintf(e.err, "partlog %s: %s\n", c.name, sentence(err))
		}
		return ended.code
	case errors.Is(err, syscall.EPIPE): // the reader of our output has gone: not our trouble
		return exitOK
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintf(e.err, "partlog %s: %s\n", c.name, interrupted(err))
		return exitInterrupted
	}
	fmt.Fprintf(e.err, "partlog %s: %s\n", c.name, sentence(err))
	if unsound, ok := errors.AsType[*log.UnsoundError](err); errors.Is(err, log.ErrCorrupt) || ok && len(unsound.Findings) > 0 {
		return exitFound
	}
	return exitFailed
}

// interrupted is what to say of a call that Ctrl-C ended.
func interrupted(err error) string {
	var stopped *stoppedError
	if errors.As(err, &stopped) {
		return "interrupted; " + stopped.done
	}
	return "interrupted"
}

// stoppedError is an error in the middle of work, with what was done before.
type stoppedError struct {
	cause error
	done  string
}

func (e *stoppedError) Error() string { return e.cause.Error() + "; " + e.done }
func (e *stoppedError) Unwrap() error { return e.cause }

// sentence is an error on one line, without the names of the packages it came through, and with nothing said twice in a
// row: "log: invalid record: record: invalid record: …" or "a: open a: no such file".
func sentence(err error) string {
	text := strings.TrimSpace(err.Error())
	if errors.Is(err, log.ErrCorrupt) { // file, byte and offset stand before what is inside
		if inner, ok := errors.AsType[*compaction.UncleanableError](err); ok {
			text = strings.Replace(text, inner.Error(), inner.Reason, 1)
		} else if inner, ok := errors.AsType[*segment.CorruptError](err); ok {
			text = strings.Replace(text, inner.Error(), inner.Reason, 1)
		}
	}
	parts := strings.Split(text, "\n")
	for i := range parts {
		parts[i] = plain(parts[i])
	}
	return strings.Join(parts, "; ")
}

// plain is a line of an error.
func plain(line string) string {
	var said []string
	for _, part := range strings.Split(line, ": ") {
		last := ""
		if len(said) > 0 {
			last = said[len(said)-1]
		}
		switch {
		case slices.Contains(packages, part):
		case last != "" && strings.HasSuffix(last, part): // "batch or append too large: batch too large" is told apart
		case last != "" && strings.HasSuffix(part, " "+pathOf(last)) && !strings.Contains(pathOf(last), " "):
			said[len(said)-1] = part
		default:
			said = append(said, part)
		}
	}
	return strings.Join(said, ": ")
}

// packages are the names that errors of this module begin with.
var packages = []string{"log", "compaction", "record", "segment", "index", "timeindex", "checkpoint", "vfs", "producerstate", "txnindex", "mapped", "epoch"}

// pathOf is the path that a part of an error ends with: "open a/b" speaks of a/b.
func pathOf(part string) string {
	_, path, found := strings.Cut(part, " ")
	if !found {
		return part
	}
	return path
}
