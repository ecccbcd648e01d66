package compaction

import (
	"errors"
	"fmt"
)

var (
	// ErrUncleanable is what an *UncleanableError is.
	ErrUncleanable = errors.New("compaction: unreadable data in the range")
	// ErrMapTooSmall: MapBytes have no room for a single key. Nothing was cleaned.
	ErrMapTooSmall = errors.New("compaction: the key map has no room for a key")
	// ErrUnsettled: Swap failed where it could be neither undone nor finished. The log must stop and be opened anew:
	// Settle then finishes or undoes it. Any other error of Swap means that nothing has changed.
	ErrUnsettled = errors.New("compaction: swap neither done nor undone")
)

// UncleanableError says where a log cannot be read. What lies in front of that segment may have been cleaned; it and
// all behind it were not touched. The same run fails the same way until the segment is repaired, truncated or deleted.
type UncleanableError struct {
	File     string // path of the .log below the file system's root
	Position int64  // first byte of the batch; -1 unknown
	Offset   int64  // base offset of the batch, or the offset that should be there; -1 unknown
	Reason   string
	Err      error // cause: a *segment.CorruptError, a *record.CorruptError, record.ErrTooLarge
}

func (e *UncleanableError) Error() string {
	return fmt.Sprintf("%s: compaction stops at byte %d, offset %d: %s", e.File, e.Position, e.Offset, e.Reason)
}

func (e *UncleanableError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrUncleanable) true.
func (e *UncleanableError) Is(target error) bool { return target == ErrUncleanable }
