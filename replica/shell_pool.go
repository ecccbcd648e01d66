package replica

import "sync"

// pool runs tasks on as many goroutines as it may, and on none but a few that rest when there is nothing to do. What comes
// while all are busy waits its turn, first come first.
//
// Goroutines rest for what a new one costs: its stack is small, and is copied, frame by frame, each time it grows, until a
// log's append fits; that takes longer than the append.
type pool struct {
	limit int
	all   sync.WaitGroup // of the goroutines

	mu      sync.Mutex // guards the rest; no task runs under it
	idle    *sync.Cond // running went to zero
	running int
	queue   []task
	head    int
	resting []*worker // who rests last is called first
	closed  bool
}

// resters is how many goroutines rest.
const resters = 4

// task is a piece of work; more says that it is to be run again, after the others. w is who runs it, nil if it is a goroutine that is
// somebody else's.
type task interface{ run(w *worker) (more bool) }

type taskFunc func()

func (f taskFunc) run(*worker) bool { f(); return false }

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
	p.begin(t)
}

// begin has t, which is counted, run by who rests or is made for it. It ends what the caller holds of mu.
func (p *pool) begin(t task) {
	if last := len(p.resting) - 1; last >= 0 {
		w := p.resting[last]
		p.resting = p.resting[:last]
		p.mu.Unlock()
		w.next <- t
		return
	}
	p.all.Add(1)
	p.mu.Unlock()
	go p.work(t)
}

// lend counts a task that the caller will run or have run, as if it were submitted; false if too many are. giveBack or pass follow.
func (p *pool) lend() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running >= p.limit {
		return false
	}
	p.running++
	return true
}

// pass has a task that was lent run here.
func (p *pool) pass(t task) {
	p.mu.Lock()
	p.begin(t)
}

// giveBack is for when a task that was lent has run. Should anything wait, it is done here in its place.
func (p *pool) giveBack(t task, more bool) {
	p.mu.Lock()
	if t = p.take(t, more); t != nil {
		p.begin(t)
		return
	}
	p.mu.Unlock()
}

// take is the task to be run behind last; nil if there is none, and then last is not counted any more. The caller holds mu.
func (p *pool) take(last task, again bool) task {
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

// work is a goroutine's life.
func (p *pool) work(t task) {
	w := &worker{next: make(chan task, 1)}
	for rest := false; t != nil || rest; {
		if rest {
			if t = <-w.next; t == nil {
				break
			}
		}
		if t, rest = p.after(w, t, t.run(w)); t != nil {
			w.letGo()
			continue
		}
		if w.then != nil {
			r := w.then
			w.then = nil
			p.all.Done() // who closes p need not wait for another node's disk
			r.node.fast.giveBack(r, r.run(nil))
			if rest = p.back(w); !rest {
				return
			}
		}
	}
	p.all.Done()
}

// after is what w goes on with: a task, or a rest, or neither.
func (p *pool) after(w *worker, last task, more bool) (t task, rest bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t = p.take(last, more); t != nil || w.then != nil {
		return t, false
	}
	return nil, p.rest(w)
}

// rest is false if enough do. The caller holds mu.
func (p *pool) rest(w *worker) bool {
	if p.closed || len(p.resting) >= resters {
		return false
	}
	p.resting = append(p.resting, w)
	return true
}

// back has a goroutine that was away rest, if it may.
func (p *pool) back(w *worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.rest(w) {
		return false
	}
	p.all.Add(1)
	return true
}

// close ends the goroutines that rest and waits for all. Tasks that are submitted nevertheless still run.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	for _, w := range p.resting {
		w.next <- nil
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
