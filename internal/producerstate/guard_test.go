package producerstate

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

func TestAGuardServesUntilATransactionalBatchIsAppended(t *testing.T) {
	// Scenario: U120, U122
	l := newLog(t)
	g := l.BeginVerification(pid, 0, 0, false, 1000)
	require.NotZero(t, g)
	_, err := l.try(Options{Verify: true}, spec{id: pid, seq: 0, at: 0}.bytes(t)) // not transactional: none needed
	require.NoError(t, err)
	l.verifying[pid].sequence = 1
	require.Equal(t, g, l.BeginVerification(pid, 0, 1, false, 1000))

	data := spec{id: pid, seq: 1, at: 1, txn: true}.bytes(t)
	_, err = l.try(Options{Verify: true}, data)
	require.ErrorIs(t, err, ErrTxnState)
	_, err = l.try(Options{Verify: true, Guard: Guard{g.id + 1}}, data)
	require.ErrorIs(t, err, ErrTxnState)
	_, err = l.try(Options{Verify: true, Origin: record.Coordinator}, data)
	require.ErrorIs(t, err, ErrTxnState)
	_, err = l.try(Options{Verify: true, Guard: g}, data)
	require.NoError(t, err)
	require.Empty(t, l.verifying)
	require.Zero(t, l.BeginVerification(pid, 0, 2, false, 1000), "the transaction runs")
	require.NotZero(t, l.BeginVerification(pid, 1, 0, false, 1000), "that of another epoch does not")
	delete(l.verifying, pid)
	_, err = l.try(Options{Verify: true}, spec{id: pid, seq: 2, at: 2, txn: true}.bytes(t))
	require.NoError(t, err)
	l.marker(end{id: pid, at: 3})
	again := l.BeginVerification(pid, 0, 3, false, 1000)
	require.NotZero(t, again)
	require.NotEqual(t, g, again)
	_, err = l.try(Options{Verify: true, Guard: g}, spec{id: pid, seq: 3, at: 4, txn: true}.bytes(t))
	require.ErrorIs(t, err, ErrTxnState, "the old one is void")
	_, err = l.try(Options{Verify: true, Origin: record.Replication}, spec{id: pid, seq: 3, at: 4, txn: true}.bytes(t))
	require.NoError(t, err, "followers verify nothing")
}

func TestAMarkerAndAnAppendWithoutVerificationVoidTheGuard(t *testing.T) {
	// Scenario: U121
	l := newLog(t)
	l.BeginVerification(pid, 0, 0, false, 1000)
	l.marker(end{id: pid, at: 0})
	require.Empty(t, l.verifying)
	l.BeginVerification(pid, 0, 0, false, 1000)
	l.client(spec{id: pid, seq: 0, at: 1, txn: true})
	require.Empty(t, l.verifying)
}

func TestTheZeroGuardProvesNothing(t *testing.T) {
	l := newLog(t)
	_, err := l.try(Options{Verify: true}, spec{id: pid, seq: 0, at: 0, txn: true}.bytes(t))
	require.ErrorIs(t, err, ErrTxnState)
	l.BeginVerification(pid, 0, 0, false, 1000)
	_, err = l.try(Options{Verify: true}, spec{id: pid, seq: 0, at: 0, txn: true}.bytes(t))
	require.ErrorIs(t, err, ErrTxnState)
}

func TestAStaleEpochIsNamedBeforeAMissingGuard(t *testing.T) {
	l := newLog(t)
	l.client(spec{id: pid, epoch: 2, seq: 0, at: 0})
	_, err := l.try(Options{Verify: true}, spec{id: pid, epoch: 1, seq: 0, at: 1, txn: true}.bytes(t))
	require.ErrorIs(t, err, ErrFenced)
}

func TestVerificationKeepsTheLowestSequenceOfTheNewestEpoch(t *testing.T) {
	// Scenario: P033
	l := newLog(t)
	g := l.BeginVerification(pid, 0, 3, false, 1000)
	require.Equal(t, g, l.BeginVerification(pid, 0, 2, false, 1000))
	require.Equal(t, g, l.BeginVerification(pid, 0, 5, false, 1000))
	require.Equal(t, int32(2), l.verifying[pid].sequence)
	require.Equal(t, g, l.BeginVerification(pid, 1, 4, false, 1000))
	require.Equal(t, g, l.BeginVerification(pid, 0, 0, false, 1000))
	require.Equal(t, int32(4), l.verifying[pid].sequence)
	require.Equal(t, int16(1), l.verifying[pid].epoch)
	require.NotEqual(t, g, l.BeginVerification(2, 0, 0, false, 1000))

	l.Expire(999 + defaultExpireAfter)
	require.Len(t, l.verifying, 2)
	l.Expire(1000 + defaultExpireAfter)
	require.Empty(t, l.verifying)
}

func TestABatchBehindTheVerifiedSequenceIsOutOfOrder(t *testing.T) {
	// Scenario: P034
	l := newLog(t)
	g := l.BeginVerification(pid, 0, 0, false, 1000)
	for _, o := range []Options{{Verify: true, Guard: g}, {}} {
		_, err := l.try(o, spec{id: pid, seq: 4, at: 0, txn: true}.bytes(t))
		require.ErrorIs(t, err, ErrOutOfOrder)
		require.Len(t, l.verifying, 1)
	}
	_, err := l.try(Options{Verify: true, Guard: g}, spec{id: pid, seq: 0, at: 0, txn: true}.bytes(t))
	require.NoError(t, err)
}

func TestUnderVersionTwoAnUnknownProducerBeginsAtZero(t *testing.T) {
	for _, bumps := range []bool{false, true} {
		l := newLog(t)
		g := l.BeginVerification(pid, 0, 4, bumps, 1000)
		_, err := l.try(Options{Verify: true, Guard: g}, spec{id: pid, seq: 4, at: 0, txn: true}.bytes(t))
		if bumps {
			require.ErrorIs(t, err, ErrOutOfOrder)
		} else {
			require.NoError(t, err)
		}
	}
}

func TestAQuestionWithAStaleEpochLeavesNothingBehind(t *testing.T) {
	l := newLog(t)
	l.client(spec{id: pid, epoch: 2, seq: 0, at: 0})
	require.Zero(t, l.BeginVerification(pid, 1, 0, false, 1000))
	require.Empty(t, l.verifying, "or a batch of the newer epoch would have to begin with the stale one's sequence")
	l.client(spec{id: pid, epoch: 2, seq: 1, at: 1})
}

func TestUnderVersionTwoTheMarkerOfTheTransactionBeforeKeepsTheGuard(t *testing.T) {
	for _, row := range []struct {
		epoch int16
		bumps bool
		kept  bool
	}{{1, true, true}, {0, true, false}, {2, true, false}, {1, false, false}} {
		l := newLog(t)
		l.client(spec{id: pid, epoch: 0, seq: 0, at: 0, txn: true})
		g := l.BeginVerification(pid, 1, 0, row.bumps, 1000)
		l.marker(end{id: pid, epoch: row.epoch, at: 1})
		require.Equal(t, row.kept, len(l.verifying) == 1, "%+v", row)
		_, err := l.try(Options{Verify: true, Guard: g}, spec{id: pid, epoch: 2, seq: 0, at: 2, txn: true}.bytes(t))
		require.Equal(t, row.kept, err == nil, "%+v", row)
	}
}

func TestTheFirstQuestionDecidesOnTheTransactionVersion(t *testing.T) {
	l := newLog(t)
	l.BeginVerification(pid, 0, 0, false, 1000)
	g := l.BeginVerification(pid, 1, 4, true, 1000)
	_, err := l.try(Options{Verify: true, Guard: g}, spec{id: pid, epoch: 1, seq: 4, at: 0, txn: true}.bytes(t))
	require.NoError(t, err)
}
