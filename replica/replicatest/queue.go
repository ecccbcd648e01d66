package replicatest

import "time"

// event is something that is going to happen at a moment, to a life of a node if it has one.
type event struct {
	at   time.Duration
	seq  uint64 // of two at the same moment, the first asked for comes first
	node *node
	life int // anyLife: whichever
	run  func()
}

const anyLife = -1

func (e *event) before(o *event) bool {
	return e.at < o.at || e.at == o.at && e.seq < o.seq
}

// queue is a heap of events, the earliest on top.
type queue []event

func (q *queue) push(e event) {
	h := append(*q, e)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(&h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = e
	*q = h
}

func (q *queue) pop() event {
	h := *q
	top, last := h[0], h[len(h)-1]
	h[len(h)-1] = event{}
	h = h[:len(h)-1]
	*q = h
	for i := 0; len(h) > 0; {
		down := 2*i + 1
		if down+1 < len(h) && h[down+1].before(&h[down]) {
			down++
		}
		if down >= len(h) || !h[down].before(&last) {
			h[i] = last
			break
		}
		h[i] = h[down]
		i = down
	}
	return top
}
