package replica

import "sync"

// pool runs tasks on as many goroutines as it may, and on none when there is nothing to do. What comes while all are busy
// waits its turn, first come first.
type pool struct {
	limit int
	all   sync.WaitGroup // of the goroutines

	mu      sync.Mutex // guards the rest; no task runs under it
	idle    *sync.Cond // running went to zero
	running int
	queue   []task
	head    int
}

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
	p.mu.Unlock()
	p.all.Go(func() { p.work(t) })
}

func (p *pool) work(t task) {
	for t != nil {
		again := t.run()
		t = p.next(t, again)
	}
}

func (p *pool) next(last task, again bool) task {
	p.mu.Lock()
	defer p.mu.Unlock()
	if again {
		if p.head == len(p.queue) {
			return last
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
		return t
	}
	if p.running--; p.running == 0 {
		p.idle.Broadcast()
	}
	return nil
}

// wait returns when nothing runs or waits. Tasks may be submitted meanwhile; the goroutines are gone a moment later.
func (p *pool) wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.running > 0 {
		p.idle.Wait()
	}
}
