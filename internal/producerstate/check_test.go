package producerstate

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

func TestSequencesAreContinuousAndEpochsNeverFall(t *testing.T) {
	// Scenario: P001, U081, U082
	l := newLog(t)
	l.client(spec{id: pid, epoch: 1, seq: 0, at: 0})
	l.client(spec{id: pid, epoch: 1, seq: 1, at: 1})
	l.refused(spec{id: pid, epoch: 1, seq: 5, at: 2}, ErrOutOfOrder)
	l.refused(spec{id: pid, epoch: 1, seq: 0, n: 2, at: 2}, ErrOutOfOrder) // overlaps, but is no batch there was
	l.client(spec{id: pid, epoch: 2, seq: 0, at: 2})
	l.refused(spec{id: pid, epoch: 1, seq: 0, at: 3}, ErrFenced)

	_, err := l.Check(spec{id: pid, epoch: 2, seq: 2, at: 3}.bytes(t), Options{})
	var sequence *SequenceError
	require.ErrorAs(t, err, &sequence)
	require.Equal(t, SequenceError{ProducerID: pid, Epoch: 2, Offset: 3, Got: 2, Want: 1, Reason: "the last one was 0"}, *sequence)
	_, err = l.Check(spec{id: pid, epoch: 1, seq: 2, at: 3}.bytes(t), Options{})
	var epoch *EpochError
	require.ErrorAs(t, err, &epoch)
	require.Equal(t, EpochError{ProducerID: pid, Offset: 3, Got: 1, Want: 2}, *epoch)
	l.refused(spec{id: pid, epoch: 3, seq: 1, at: 3}, ErrOutOfOrder) // a new epoch begins at 0
	require.Equal(t, Entry{ProducerID: pid, Epoch: 2, LastOffset: 2, Timestamp: 1000, CoordinatorEpoch: -1, TxnFirstOffset: -1}, l.entry(pid), "what was refused changed nothing")
}

func TestSequencesWrapAroundToZero(t *testing.T) {
	l := newLog(t)
	l.client(spec{id: pid, seq: math.MaxInt32 - 1, n: 2, at: 0}) // unknown: any sequence
	l.refused(spec{id: pid, seq: 1, at: 2}, ErrOutOfOrder)
	l.client(spec{id: pid, seq: 0, at: 2})
	l.client(spec{id: 2, seq: math.MaxInt32, n: 3, at: 3}) // wraps inside of the batch
	require.Equal(t, int32(1), l.entry(2).LastSequence)
	require.Equal(t, Duplicate{FirstOffset: 3, LastOffset: 5, Timestamp: 1000}, l.repeats(spec{id: 2, seq: math.MaxInt32, n: 3, at: 6}))
	l.client(spec{id: 2, seq: 2, at: 6})
}

func TestOfTheLastFiveBatchesARepeatedOneIsADuplicate(t *testing.T) {
	// Scenario: U083
	l := newLog(t)
	for i := range int64(7) {
		l.client(spec{id: pid, seq: int32(3 * i), n: 3, at: 3 * i, time: 100 + i})
	}
	for i := int64(2); i < 7; i++ {
		require.Equal(t, Duplicate{FirstOffset: 3 * i, LastOffset: 3*i + 2, Timestamp: 100 + i}, l.repeats(spec{id: pid, seq: int32(3 * i), n: 3, at: 21}))
	}
	l.refused(spec{id: pid, seq: 3, n: 3, at: 21}, ErrOutOfOrder)  // older
	l.refused(spec{id: pid, seq: 18, n: 2, at: 21}, ErrOutOfOrder) // part of one
	l.refused(spec{id: pid, seq: 17, n: 4, at: 21}, ErrOutOfOrder) // more than one
	l.client(spec{id: pid, epoch: 1, seq: 0, n: 3, at: 21})
	l.refused(spec{id: pid, epoch: 0, seq: 18, n: 3, at: 24}, ErrFenced) // duplicates are of the same epoch
	l.client(spec{id: pid, epoch: 1, seq: 3, at: 24})
	require.Equal(t, Duplicate{24, 24, 1000}, l.repeats(spec{id: pid, epoch: 1, seq: 3, at: 25}))
}

func TestADuplicateInsideOfASetStopsAllOfIt(t *testing.T) {
	l := newLog(t)
	l.client(spec{id: pid, seq: 0, at: 0})
	raw := append(spec{id: 2, seq: 0, at: 1}.bytes(t), spec{id: pid, seq: 0, at: 2}.bytes(t)...)
	p, err := l.try(Options{}, raw)
	require.NoError(t, err)
	_, ok := p.Duplicate()
	require.True(t, ok)
	_, known := l.Producer(2)
	require.False(t, known)
}

func TestUnknownProducersMayStartAnywhere(t *testing.T) {
	// Scenario: U086, P016, P023
	l := newLog(t)
	_, err := l.try(Options{Verify: true}, spec{id: pid, epoch: 1, seq: 3, at: 0}.bytes(t))
	require.NoError(t, err)
	require.Equal(t, 1, l.Expire(1000+defaultExpireAfter))
	require.Zero(t, l.Len())
	l.client(spec{id: pid, epoch: 1, seq: 17, at: 1})
	require.Equal(t, int64(2), l.End())
	_, err = l.try(Options{}, append(spec{id: 2, seq: 3, at: 2}.bytes(t), spec{id: 2, seq: 8, at: 3}.bytes(t)...))
	require.NoError(t, err, "within the append that makes it known, too")
}

func TestFollowersAndRecoveryRefuseNothing(t *testing.T) {
	// Scenario: U084, U085
	l := newLog(t)
	var raw []byte
	for at := range int64(4) {
		raw = append(raw, spec{id: pid + at%2, seq: 0, at: at}.bytes(t)...)
	}
	p, err := l.try(Options{Origin: record.Replication}, raw)
	require.NoError(t, err)
	require.Empty(t, p.Notes())
	require.Equal(t, int64(4), l.End())

	l.Replay(view(t, spec{id: pid, epoch: 5, seq: 9, at: 4, txn: true}.bytes(t)))
	for _, row := range []struct {
		raw []byte
		is  error
	}{
		{spec{id: pid, epoch: 3, seq: 100, at: 5, txn: true}.bytes(t), ErrFenced},
		{spec{id: pid, epoch: 3, seq: 300, at: 6}.bytes(t), ErrTxnState},
		{end{id: pid, epoch: 3, coordinator: 9, at: 7}.bytes(), nil},
		{end{id: pid, epoch: 3, coordinator: 8, at: 8}.bytes(), ErrFenced},
		{end{id: pid, epoch: 2, coordinator: 8, at: 9}.bytes(), ErrFenced},
	} {
		b := view(t, row.raw)
		p := l.Replay(b)
		require.Equal(t, b.NextOffset(), l.End())
		if row.is == nil {
			require.Empty(t, p.Notes())
			require.Len(t, p.Completed(), 1)
			continue
		}
		require.Len(t, p.Notes(), 1)
		require.ErrorIs(t, p.Notes()[0].Err, row.is)
		require.Equal(t, b.BaseOffset(), p.Notes()[0].Offset)
	}
	require.Equal(t, int16(2), l.entry(pid).Epoch, "what the log holds counts")
	require.Equal(t, int32(8), l.entry(pid).CoordinatorEpoch)
}

func TestABatchBelowTheEndIsNotReplayedTwice(t *testing.T) {
	l := newLog(t)
	b := view(t, spec{id: pid, seq: 0, n: 2, at: 0, txn: true}.bytes(t))
	l.Replay(b)
	l.Replay(b)
	require.Equal(t, 1, l.Batches(pid))
}

func TestAfterAMarkerOfANewEpochTheSequenceBeginsAtZero(t *testing.T) {
	// Scenario: P002
	l := newLog(t)
	l.marker(end{id: pid, epoch: 2, coordinator: 1, at: 0})
	require.Equal(t, Entry{ProducerID: pid, Epoch: 2, LastSequence: -1, LastOffset: -1, Timestamp: 1000, CoordinatorEpoch: 1, TxnFirstOffset: -1}, l.entry(pid))
	l.refused(spec{id: pid, epoch: 0, seq: 0, at: 1}, ErrFenced)
	l.refused(spec{id: pid, epoch: 2, seq: 17, at: 1}, ErrOutOfOrder)
	l.client(spec{id: pid, epoch: 2, seq: 0, at: 1})
}

func TestNothingChangesBeforeCommit(t *testing.T) {
	// Scenario: P008
	l := newLog(t)
	l.client(spec{id: pid, seq: 0, at: 0})
	raw := append(spec{id: pid, seq: 1, n: 4, at: 1}.bytes(t), spec{id: pid, seq: 5, n: 6, at: 5, txn: true}.bytes(t)...)
	p, err := l.Check(raw, Options{})
	require.NoError(t, err)
	require.Equal(t, Entry{ProducerID: pid, LastOffset: 0, Timestamp: 1000, CoordinatorEpoch: -1, TxnFirstOffset: -1}, l.entry(pid))
	require.Equal(t, int64(1), l.End())
	require.Empty(t, l.Open())
	l.Commit(p)
	l.Commit(p)
	l.Commit(nil)
	require.Equal(t, Entry{ProducerID: pid, LastSequence: 10, LastOffset: 10, OffsetDelta: 5, Timestamp: 1000, CoordinatorEpoch: -1, TxnFirstOffset: 5}, l.entry(pid))
	require.Equal(t, 3, l.Batches(pid))
	require.Equal(t, int64(11), l.End())
}

func TestACoordinatorsBatchesNeedNoSequence(t *testing.T) {
	// Scenario: P026
	l := newLog(t)
	for at := range int64(2) {
		_, err := l.try(Options{Origin: record.Coordinator}, spec{id: pid, epoch: 1, seq: -1, at: at, txn: true}.bytes(t))
		require.NoError(t, err)
	}
	require.Equal(t, int32(-1), l.entry(pid).LastSequence)
	_, err := l.try(Options{Origin: record.Coordinator}, spec{id: pid, epoch: 0, seq: -1, at: 2, txn: true}.bytes(t))
	require.ErrorIs(t, err, ErrFenced)
	_, err = l.try(Options{Origin: record.Coordinator}, spec{id: pid, epoch: 1, seq: -1, at: 2}.bytes(t))
	require.ErrorIs(t, err, ErrTxnState)
}

func TestPlainBatchesOnlyMoveTheEnd(t *testing.T) {
	// Scenario: U105
	l := newLog(t)
	l.client(spec{id: -1, at: 0, n: 3})
	require.Equal(t, int64(3), l.End())
	require.Zero(t, l.Len())
	require.Equal(t, int64(-1), l.unstable(0))
	require.Equal(t, int64(2), l.Unstable().LastStable(2, 0))
}

func TestAnEmptiedBatchStillSaysTheLastSequence(t *testing.T) {
	// Scenario: U089
	b := record.NewBuilder(record.BuilderOptions{})
	require.NoError(t, b.Rebuild(view(t, spec{id: pid, seq: 0, n: 2, at: 0}.bytes(t)), record.NoTimestamp))
	empty, err := b.Finish()
	require.NoError(t, err)
	require.Zero(t, empty.Count())
	l := newLog(t)
	l.Replay(empty)
	require.Equal(t, int32(1), l.entry(pid).LastSequence)
	require.Equal(t, int64(2), l.End())
}

func TestAMarkerThatCannotBeReadEndsNothing(t *testing.T) {
	l := newLog(t)
	l.client(spec{id: pid, seq: 0, at: 0, txn: true})
	for name, spoil := range map[string]func(raw []byte) []byte{
		"an unknown type":     func(raw []byte) []byte { raw[69] = 9; return raw },
		"a leader change":     func(raw []byte) []byte { raw[69] = 2; return raw },
		"a negative version":  func(raw []byte) []byte { raw[66] = 0x80; return raw },
		"a cut record":        func(raw []byte) []byte { return cut(raw, 70) },
		"an impossible codec": func(raw []byte) []byte { raw[22] |= 7; return raw },
	} {
		raw := spoil(end{id: pid, epoch: 0, coordinator: 1, at: 1}.bytes())
		_, err := l.Check(raw, Options{Origin: record.Coordinator})
		require.Error(t, err, name)
		p, err := l.Check(raw, Options{Origin: record.Replication})
		require.NoError(t, err, name)
		require.Len(t, p.Notes(), 1, name)
		require.Empty(t, p.Completed(), name)
	}
	require.Len(t, l.Open(), 1)
}

func cut(raw []byte, size int) []byte {
	binary.BigEndian.PutUint32(raw[8:], uint32(size-12))
	return raw[:size]
}

func TestBytesThatAreNoBatchAreAnError(t *testing.T) {
	l := newLog(t)
	_, err := l.Check(spec{id: pid, seq: 0, at: 0}.bytes(t)[:40], Options{})
	require.ErrorIs(t, err, record.ErrIncomplete)
	_, err = l.Check(make([]byte, 100), Options{Origin: record.Replication})
	require.ErrorIs(t, err, record.ErrCorrupt)
	require.Zero(t, l.Len())
}

func TestErrorsAreSentencesAndOneKindOnly(t *testing.T) {
	kinds := []error{ErrOutOfOrder, ErrFenced, ErrTxnState}
	for _, row := range []struct {
		err  error
		is   error
		text string
	}{
		{&SequenceError{1, 2, 3, 4, 5, "why"}, ErrOutOfOrder, "producer 1, epoch 2: a batch for offset 3 starts at sequence 4, expected 5: why"},
		{&EpochError{1, 2, 3, 4, true}, ErrFenced, "producer 1: a transaction marker for offset 2 has epoch 3, needs at least 4"},
		{&EpochError{1, 2, 3, 4, false}, ErrFenced, "producer 1: a batch for offset 2 has epoch 3, needs at least 4"},
		{&CoordinatorError{1, 2, 3, 4}, ErrFenced, "producer 1: the transaction marker for offset 2 comes from coordinator epoch 3, the last one from 4"},
		{&TxnStateError{1, 2, 3, 4, "why"}, ErrTxnState, "producer 1, epoch 2: the batch for offset 3 is refused: why"},
	} {
		require.Equal(t, row.text, row.err.Error())
		for _, kind := range kinds {
			require.Equal(t, kind == row.is, errors.Is(row.err, kind))
		}
	}
}
