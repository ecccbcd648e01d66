// Package patience makes of a replica.Store one that can be relied on when it does not answer: each call ends after a while,
// whatever its context says, and a watch that has gone deaf is begun anew.
//
//	who uses it        patience                        the store
//	Commit     ──────▶ at most Limit      ───────────▶ no answer: an error, and its fate is unknown
//	Watch      ──────▶ the beginning: at most Limit
//	                   between two keys, then renewed ▶ what it should have told and did not is told a little later
//
// A Store blocks until the context of a call ends, and most callers have nothing but that of their own end: without a limit a
// connection that is broken and does not know would hold a controller in its rule for ever.
package patience

import (
	"context"
	"errors"
	"time"

	"github.com/partlog/partlog/replica"
)

// ErrNoAnswer: the store has not answered for too long. What was asked for may have been done.
var ErrNoAnswer = errors.New("the store does not answer")

// Store is s with an end to each call.
func Store(s replica.Store, limit time.Duration) replica.Store { return store{s, limit} }

type store struct {
	under replica.Store
	limit time.Duration
}

// ask makes a call that ends.
func ask[T any](ctx context.Context, limit time.Duration, call func(ctx context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeoutCause(ctx, limit, ErrNoAnswer)
	defer cancel()
	got, err := call(bounded)
	if err != nil && ctx.Err() == nil && context.Cause(bounded) == ErrNoAnswer {
		err = ErrNoAnswer
	}
	return got, err
}

func (s store) Get(ctx context.Context, key string) (replica.Versioned, error) {
	return ask(ctx, s.limit, func(ctx context.Context) (replica.Versioned, error) { return s.under.Get(ctx, key) })
}

func (s store) List(ctx context.Context, prefix string) ([]replica.Versioned, error) {
	return ask(ctx, s.limit, func(ctx context.Context) ([]replica.Versioned, error) { return s.under.List(ctx, prefix) })
}

func (s store) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	return ask(ctx, s.limit, func(ctx context.Context) ([]int64, error) { return s.under.Commit(ctx, tx) })
}

func (s store) Session(ctx context.Context, ttl time.Duration) (replica.Session, error) {
	one, err := ask(ctx, s.limit, func(ctx context.Context) (replica.Session, error) { return s.under.Session(ctx, ttl) })
	if err != nil {
		return nil, err
	}
	return session{one, s.limit}, nil
}

type session struct {
	replica.Session
	limit time.Duration
}

func (s session) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	return ask(ctx, s.limit, func(ctx context.Context) ([]int64, error) { return s.Session.Commit(ctx, tx) })
}

// Close waits no longer than the limit; the session is closed later then, or expires.
func (s session) Close() error {
	done := make(chan error, 1)
	go func() { done <- s.Session.Close() }()
	timer := time.NewTimer(s.limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return ErrNoAnswer
	}
}

// errRenew ends a watch that is to be begun anew.
var errRenew = errors.New("the watch is begun anew")
