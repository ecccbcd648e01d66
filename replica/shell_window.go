package replica

import (
	"slices"
	"sync"
	"time"
)

// window bounds the records that are on their way to each follower: read for it, and not asked beyond yet. One answer is always
// on its way, however large.
//
//	DoRead ──▶ enter ──▶ read ──▶ settle ──▶ the follower asks on: leave
//	             │ too much is under way already
//	             ▼
//	           await ──▶ resume, first come first
type window struct {
	limit int64         // bytes
	lost  time.Duration // an answer that is so old has come, or will not

	mu        sync.Mutex // guards the rest; nothing is called under it
	followers map[NodeID]*underway
}

// underway is what one follower is being sent: of each partition one answer at most.
type underway struct {
	bytes   int64
	flights map[*runner]flight
	waiting []waitingRead
	delayed int       // reads that had to wait, so far
	swept   time.Time // when it was last looked for answers that were lost
}

type flight struct {
	bytes int64
	since time.Time
}

type waitingRead struct {
	r      *runner
	max    int64
	resume func() bool // false: nobody needs it any more
}

func newWindow(limit int64, lost time.Duration) *window {
	return &window{limit: limit, lost: lost, followers: make(map[NodeID]*underway)}
}

// enter says whether up to max bytes may be read for a follower now, and counts them as under way if so.
func (w *window) enter(to NodeID, r *runner, max int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	u := w.followers[to]
	if u == nil {
		u = &underway{flights: make(map[*runner]flight)}
		w.followers[to] = u
	}
	u.drop(r)
	if len(u.waiting) > 0 || !u.fits(max, w.limit) {
		return false
	}
	u.begin(r, max)
	return true
}

// await has resume called once it may be read. What follows enter's no.
func (w *window) await(to NodeID, r *runner, max int64, resume func() bool) {
	w.mu.Lock()
	u := w.followers[to]
	u.waiting = append(u.waiting, waitingRead{r, max, resume})
	u.delayed++
	u.sweep(w.lost)
	ready := u.ready(w.limit)
	w.mu.Unlock()
	w.resume(to, ready)
}

// settle says how much a read came to.
func (w *window) settle(to NodeID, r *runner, bytes int64) {
	w.mu.Lock()
	u := w.followers[to]
	if u == nil {
		w.mu.Unlock()
		return
	}
	if f, ok := u.flights[r]; ok {
		u.bytes += bytes - f.bytes
		u.flights[r] = flight{bytes, f.since}
	}
	ready := u.ready(w.limit)
	w.mu.Unlock()
	w.resume(to, ready)
}

// leave says that nothing of a partition is under way to a follower, nor needed.
func (w *window) leave(to NodeID, r *runner) {
	w.mu.Lock()
	u := w.followers[to]
	if u == nil {
		w.mu.Unlock()
		return
	}
	u.drop(r)
	ready := u.ready(w.limit)
	w.mu.Unlock()
	w.resume(to, ready)
}

// forget is leave for all followers of a partition.
func (w *window) forget(r *runner) {
	w.mu.Lock()
	nodes := make([]NodeID, 0, len(w.followers))
	for to := range w.followers {
		nodes = append(nodes, to)
	}
	w.mu.Unlock()
	for _, to := range nodes {
		w.leave(to, r)
	}
}

func (w *window) resume(to NodeID, ready []waitingRead) {
	for _, read := range ready {
		if !read.resume() {
			w.leave(to, read.r)
		}
	}
}

func (u *underway) fits(max, limit int64) bool { return u.bytes == 0 || u.bytes+max <= limit }

func (u *underway) begin(r *runner, max int64) {
	u.flights[r] = flight{max, time.Now()}
	u.bytes += max
}

func (u *underway) drop(r *runner) {
	if f, ok := u.flights[r]; ok {
		u.bytes -= f.bytes
		delete(u.flights, r)
	}
	if len(u.waiting) > 0 {
		u.waiting = slices.DeleteFunc(u.waiting, func(read waitingRead) bool { return read.r == r })
	}
}

// sweep forgets answers that were lost, now and then: the follower has asked elsewhere, or will ask again.
func (u *underway) sweep(lost time.Duration) {
	now := time.Now()
	if now.Sub(u.swept) < lost/4 {
		return
	}
	u.swept = now
	for r, f := range u.flights {
		if now.Sub(f.since) > lost {
			u.bytes -= f.bytes
			delete(u.flights, r)
		}
	}
}

// ready takes those that wait and may begin.
func (u *underway) ready(limit int64) (list []waitingRead) {
	for len(u.waiting) > 0 && u.fits(u.waiting[0].max, limit) {
		first := u.waiting[0]
		u.waiting = slices.Delete(u.waiting, 0, 1)
		u.begin(first.r, first.max)
		list = append(list, first)
	}
	return list
}
