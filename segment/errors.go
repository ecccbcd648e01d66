package segment

import (
	"errors"
	"fmt"
	"io/fs"
)

var (
	// ErrNotFound: no batch of this segment holds the offset or a later one, or no record is that young.
	ErrNotFound = errors.New("segment: offset not here")
	// ErrBroken: a failed write could not be undone, or a sync failed. The segment takes no more writes and confirms
	// no more syncs until it is opened again; reading goes on.
	ErrBroken = errors.New("segment: stopped after a failed write or sync")
	// ErrChanged: the segment was truncated under the reader. Resolve the offset again.
	ErrChanged = errors.New("segment: truncated under the reader")
	// ErrCorrupt is what a *CorruptError is.
	ErrCorrupt = errors.New("segment: corrupt")
	// ErrOverflow is what an *OverflowError is.
	ErrOverflow = errors.New("segment: offset or size not representable")
	// ErrSealed: the segment was sealed; only Truncate makes it writable again.
	ErrSealed = errors.New("segment: sealed")
	// ErrReadOnly: the segment was opened with Options.ReadOnly.
	ErrReadOnly = errors.New("segment: read only")
	// ErrClosed: the segment was closed, or its last reference is gone.
	ErrClosed = fmt.Errorf("segment: %w", fs.ErrClosed)
)

// CorruptError says where a segment stops making sense: the bytes from Position on are not the batch that should
// begin there. Everything before Position is intact, that is all offsets below Offset.
type CorruptError struct {
	File     string   // path of the .log file below the file system's root
	Position int64    // first byte of the bad batch; -1 if unknown
	Offset   int64    // first offset that cannot be read; -1 if unknown
	Reason   string   // what is wrong with the bytes
	Behind   [2]int64 // offsets [first, end) of whole batches found behind the bad bytes; first = end if none or not looked for
	Err      error    // cause, may be nil; a *record.CorruptError or an I/O error
}

func (e *CorruptError) Error() string {
	s := e.File + ": corrupt"
	if e.Position >= 0 {
		s += fmt.Sprintf(" at byte %d", e.Position)
	}
	if e.Offset >= 0 {
		s += fmt.Sprintf(", offset %d", e.Offset)
	}
	s += ": " + e.Reason
	if e.Behind[0] != e.Behind[1] {
		s += fmt.Sprintf(" (offsets %d to %d behind it are intact)", e.Behind[0], e.Behind[1]-1)
	}
	return s
}

func (e *CorruptError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// OverflowError: a batch whose last offset is more than 2^31-1 above the segment's base, or a segment that would
// outgrow 2^31-1 bytes. On append: roll first. In a file: [Split] the segment.
type OverflowError struct {
	File   string
	Base   int64 // of the segment
	Offset int64 // last offset of the batch that does not fit; or the base again when it is the size that does not fit
	Bytes  int64 // size the segment would get; 0 when it is the offset that does not fit
}

func (e *OverflowError) Error() string {
	if e.Bytes > 0 {
		return fmt.Sprintf("%s: %d bytes are more than a segment can hold", e.File, e.Bytes)
	}
	return fmt.Sprintf("%s: offset %d is not representable from base %d", e.File, e.Offset, e.Base)
}

// Is makes errors.Is(err, ErrOverflow) true.
func (e *OverflowError) Is(target error) bool { return target == ErrOverflow }

// OrderError: bytes given to Append do not continue the segment.
type OrderError struct {
	File         string
	Offset, Want int64 // base offset given, and the smallest one that would do
}

func (e *OrderError) Error() string {
	return fmt.Sprintf("%s: batch at offset %d where %d or more must follow", e.File, e.Offset, e.Want)
}
