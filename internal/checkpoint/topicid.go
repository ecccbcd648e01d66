package checkpoint

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/partlog/partlog/vfs"
)

// ID is a topic or directory id. Its text form is 22 characters of URL-safe base64 without padding.
type ID [16]byte

// String is the text form.
func (id ID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// IsZero says that there is no id.
func (id ID) IsZero() bool { return id == ID{} }

// ParseID reads the text form; padding is tolerated.
func ParseID(text string) (ID, error) {
	var id ID
	if len(text) > 24 { // 16 bytes with padding
		return id, fmt.Errorf("checkpoint: an id of %d characters", len(text))
	}
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("checkpoint: %q is not an id of 16 bytes", text)
	}
	return ID(b), nil
}

// ReadTopicID reads a partition.metadata file; name is its path below the root. found is false if there is no file.
// Anything but a version and an id that is not zero is a *FormatError, an empty file too: such a folder stops a broker.
func ReadTopicID(fsys vfs.FS, name string) (id ID, found bool, err error) {
	b, found, err := read(fsys, name, maxSmallBytes)
	if err != nil || !found {
		return ID{}, false, err
	}
	id, err = ParseTopicID(name, b)
	return id, err == nil, err
}

// WriteTopicID replaces a partition.metadata file atomically and durably. A zero id is refused.
func WriteTopicID(fsys vfs.FS, name string, id ID) error {
	if id.IsZero() {
		return &FormatError{File: name, Reason: "a zero topic id cannot be written"}
	}
	return WriteFile(fsys, name, []byte("version: 0\ntopic_id: "+id.String()))
}

// ParseTopicID decodes the content of a partition.metadata file; file is for errors, which are *FormatError. Higher
// versions and lines behind the second are tolerated, and as by Kafka any names before the two values.
func ParseTopicID(file string, b []byte) (ID, error) {
	id, _, err := parseTopicID(file, b)
	return id, err
}

// CheckTopicID is ReadTopicID of a file that must be as Kafka writes it.
func CheckTopicID(fsys vfs.FS, name string) error {
	b, found, err := read(fsys, name, maxSmallBytes)
	if err != nil || !found {
		return err
	}
	_, odd, err := parseTopicID(name, b)
	if err == nil && odd != nil {
		return odd
	}
	return err
}

// parseTopicID says as well what is odd about a file that can be read.
func parseTopicID(file string, b []byte) (id ID, odd *FormatError, err error) {
	lines := lineReader{rest: b}
	bad := func(reason string) *FormatError {
		return &FormatError{File: file, Line: max(lines.n, 1), Reason: reason}
	}
	field := func(key string) (string, bool) {
		line, _ := lines.next()
		name, value, ok := cutField(line)
		if ok && string(name) != key && odd == nil {
			odd = bad(fmt.Sprintf("%q where %q should be, which nobody looks at", short(name), key))
		}
		return string(short(bytes.TrimRight(value, blanks))), ok
	}
	text, ok := field("version")
	if !ok {
		return id, nil, bad(`not "version: <number>"`)
	}
	if version, err := strconv.ParseInt(text, 10, 32); err != nil || version < 0 {
		return id, nil, bad(fmt.Sprintf("%q is not a version", text))
	}
	if text, ok = field("topic_id"); !ok {
		return id, nil, bad(`not "topic_id: <id>"`)
	}
	id, notID := ParseID(text)
	switch {
	case notID != nil:
		return ID{}, nil, bad(fmt.Sprintf("%q is not a topic id", text))
	case id.IsZero():
		return ID{}, nil, bad("the topic id is zero")
	}
	return id, odd, nil
}

const blanks = " \t\v\f\r"

// cutField splits a line at its only colon with a blank behind it.
func cutField(line []byte) (name, value []byte, ok bool) {
	colon := func(b []byte) int {
		for i := 0; i+1 < len(b); i++ {
			if b[i] == ':' && bytes.IndexByte([]byte(blanks), b[i+1]) >= 0 {
				return i
			}
		}
		return -1
	}
	i := colon(line)
	if i < 0 || colon(line[i+1:]) >= 0 {
		return nil, nil, false
	}
	return line[:i], bytes.TrimLeft(line[i+1:], blanks), true
}
