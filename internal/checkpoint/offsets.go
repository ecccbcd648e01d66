package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/partlog/partlog/vfs"
)

// Partition is the key of a root's offset checkpoint.
type Partition struct {
	Topic     string
	Partition int32
}

// ErrTopic is returned for a topic name that the text format cannot carry: empty or with white space.
var ErrTopic = errors.New("checkpoint: topic name cannot be written")

// ReadOffsets reads one of a root's offset checkpoints. A missing or empty file has no entries; the map is never nil
// without an error. Offsets are given as they stand, negative ones too: whoever uses one bounds it by the log's own
// offsets. Of two lines for one partition the later wins.
func ReadOffsets(fsys vfs.FS, name string) (map[Partition]int64, error) {
	b, _, err := read(fsys, name, maxOffsetsBytes)
	if err != nil {
		return nil, err
	}
	all, err := ParseOffsets(name, b)
	if err != nil {
		return nil, err
	}
	return all, nil
}

// WriteOffsets replaces an offset checkpoint atomically and durably; entries are written in order of topic and
// partition. An empty or nil map gives the four bytes "0 LF 0 LF".
func WriteOffsets(fsys vfs.FS, name string, offsets map[Partition]int64) error {
	b, err := AppendOffsets(nil, offsets)
	if err != nil {
		return err
	}
	return WriteFile(fsys, name, b)
}

// ParseOffsets decodes the content of an offset checkpoint; file is for errors, which are *FormatError
// and come with the entries before them.
func ParseOffsets(file string, b []byte) (map[Partition]int64, error) {
	out := make(map[Partition]int64)
	err := table(file, b, 3, func(f [][]byte) string {
		if len(f[0]) == 0 {
			return "no topic before the partition"
		}
		partition, ok := number(f[1], 32)
		if !ok {
			return fmt.Sprintf("%q is not a partition", short(f[1]))
		}
		offset, ok := number(f[2], 64)
		if !ok {
			return fmt.Sprintf("%q is not an offset", short(f[2]))
		}
		out[Partition{string(f[0]), int32(partition)}] = offset
		return ""
	})
	return out, err
}

// AppendOffsets appends the content of an offset checkpoint to dst.
func AppendOffsets(dst []byte, offsets map[Partition]int64) ([]byte, error) {
	order := slices.SortedFunc(maps.Keys(offsets), func(a, b Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	dst = append(dst, "0\n"...)
	dst = strconv.AppendInt(dst, int64(len(order)), 10)
	dst = append(dst, '\n')
	for _, p := range order {
		if p.Topic == "" || strings.ContainsAny(p.Topic, " \t\n\v\f\r") {
			return nil, fmt.Errorf("%w: %q", ErrTopic, p.Topic)
		}
		dst = append(dst, p.Topic...)
		dst = append(dst, ' ')
		dst = strconv.AppendInt(dst, int64(p.Partition), 10)
		dst = append(dst, ' ')
		dst = strconv.AppendInt(dst, offsets[p], 10)
		dst = append(dst, '\n')
	}
	return dst, nil
}
