package log

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of opening.
var (
	// ErrLocked: another process (a broker, say) or another opener in this one owns the log root.
	ErrLocked = errors.New("log: directory in use")
	// ErrReadOnly: the directory cannot be written, or the log was opened by OpenReader.
	ErrReadOnly = errors.New("log: read only")
	// ErrNotLog: the path is empty, a file, or not the kind of folder (log root or partition) that was asked for.
	ErrNotLog = errors.New("log: not a log directory")
	// ErrIdentity: the root belongs to another node or cluster; an *IdentityError says to which.
	ErrIdentity = errors.New("log: root of another node or cluster")
	// ErrCorrupt: bytes that were known durable cannot be read; a *CorruptError says which. Nothing was cut.
	ErrCorrupt = errors.New("log: damaged below the recovery point")
)

// Errors of writing. An error from an append that is not an *UnconfirmedError means the records are not in the log.
var (
	// ErrClosed: the log or its Dir was closed.
	ErrClosed = errors.New("log: closed")
	// ErrFailed: a write or sync failed earlier in a way that leaves the disk's content unknown. Reopen the log.
	ErrFailed = errors.New("log: stopped after a failed write or sync; reopen")
	// ErrNoSpace: the device is full. Nothing was appended; the log works again once there is room.
	ErrNoSpace = errors.New("log: no space left on device")
	// ErrFull: Config.MaxBytes is reached and WhenFull is Reject.
	ErrFull = errors.New("log: size limit reached")
	// ErrTooLarge: a batch above max.message.bytes, an append above segment.bytes (a follower's of more than one batch), or a
	// batch that unpacks to more than readers allow (WithLimits).
	ErrTooLarge = errors.New("log: batch or append too large")
	// ErrInvalidRecord: the leader's checks refuse a record or batch.
	ErrInvalidRecord = errors.New("log: invalid record")
	// ErrInvalidTimestamp: a record timestamp outside message.timestamp.before/after.max.ms.
	ErrInvalidTimestamp = errors.New("log: timestamp out of bounds")
	// ErrUnexpectedOffset: AppendOptions.ExpectedOffset is not the log end, or a follower's batches start below it.
	ErrUnexpectedOffset = errors.New("log: end offset is not the expected one")
	// ErrOffsetsOutOfOrder: a follower's batches do not ascend.
	ErrOffsetsOutOfOrder = errors.New("log: offsets out of order")
	// ErrFenced: a leader, producer or coordinator epoch is stale.
	ErrFenced = errors.New("log: stale leader, producer or coordinator epoch")
	// ErrOutOfOrder: a producer's sequence number leaves a gap, or repeats records that are too old to be recognised.
	ErrOutOfOrder = errors.New("log: producer sequence out of order")
	// ErrTxnState: the state of the producer's transaction does not allow the call.
	ErrTxnState = errors.New("log: transaction state does not allow this")
	// ErrVisibility: SetHighWatermark of a log whose Config.Visibility is not External.
	ErrVisibility = errors.New("log: the high watermark is not set from outside")
	// ErrTopicID: the partition has another topic id, or the id given is zero.
	ErrTopicID = errors.New("log: not the topic id of this partition")
	// ErrNoPartition: the root has no such partition.
	ErrNoPartition = errors.New("log: no such partition")
	// ErrPartitionExists: the partition is there already.
	ErrPartitionExists = errors.New("log: partition exists already")
	// ErrMoving: the partition is being moved, or a move of it was cut short (SettleMoves).
	ErrMoving = errors.New("log: partition is being moved")
	// ErrPolicy: the call is refused by cleanup.policy (deleting records of a log that is only compacted).
	ErrPolicy = errors.New("log: cleanup policy does not allow this")
)

// Errors of reading.
var (
	// ErrOffsetOutOfRange is what an *OffsetRangeError is.
	ErrOffsetOutOfRange = errors.New("log: offset out of range")
	// ErrNotFound: no record has the time asked for.
	ErrNotFound = errors.New("log: no such record")
	// ErrTruncated: what was awaited, appended or fetched was truncated away meanwhile.
	ErrTruncated = errors.New("log: truncated meanwhile")
)

// UnconfirmedError is the one append error that means "in the log": the bytes are at Base..Last, but ctx ended or the
// sync failed before they were confirmed. Do not append again; Wait(ctx, MarkDurable, Last+1) finishes the job.
type UnconfirmedError struct {
	Base, Last int64
	Err        error // ctx's error, or one that is ErrFailed

	cuts uint64 // count of truncations when the records were written
}

func (e *UnconfirmedError) Error() string {
	return fmt.Sprintf("log: offsets %d to %d are written but not confirmed: %v", e.Base, e.Last, e.Err)
}

// Unwrap gives the reason.
func (e *UnconfirmedError) Unwrap() error { return e.Err }

// OffsetRangeError: a read or truncation at an offset the log does not have.
type OffsetRangeError struct{ Offset, LogStart, LogEnd int64 }

func (e *OffsetRangeError) Error() string {
	if e.LogStart == e.LogEnd {
		return fmt.Sprintf("log: offset %d out of range: the log is empty and its next offset is %d", e.Offset, e.LogEnd)
	}
	return fmt.Sprintf("log: offset %d out of range: the log holds offsets %d up to %d", e.Offset, e.LogStart, e.LogEnd-1)
}

// Is makes errors.Is(err, ErrOffsetOutOfRange) true.
func (e *OffsetRangeError) Is(target error) bool { return target == ErrOffsetOutOfRange }

// CorruptError names bytes that cannot be read and the offsets that still can.
type CorruptError struct {
	File     string   // path below the log root
	Position int64    // byte in File where the damage starts; -1 unknown
	Offset   int64    // first offset that cannot be read; -1 unknown
	Intact   [2]int64 // the log is readable up to (excluding) Intact[0] and again from Intact[1]; -1 unknown, or nowhere behind
	Err      error
}

func (e *CorruptError) Error() string {
	at, known := "", []string(nil)
	if e.Position >= 0 {
		at = fmt.Sprintf(" at byte %d", e.Position)
	}
	if e.Offset >= 0 {
		known = append(known, fmt.Sprintf("offset %d", e.Offset))
	}
	switch {
	case e.Intact[1] >= 0:
		known = append(known, fmt.Sprintf("readable again from offset %d", e.Intact[1]))
	case e.Intact[0] >= 0:
		known = append(known, "nothing is readable behind it")
	}
	if len(known) > 0 {
		at += " (" + strings.Join(known, "; ") + ")"
	}
	return fmt.Sprintf("log: %s is damaged%s: %v", e.File, at, e.Err)
}

// Unwrap gives the reader's own error.
func (e *CorruptError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }
