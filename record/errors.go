package record

import (
	"errors"
	"fmt"
)

// Errors of cutting, checking and iterating batches.
var (
	// ErrIncomplete: the bytes end before the batch does. The normal end of a region or of a fetched set.
	ErrIncomplete = errors.New("record: incomplete batch")
	// ErrCorrupt: the bytes are not what a writer made. The error is a *CorruptError.
	ErrCorrupt = errors.New("record: corrupt batch")
	// ErrTooLarge: a batch, or what it decompresses to, is larger than the caller's limit or than the format allows.
	ErrTooLarge = errors.New("record: batch too large")
	// ErrCodec: attribute bits 0-2 name no codec, or a name is no codec's.
	ErrCodec = errors.New("record: unknown codec")
)

// Errors of Check, Decoder.Validate and Builder, by Kafka's error that each stands for.
var (
	// ErrInvalidRecord: INVALID_RECORD, a batch or record breaks a rule of appending. The error is an
	// *InvalidRecordError or an *InvalidRecordsError.
	ErrInvalidRecord = errors.New("record: invalid record")
	// ErrInvalidTimestamp: INVALID_TIMESTAMP, a record's timestamp is outside the topic's bounds. It wins where both
	// kinds occur in one batch.
	ErrInvalidTimestamp = errors.New("record: invalid timestamp")
	// ErrOffsetsOutOfOrder: batches whose offsets are taken as given do not follow each other.
	ErrOffsetsOutOfOrder = errors.New("record: offsets out of order")
)

// CorruptError says which batch is damaged and how. errors.Is(err, ErrCorrupt) is true for it.
type CorruptError struct {
	Pos    int    // byte in the input where the batch starts; 0 from methods of one Batch
	Field  string // "length", "magic", "crc", "count", "record 3"...
	Reason string
}

func (e *CorruptError) Error() string {
	if e.Pos == 0 { // the first one, or the only one there is
		return fmt.Sprintf("record: corrupt batch: %s: %s", e.Field, e.Reason)
	}
	return fmt.Sprintf("record: corrupt batch at byte %d: %s: %s", e.Pos, e.Field, e.Reason)
}

// Is makes the error match ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// InvalidRecordError is one broken rule of appending. It matches ErrInvalidTimestamp if Timestamp is set, otherwise
// ErrInvalidRecord.
type InvalidRecordError struct {
	Index     int // of the record in the appended set; -1 if the batch as a whole is meant
	Reason    string
	Timestamp bool
}

func (e *InvalidRecordError) Error() string {
	kind := "invalid record"
	if e.Timestamp {
		kind = "invalid timestamp"
	}
	if e.Index < 0 {
		return fmt.Sprintf("record: %s: %s", kind, e.Reason)
	}
	return fmt.Sprintf("record: %s %d: %s", kind, e.Index, e.Reason)
}

// Is makes the error match the sentinel of its kind.
func (e *InvalidRecordError) Is(target error) bool {
	if e.Timestamp {
		return target == ErrInvalidTimestamp
	}
	return target == ErrInvalidRecord
}

// maxRecordErrors bounds the list of an InvalidRecordsError: a batch of millions of bad records is one error, not
// millions of allocations.
const maxRecordErrors = 1000

// InvalidRecordsError collects the records of one append that broke a rule. It matches ErrInvalidTimestamp if any of
// them is a timestamp's fault, otherwise ErrInvalidRecord, and never both.
type InvalidRecordsError struct {
	Records   []*InvalidRecordError // the first 1000
	Total     int                   // how many there were
	Timestamp bool                  // at least one is a timestamp's fault
}

func (e *InvalidRecordsError) Error() string {
	switch {
	case len(e.Records) == 0: // made by someone else
		return fmt.Sprintf("%d invalid records", e.Total)
	case e.Total == 1:
		return e.Records[0].Error()
	}
	return fmt.Sprintf("%d invalid records, the first: %v", e.Total, e.Records[0])
}

// Is makes the error match the sentinel of the kind that wins.
func (e *InvalidRecordsError) Is(target error) bool {
	if e.Timestamp {
		return target == ErrInvalidTimestamp
	}
	return target == ErrInvalidRecord
}

// As gives the first record's error to errors.As.
func (e *InvalidRecordsError) As(target any) bool {
	t, ok := target.(**InvalidRecordError)
	if ok = ok && len(e.Records) > 0; ok {
		*t = e.Records[0]
	}
	return ok
}

func (e *InvalidRecordsError) add(index int, timestamp bool, reason string) {
	e.Total++
	e.Timestamp = e.Timestamp || timestamp
	if len(e.Records) < maxRecordErrors {
		e.Records = append(e.Records, &InvalidRecordError{Index: index, Reason: reason, Timestamp: timestamp})
	}
}

func invalidBatch(format string, args ...any) error {
	return &InvalidRecordError{Index: -1, Reason: fmt.Sprintf(format, args...)}
}
