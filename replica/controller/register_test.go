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

// doubtful is a store, and a session, of which each commit is done and called a conflict.
type doubtful struct{ replica.Store }

func (d doubtful) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	return lie(d.Store.Commit(ctx, tx))
}

type doubtfulSession struct{ replica.Session }

func (d doubtfulSession) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	return lie(d.Session.Commit(ctx, tx))
}

func lie(_ []int64, err error) ([]int64, error) {
	if err == nil {
		err = &replica.ConflictError{Key: "?", Want: 0, Have: 1}
	}
	return nil, err
}

// A client of a store that sends a transaction again, whose first answer was lost, is told of a conflict with itself.
func TestAConflictWithItselfIsNone(t *testing.T) {
	ctx, store := t.Context(), replica.NewMemStore()
	session, err := store.Session(ctx, time.Second)
	require.NoError(t, err)
	n, err := Register(ctx, store, doubtfulSession{session}, Registration{Node: 1, PreviousEpoch: -1, Fenced: true})
	require.NoError(t, err)
	require.NoError(t, n.Ready(ctx))
	p, err := LookupNode(ctx, store, 1)
	require.NoError(t, err)
	require.Equal(t, n.Epoch(), p.BrokerEpoch)
	require.False(t, p.Fenced)

	// Another life with the very same fields is somebody else.
	other, err := store.Session(ctx, time.Second)
	require.NoError(t, err)
	_, err = Register(ctx, store, doubtfulSession{other}, Registration{Node: 1, PreviousEpoch: -1})
	require.ErrorIs(t, err, ErrNodeInUse)
	require.ErrorIs(t, err, replica.ErrConflict)

	w := newWorld(t, Config{}, 1)
	w.create("t", nil, ids{1})
	before, err := LookupAll(ctx, w.store)
	require.NoError(t, err)
	require.ErrorIs(t, AfterRestore(ctx, doubtful{w.store}), replica.ErrConflict, "the count of restores: it is called again")
	for _, v := range before {
		state, err := w.store.Get(ctx, key{kind: stateKey, topic: v.Partition.Topic}.String())
		require.NoError(t, err)
		state.Key = key{kind: stateKey, topic: v.Partition.Topic}.String()
		require.NoError(t, stepOver(ctx, doubtful{w.store}, state))
		after, err := Lookup(ctx, w.store, v.Partition)
		require.NoError(t, err)
		require.Equal(t, v.State.LeaderEpoch+epochStep, after.State.LeaderEpoch, "once, not until none are left")
	}
}
