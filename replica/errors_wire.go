package replica

import (
	"context"
	"errors"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// RemoteError is an error of another node's log, as far as it can be told over the wire: its text, and which of the errors of
// package log, record and context it is (errors.Is).
type RemoteError struct {
	Text  string
	kinds uint32 // bits of wireErrors
}

// Error is the text.
func (e *RemoteError) Error() string { return e.Text }

// Is makes it what it was at the other node.
func (e *RemoteError) Is(target error) bool {
	for i, k := range wireErrors {
		if k == target {
			return e.kinds>>i&1 == 1
		}
	}
	return false
}

// wireErrors are told over the wire by their place here, which therefore stays.
var wireErrors = [...]error{
	log.ErrClosed, log.ErrFailed, log.ErrNoSpace, log.ErrFull, log.ErrTooLarge, log.ErrInvalidRecord, log.ErrInvalidTimestamp,
	log.ErrUnexpectedOffset, log.ErrOffsetsOutOfOrder, log.ErrFenced, log.ErrOutOfOrder, log.ErrTxnState, log.ErrPolicy,
	log.ErrOffsetOutOfRange, log.ErrNotFound, log.ErrTruncated, log.ErrCorrupt, log.ErrReadOnly, record.ErrCorrupt, record.ErrTooLarge,
	record.ErrInvalidRecord, context.Canceled, context.DeadlineExceeded,
}

// maxErrorText bounds the text that goes over the wire.
const maxErrorText = 1 << 10

// farError is an error as another node gets it.
func farError(err error) error {
	if err == nil {
		return nil
	}
	switch err.(type) {
	case *RemoteError, *NotEnoughReplicasError:
		return err
	}
	e := &RemoteError{Text: err.Error()}
	if len(e.Text) > maxErrorText {
		e.Text = e.Text[:maxErrorText]
	}
	for i, k := range wireErrors {
		if errors.Is(err, k) {
			e.kinds |= 1 << i
		}
	}
	return e
}
