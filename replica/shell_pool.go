package replica

import "sync"

// pool runs tasks on as many goroutines as it may, and on none but a few that rest when there is nothing to do. What comes while all are
// busy waits its turn, first come first.
//
// Goroutines rest for what a new one costs: its stack is small, and is copied, frame by frame, each time it grows, until a log's append
// fits; that takes longer than the append.
type pool struct {
	limit int
	all   sync.WaitGroup // of the goroutines

	mu      sync.Mutex // guards the rest; no task runs under it
	idle    *sync.Cond // running went to zero
	running int
	queue   []task
	head    int
	resting []chan task // of capacity 1; who rests last is called first. nil ends it
	closed  bool
}

// resters is how many goroutines rest.
const resters = 4

// task is a piece of work; more says that it is to be run again, after the others.
type task interface{ run() (more bool) }

type taskFunc func()

func (f taskFunc) run() bool { f(); return false }

func newPool(limit int) *pool {
	p := &pool{limit: limit}
	p.idle = sync.NewCond(&p.mu)
	return p
}

// submit never blocks.
func (p *pool) submit(t task) {
	p.mu.Lock()
	if p.running >= p.limit {
		p.queue = append(p.queue, t)
		p.mu.Unlock()
		return
	}
	p.running++
	if last := len(p.resting) - 1; last >= 0 {
		rests := p.resting[last]
		p.resting = p.resting[:last]
		p.mu.Unlock()
		rests <- t
		return
	}
	p.mu.Unlock()
	p.all.Go(func() { p.work(t) })
}

func (p *pool) work(t task) {
	rests := make(chan task, 1)
	for t != nil {
		again := t.run()
		var rest bool
		if t, rest = p.next(t, again, rests); rest {
			t = <-rests
		}
	}
}

// next is the task to be run behind last, if there is one, or whether to rest until there is.
func (p *pool) next(last task, again bool, rests chan task) (t task, rest bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if again {
		if p.head == len(p.queue) {
			return last, false
		}
		p.queue = append(p.queue, last)
	}
	if p.head < len(p.queue) {
		t := p.queue[p.head]
		p.queue[p.head] = nil
		if p.head++; p.head == len(p.queue) {
			p.queue, p.head = p.queue[:0], 0
		} else if p.head > 1024 && p.head*2 > len(p.queue) {
			n := copy(p.queue, p.queue[p.head:])
			clear(p.queue[n:])
			p.queue, p.head = p.queue[:n], 0
		}
		return t, false
	}
	if p.running--; p.running == 0 {
		p.idle.Broadcast()
	}
	if p.closed || len(p.resting) >= resters {
		return nil, false
	}
	p.resting = append(p.resting, rests)
	return nil, true
}

// close ends the goroutines that rest and waits for all. Tasks that are submitted nevertheless still run.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	for _, rests := range p.resting {
		rests <- nil
	}
	p.resting = nil
	p.mu.Unlock()
	p.all.Wait()
}

// wait returns when nothing runs or waits. Tasks may be submitted meanwhile; the goroutines are gone a moment later.
func (p *pool) wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.running > 0 {
		p.idle.Wait()
	}
}
