package index

import (
	"fmt"
)

// Check reads the whole index and says what is wrong with it, as a *DamageError: an offset or position that does not
// grow or is negative, a position at or beyond logSize (bytes of the log; math.MaxInt64 if unknown), zero slots or a
// partial entry behind the entries (Padding), anything else there, or a file that became shorter. Other errors are the
// file system's, fs.ErrNotExist included. Whether each position is a batch's is the caller's to see, beside the log.
func (x *Index) Check(logSize int64) error {
	bad := func(slot int, format string, args ...any) error {
		return &DamageError{File: x.t.Name(), Slot: slot, Reason: fmt.Sprintf(format, args...)}
	}
	var found error
	last, any := Entry{}, false
	err := x.t.Chunks(func(slot int, b []byte) bool {
		for ; found == nil && len(b) > 0; b, slot = b[EntrySize:], slot+1 {
			e := x.decode(b)
			switch {
			case e.Offset < x.base:
				found = bad(slot, "offset %d below the base offset %d", e.Offset, x.base)
			case e.Position < 0:
				found = bad(slot, "negative position %d", e.Position)
			case any && e.Offset <= last.Offset:
				found = bad(slot, "offset %d after %d", e.Offset, last.Offset)
			case any && e.Position <= last.Position:
				found = bad(slot, "position %d after %d", e.Position, last.Position)
			case e.Position >= logSize:
				found = bad(slot, "position %d in a log of %d bytes", e.Position, logSize)
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
	return x.checkEnd()
}

// checkEnd looks behind the entries.
func (x *Index) checkEnd() error {
	b, err := x.t.Behind()
	if err != nil {
		return x.damage(err)
	}
	if reason := b.String(); reason != "" {
		return &DamageError{File: x.t.Name(), Slot: b.First, Reason: reason, Padding: !b.Garbage}
	}
	return nil
}
