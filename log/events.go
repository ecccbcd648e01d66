package log

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/compaction"
)

// Events tell a host what happens in a Dir; any of them may be nil. They are called outside every lock, so they may call
// the Dir and its logs, but for Dir.Close, which waits for what calls them. Those of one partition come one at a time and
// in order, on whichever goroutine is there: an append's, a background one. A panic in one is recovered, logged and counted
// (DirStats.EventPanics).
type Events struct {
	// Recovered: a partition was opened.
	Recovered func(TopicPartition, RecoveryReport)
	// Rolled: a segment was closed, and another one begun.
	Rolled func(TopicPartition, SegmentInfo)
	// Retained: retention, or DropOldest at Config.MaxBytes, took segments out of the log.
	Retained func(TopicPartition, RetentionReport)
	// Cleaned: a compaction replaced segments.
	Cleaned func(TopicPartition, compaction.Result)
	// SlowSync: a sync took longer than DirConfig.SlowSync.
	SlowSync func(TopicPartition, time.Duration)
	// Failed: a log has stopped (ErrFailed), or background work on it failed and will be tried again; then the error says
	// which. The zero TopicPartition is the root itself.
	Failed func(TopicPartition, error)
	// Backpressure: an append was refused for want of space (ErrFull, ErrNoSpace).
	Backpressure func(TopicPartition, error)
}

// outbox keeps events of one log until no lock is held.
type outbox struct {
	waiting atomic.Int32 // length of queue, to be read without mu

	// mu is a leaf, held for an instant.
	mu      sync.Mutex
	queue   []func(*Events)
	calling bool // somebody delivers: events are never called concurrently
}

func (o *outbox) add(f func(*Events)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = append(o.queue, f)
	o.waiting.Add(1)
}

// take is the next event; nil if there is none, or somebody else is delivering and will come to it.
func (o *outbox) take(first bool) func(*Events) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if first && o.calling {
		return nil
	}
	if o.calling = len(o.queue) > 0; !o.calling {
		o.queue = nil
		return nil
	}
	f := o.queue[0]
	o.queue = o.queue[1:]
	o.waiting.Add(-1)
	return f
}

// tell queues an event of the log; it may be called under any lock. Whoever holds none calls deliver.
func (l *Log) tell(f func(*Events)) {
	if l.dir.cfg.Events != nil {
		l.out.add(f)
	}
}

// deliver calls what was told. The caller holds no lock.
func (l *Log) deliver() {
	if l.dir != nil && l.out.waiting.Load() > 0 {
		l.dir.call(&l.out)
	}
}

// tellRolled: the segment before the active one was closed.
func (l *Log) tellRolled() {
	if e := l.dir.cfg.Events; e == nil || e.Rolled == nil {
		return
	}
	segs := *l.list.Load()
	closed, next := segs[len(segs)-2], segs.active().Base()
	l.tell(func(e *Events) {
		info := describe(closed, next)
		info.Sealed = true
		e.Rolled(l.tp, info)
	})
}

// tellPressure: an append found no room.
func (l *Log) tellPressure(err error) {
	if e := l.dir.cfg.Events; e == nil || e.Backpressure == nil || !errors.Is(err, ErrFull) && !errors.Is(err, ErrNoSpace) {
		return
	}
	l.tell(func(e *Events) { e.Backpressure(l.tp, err) })
}

// syncBegins is the time, if somebody wants to know how long it takes.
func (l *Log) syncBegins() (began time.Time) {
	if e := l.dir.cfg.Events; e != nil && e.SlowSync != nil && l.dir.cfg.SlowSync != Forever {
		began = time.Now()
	}
	return began
}

func (l *Log) syncEnded(began time.Time) {
	if began.IsZero() {
		return
	}
	if took := time.Since(began); took >= l.dir.cfg.SlowSync {
		l.tell(func(e *Events) { e.SlowSync(l.tp, took) })
	}
}

// retained counts and tells what retention, or DropOldest, took away. The caller delivers it once it holds no lock.
func (l *Log) retained(r RetentionReport) {
	if r.Dropped == 0 {
		return
	}
	l.stats.freed.Add(r.Freed)
	l.tell(func(e *Events) {
		if e.Retained != nil {
			e.Retained(l.tp, r)
		}
	})
}

func (l *Log) tellFailed(err error) {
	l.tell(func(e *Events) {
		if e.Failed != nil {
			e.Failed(l.tp, err)
		}
	})
}

// call delivers what is in o, unless somebody does already.
func (d *Dir) call(o *outbox) {
	for f := o.take(true); f != nil; f = o.take(false) {
		if cause, panicked := event(func() { f(d.cfg.Events) }); panicked {
			d.eventPanics.Add(1)
			d.cfg.Logger.LogAttrs(context.Background(), slog.LevelError, "an event function panicked", slog.Any("panic", cause))
		}
	}
}

// event calls a host's function and survives its panic.
func event(f func()) (cause any, panicked bool) {
	panicked = true
	defer func() { cause = recover() }()
	f()
	return nil, false
}
