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
// versions and lines behind the second are tolerated.
func ParseTopicID(file string, b []byte) (ID, error) {
	lines := lineReader{rest: b}
	bad := func(reason string) (ID, error) {
		return ID{}, &FormatError{File: file, Line: max(lines.n, 1), Reason: reason}
	}
	field := func(key string) (string, bool) {
		line, _ := lines.next()
		name, value, _ := bytes.Cut(line, []byte{':'})
		trimmed := bytes.TrimLeft(value, " \t\v\f\r")
		return string(short(bytes.TrimRight(trimmed, " \t\v\f\r"))), string(name) == key && len(trimmed) < len(value)
	}
	text, ok := field("version")
	if !ok {
		return bad(`not "version: <number>"`)
	}
	if version, err := strconv.ParseInt(text, 10, 32); err != nil || version < 0 {
		return bad(fmt.Sprintf("%q is not a version", text))
	}
	if text, ok = field("topic_id"); !ok {
		return bad(`not "topic_id: <id>"`)
	}
	id, err := ParseID(text)
	switch {
	case err != nil:
		return bad(fmt.Sprintf("%q is not a topic id", text))
	case id.IsZero():
		return bad("the topic id is zero")
	}
	return id, nil
}
