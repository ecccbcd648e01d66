package timeindex

import (
	"fmt"

	"github.com/partlog/partlog/index"
)

// Check reads the whole index and says what is wrong with it, as an *index.DamageError: a timestamp that does not grow
// or is negative, an offset that falls, lies below the base or beyond lastOffset (the log's last offset, base-1 if it
// is empty, math.MaxInt64 if unknown), zero slots or a partial entry behind the entries (Padding: entries may be
// missing, so the largest timestamp of the segment is not known), anything else there, or a file that became shorter.
// Other errors are the file system's, fs.ErrNotExist included.
func (x *Index) Check(lastOffset int64) error {
	bad := func(slot int, format string, args ...any) error {
		return &index.DamageError{File: x.t.Name(), Slot: slot, Reason: fmt.Sprintf(format, args...)}
	}
	var found error
	last, any := Entry{}, false
	err := x.t.Chunks(func(slot int, b []byte) bool {
		for ; found == nil && len(b) > 0; b, slot = b[EntrySize:], slot+1 {
			e := x.decode(b)
			switch {
			case e.Timestamp < 0:
				found = bad(slot, "negative timestamp %d", e.Timestamp)
			case e.Offset < x.base:
				found = bad(slot, "offset %d below the base offset %d", e.Offset, x.base)
			case any && e.Timestamp <= last.Timestamp:
				found = bad(slot, "timestamp %d after %d", e.Timestamp, last.Timestamp)
			case any && e.Offset < last.Offset:
				found = bad(slot, "offset %d after %d", e.Offset, last.Offset)
			case e.Offset > lastOffset:
				found = bad(slot, "offset %d in a log that ends with %d", e.Offset, lastOffset)
			}
			last, any = e, true
		}
		return found == nil
	})
	if err != nil {
		return x.damage(err)
	}
	if found != nil {
		return found
	}
	b, err := x.t.Behind()
	if err != nil {
		return x.damage(err)
	}
	if reason := b.String(); reason != "" {
		return &index.DamageError{File: x.t.Name(), Slot: b.First, Reason: reason, Padding: !b.Garbage}
	}
	return nil
}
