package producerstate

import (
	"errors"
	"fmt"
)

// What a refused append is. Nothing was changed.
var (
	// ErrOutOfOrder: a sequence number leaves a gap, or repeats records that are too old to be recognised.
	ErrOutOfOrder = errors.New("producerstate: sequence out of order")
	// ErrFenced: the epoch of the producer, or of the transaction coordinator, is stale.
	ErrFenced = errors.New("producerstate: stale epoch")
	// ErrTxnState: the producer's transaction does not allow the batch.
	ErrTxnState = errors.New("producerstate: transaction state does not allow the batch")
)

// SequenceError is ErrOutOfOrder (Kafka's OUT_OF_ORDER_SEQUENCE_NUMBER).
type SequenceError struct {
	ProducerID int64
	Epoch      int16
	Offset     int64 // where the batch would have gone
	Got, Want  int32 // first sequence of the batch, and the one that would continue
	Reason     string
}

func (e *SequenceError) Error() string {
	return fmt.Sprintf("producer %d, epoch %d: a batch for offset %d starts at sequence %d, expected %d: %s", e.ProducerID, e.Epoch, e.Offset, e.Got, e.Want, e.Reason)
}

// Is makes errors.Is(err, ErrOutOfOrder) true.
func (e *SequenceError) Is(target error) bool { return target == ErrOutOfOrder }

// EpochError is ErrFenced: a producer of a newer epoch has taken over (Kafka's INVALID_PRODUCER_EPOCH).
type EpochError struct {
	ProducerID int64
	Offset     int64 // where the batch would have gone
	Got, Want  int16 // epoch of the batch, and the smallest that is allowed
	Marker     bool  // the batch ends a transaction
}

func (e *EpochError) Error() string {
	what := "batch"
	if e.Marker {
		what = "transaction marker"
	}
	return fmt.Sprintf("producer %d: a %s for offset %d has epoch %d, needs at least %d", e.ProducerID, what, e.Offset, e.Got, e.Want)
}

// Is makes errors.Is(err, ErrFenced) true.
func (e *EpochError) Is(target error) bool { return target == ErrFenced }

// CoordinatorError is ErrFenced: the marker comes from a coordinator that was replaced (TRANSACTION_COORDINATOR_FENCED).
type CoordinatorError struct {
	ProducerID int64
	Offset     int64 // where the marker would have gone
	Got, Want  int32 // coordinator epoch of the marker, and the smallest that is allowed
}

func (e *CoordinatorError) Error() string {
	return fmt.Sprintf("producer %d: the transaction marker for offset %d comes from coordinator epoch %d, the last one from %d", e.ProducerID, e.Offset, e.Got, e.Want)
}

// Is makes errors.Is(err, ErrFenced) true.
func (e *CoordinatorError) Is(target error) bool { return target == ErrFenced }

// TxnStateError is ErrTxnState (Kafka's INVALID_TXN_STATE).
type TxnStateError struct {
	ProducerID     int64
	Epoch          int16
	Offset         int64 // where the batch would have gone
	TxnFirstOffset int64 // of the open transaction; -1 none
	Reason         string
}

func (e *TxnStateError) Error() string {
	return fmt.Sprintf("producer %d, epoch %d: the batch for offset %d is refused: %s", e.ProducerID, e.Epoch, e.Offset, e.Reason)
}

// Is makes errors.Is(err, ErrTxnState) true.
func (e *TxnStateError) Is(target error) bool { return target == ErrTxnState }

// Note is what a leader would have refused, met in a log that already has it. The batch counted nevertheless, except an
// unreadable marker, which leaves its transaction open. Err is one of the errors of this package, or of record.
type Note struct {
	ProducerID int64
	Offset     int64 // base offset of the batch
	Err        error
}
