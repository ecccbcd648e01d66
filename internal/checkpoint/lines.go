package checkpoint

import (
	"bytes"
	"fmt"
	"strconv"
)

// table reads the text format all checkpoints share and hands each entry's fields to entry, which says what is wrong
// with them. The fields are views of b.
func table(file string, b []byte, fields int, entry func(f [][]byte) (reason string)) error {
	lines := lineReader{rest: b}
	bad := func(format string, args ...any) error {
		return &FormatError{File: file, Line: lines.n, Reason: fmt.Sprintf(format, args...)}
	}
	line, ok := lines.next()
	if !ok {
		return nil
	}
	switch version, ok := number(line, 32); {
	case !ok:
		return bad("%q is not a version number", short(line))
	case version != 0:
		return bad("version %d is not known, only 0", version)
	}
	if line, ok = lines.next(); !ok {
		return nil
	}
	want, ok := number(line, 32)
	if !ok {
		return bad("%q is not a number of entries", short(line))
	}
	found := int64(0)
	parts := make([][]byte, 0, fields+1)
	for {
		line, ok := lines.next()
		if !ok {
			break
		}
		if parts = split(line, parts[:0], fields+1); len(parts) != fields {
			return bad("%q does not have %d fields", short(line), fields)
		}
		if reason := entry(parts); reason != "" {
			return bad("%s", reason)
		}
		found++
	}
	if found != want {
		return &FormatError{File: file, Line: 2, Reason: fmt.Sprintf("%d entries announced, %d found", want, found)}
	}
	return nil
}

// lineReader cuts lines off at LF or CR LF; a last line needs no end.
type lineReader struct {
	rest []byte
	n    int // number of the line returned last
}

func (l *lineReader) next() ([]byte, bool) {
	if len(l.rest) == 0 {
		return nil, false
	}
	l.n++
	line := l.rest
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line, l.rest = line[:i], line[i+1:]
	} else {
		l.rest = nil
	}
	return bytes.TrimSuffix(line, []byte{'\r'}), true
}

// split cuts a line at runs of white space into at most limit parts. White space before the first field makes an empty
// field, behind the last one it is dropped: so does Kafka.
func split(line []byte, parts [][]byte, limit int) [][]byte {
	for len(line) > 0 && len(parts) < limit {
		end := bytes.IndexAny(line, " \t\v\f\r")
		if end < 0 {
			return append(parts, line)
		}
		parts = append(parts, line[:end])
		line = bytes.TrimLeft(line[end:], " \t\v\f\r")
	}
	return parts
}

// number reads a decimal number. One too long to be shown in a message is none: it could only be padded with zeros.
func number(b []byte, bits int) (n int64, ok bool) {
	if len(b) > len(short(b)) {
		return 0, false
	}
	n, err := strconv.ParseInt(string(b), 10, bits)
	return n, err == nil
}

// short keeps messages about hostile files short.
func short(b []byte) []byte {
	return b[:min(len(b), 80)]
}
