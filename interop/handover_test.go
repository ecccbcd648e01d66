package interop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// appending keeps writing to a root of ours until stop: records, transactions of both ends, rolls.
type appending struct {
	d    *log.Dir
	done chan error
	halt atomic.Bool
	n    atomic.Int64
}

func startAppending(t *testing.T, root string) *appending {
	t.Helper()
	d, err := openRoot(context.Background(), root, map[string]map[string]string{"plain": small("delete"), "paid": small("delete"), "table": small("compact")})
	require.NoError(t, err)
	a := &appending{d: d, done: make(chan error, 1)}
	go func() { a.done <- a.run() }()
	return a
}

func (a *appending) run() error {
	ctx := context.Background()
	for i := 0; !a.halt.Load(); i++ {
		for tp, l := range a.d.Logs() {
			rs := []record.Record{{Key: fmt.Appendf(nil, "key %d", i%9), Value: fmt.Appendf(nil, "commit %d of %v", i, tp)}}
			if tp.Topic != "paid" {
				if _, err := l.Append(ctx, rs...); err != nil {
					return err
				}
				a.n.Add(1)
				continue
			}
			h := l.Producer(int64(i%3), int16(i/3))
			if err := h.Begin(); err != nil {
				return err
			}
			if i%2 == 1 {
				rs[0].Value = []byte("abort")
			}
			if _, err := h.Append(ctx, rs...); err != nil {
				return err
			}
			end := h.Commit
			if i%2 == 1 {
				end = h.Abort
			}
			if err := end(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *appending) until(t *testing.T, n int64) {
	t.Helper()
	for a.n.Load() < n {
		select {
		case err := <-a.done:
			t.Fatal(err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (a *appending) stop(t *testing.T) {
	t.Helper()
	a.halt.Store(true)
	require.NoError(t, <-a.done)
	require.NoError(t, a.d.Close())
}

// ourHoldings are what our reader finds in a root at rest.
func ourHoldings(t *testing.T, root string, tps []log.TopicPartition) holdings {
	t.Helper()
	h := holdings{}
	for _, tp := range tps {
		r, err := log.OpenReader(filepath.Join(root, tp.String()), log.ReaderOptions{})
		require.NoError(t, err)
		o := r.Offsets()
		at := h[tp]
		for c, isolation := range map[*Consumed]log.Isolation{&at.uncommitted: log.LogEnd, &at.committed: log.ReadCommitted} {
			c.BeginningOffset, c.EndOffset = o.LogStart, o.LogEnd
			if isolation == log.ReadCommitted {
				c.EndOffset = o.LastStable
			}
			c.Records = recordsOf(t, r.Records(context.Background(), 0, log.WithReset(log.Earliest), log.WithIsolation(isolation)))
		}
		h[tp] = at
		require.NoError(t, r.Close())
	}
	return h
}

// TestALiveLogOfOursIsBackedUpForABrokerAndHandedOverToAnother: a root of a broker's, written by us, is backed up while we
// append. The broker opens what was restored as cleanly stopped, serves it and appends. Then all partitions go to another
// cluster, which had created the topics itself and given them ids of its own: into its log directory, and once more by way of
// a new directory whose folders are moved by hand.
func TestALiveLogOfOursIsBackedUpForABrokerAndHandedOverToAnother(t *testing.T) {
	b, _ := newCopiedBroker(t)
	require.NoError(t, b.Stop())
	away := t.TempDir()
	backup, restored := filepath.Join(away, "backup"), filepath.Join(away, "restored")

	a := startAppending(t, b.Root)
	a.until(t, 600)
	_, err := a.d.Backup(context.Background(), backup, log.BackupOptions{})
	require.NoError(t, err)
	behind := a.n.Load()
	a.until(t, behind+200)
	a.stop(t)
	_, err = log.Restore(context.Background(), backup, restored, log.RestoreOptions{})
	require.NoError(t, err)
	want := ourHoldings(t, backup, copied)
	for _, tp := range copied {
		require.Positive(t, want[tp].committed.EndOffset)
	}
	dumpsInSilence(t, b.d, restored, copied)
	require.NoError(t, b.UseRoot(restored))
	opensAsStopped(t, b)
	want.same(t, held(t, b, copied))
	fill(t, b)
	goesOn(t, b)
	live, err := b.NewProducer(map[string]string{"transactional.id": "live", "transaction.timeout.ms": "600000"})
	require.NoError(t, err)
	require.NoError(t, live.Begin())
	_, err = live.Send("paid", numbered("abort", 5))
	require.NoError(t, err)
	want = held(t, b, copied)
	require.NoError(t, live.Close())
	require.NoError(t, b.Stop())

	handedOver(t, b.Root, away, want)
}

// handedOver hands a stopped broker's root over.
func handedOver(t *testing.T, source, away string, want holdings) {
	t.Helper()
	b, ids := newCopiedBroker(t)
	_, err := b.CreateTopic("own", nil)
	require.NoError(t, err)
	_, err = b.Produce("own", nil, numbered("own", 3))
	require.NoError(t, err)
	require.NoError(t, b.Stop())
	target, fresh := b.Root, filepath.Join(away, "fresh")
	was, before := treeOf(t, source), treeOf(t, target)

	names := []string{}
	flags := []string{}
	for _, tp := range copied {
		names = append(names, "--partition", tp.String())
	}
	for topic, id := range ids {
		flags = append(flags, "--topic-id", topic+"="+id)
	}
	refused := func(want string, args ...string) {
		_, stderr, code := partlog(t, append([]string{"handover", source}, args...)...)
		require.NotZero(t, code)
		require.Contains(t, stderr, want)
		sameTree(t, was, treeOf(t, source))
		sameTree(t, before, treeOf(t, target))
		require.NoDirExists(t, fresh)
	}
	refused("__transaction_state-0: internal", target)
	refused("paid-0: transactions", append([]string{target}, names...)...)
	refused("paid-0: topic id", append([]string{fresh, "--abort"}, names...)...)
	refused("paid-0: topic id: the target's folder has the topic id", append([]string{target, "--abort", "--topic-id", "paid=" + ids["plain"]}, names...)...)

	// Half of them by way of a new directory, whose folders take the place of the empty ones.
	do(t, slices.Concat([]string{"handover", source, fresh}, names[:6], flags)...)
	sameTree(t, before, treeOf(t, target))
	dumpsInSilence(t, b.d, fresh, copied[:3])
	for _, tp := range copied[:3] {
		require.NoError(t, os.RemoveAll(filepath.Join(target, tp.String())))
		require.NoError(t, os.Rename(filepath.Join(fresh, tp.String()), filepath.Join(target, tp.String())))
	}
	do(t, slices.Concat([]string{"handover", source, target, "--abort"}, names[6:])...)
	dumpsInSilence(t, b.d, target, copied, "table")
	sameTree(t, was, treeOf(t, source))
	require.NoError(t, b.Start())
	require.Empty(t, b.LogLines("stray"))
	require.NotEmpty(t, b.LogLines("Recovering unflushed segment"))
	got := held(t, b, copied)
	asHandedOver(want).same(t, got)
	own, err := b.Consume("own", "read_committed", 0)
	require.NoError(t, err)
	require.Len(t, own.Records, 3)
	for _, topic := range []string{"plain", "paid", "table"} {
		producers, err := b.DescribeProducers(topic)
		require.NoError(t, err)
		require.NotEmpty(t, producers)
		for _, p := range producers { // those that this cluster gives ids to begin at 0, too
			require.GreaterOrEqual(t, p.ProducerID, int64(1)<<62, topic)
		}
	}
	goesOn(t, b)
	require.NoError(t, b.Stop())
	dumpsInSilence(t, b.d, target, copied, "table")
}

// asHandedOver adds the abort marker of the open transaction.
func asHandedOver(h holdings) holdings {
	paid := h[copied[3]]
	paid.uncommitted.EndOffset++
	paid.committed.EndOffset = paid.uncommitted.EndOffset
	h[copied[3]] = paid
	return h
}
