package producerstate

import (
	"math"
	"sync"
	"sync/atomic"
)

// Unstable knows how far read-committed readers may go: up to the first transaction that is open, or whose end is not
// yet below the high watermark. It is safe for concurrent use, so that the high watermark may move without the lock of
// the state it belongs to; its own lock is a leaf. LastStable of a log without transactions takes no lock.
type Unstable struct {
	busy atomic.Bool // something below is not empty

	mu    sync.Mutex
	limit int64 // nothing is known of offsets from here on: the state is being reloaded; else math.MaxInt64
	open  int64 // first offset of the oldest open transaction; none: math.MaxInt64
	ended queue // not yet replicated, by marker
	least queue // of these, each whose first offset is smaller than those of all behind it: the front has the smallest
}

// ended is a completed transaction.
type ended struct{ first, marker int64 }

// LastStable is the last stable offset of a log with this high watermark and log start offset. The high watermark's
// progress is remembered: transactions whose marker is below it are stable for good.
func (u *Unstable) LastStable(highWatermark, logStart int64) int64 {
	if !u.busy.Load() {
		return highWatermark
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop(highWatermark)
	if first := u.first(); first != math.MaxInt64 {
		return min(max(first, logStart), highWatermark)
	}
	return highWatermark
}

// First is the first unstable offset, never below logStart; ok is false if everything is stable.
func (u *Unstable) First(logStart int64) (offset int64, ok bool) {
	if !u.busy.Load() {
		return 0, false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	first := u.first()
	return max(first, logStart), first != math.MaxInt64
}

// Advance forgets transactions whose marker is below offset: the high watermark, or the log start.
func (u *Unstable) Advance(offset int64) {
	if !u.busy.Load() {
		return
	}
	u.mu.Lock()
	u.drop(offset)
	u.mu.Unlock()
}

// Pending counts the completed transactions whose marker was not yet seen below the high watermark.
func (u *Unstable) Pending() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ended.len()
}

func (u *Unstable) first() int64 {
	first := min(u.open, u.limit)
	if u.least.len() > 0 {
		first = min(first, u.least.front().first)
	}
	return first
}

func (u *Unstable) drop(offset int64) {
	for u.ended.len() > 0 && u.ended.front().marker < offset {
		if u.least.len() > 0 && u.least.front().marker == u.ended.front().marker {
			u.least.pop()
		}
		u.ended.pop()
	}
	u.settle()
}

func (u *Unstable) settle() {
	u.busy.Store(u.open != math.MaxInt64 || u.limit != math.MaxInt64 || u.ended.len() > 0)
}

// commit adds completed transactions, whose markers ascend, and says which transaction is the oldest open one.
func (u *Unstable) commit(completed []Completed, open int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open = open
	for _, c := range completed {
		e := ended{c.FirstOffset, c.LastOffset}
		u.ended.push(e)
		for u.least.len() > 0 && u.least.back().first >= e.first {
			u.least.items = u.least.items[:len(u.least.items)-1]
		}
		u.least.push(e)
	}
	u.settle()
}

// hold makes everything from offset on unstable, until it is called with math.MaxInt64.
func (u *Unstable) hold(offset int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.limit = offset
	u.settle()
}

// reset forgets all transactions, not the limit.
func (u *Unstable) reset() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open, u.ended, u.least = math.MaxInt64, queue{}, queue{}
	u.settle()
}

// queue is a slice that is consumed from the front without moving what is left each time.
type queue struct {
	items []ended
	head  int
}

func (q *queue) len() int     { return len(q.items) - q.head }
func (q *queue) front() ended { return q.items[q.head] }
func (q *queue) back() ended  { return q.items[len(q.items)-1] }
func (q *queue) push(e ended) { q.items = append(q.items, e) }

func (q *queue) pop() {
	q.head++
	switch {
	case q.head == len(q.items):
		q.items, q.head = q.items[:0], 0
	case q.head >= 64 && q.head*2 >= len(q.items):
		n := copy(q.items, q.items[q.head:])
		q.items, q.head = q.items[:n], 0
	}
}
