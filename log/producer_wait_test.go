package log

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// Whoever holds the log, a roll on a disk that hangs, say, holds nobody longer than they wanted to wait.
func TestWhatWaitsForTheLogWaitsUnderTheCallersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Config{})
		p := b.Producer(7, 0)
		require.NoError(t, p.Begin())
		_, err := p.Append(ctx, values(1, 10)...)
		require.NoError(t, err)
		open := b.OpenTransactions()[0]
		calls := map[string]func(context.Context) error{
			"append": func(c context.Context) error { _, err := p.Append(c, values(1, 10)...); return err },
			"commit": p.Commit,
			"abort":  p.Abort,
			"abort of an open one": func(c context.Context) error {
				_, err := b.AbortTransaction(c, open)
				return err
			},
			"end of a transaction": func(c context.Context) error {
				_, err := b.EndTxn(c, record.Producer{ID: 7}, true, EndTxnOptions{})
				return err
			},
		}
		require.NoError(t, b.write.lock(ctx))
		for name, call := range calls {
			soon, cancel := context.WithTimeout(ctx, time.Second)
			require.ErrorIs(t, call(soon), context.DeadlineExceeded, name)
			cancel()
		}
		b.write.unlock()
		require.Equal(t, int64(1), b.Offsets().LogEnd)
		require.Len(t, b.OpenTransactions(), 1, "it is as it was")
		require.NoError(t, p.Commit(ctx))
		require.Equal(t, []int64{0}, b.readAll(0, WithIsolation(ReadCommitted)))
	})
}

func TestACallOfAHandleWaitsForTheOneBeforeItUnderItsOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Config{})
		p := b.Producer(7, 0)
		require.NoError(t, b.write.lock(ctx))
		first := make(chan error)
		go func() {
			_, err := p.Append(ctx, values(1, 10)...)
			first <- err
		}()
		synctest.Wait()
		for name, call := range map[string]func(context.Context) error{
			"append": func(c context.Context) error { _, err := p.Append(c, values(1, 10)...); return err },
			"commit": p.Commit,
			"abort":  p.Abort,
		} {
			soon, cancel := context.WithTimeout(ctx, time.Second)
			require.ErrorIs(t, call(soon), context.DeadlineExceeded, name)
			cancel()
		}
		b.write.unlock()
		require.NoError(t, <-first)
		require.Equal(t, int64(1), b.Offsets().LogEnd)
	})
}
