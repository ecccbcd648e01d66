package checkpoint

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/partlog/partlog/vfs"
)

// Identity is a root's meta.properties: which node and cluster the disk belongs to.
type Identity struct {
	Version     int    // 0 or 1; Kafka 4 writes 1
	ClusterID   string // "" none
	NodeID      int32  // node.id, in version 0 broker.id; -1 none
	DirectoryID ID     // zero: none
}

// ReadIdentity reads a root's meta.properties. found is false if there is no file: the root then has no identity. A
// *FormatError names what a broker would not accept.
func ReadIdentity(fsys vfs.FS) (id Identity, found bool, err error) {
	b, found, err := read(fsys, MetaProperties, maxSmallBytes)
	if err != nil || !found {
		return Identity{NodeID: -1}, false, err
	}
	id, err = ParseIdentity(MetaProperties, b)
	return id, err == nil, err
}

// WriteIdentity replaces a root's meta.properties atomically and durably; now is written as a comment, as Java does.
func WriteIdentity(fsys vfs.FS, id Identity, now time.Time) error {
	b, err := AppendIdentity(nil, id, now)
	if err != nil {
		return err
	}
	return WriteFile(fsys, MetaProperties, b)
}

// ParseIdentity decodes the content of a meta.properties file; file is for errors, which are *FormatError. Unknown keys
// are ignored, a missing version is 0.
func ParseIdentity(file string, b []byte) (Identity, error) {
	id := Identity{NodeID: -1}
	bad := func(format string, args ...any) (Identity, error) {
		return Identity{NodeID: -1}, &FormatError{File: file, Reason: fmt.Sprintf(format, args...)}
	}
	props := ParseProperties(b)
	nodeKey := "broker.id"
	switch version := props["version"]; version {
	case "", "0":
	case "1":
		id.Version, nodeKey = 1, "node.id"
		for _, key := range []string{"cluster.id", "node.id"} {
			if _, ok := props[key]; !ok {
				return bad("%s is missing", key)
			}
		}
	default:
		return bad("version %q is not known", short([]byte(version)))
	}
	id.ClusterID = props["cluster.id"]
	if text, ok := props[nodeKey]; ok {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return bad("%s %q is not a node id", nodeKey, short([]byte(text)))
		}
		id.NodeID = int32(n)
	}
	if text, ok := props["directory.id"]; ok {
		dir, err := ParseID(text)
		if err != nil || dir.IsZero() {
			return bad("directory.id %q is not an id", short([]byte(text)))
		}
		id.DirectoryID = dir
	}
	return id, nil
}

// AppendIdentity appends the content of a meta.properties file to dst. Version 1 needs a cluster and a node id, and a
// cluster id may hold printable ASCII without blanks only; a *FormatError says what is wrong.
func AppendIdentity(dst []byte, id Identity, now time.Time) ([]byte, error) {
	bad := func(reason string) ([]byte, error) {
		return nil, &FormatError{File: MetaProperties, Reason: reason}
	}
	nodeKey := "node.id"
	switch {
	case id.Version == 0:
		nodeKey = "broker.id"
	case id.Version != 1:
		return bad(fmt.Sprintf("version %d is not known", id.Version))
	case id.ClusterID == "" || id.NodeID < 0:
		return bad("version 1 needs a cluster and a node id")
	}
	for i := 0; i < len(id.ClusterID); i++ {
		if c := id.ClusterID[i]; c <= ' ' || c > '~' || c == '\\' {
			return bad(fmt.Sprintf("cluster id %q has a character that cannot be written", id.ClusterID))
		}
	}
	dst = append(dst, "#\n#"...)
	dst = now.UTC().AppendFormat(dst, "Mon Jan 02 15:04:05 MST 2006")
	dst = append(dst, '\n')
	line := func(key, value string) {
		dst = append(dst, key...)
		dst = append(dst, '=')
		dst = append(dst, value...)
		dst = append(dst, '\n')
	}
	if id.NodeID >= 0 {
		line(nodeKey, strconv.FormatInt(int64(id.NodeID), 10))
	}
	if !id.DirectoryID.IsZero() {
		line("directory.id", id.DirectoryID.String())
	}
	line("version", strconv.Itoa(id.Version))
	if id.ClusterID != "" {
		line("cluster.id", id.ClusterID)
	}
	return dst, nil
}

// ParseProperties reads Java's properties format: comments (# or !), the first =, : or blank after the key, blanks
// around it, backslash escapes and lines continued by a backslash. Nothing is an error but what makes no sense later.
func ParseProperties(b []byte) map[string]string {
	out := make(map[string]string)
	lines := lineReader{rest: b}
	for {
		raw, ok := lines.next()
		if !ok {
			return out
		}
		line := strings.TrimLeft(string(raw), " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		var joined strings.Builder
		for continued(line) {
			joined.WriteString(line[:len(line)-1])
			raw, ok := lines.next()
			if !ok {
				line = ""
				break
			}
			line = strings.TrimLeft(string(raw), " \t\f")
		}
		joined.WriteString(line)
		key, value := cutProperty(joined.String())
		out[unescape(key)] = unescape(value)
	}
}

// continued: an odd number of backslashes at the end.
func continued(line string) bool {
	n := len(line) - len(strings.TrimRight(line, `\`))
	return n%2 == 1
}

func cutProperty(line string) (key, value string) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
			continue
		}
		if strings.IndexByte("=: \t\f", line[i]) >= 0 {
			end = i
			break
		}
	}
	value = strings.TrimLeft(line[end:], " \t\f")
	if value != "" && (value[0] == '=' || value[0] == ':') {
		value = strings.TrimLeft(value[1:], " \t\f")
	}
	return line[:end], value
}

func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 't':
			out.WriteByte('\t')
		case 'n':
			out.WriteByte('\n')
		case 'r':
			out.WriteByte('\r')
		case 'f':
			out.WriteByte('\f')
		case 'u':
			if i+4 < len(s) {
				if r, err := strconv.ParseUint(s[i+1:i+5], 16, 16); err == nil {
					out.WriteRune(rune(r))
					i += 4
					continue
				}
			}
			out.WriteByte('u')
		default:
			out.WriteByte(s[i])
		}
	}
	return out.String()
}
