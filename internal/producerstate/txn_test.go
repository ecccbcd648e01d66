package producerstate

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

func TestATransactionBeginsWithItsFirstBatchAndEndsWithItsMarker(t *testing.T) {
	// Scenario: P009, P006
	l := newLog(t)
	l.SetEnd(16)
	l.client(spec{id: pid, seq: 0, at: 16, n: 5, txn: true})
	require.Equal(t, int64(16), l.entry(pid).TxnFirstOffset)
	l.client(spec{id: pid, seq: 5, at: 26, n: 5, txn: true})
	require.Equal(t, int64(16), l.entry(pid).TxnFirstOffset)
	p := l.marker(end{id: pid, epoch: 0, at: 40, commit: true, time: 1234})
	require.Equal(t, []Completed{{ProducerID: pid, FirstOffset: 16, LastOffset: 40, LastStable: 41}}, p.Completed())
	require.Equal(t, Entry{ProducerID: pid, LastSequence: 9, LastOffset: 30, OffsetDelta: 4, Timestamp: 1234, TxnFirstOffset: -1}, l.entry(pid))
	require.Equal(t, 2, l.Batches(pid), "an equal epoch keeps them")
	require.Equal(t, int64(41), l.End())
}

func TestAnOpenTransactionAdmitsNoPlainBatch(t *testing.T) {
	// Scenario: P010
	l := newLog(t)
	l.client(spec{id: pid, seq: 0, at: 0, txn: true})
	_, err := l.try(Options{}, spec{id: pid, seq: 1, at: 1}.bytes(t))
	var state *TxnStateError
	require.ErrorAs(t, err, &state)
	require.Equal(t, int64(0), state.TxnFirstOffset)
	require.ErrorIs(t, err, ErrTxnState)
	l.marker(end{id: pid, at: 1})
	l.client(spec{id: pid, seq: 1, at: 2})
}

func TestAnEmptyControlBatchSaysNothing(t *testing.T) {
	// Scenario: P030
	b := record.NewBuilder(record.BuilderOptions{})
	require.NoError(t, b.Rebuild(view(t, end{id: pid, epoch: 7, at: 0}.bytes()), record.NoTimestamp))
	empty, err := b.Finish()
	require.NoError(t, err)
	l := newLog(t)
	p, err := l.try(Options{Origin: record.Coordinator}, empty.Bytes())
	require.NoError(t, err)
	require.Empty(t, p.Completed())
	require.Zero(t, l.Len())
	require.Equal(t, int64(1), l.End())
}

func TestMarkersOfAnOlderEpochAreFenced(t *testing.T) {
	// Scenario: P027, U113
	l := newLog(t)
	l.client(spec{id: pid, epoch: 5, seq: 0, at: 0, txn: true})
	l.marker(end{id: pid, epoch: 5, at: 1})
	l.markerRefused(end{id: pid, epoch: 4, at: 2}, ErrFenced)
	l.marker(end{id: pid, epoch: 6, at: 2})
}

func TestMarkersOfAnOlderCoordinatorAreFenced(t *testing.T) {
	// Scenario: P028, U111, U112
	fsys := folder(t)
	l := newLog(t)
	l.client(spec{id: pid, seq: 0, at: 0, txn: true})
	for at, coordinator := range []int32{1, 1, 2} {
		l.marker(end{id: pid, coordinator: coordinator, at: int64(at + 1)})
	}
	l.markerRefused(end{id: pid, coordinator: 1, at: 4}, ErrFenced)
	_, err := l.Check(end{id: pid, coordinator: 1, at: 4}.bytes(), Options{Origin: record.Coordinator})
	var fenced *CoordinatorError
	require.ErrorAs(t, err, &fenced)
	require.Equal(t, CoordinatorError{ProducerID: pid, Offset: 4, Got: 1, Want: 2}, *fenced)
	l.take(fsys)
	l = newLog(t)
	require.Equal(t, int64(4), l.reload(fsys, 0, 4).From)
	l.markerRefused(end{id: pid, coordinator: 1, at: 4}, ErrFenced)

	l.Replay(view(t, end{id: 2, coordinator: 4, at: 4, commit: true}.bytes())) // an empty transaction, replicated
	l.markerRefused(end{id: 2, coordinator: 3, at: 5}, ErrFenced)
}

func TestUnderVersionTwoAMarkersEpochIsAboveTheDatas(t *testing.T) {
	v2 := Options{Origin: record.Coordinator, TransactionVersion: 2}
	l := newLog(t)
	l.client(spec{id: pid, epoch: 3, seq: 0, at: 0, txn: true})
	_, err := l.try(v2, end{id: pid, epoch: 3, at: 1}.bytes())
	var fenced *EpochError
	require.ErrorAs(t, err, &fenced)
	require.Equal(t, EpochError{ProducerID: pid, Offset: 1, Got: 3, Want: 4, Marker: true}, *fenced)
	_, err = l.try(v2, end{id: pid, epoch: 2, at: 1}.bytes())
	require.ErrorIs(t, err, ErrFenced)
	p, err := l.try(v2, end{id: pid, epoch: 4, at: 1}.bytes())
	require.NoError(t, err)
	require.Len(t, p.Completed(), 1)
	require.Zero(t, l.Batches(pid))
	p, err = l.try(v2, end{id: pid, epoch: 4, at: 2}.bytes()) // the coordinator tries again
	require.NoError(t, err)
	require.Empty(t, p.Completed())
	_, err = l.try(v2, end{id: pid, epoch: 3, at: 3}.bytes())
	require.ErrorIs(t, err, ErrFenced)
	l.refused(spec{id: pid, epoch: 4, seq: 1, at: 3, txn: true}, ErrOutOfOrder)
	l.client(spec{id: pid, epoch: 4, seq: 0, at: 3, txn: true})
	require.Empty(t, l.Replay(view(t, end{id: pid, epoch: 4, at: 4}.bytes())).Notes(), "the log does not say which version was meant")
	_, err = l.try(v2, end{id: 9, epoch: 0, at: 5}.bytes()) // unknown
	require.NoError(t, err)
}

func TestTheFirstUnstableOffset(t *testing.T) {
	// Scenario: U106, U107
	l := newLog(t)
	l.client(spec{id: -1, at: 0, n: 2})
	l.client(spec{id: pid, seq: 0, at: 2, txn: true})
	require.Equal(t, int64(2), l.unstable(0))
	l.client(spec{id: pid, seq: 1, at: 3, txn: true})
	l.client(spec{id: 2, seq: 0, at: 4, txn: true})
	require.Equal(t, int64(2), l.unstable(0))
	l.marker(end{id: pid, at: 5})
	require.Equal(t, int64(2), l.unstable(0), "the marker is not replicated")
	require.Equal(t, int64(2), l.Unstable().LastStable(5, 0))
	require.Equal(t, int64(4), l.Unstable().LastStable(6, 0))
	require.Equal(t, int64(4), l.Unstable().LastStable(3+2, 0), "what was stable once stays so")
	l.marker(end{id: 2, at: 6, commit: true})
	l.OnHighWatermark(7)
	require.Equal(t, int64(-1), l.unstable(0))
	require.Equal(t, int64(7), l.Unstable().LastStable(7, 0))
	require.Equal(t, int64(3), l.Unstable().LastStable(3, 0))
}

func TestTheFirstUnstableOffsetIsNeverBelowTheLogStart(t *testing.T) {
	// Scenario: U114, U115
	l := newLog(t)
	for at := range int64(10) {
		l.client(spec{id: pid, seq: int32(at), at: at, txn: true})
	}
	l.OnLogStart(5)
	require.Equal(t, int64(5), l.unstable(5))
	l.OnLogStart(8)
	require.Equal(t, int64(8), l.unstable(8))
	require.Equal(t, int64(8), l.Unstable().LastStable(10, 8))
	require.Equal(t, int64(0), l.Open()[0].FirstOffset)
	l.marker(end{id: pid, at: 10, commit: true})
	l.OnLogStart(11) // past the marker: it needs no high watermark any more
	require.Equal(t, int64(-1), l.unstable(11))
}

func TestTheIndexEntryCarriesTheLastStableOffsetAfterTheMarker(t *testing.T) {
	// Scenario: P035
	l := newLog(t)
	for i := range int64(3) {
		l.client(spec{id: i, seq: 0, at: i, txn: true})
	}
	require.Equal(t, []Completed{{1, 1, 3, 0, true}}, l.marker(end{id: 1, at: 3}).Completed())
	require.Equal(t, []Completed{{0, 0, 4, 2, false}}, l.marker(end{id: 0, at: 4, commit: true}).Completed())
	require.Equal(t, []Completed{{2, 2, 5, 6, true}}, l.marker(end{id: 2, at: 5}).Completed())
}

func TestManyTransactionsInOneAppend(t *testing.T) {
	// Scenario: P036
	l := newLog(t)
	l.client(spec{id: pid, seq: 0, at: 16, n: 5, txn: true})
	set := func() (raw []byte) {
		for _, b := range [][]byte{
			end{id: pid, at: 21, commit: true}.bytes(),
			end{id: pid, at: 22, commit: true}.bytes(),
			end{id: pid, at: 23}.bytes(),
			spec{id: pid, seq: 5, at: 24, n: 4, txn: true}.bytes(t),
			end{id: pid, at: 28}.bytes(),
			end{id: pid, at: 29}.bytes(),
			spec{id: pid, seq: 9, at: 30, n: 2, txn: true}.bytes(t),
		} {
			raw = append(raw, b...)
		}
		return raw
	}()
	p, err := l.Check(set, Options{Origin: record.Replication})
	require.NoError(t, err)
	require.Equal(t, []Completed{{pid, 16, 21, 22, false}, {pid, 24, 28, 29, true}}, p.Completed())
	l.Commit(p)
	l.OnHighWatermark(32)
	require.Equal(t, int64(30), l.unstable(0))
	require.Equal(t, []OpenTxn{{ProducerID: pid, FirstOffset: 30, LastOffset: 31, LastTimestamp: 1000}}, l.Open())
}

func TestOpenTransactionsAreListedOldestFirst(t *testing.T) {
	// Scenario: P007
	l := newLog(t)
	l.client(spec{id: 7, seq: 0, at: 0, n: 2, txn: true, time: 10_000})
	l.client(spec{id: 3, epoch: 4, seq: 0, at: 2, txn: true, time: 20_000})
	l.client(spec{id: 5, seq: 0, at: 3, txn: true, time: -1})
	l.marker(end{id: 7, at: 4})
	open := l.Open()
	require.Equal(t, []OpenTxn{
		{ProducerID: 3, Epoch: 4, CoordinatorEpoch: -1, FirstOffset: 2, LastOffset: 2, LastTimestamp: 20_000},
		{ProducerID: 5, CoordinatorEpoch: -1, FirstOffset: 3, LastOffset: 3, LastTimestamp: -1},
	}, open)
	const timeout = 900_000
	require.False(t, open[0].Late(20_000+timeout+300_000, timeout))
	require.True(t, open[0].Late(20_000+timeout+300_001, timeout))
	require.False(t, open[1].Late(1<<60, timeout), "nothing says how old it is")

	fsys := folder(t)
	l.take(fsys)
	l = newLog(t)
	l.reload(fsys, 0, 5)
	require.Equal(t, open, l.Open())
	l.reload(fsys, 0, 1)
	require.Empty(t, l.Open())
	l.Reset(0)
	require.Empty(t, l.Open())
}

func TestManyOpenTransactionsEndInAnyOrder(t *testing.T) {
	const n = 500
	l := newLog(t)
	for i := range int64(n) {
		l.client(spec{id: i, seq: 0, at: i, txn: true})
	}
	over := map[int64]bool{}
	for i := range int64(n) {
		id := i * 7 % n // 7 and 500 have no common divisor
		over[id] = true
		oldest := int64(0)
		for over[oldest] {
			oldest++
		}
		if oldest == n {
			oldest = n + i + 1
		}
		c := l.marker(end{id: id, at: n + i, commit: i%2 == 0}).Completed()
		require.Equal(t, []Completed{{id, id, n + i, oldest, i%2 == 1}}, c)
		require.Len(t, l.Open(), int(n-i-1))
		l.OnHighWatermark(n + i + 1)
		first, ok := l.Unstable().First(0)
		require.Equal(t, i < n-1, ok)
		if ok {
			require.Equal(t, oldest, first)
		}
	}
	require.Empty(t, l.open.items)
}

func TestUnstableIsReadWhileTheStateChanges(t *testing.T) {
	l := newLog(t)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				l.Unstable().LastStable(0, 0)
				l.Unstable().First(0)
			}
		}
	})
	for at := int64(0); at < 600; at += 2 {
		l.client(spec{id: pid, seq: int32(at / 2), at: at, txn: true})
		l.marker(end{id: pid, at: at + 1})
		if at%100 == 0 {
			l.Unstable().Advance(at)
		}
	}
	close(stop)
	wg.Wait()
	l.OnHighWatermark(601)
	require.Zero(t, l.Unstable().Pending())
}
