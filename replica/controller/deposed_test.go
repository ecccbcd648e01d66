package controller

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/internal/patience"
)

// unaware is a store whose sessions do not tell that they are over, and which may not answer what they ask.
type unaware struct {
	*replica.MemStore
	last   atomic.Pointer[replica.Session]
	silent atomic.Bool
}

func (u *unaware) Session(ctx context.Context, ttl time.Duration) (replica.Session, error) {
	one, err := u.MemStore.Session(ctx, ttl)
	u.last.Store(&one)
	return unawareSession{one, u}, err
}

type unawareSession struct {
	replica.Session
	store *unaware
}

func (s unawareSession) Done() <-chan struct{} { return nil }

// Commit goes past the session where it can: nothing but a guard says no.
func (s unawareSession) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	if s.store.silent.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if tx.Check(false) == nil {
		return s.store.MemStore.Commit(ctx, tx)
	}
	return s.Session.Commit(ctx, tx)
}

// rule is what a controller says of itself.
type rule struct {
	rules bool
	why   error
}

// runs runs a controller until the test ends.
func runs(t *testing.T, s replica.Store, node replica.NodeID) (*Controller, <-chan rule) {
	said := make(chan rule, 10)
	c := NewController(s, Options{Node: node, Rule: func(_ int32, rules bool, why error) { said <- rule{rules, why} }})
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { _ = c.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return c, said
}

// A leader asks a controller that was deposed and does not know about a topic made since. It is not told that there is no such
// topic, which it would take for final, but to ask another, and this one grants it.
func TestOfTwoControllersTheDeposedOneSendsALeaderToTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		store := &unaware{MemStore: replica.NewMemStore()}
		first, ofFirst := runs(t, store, 1)
		require.True(t, (<-ofFirst).rules)
		nodes := map[replica.NodeID]*Registered{}
		for _, id := range (ids{1, 2}) {
			session, err := store.MemStore.Session(ctx, time.Second)
			require.NoError(t, err)
			nodes[id], err = Register(ctx, store, session, Registration{Node: id, PreviousEpoch: -1})
			require.NoError(t, err)
		}
		synctest.Wait()
		_, err := first.CreateTopic(ctx, CreateTopic{Topic: "t", Assignment: []ids{{1, 2}}})
		require.NoError(t, err)

		second, ofSecond := runs(t, store.MemStore, 2)
		store.Expire(*store.last.Load())
		require.True(t, (<-ofSecond).rules)
		require.NoError(t, second.DeleteTopic(ctx, "t"))
		made, err := second.CreateTopic(ctx, CreateTopic{Topic: "t", Assignment: []ids{{1, 2}}})
		require.NoError(t, err)
		old, err := first.Describe(ctx, "t")
		require.NoError(t, err, "what it shows may be of the past")
		require.NotEqual(t, made.ID, old[0].ID)

		propose := AlterPartition{Node: 1, BrokerEpoch: nodes[1].Epoch(), TopicID: made.ID, Partition: log.TopicPartition{Topic: "t"}, Proposal: replica.Proposal{ISR: ids{1}}}
		_, err = first.AlterPartition(ctx, propose)
		require.ErrorIs(t, err, replica.NotController)
		over := <-ofFirst
		require.False(t, over.rules)
		require.ErrorIs(t, over.why, replica.ErrConflict)
		_, err = first.Describe(ctx, "t")
		require.ErrorIs(t, err, replica.NotController, "it has noticed")
		p, err := second.AlterPartition(ctx, propose)
		require.NoError(t, err)
		require.Equal(t, ids{1}, p.ISR)
		require.Empty(t, ofSecond, "it rules still")
	})
}

// A store that does not answer the check holds the controller no longer than it may a write. What needs no check is answered
// meanwhile; the others ask another. When the store answers again, it rules again.
func TestAStoreThatDoesNotAnswerACheckEndsTheRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		store := &unaware{MemStore: replica.NewMemStore()}
		c, said := runs(t, store, 1)
		require.True(t, (<-said).rules)
		store.silent.Store(true)
		began := time.Now()
		var asked sync.WaitGroup
		for range 100 {
			asked.Go(func() {
				require.ErrorIs(t, c.DeleteTopic(ctx, "none"), replica.NotController)
				require.Equal(t, 18*time.Second, time.Since(began))
			})
		}
		synctest.Wait()
		_, err := c.Describe(ctx)
		require.NoError(t, err)
		hasty, end := context.WithTimeout(ctx, time.Second)
		defer end()
		require.ErrorIs(t, c.DeleteTopic(hasty, "none"), context.DeadlineExceeded, "nobody has to wait")
		asked.Wait()
		require.NoError(t, ctx.Err(), "it waits for ever")
		over := <-said
		require.False(t, over.rules)
		require.ErrorIs(t, over.why, patience.ErrNoAnswer)
		store.silent.Store(false)
		require.True(t, (<-said).rules)
		require.ErrorIs(t, c.DeleteTopic(ctx, "none"), replica.UnknownTopicOrPartition)
	})
}
