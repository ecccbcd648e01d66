package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/partlog/partlog/record"
)

// maxLine bounds a line: the base64 of the most that a batch may unpack to, and some.
const maxLine = 128 << 20

// inputLine is a record of the input, or what is wrong with it.
type inputLine struct {
	number  int // from 1
	rec     record.Record
	stamped bool // the line gave a timestamp
	err     error
}

// readLines reads and parses in the background, so that a slow input does not hold up Ctrl-C. The channel ends with the
// input, ctx, or the first line that is wrong. A read that never returns is left behind when the program ends.
func readLines(ctx context.Context, in io.Reader) <-chan inputLine {
	ch := make(chan inputLine, 1024)
	go func() {
		defer close(ch)
		r := bufio.NewReaderSize(in, 256<<10)
		for number := 1; ; number++ {
			line, err := readLine(r, maxLine)
			if errors.Is(err, io.EOF) && len(line) == 0 {
				return
			}
			it := inputLine{number: number}
			switch {
			case err != nil && !errors.Is(err, io.EOF):
				it.err = fmt.Errorf("cannot be read: %w", err)
			case len(bytes.TrimSpace(line)) == 0:
				continue
			default:
				it.rec, it.stamped, it.err = parseRecord(line)
			}
			select {
			case ch <- it:
			case <-ctx.Done():
				return
			}
			if it.err != nil {
				return
			}
		}
	}()
	return ch
}

// readLine gives one line with its end; the last one comes with io.EOF. The line is valid until the next call.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	long := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = r.ReadSlice('\n')
		long = append(long, line...)
		if len(long) > limit {
			return nil, fmt.Errorf("it is longer than %s", counted(limit, "byte"))
		}
	}
	return long, err
}
