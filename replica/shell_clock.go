package replica

import (
	"context"
	"sync"
	"time"
)

// timeline gives things out when they are due, on the goroutine that runs it.
type timeline[T any] struct {
	mu   sync.Mutex // guards heap; nothing is called under it
	heap []due[T]   // the earliest first
	wake chan struct{}
}

type due[T any] struct {
	at    time.Time
	thing T
}

func newTimeline[T any]() *timeline[T] { return &timeline[T]{wake: make(chan struct{}, 1)} }

// add never blocks.
func (t *timeline[T]) add(at time.Time, thing T) {
	t.mu.Lock()
	t.heap = append(t.heap, due[T]{at, thing})
	i := len(t.heap) - 1
	for parent := (i - 1) / 2; i > 0 && t.heap[i].at.Before(t.heap[parent].at); parent = (i - 1) / 2 {
		t.heap[i], t.heap[parent] = t.heap[parent], t.heap[i]
		i = parent
	}
	first := i == 0
	t.mu.Unlock()
	if first {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// run calls do for each thing when its time has come, until ctx ends.
func (t *timeline[T]) run(ctx context.Context, do func(at time.Time, thing T)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next, d, ok := t.take(time.Now())
		if ok {
			do(d.at, d.thing)
			if ctx.Err() != nil {
				return
			}
			continue
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-t.wake:
		case <-ctx.Done():
			return
		}
	}
}

// take removes the first thing if it is due, or says how long that takes.
func (t *timeline[T]) take(now time.Time) (wait time.Duration, first due[T], ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.heap) == 0 {
		return time.Hour, first, false
	}
	first = t.heap[0]
	if wait = first.at.Sub(now); wait > 0 {
		return wait, first, false
	}
	last := len(t.heap) - 1
	t.heap[0] = t.heap[last]
	t.heap[last] = due[T]{}
	t.heap = t.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && t.heap[child+1].at.Before(t.heap[child].at) {
			child++
		}
		if !t.heap[child].at.Before(t.heap[i].at) {
			break
		}
		t.heap[i], t.heap[child] = t.heap[child], t.heap[i]
		i = child
	}
	return 0, first, true
}
