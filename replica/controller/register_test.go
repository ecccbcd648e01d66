package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/replica"
)

// answerless is a session whose next commit is done, and whose answer is lost.
type answerless struct {
	replica.Session
	next bool
}

var errNoAnswer = errors.New("no answer")

func (a *answerless) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	versions, err := a.Session.Commit(ctx, tx)
	if a.next {
		a.next = false
		return nil, errNoAnswer
	}
	return versions, err
}

func TestReadyCountsThoughItsAnswerWasLost(t *testing.T) {
	ctx, store := t.Context(), replica.NewMemStore()
	session, err := store.Session(ctx, time.Second)
	require.NoError(t, err)
	s := &answerless{Session: session}
	n, err := Register(ctx, store, s, Registration{Node: 1, PreviousEpoch: -1, Fenced: true})
	require.NoError(t, err)
	s.next = true
	require.ErrorIs(t, n.Ready(ctx), errNoAnswer)
	require.NoError(t, n.Ready(ctx))
	require.NoError(t, n.Ready(ctx), "and again")
	p, err := LookupNode(ctx, store, 1)
	require.NoError(t, err)
	require.False(t, p.Fenced)
	require.Equal(t, n.Epoch(), p.BrokerEpoch)

	_, err = replica.Put(ctx, store, IDsPrefix+"1", []byte("{}"), replica.AnyVersion)
	require.NoError(t, err)
	require.ErrorIs(t, n.Ready(ctx), replica.ErrConflict, "somebody else wrote")
}

// The session ends between the write and the look at what came of it.
func TestARegistrationThatIsGoneBeforeItWasReadIsNone(t *testing.T) {
	ctx, store := t.Context(), replica.NewMemStore()
	session, err := store.Session(ctx, time.Second)
	require.NoError(t, err)
	for _, what := range []string{"gone", "another's"} {
		_, err = Register(ctx, &meanwhile{store, func() {
			store.Expire(session)
			if what == "another's" {
				_, err := replica.Put(ctx, store, IDsPrefix+"1", []byte("{}"), 0)
				require.NoError(t, err)
			}
		}}, session, Registration{Node: 1})
		require.ErrorIs(t, err, replica.ErrSessionLost, what)
		session, err = store.Session(ctx, time.Second)
		require.NoError(t, err)
	}
}

// meanwhile is a store in which something happens before each Get.
type meanwhile struct {
	*replica.MemStore
	do func()
}

func (m *meanwhile) Get(ctx context.Context, key string) (replica.Versioned, error) {
	m.do()
	return m.MemStore.Get(ctx, key)
}

func TestWhatTheStoreHoldsIsLookedUp(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2)
	ctx := t.Context()
	w.create("t", map[string]string{minISRKey: "2"}, ids{1, 2}, ids{2, 1})
	all, err := LookupAll(ctx, w.store)
	require.NoError(t, err)
	require.Len(t, all, 2)
	one, err := Lookup(ctx, w.store, all[1].Partition)
	require.NoError(t, err)
	require.Equal(t, all[1], one)
	require.EqualValues(t, 2, one.State.Leader)
	one.Partition.Partition = 7
	one, err = Lookup(ctx, w.store, one.Partition)
	require.NoError(t, err)
	require.True(t, one.Deleted)

	last, err := LastRegistration(ctx, w.store, 1)
	require.NoError(t, err)
	require.Equal(t, w.epoch(1), last)
	last, err = LastRegistration(ctx, w.store, 9)
	require.NoError(t, err)
	require.EqualValues(t, -1, last)

	set, err := LookupSettings(ctx, w.store, "t")
	require.NoError(t, err)
	require.Equal(t, 2, set.MinISR())
	for followed, err := range FollowSettings(ctx, w.store) {
		require.NoError(t, err)
		require.Equal(t, set, followed)
		break
	}
	set, err = LookupSettings(ctx, w.store, "none")
	require.NoError(t, err)
	require.Equal(t, Settings{Topic: "none"}, set)
	for at, err := range FollowRuler(ctx, w.store) {
		require.NoError(t, err)
		require.EqualValues(t, 100, at)
		break
	}
	p, err := LookupNode(ctx, w.store, 9)
	require.NoError(t, err)
	require.Equal(t, Present{Node: 9}, p)
}
