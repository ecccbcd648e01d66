package log

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// background is all that a Dir does by itself: a table of tasks, one goroutine that knows when each is due, and a few
// short-lived ones that do the work. Nothing of it grows with the number of logs. A Dir that is Manual has the table
// alone, and RunOnce.
type background struct {
	dir   *Dir
	ctx   context.Context // ends when the Dir closes
	stop  context.CancelFunc
	poke  chan struct{} // one token: something may be due earlier than the scheduler thinks
	slots chan struct{} // one token for each log that is being worked on

	// mu guards all below and the fields of tasks that say so. It is a leaf, held for an instant.
	mu     sync.Mutex
	tasks  []*task
	closed bool

	all sync.WaitGroup // everything that runs; added to under mu while not closed, or by what runs already
}

// task is one kind of background work.
type task struct {
	name string
	bit  uint32 // in Log.tended
	// due is when the task should run that last ran at that time, or, if it is fresh, never did since then; ok is false if
	// there is nothing to do.
	due func(ran time.Time, fresh bool) (at time.Time, ok bool)
	run func(ctx context.Context, r *round) error

	// guarded by background.mu
	ran     time.Time
	fresh   bool
	running chan struct{} // closed at the end of the present run; nil between runs
}

// round is one run of a task.
type round struct {
	*task
	b        *background
	now      time.Time
	patience time.Duration // how long to wait for logs that do not answer; 0: for ever
	beats    func() int64  // changes while work that takes long goes on; nil: nothing takes long
}

// patience in the background: a log whose device hangs is left to itself after that.
const patience = 10 * time.Second

// mostHelpers is how many goroutines at most take the place of those that hang.
const mostHelpers = 8

// errStuck: the work on a log has not ended in time. It goes on.
var errStuck = errors.New("not done yet: the device does not answer")

// errAsBefore is no failure, and none that is over either.
var errAsBefore = errors.New("as before")

func newBackground(d *Dir) *background {
	b := &background{dir: d, poke: make(chan struct{}, 1), slots: make(chan struct{}, d.cfg.SyncParallelism)}
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// add puts a task into the table; before start.
func (b *background) add(t *task) {
	t.bit = 1 << len(b.tasks)
	t.ran, t.fresh = b.dir.cfg.Now(), true
	b.tasks = append(b.tasks, t)
}

// every is the due function of a task that runs at intervals, the first time behind the initial delay.
func (b *background) every(interval func() time.Duration) func(time.Time, bool) (time.Time, bool) {
	delay := b.dir.cfg.InitialDelay
	return func(ran time.Time, fresh bool) (time.Time, bool) {
		every := interval()
		switch {
		case every <= 0 || delay == Forever:
			return time.Time{}, false
		case fresh:
			return ran.Add(max(delay, 0)), true
		}
		return ran.Add(every), true
	}
}

func always(interval time.Duration) func() time.Duration {
	return func() time.Duration { return interval }
}

// start begins the scheduler.
func (b *background) start() {
	if !b.dir.cfg.Manual {
		b.all.Go(b.schedule)
	}
}

// wake makes the scheduler look again what is due.
func (b *background) wake() {
	select {
	case b.poke <- struct{}{}:
	default:
	}
}

// The scheduler sleeps no shorter and no longer than that, whatever clock it is given.
const (
	shortestSleep = time.Millisecond
	longestSleep  = time.Hour
)

func (b *background) schedule() {
	timer := time.NewTimer(longestSleep)
	defer timer.Stop()
	for {
		now := b.dir.cfg.Now()
		due, next := b.take(now)
		for _, t := range due {
			b.all.Go(func() {
				b.do(b.ctx, &round{task: t, b: b, now: now, patience: patience})
				b.wake()
			})
		}
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-b.poke:
		case <-b.ctx.Done():
			return
		}
	}
}

// take marks what is due at now as running, and says how long nothing else will be.
func (b *background) take(now time.Time) (due []*task, next time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next = longestSleep
	if b.closed {
		return nil, next
	}
	for _, t := range b.tasks {
		switch wait, ok := t.wait(now); {
		case !ok || t.running != nil:
		case wait <= 0:
			t.begin()
			due = append(due, t)
		default:
			next = min(next, max(wait, shortestSleep))
		}
	}
	return due, next
}

// wait is how long the task is not due yet. A clock that was put back must not stop it. The caller holds background.mu.
func (t *task) wait(now time.Time) (wait time.Duration, ok bool) {
	if now.Before(t.ran) {
		t.ran = now
	}
	at, ok := t.due(t.ran, t.fresh)
	return at.Sub(now), ok
}

func (t *task) begin() { t.running = make(chan struct{}) }

// do runs a task that was marked as running, and notes how it went.
func (b *background) do(ctx context.Context, r *round) {
	err := r.run(ctx, r)
	if ctx.Err() == nil {
		b.dir.note(&b.dir.failures, TopicPartition{}, r.name, r.now, err)
	}
	b.mu.Lock()
	r.ran, r.fresh = r.now, false
	close(r.running)
	r.running = nil
	b.mu.Unlock()
	b.dir.deliver()
}

// RunOnce does the background work that is due at now (retention, flushing, checkpoints, removal of deleted partitions and
// so on), each kind at its interval since it was last done, and returns when it is done. It is how a Manual Dir lives;
// beside a Dir that is not it only does what the Dir would have done itself a moment later. What failed is tried again at
// the next interval; it is in Stats, and Events and Logger have it. A log whose device does not answer is waited for until
// ctx ends. The error is ErrClosed, ctx's, or what failed now, joined.
func (d *Dir) RunOnce(ctx context.Context, now time.Time) error {
	if d.fs == nil {
		return ErrClosed
	}
	b := d.background
	b.mu.Lock()
	closed, tasks := b.closed, b.tasks
	if !closed {
		b.all.Add(1)
	}
	b.mu.Unlock()
	if closed {
		return ErrClosed
	}
	defer b.all.Done()
	errs := []error{}
	for _, t := range tasks {
		if err := ctx.Err(); err != nil {
			return err
		}
		if b.claim(ctx, t, now) {
			b.do(ctx, &round{task: t, b: b, now: now})
			errs = append(errs, d.failed(t.name)...)
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// claim marks a task as running if it is due, waiting for a run that is under way.
func (b *background) claim(ctx context.Context, t *task, now time.Time) bool {
	for {
		b.mu.Lock()
		running := t.running
		wait, due := t.wait(now)
		if due = due && wait <= 0 && !b.closed; due && running == nil {
			t.begin()
		}
		b.mu.Unlock()
		if running == nil || !due {
			return due
		}
		if waitRound(ctx, running) != nil {
			return false
		}
	}
}

// end stops everything and waits for what is at work.
func (b *background) end() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.stop()
	b.all.Wait()
}

// each is over for the open logs that want the work, in no order, on at least two goroutines; one that does not want it is
// as good as done.
func (r *round) each(ctx context.Context, parallel int, wants func(*Log) bool, work func(ctx context.Context, l *Log) error) {
	var logs []*Log
	for l := range r.b.dir.open() {
		if wants(l) {
			logs = append(logs, l)
		} else {
			l.failures.clear(r.name)
		}
	}
	r.over(ctx, max(parallel, 2), logs, work)
}

// over does work on logs in their order, on as many goroutines as parallel says, and notes how it went on each. A log on
// which the same task is still at work is passed over. It returns when all is done, when ctx ends, or when nothing but logs
// that do not answer is left: these go on by themselves. As long as others wait, another goroutine does what those that
// hang were to do.
func (r *round) over(ctx context.Context, parallel int, logs []*Log, work func(ctx context.Context, l *Log) error) {
	if len(logs) == 0 {
		return
	}
	if r.b.dir.inOrder() {
		slices.SortFunc(logs, byName)
		for _, l := range logs {
			if ctx.Err() == nil {
				r.one(ctx, l, work)
			}
		}
		return
	}
	var taken, left atomic.Int64 // logs that were begun; goroutines that have not ended
	done := make(chan struct{})
	worker := func() {
		for i := taken.Add(1) - 1; i < int64(len(logs)) && ctx.Err() == nil; i = taken.Add(1) - 1 {
			r.one(ctx, logs[i], work)
		}
		if left.Add(-1) == 0 {
			close(done)
		}
	}
	workers := min(parallel, len(logs))
	left.Store(int64(workers))
	for range workers {
		r.b.all.Go(worker)
	}
	help := func() {
		for n := left.Load(); n > 0 && n < int64(parallel+mostHelpers); n = left.Load() {
			if left.CompareAndSwap(n, n+1) {
				r.b.all.Go(worker)
				return
			}
		}
	}
	r.await(ctx, done, func() int64 { return int64(len(logs)) - min(taken.Load(), int64(len(logs))) }, help)
	for _, l := range logs {
		if l.tended.Load()&r.bit != 0 && ctx.Err() == nil {
			r.b.dir.note(&l.failures, l.tp, r.name, r.now, errStuck)
		}
	}
}

func (r *round) one(ctx context.Context, l *Log, work func(ctx context.Context, l *Log) error) {
	if l.tended.Or(r.bit)&r.bit != 0 {
		return
	}
	select {
	case r.b.slots <- struct{}{}:
	case <-ctx.Done():
		l.tended.And(^r.bit)
		return
	}
	err := work(ctx, l)
	<-r.b.slots
	l.tended.And(^r.bit)
	if ctx.Err() == nil && err != errAsBefore {
		r.b.dir.note(&l.failures, l.tp, r.name, r.now, err)
	}
	l.deliver()
}

// await waits for done; with patience, no longer than that once all logs were begun and nothing moves. While some are left
// and nothing moves for as long it asks for help.
func (r *round) await(ctx context.Context, done <-chan struct{}, left func() int64, help func()) {
	every := or(r.patience, patience)
	timer := time.NewTimer(every)
	defer timer.Stop()
	beats := func() int64 {
		if r.beats == nil {
			return 0
		}
		return r.beats()
	}
	for rest, beat := left(), beats(); ; {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(every)
		}
		wasLeft, was := rest, beat
		rest, beat = left(), beats()
		switch {
		case rest != wasLeft || beat != was:
		case rest > 0:
			help()
		case r.patience > 0:
			return
		}
	}
}
