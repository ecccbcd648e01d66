package timeindex

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/partlog/partlog/index"
)

// glanceEntries is how many entries Glance looks at.
const glanceEntries = 64

// Glance reads the last entry of a file and nothing else is kept of it: it costs one read, and no mapping. The entries just
// before it must be in order. An empty file, a partial or zero slot at its end and entries out of order are
// index.ErrDamaged: then Open, and Check, say what is there.
func Glance(name string, base int64, o index.Options) (Entry, error) {
	if o.FS == nil {
		return Entry{}, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := o.FS.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return Entry{}, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return Entry{}, err
	}
	var room [glanceEntries * EntrySize]byte
	b := room[:min(size, int64(len(room)))]
	if size == 0 || size%EntrySize != 0 {
		return Entry{}, glanceDamage(name, fmt.Sprintf("%d bytes are no whole number of entries", size))
	}
	if n, err := f.ReadAt(b, size-int64(len(b))); n < len(b) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Entry{}, err
	}
	var last Entry
	for at := 0; at < len(b); at += EntrySize {
		e := Entry{Timestamp: timestampKey(b[at:]), Offset: base + offsetKey(b[at:])}
		if e.Offset < base || at > 0 && (e.Timestamp <= last.Timestamp || e.Offset < last.Offset) {
			return Entry{}, glanceDamage(name, "its last entries are out of order")
		}
		last = e
	}
	return last, nil
}

func glanceDamage(name, reason string) error {
	return &index.DamageError{File: name, Slot: -1, Reason: reason}
}
