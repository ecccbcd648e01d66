package log

import (
	"context"
	"sync/atomic"
	"time"
)

// rounds are the syncs of a root's logs that appends wait for, so that background work can let them go first: a thread that
// computes or fills the disk's queue beside a sync makes it take several times as long.
type rounds struct {
	running atomic.Int32
	ended   atomic.Pointer[chan struct{}] // closed when one ends; nil: nobody waits for that
}

func (r *rounds) begin() { r.running.Add(1) }

func (r *rounds) end() {
	r.running.Add(-1)
	if ended := r.ended.Swap(nil); ended != nil {
		close(*ended)
	}
}

// mostAside is how long background work stands aside at a time, however long the syncs of a slow disk take: it must come to
// its end, too.
const mostAside = time.Millisecond

// standBack waits until a sync ends, if any runs, and says whether one ran.
func (r *rounds) standBack(ctx context.Context) (others bool) {
	if r.running.Load() == 0 {
		return false
	}
	ended := r.next()
	if r.running.Load() == 0 { // it may have ended before it could know
		return true
	}
	aside := time.NewTimer(mostAside)
	defer aside.Stop()
	select {
	case <-ended:
	case <-aside.C:
	case <-ctx.Done():
	}
	return true
}

// next is closed when the next sync ends.
func (r *rounds) next() chan struct{} {
	for {
		if ended := r.ended.Load(); ended != nil {
			return *ended
		}
		ended := make(chan struct{})
		if r.ended.CompareAndSwap(nil, &ended) {
			return ended
		}
	}
}
