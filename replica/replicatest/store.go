package replicatest

import (
	"context"
	"errors"
	"time"

	"github.com/partlog/partlog/replica"
)

// store is the store as nodes and controllers get to it: what they ask may fail, or be done without an answer.
type store struct {
	*replica.MemStore
	s     *sim
	fails float64       // chance of each call
	slow  time.Duration // what writes take longer to arrive
}

// errNoAnswer leaves it open whether it was done.
var errNoAnswer = errors.New("no answer")

// refuses says that a call fails before it is done.
func (t *store) refuses() bool {
	if !t.s.chance(t.fails) {
		return false
	}
	t.s.counts.add("calls of the store that failed", 1)
	return true
}

// forgets says that the answer to a call that was done is lost.
func (t *store) forgets() bool {
	if !t.s.chance(t.fails / 2) {
		return false
	}
	t.s.counts.add("calls of the store done without an answer", 1)
	return true
}

// Get is Store.Get.
func (t *store) Get(ctx context.Context, key string) (replica.Versioned, error) {
	if t.refuses() {
		return replica.Versioned{}, errNoAnswer
	}
	return t.MemStore.Get(ctx, key)
}

// List is Store.List.
func (t *store) List(ctx context.Context, prefix string) ([]replica.Versioned, error) {
	if t.refuses() {
		return nil, errNoAnswer
	}
	return t.MemStore.List(ctx, prefix)
}

// Commit is Store.Commit.
func (t *store) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	return t.commit(func() ([]int64, error) { return t.MemStore.Commit(ctx, tx) })
}

func (t *store) commit(do func() ([]int64, error)) ([]int64, error) {
	if t.refuses() {
		return nil, errNoAnswer
	}
	versions, err := do()
	if t.forgets() {
		return nil, errNoAnswer
	}
	return versions, err
}

// Session is Store.Session.
func (t *store) Session(ctx context.Context, ttl time.Duration) (replica.Session, error) {
	if t.refuses() {
		return nil, errNoAnswer
	}
	one, err := t.MemStore.Session(ctx, ttl)
	return &session{one, t}, err
}

// session is one of the store's.
type session struct {
	replica.Session
	store *store
}

// Commit is Session.Commit.
func (o *session) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	return o.store.commit(func() ([]int64, error) { return o.Session.Commit(ctx, tx) })
}

// Expire ends a session of this store.
func (t *store) Expire(one replica.Session) { t.MemStore.Expire(one.(*session).Session) }

// drop ends a session that its holder has no use for. What it says may not arrive: then the session expires.
func (t *store) drop(one replica.Session, gone func()) {
	end := func() {
		one.Close()
		gone()
	}
	if t.refuses() {
		t.s.after(sessionTime, end)
		return
	}
	end()
}
