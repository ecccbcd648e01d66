package checkpoint

import (
	"fmt"
	"strconv"

	"github.com/partlog/partlog/internal/epoch"
	"github.com/partlog/partlog/vfs"
)

// ReadEpochs reads a partition's leader epoch file, entries in file order; name is its path below the root. A missing or
// empty file has none. Negative epochs and offsets are a *FormatError; an order that contradicts itself is not
// (epoch.New settles it).
func ReadEpochs(fsys vfs.FS, name string) ([]epoch.Entry, error) {
	b, _, err := read(fsys, name, maxEpochsBytes)
	if err != nil {
		return nil, err
	}
	all, err := ParseEpochs(name, b)
	if err != nil {
		return nil, err
	}
	return all, nil
}

// WriteEpochs replaces a partition's leader epoch file atomically and durably.
func WriteEpochs(fsys vfs.FS, name string, entries []epoch.Entry) error {
	return WriteFile(fsys, name, AppendEpochs(nil, entries))
}

// ParseEpochs decodes the content of a leader epoch file; file is for errors, which are *FormatError
// and come with the entries before them.
func ParseEpochs(file string, b []byte) ([]epoch.Entry, error) {
	var out []epoch.Entry
	err := table(file, b, 2, func(f [][]byte) string {
		e, ok := number(f[0], 32)
		if !ok || e < 0 {
			return fmt.Sprintf("%q is not a leader epoch", short(f[0]))
		}
		start, ok := number(f[1], 64)
		if !ok || start < 0 {
			return fmt.Sprintf("%q is not a start offset", short(f[1]))
		}
		out = append(out, epoch.Entry{Epoch: int32(e), StartOffset: start})
		return ""
	})
	return out, err
}

// AppendEpochs appends the content of a leader epoch file to dst, byte for byte as Kafka writes it.
func AppendEpochs(dst []byte, entries []epoch.Entry) []byte {
	dst = append(dst, "0\n"...)
	dst = strconv.AppendInt(dst, int64(len(entries)), 10)
	dst = append(dst, '\n')
	for _, e := range entries {
		dst = strconv.AppendInt(dst, int64(e.Epoch), 10)
		dst = append(dst, ' ')
		dst = strconv.AppendInt(dst, e.StartOffset, 10)
		dst = append(dst, '\n')
	}
	return dst
}
