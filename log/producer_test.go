package log

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

func TestAHandleWritesIdempotentlyAndANewerOneFencesIt(t *testing.T) {
	b := newBed(t, Config{})
	old := b.Producer(7, 0)
	for i := range int64(3) {
		base, err := old.Append(ctx, values(2, 10)...)
		require.NoError(t, err)
		require.Equal(t, 2*i, base)
	}
	b.reopen()
	again := b.Producer(7, 0)
	_, err := again.Append(ctx, values(1, 10)...)
	require.NoError(t, err)
	require.Equal(t, int32(6), b.Producers()[0].LastSequence)
	_, err = b.Producer(7, 1).Append(ctx, values(1, 10)...)
	require.NoError(t, err)
	_, err = again.Append(ctx, values(1, 10)...)
	require.ErrorIs(t, err, ErrFenced)
	require.Equal(t, []ProducerInfo{{ID: 7, Epoch: 1, LastSequence: 0, LastOffset: 7, LastTimestamp: epoch2023, CoordinatorEpoch: -1, TxnStart: -1, Batches: 1}}, b.Producers())
	_, err = b.Producer(-1, 0).Append(ctx, values(1, 10)...)
	require.ErrorIs(t, err, ErrInvalidRecord)
	base, err := b.Producer(7, 1).Append(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(8), base)
}

func TestAHandlesTransactionIsSeenWholeOrNotAtAll(t *testing.T) {
	b := newBed(t, Config{})
	p := b.Producer(7, 0)
	require.ErrorIs(t, p.Commit(ctx), ErrTxnState)
	require.NoError(t, p.Abort(ctx))
	require.NoError(t, p.Begin())
	require.ErrorIs(t, p.Begin(), ErrTxnState)
	require.NoError(t, p.Commit(ctx), "an empty one leaves no marker")
	require.Zero(t, b.Offsets().LogEnd)
	put := func(n int) {
		_, err := p.Append(ctx, values(n, 10)...)
		require.NoError(t, err)
	}
	require.NoError(t, p.Begin())
	put(2)
	put(1)
	require.Empty(t, b.readAll(0, WithIsolation(ReadCommitted)))
	require.NoError(t, p.Commit(ctx))
	require.Equal(t, []int64{0, 1, 2}, b.readAll(0, WithIsolation(ReadCommitted)))
	put(1)
	require.NoError(t, p.Begin())
	put(1)
	require.NoError(t, p.Abort(ctx))
	put(1)
	require.Equal(t, []int64{0, 1, 2, 4, 7}, b.readAll(0, WithIsolation(ReadCommitted)))
	require.NoError(t, p.Begin())
	put(1)
	b.reopen()
	p = b.Producer(7, 1)
	_, err := p.Append(ctx, values(1, 10)...)
	require.ErrorIs(t, err, ErrTxnState, "the crashed one's is open")
	require.ErrorIs(t, p.Begin(), ErrTxnState)
	require.NoError(t, p.Abort(ctx))
	require.NoError(t, p.Begin())
	put(1)
	require.NoError(t, p.Commit(ctx))
	require.Equal(t, []int64{0, 1, 2, 4, 7, 10}, b.readAll(0, WithIsolation(ReadCommitted)))
	require.NoError(t, checkProducers(b.Log))
	aborted, err := b.AbortedTxns()
	require.NoError(t, err)
	require.Equal(t, []AbortedTxn{{ProducerID: 7, FirstOffset: 5, LastOffset: 6, LastStable: 7}, {ProducerID: 7, FirstOffset: 8, LastOffset: 9, LastStable: 10}}, aborted)
	require.NoError(t, b.dir.Close())
	require.ErrorIs(t, p.Begin(), ErrClosed)
	_, err = p.Append(ctx, values(1, 10)...)
	require.ErrorIs(t, err, ErrClosed)
}

// Report: B087
func TestAHangingTransactionIsListedAndCanBeAborted(t *testing.T) {
	b := newBed(t, Config{})
	b.mustSend(inTxn(as(1, 4, 0)), 2)
	b.mustSend(inTxn(as(2, 0, 0)), 1)
	b.clock.advance(21 * time.Minute)
	open := b.OpenTransactions()
	require.Equal(t, []OpenTransaction{
		{ProducerID: 1, Epoch: 4, FirstOffset: 0, LastOffset: 1, LastTimestamp: epoch2023, Age: 21 * time.Minute},
		{ProducerID: 2, Epoch: 0, FirstOffset: 2, LastOffset: 2, LastTimestamp: epoch2023, Age: 21 * time.Minute},
	}, open)
	require.True(t, open[0].Hangs(15*time.Minute))
	require.False(t, open[0].Hangs(16*time.Minute))
	res, err := b.AbortTransaction(ctx, open[0])
	require.NoError(t, err)
	require.Equal(t, int64(3), res.Base)
	require.Equal(t, int64(2), b.Offsets().LastStable)
	_, err = b.AbortTransaction(ctx, open[0])
	require.ErrorIs(t, err, ErrTxnState)
	require.Len(t, b.OpenTransactions(), 1)
	require.NoError(t, checkProducers(b.Log))
}

// Scenario: U120, U121, U122
func TestATransactionBeginsOnlyWithTheGuardOfItsVerification(t *testing.T) {
	b := newBed(t, Config{})
	send := func(o AppendOptions, seq int32) error {
		o.Verify = true
		_, err := b.AppendBatches(ctx, produced(inTxn(as(1, 0, seq)), values(1, 10)...), o)
		return err
	}
	require.ErrorIs(t, send(AppendOptions{}, 0), ErrTxnState)
	guard := b.VerifyTransaction(1, 0, 1, false)
	require.NotEqual(t, TxnGuard{}, guard)
	require.Equal(t, guard, b.VerifyTransaction(1, 0, 1, false))
	b.mustSend(as(1, 0, 0), 1) // idempotent data keeps it
	require.Equal(t, guard, b.VerifyTransaction(1, 0, 1, false))
	require.NoError(t, send(AppendOptions{Guard: guard}, 1))
	require.Equal(t, TxnGuard{}, b.VerifyTransaction(1, 0, 2, false), "the transaction runs")
	require.NoError(t, send(AppendOptions{}, 2))
	b.mustEnd(as(1, 0, 0), true, 0)
	require.ErrorIs(t, send(AppendOptions{Guard: guard}, 3), ErrTxnState)
	next := b.VerifyTransaction(1, 0, 3, false)
	require.NotEqual(t, guard, next)
	b.mustEnd(as(1, 0, 0), true, 0) // a marker clears it
	require.NotEqual(t, next, b.VerifyTransaction(1, 0, 3, false))
	b.mustSend(inTxn(as(1, 0, 3)), 1) // without verification it is cleared too
	b.mustEnd(as(1, 0, 0), true, 0)
	require.ErrorIs(t, send(AppendOptions{Guard: next}, 4), ErrTxnState)
}

func TestConcurrentCallsOfOneHandleKeepItsSequence(t *testing.T) {
	b := newBed(t, Config{})
	p := b.Producer(1, 0)
	errs := make(chan error)
	for range 4 {
		go func() {
			var all error
			for range 25 {
				_, err := p.Append(ctx, values(1, 10)...)
				all = errors.Join(all, err)
			}
			errs <- all
		}()
	}
	for range 4 {
		require.NoError(t, <-errs)
	}
	require.Equal(t, int32(99), b.Producers()[0].LastSequence)
}

// slowDisk gives a bed whose syncs of records wait until go on is called, and a context that ends while they do.
func slowDisk(t *testing.T) (b *bed, soon func() context.Context, goOn func()) {
	block := make(chan struct{})
	fault := vfstest.NewFault(vfs.Mem())
	b = newBedOn(t, fault, Config{})
	return b, func() context.Context {
			fault.Clear()
			fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "*.log", Block: block})
			go func() { _, _ = b.Append(ctx, record.Record{Value: []byte("leads")}) }()
			synctest.Wait()
			c, cancel := context.WithTimeout(ctx, time.Second)
			t.Cleanup(cancel)
			return c
		}, func() {
			fault.Clear()
			waiting := block
			block = make(chan struct{}) // before anyone is woken
			close(waiting)
		}
}

// KIP-98: a producer that does not know whether its batch was written sends it again, and finds it once in the log.
func TestAHandleThatIsCalledAgainAfterAnUnconfirmedAppendWritesNoSecondCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, soon, goOn := slowDisk(t)
		p := b.Producer(7, 0)
		c := soon()
		base, err := p.Append(c, values(2, 10)...)
		require.ErrorAs(t, err, new(*UnconfirmedError))
		require.Equal(t, int64(1), base)
		for range 3 {
			short, cancel := context.WithTimeout(ctx, time.Second)
			base, err = p.Append(short, values(2, 10)...)
			require.ErrorAs(t, err, new(*UnconfirmedError))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, int64(1), base)
			cancel()
		}
		go func() { time.Sleep(time.Second); goOn() }()
		base, err = p.Append(ctx, values(2, 10)...)
		require.NoError(t, err)
		require.Equal(t, int64(1), base)
		require.Equal(t, int64(3), b.Offsets().LogEnd)
		base, err = p.Append(ctx, values(2, 10)...)
		require.NoError(t, err)
		require.Equal(t, int64(3), base, "once it is confirmed the same records are new ones")
		require.Equal(t, int32(3), b.Producers()[0].LastSequence)
	})
}

func TestAnotherCallAfterAnUnconfirmedAppendIsNoRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, soon, goOn := slowDisk(t)
		p := b.Producer(7, 0)
		_, err := p.Append(soon(), values(1, 10)...)
		require.ErrorAs(t, err, new(*UnconfirmedError))
		other := values(1, 10)
		other[0].Headers = []record.Header{{Key: "k"}}
		go func() { time.Sleep(time.Second); goOn() }()
		base, err := p.Append(ctx, other...)
		require.NoError(t, err)
		require.Equal(t, int64(2), base)
		base, err = p.Append(ctx, values(1, 10)...)
		require.NoError(t, err)
		require.Equal(t, int64(3), base, "the call before was another one")

		_, err = p.Append(soon(), values(1, 10)...)
		require.ErrorAs(t, err, new(*UnconfirmedError))
		goOn()
		synctest.Wait()
		b.truncate(4)
		base, err = p.Append(ctx, values(1, 10)...)
		require.NoError(t, err)
		require.Equal(t, int64(4), base, "a truncation has taken the first one away")
		require.Equal(t, int64(5), b.Offsets().LogEnd)
	})
}

func TestTheEndOfATransactionCanBeAskedForUntilItIsConfirmed(t *testing.T) {
	for _, commit := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b, soon, goOn := slowDisk(t)
			p := b.Producer(7, 0)
			same, other := p.Commit, p.Abort
			if !commit {
				same, other = p.Abort, p.Commit
			}
			require.NoError(t, p.Begin())
			_, err := p.Append(ctx, values(2, 10)...)
			require.NoError(t, err)
			require.ErrorAs(t, same(soon()), new(*UnconfirmedError))
			require.ErrorIs(t, other(ctx), ErrTxnState, "it has ended the other way")
			go func() { time.Sleep(time.Second); goOn() }()
			require.NoError(t, same(ctx))
			require.Equal(t, int64(4), b.Offsets().LogEnd, "one marker")
			want := []int64{2}
			if commit {
				want = []int64{0, 1, 2}
			}
			require.Equal(t, want, b.readAll(0, WithIsolation(ReadCommitted)))
			require.NoError(t, p.Begin())
			require.NoError(t, p.Abort(ctx))
		})
	}
}

// A handle whose transaction was ended behind its back must not go on as if nothing had been: what it wrote afterwards would
// be committed without what it wrote before.
func TestAHandleNoticesThatItsTransactionWasEndedByOthers(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, b *bed){
		"aborted": func(t *testing.T, b *bed) {
			_, err := b.AbortTransaction(ctx, b.OpenTransactions()[0])
			require.NoError(t, err)
		},
		"cut off": func(t *testing.T, b *bed) {
			_, err := b.Truncate(ctx, 0)
			require.NoError(t, err)
		},
		"cut in two": func(t *testing.T, b *bed) {
			_, err := b.Truncate(ctx, 1)
			require.NoError(t, err)
		},
		"cut in two, and others wrote there": func(t *testing.T, b *bed) {
			_, err := b.Truncate(ctx, 1)
			require.NoError(t, err)
			b.mustSend(inTxn(as(7, 0, 1)), 1)
			b.mustSend(as(8, 0, 0), 3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, Config{})
			p := b.Producer(7, 0)
			put := func() error {
				_, err := p.Append(ctx, values(1, 10)...)
				return err
			}
			require.NoError(t, p.Begin())
			require.NoError(t, put())
			require.NoError(t, put())
			end(t, b)
			at := b.Offsets().LogEnd
			require.ErrorIs(t, put(), ErrTxnState)
			require.ErrorIs(t, p.Commit(ctx), ErrTxnState)
			require.ErrorIs(t, p.Begin(), ErrTxnState)
			require.Equal(t, at, b.Offsets().LogEnd)
			require.NoError(t, p.Abort(ctx))
			require.NoError(t, p.Begin())
			own := b.Offsets().LogEnd
			require.NoError(t, put())
			require.NoError(t, put())
			require.NoError(t, p.Commit(ctx))
			got := b.readAll(0, WithIsolation(ReadCommitted))
			require.Equal(t, []int64{own, own + 1}, got[len(got)-2:])
			for _, offset := range got[:len(got)-2] {
				require.GreaterOrEqual(t, offset, int64(2), "somebody else's")
			}
		})
	}
}

// A record whose append was not confirmed and that a truncation took is written anew; those before it are whole.
func TestATransactionWhoseLastRecordIsWrittenAnewCanBeCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, soon, goOn := slowDisk(t)
		p := b.Producer(7, 0)
		require.NoError(t, p.Begin())
		_, err := p.Append(ctx, values(1, 10)...)
		require.NoError(t, err)
		_, err = p.Append(soon(), values(1, 20)...)
		require.ErrorAs(t, err, new(*UnconfirmedError))
		goOn()
		synctest.Wait()
		b.truncate(2)
		base, err := p.Append(ctx, values(1, 20)...)
		require.NoError(t, err)
		require.Equal(t, int64(2), base)
		require.NoError(t, p.Commit(ctx))
		require.Equal(t, []int64{0, 1, 2}, b.readAll(0, WithIsolation(ReadCommitted)))
	})
}

// Two writers under one id and epoch are a mistake, but not one that may lose a record: a batch under a sequence number that
// the other has used meanwhile would count as a repetition of the other's.
func TestARecordOfAHandleIsNeverTakenForThatOfAnother(t *testing.T) {
	var meanwhile func()
	b := newBed(t, Config{})
	require.NoError(t, b.dir.Close())
	d, err := OpenDir("mem", DirConfig{Manual: true, FS: b.fs, Now: func() time.Time {
		if f := meanwhile; f != nil { // the clock is read behind the sequence number, while the batch is built
			meanwhile = nil
			f()
		}
		return b.clock.now()
	}})
	require.NoError(t, err)
	b.dir = d
	b.Log, err = d.Open(ctx, TopicPartition{"t", 0}, b.cfg)
	require.NoError(t, err)
	p, q := b.Producer(1, 0), b.Producer(1, 0)
	for i, n := range []int{1, 2, 1} {
		meanwhile = func() {
			_, err := q.Append(ctx, values(n, 10)...)
			require.NoError(t, err)
		}
		at := b.Offsets().LogEnd
		base, err := p.Append(ctx, values(1, 10)...)
		require.NoError(t, err, i)
		require.Equal(t, at+int64(n), base)
	}
	require.Equal(t, int64(7), b.Offsets().LogEnd)
	require.Equal(t, int32(6), b.Producers()[0].LastSequence)
}

// Nothing but what the handle itself wrote since Begin is its transaction: records that somebody else aborts must not take its
// own along, and records that were aborted must not be committed.
func TestAHandleNeverWritesIntoATransactionThatIsNotItsOwn(t *testing.T) {
	for name, other := range map[string]func(t *testing.T, b *bed){
		"another handle's": func(t *testing.T, b *bed) { b.mustSend(inTxn(as(1, 0, 0)), 2) },
		"an aborted one that a truncation opened again": func(t *testing.T, b *bed) {
			_, err := b.Truncate(ctx, 2)
			require.NoError(t, err)
		},
	} {
		for _, write := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", written ", write), func(t *testing.T) {
				b := newBed(t, Config{})
				p := b.Producer(1, 0)
				if strings.HasPrefix(name, "an aborted") {
					require.NoError(t, p.Begin())
					_, err := p.Append(ctx, values(2, 10)...)
					require.NoError(t, err)
					require.NoError(t, p.Abort(ctx))
				}
				require.NoError(t, p.Begin())
				other(t, b)
				if write {
					_, err := p.Append(ctx, values(1, 10)...)
					require.ErrorIs(t, err, ErrTxnState)
				}
				if write {
					require.ErrorIs(t, p.Commit(ctx), ErrTxnState, "its record was refused")
				} else {
					require.NoError(t, p.Commit(ctx), "there is nothing to commit")
				}
				require.Empty(t, b.readAll(0, WithIsolation(ReadCommitted)))
				require.Len(t, b.OpenTransactions(), 1)
				require.ErrorIs(t, p.Begin(), ErrTxnState)
				require.NoError(t, p.Abort(ctx))
				require.NoError(t, p.Begin())
				base, err := p.Append(ctx, values(1, 10)...)
				require.NoError(t, err)
				require.NoError(t, p.Commit(ctx))
				require.Equal(t, []int64{base}, b.readAll(0, WithIsolation(ReadCommitted)))
			})
		}
	}
}

func TestATransactionThatIsNoneIsNotAborted(t *testing.T) {
	require.False(t, OpenTransaction{Age: time.Hour}.Hangs(math.MaxInt64), "a time that ends where int64 does")
	b := newBed(t, Config{})
	b.mustSend(as(1, 0, 0), 3)
	for _, none := range []OpenTransaction{{}, {ProducerID: -1, FirstOffset: -1}, {ProducerID: 1}, {ProducerID: 1, FirstOffset: -1}} {
		_, err := b.AbortTransaction(ctx, none)
		require.ErrorIs(t, err, ErrTxnState)
	}
	require.Equal(t, int64(3), b.Offsets().LogEnd)
}

func TestWhatWasNeverMadeIsClosed(t *testing.T) {
	var p Producer
	_, err := p.Append(ctx, values(1, 10)...)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, p.Begin(), ErrClosed)
	require.ErrorIs(t, p.Commit(ctx), ErrClosed)
	require.ErrorIs(t, p.Abort(ctx), ErrClosed)
	require.ErrorIs(t, SettleMoves(ctx, nil), ErrClosed)
	b := newBed(t, Config{})
	require.Empty(t, b.readAll(0, nil), "an option that is none")
}
