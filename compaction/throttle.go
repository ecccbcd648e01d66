package compaction

import (
	"context"
	"time"
)

// throttle holds a run to a rate, lets others go first, tells of its progress, and lets its context end it.
type throttle struct {
	ctx   context.Context
	rate  int64 // bytes a second, read or written; <= 0 none
	began time.Time
	moved int64
	asked int64 // moved, when the rate was last looked at

	standBack func(context.Context) bool
	rested    time.Time // when it last returned
	others    bool      // what it said

	tell  func(Progress)
	p     Progress
	every int64 // p.Done when it was last told
}

const (
	tellEvery = 4 << 20
	askEvery  = 64 << 10 // bytes between two looks at the clock

	// workFor is the work between two looks at whether others should go first. A core that computes is lent to whoever wakes up
	// on it only after some milliseconds, and what wakes those who wait for a disk may be bound to it.
	workFor = 100 * time.Microsecond

	longestWait = time.Second // without a word of progress
)

func newThrottle(ctx context.Context, in *Input) *throttle {
	now := time.Now()
	return &throttle{ctx: ctx, rate: in.Config.BytesPerSecond, began: now, standBack: in.StandBack, rested: now, tell: in.Progress}
}

// phase begins one.
func (t *throttle) phase(p Phase, total int64) {
	t.p = Progress{Phase: p, Total: total}
	t.every = 0
	t.say()
}

func (t *throttle) say() {
	t.every = t.p.Done
	if t.tell != nil {
		t.tell(t.p)
	}
}

// read counts n bytes read.
func (t *throttle) read(n int) error {
	t.p.Done += int64(n)
	if t.p.Done-t.every >= tellEvery {
		t.say()
	}
	return t.move(n)
}

// move counts n bytes read or written; it waits, or returns the context's error.
func (t *throttle) move(n int) error {
	t.moved += int64(n)
	if t.standBack != nil && time.Since(t.rested) >= workFor {
		t.others = t.standBack(t.ctx)
		t.rested = time.Now()
	}
	if t.rate <= 0 {
		return t.ctx.Err()
	}
	if t.moved-t.asked < min(askEvery, t.rate/10) {
		return t.ctx.Err()
	}
	t.asked = t.moved
	seconds, rest := t.moved/t.rate, t.moved%t.rate
	due := time.Duration(seconds)*time.Second + time.Duration(float64(rest)/float64(t.rate)*float64(time.Second))
	wait := due - time.Since(t.began)
	if wait <= 0 {
		return t.ctx.Err()
	}
	for ; wait > 0; wait = due - time.Since(t.began) {
		t.say() // nobody is to think that it hangs
		timer := time.NewTimer(min(wait, longestWait))
		select {
		case <-timer.C:
		case <-t.ctx.Done():
			timer.Stop()
			return t.ctx.Err()
		}
	}
	return t.ctx.Err()
}
