package log

import (
	"context"
	"errors"
	"sync/atomic"
)

// gate is a lock that is waited for under a context, so that a system call that blocks under it holds only the call that
// made it. Whoever comes while it is free takes it, as with sync.Mutex.
type gate struct {
	held    atomic.Bool
	waiting atomic.Int32  // callers that may be about to wait: nobody else needs the token
	free    chan struct{} // one token at most: whoever takes it looks at held again
}

func newGate() gate { return gate{free: make(chan struct{}, 1)} }

// lock waits for the gate; its error is ctx's, and then the gate is not held.
func (g *gate) lock(ctx context.Context) error {
	if g.tryLock() {
		return nil
	}
	return g.wait(ctx)
}

func (g *gate) wait(ctx context.Context) error {
	g.waiting.Add(1) // before looking again, as unlock looks for it after letting go
	defer g.waiting.Add(-1)
	for !g.tryLock() {
		select {
		case <-g.free:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (g *gate) tryLock() bool { return g.held.CompareAndSwap(false, true) }

func (g *gate) unlock() {
	g.held.Store(false)
	if g.waiting.Load() == 0 {
		return
	}
	select {
	case g.free <- struct{}{}:
	default: // somebody will look anyway
	}
}

// errBusy: somebody else holds what was needed, and it was not to be waited for.
var errBusy = errors.New("busy")

// turn is how long a caller waits for a gate: as long as a context lets it, or, if it is zero, not at all.
type turn struct{ ctx context.Context }

// take is lock, or errBusy. After either error nothing is held.
func (w turn) take(g *gate) error {
	if w.ctx != nil {
		return g.lock(w.ctx)
	}
	if !g.tryLock() {
		return errBusy
	}
	return nil
}
