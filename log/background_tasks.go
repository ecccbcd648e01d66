package log

import (
	"context"
	"errors"
	"sync"
	"time"
)

// fillTable lists what a Dir does in the background.
func (b *background) fillTable() {
	c := &b.dir.cfg
	b.add(&task{name: "flush", due: b.every(b.flushInterval), run: flushDue})
	b.add(&task{name: "high watermarks", due: b.every(always(c.HighWatermarkInterval)), run: storeHighWatermarks})
	b.add(&task{name: "checkpoint", due: b.every(always(c.CheckpointInterval)), run: storePoints})
	b.add(&task{name: "retention", due: b.every(always(c.RetentionInterval)), run: retain})
	b.add(&task{name: "compaction", due: b.every(always(c.CleanerBackoff)), run: cleanDue})
	b.add(&task{name: "files", due: b.every(always(filesEvery)), run: removeDropped})
	b.add(&task{name: "delete", due: b.dir.removalDue, run: removeDue})
	b.add(&task{name: "producers", due: b.every(always(c.ProducerInterval)), run: expireProducers})
}

// filesEvery is how often to look for files whose file.delete.delay.ms is over.
const filesEvery = 10 * time.Second

// shortestFlush is how often the flush task runs at most, if the host does not say.
const shortestFlush = 10 * time.Millisecond

// flushInterval is FlushScheduler, or what the open logs ask for.
func (b *background) flushInterval() time.Duration {
	if every := b.dir.cfg.FlushScheduler; every != 0 {
		return every
	}
	every := time.Duration(b.dir.flushEvery.Load())
	if every == 0 {
		return Forever
	}
	return max(every, shortestFlush)
}

// flushDue syncs the logs whose flush.ms is over.
func flushDue(ctx context.Context, r *round) error {
	r.each(ctx, cap(r.b.slots), func(l *Log) bool {
		interval := boundMillis(l.cfg().FlushInterval)
		if o := l.load(); interval < 0 || o.Durable >= o.LogEnd || l.ended() != nil {
			return false
		}
		waited := r.now.UnixMilli() - l.stats.lastFlush.Load()
		return waited >= interval || waited < 0
	}, func(ctx context.Context, l *Log) error { return l.flush(ctx) })
	return nil
}

// storePoints makes the recovery points follow, and writes the checkpoints of the root.
func storePoints(ctx context.Context, r *round) error {
	var mu sync.Mutex
	var ready []footing
	r.each(ctx, cap(r.b.slots), (*Log).behind, func(ctx context.Context, l *Log) error {
		f, err := l.standOn(ctx)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		ready = append(ready, f)
		return nil
	})
	mu.Lock()
	found := ready
	ready = nil // what a log that did not answer finds later is for the next round
	mu.Unlock()
	var logs []*Log
	for l := range r.b.dir.open() {
		logs = append(logs, l)
	}
	err := r.b.dir.points.sweep(ctx, logs, found)
	for _, f := range found {
		f.renote()
	}
	return err
}

// storeHighWatermarks is for the logs whose high watermark nothing else on disk tells.
func storeHighWatermarks(ctx context.Context, r *round) error {
	var logs []*Log
	for l := range r.b.dir.open() {
		if l.cfg().Visibility == External {
			logs = append(logs, l)
		}
	}
	if len(logs) == 0 {
		return nil
	}
	return r.b.dir.points.sweepHighWatermarks(ctx, logs)
}

// expireProducers forgets old producers of logs that nobody appends to; appends do it themselves.
func expireProducers(ctx context.Context, r *round) error {
	r.each(ctx, 2, func(l *Log) bool { return l.ended() == nil }, func(_ context.Context, l *Log) error {
		if l.write.tryLock() {
			defer l.write.unlock()
			if l.ended() == nil {
				l.producers.state.ExpireDue(r.now.UnixMilli())
			}
		}
		return nil
	})
	return nil
}

// retain is Kafka's retention thread; it also does compacted logs, whose policy decides what may go.
func retain(ctx context.Context, r *round) error {
	r.each(ctx, 4, func(l *Log) bool { return l.ended() == nil }, func(ctx context.Context, l *Log) error {
		_, err := l.Retain(ctx)
		return err
	})
	return nil
}

// removeDropped removes the files of segments that retention took out of their logs.
func removeDropped(ctx context.Context, r *round) error {
	r.each(ctx, 4, func(l *Log) bool { return l.discards.count() > 0 && l.ended() == nil }, func(_ context.Context, l *Log) error {
		_, err := l.discardDue(r.now.UnixMilli())
		return err
	})
	return nil
}

// removeDue removes the files of deleted partitions whose time has come.
func removeDue(ctx context.Context, r *round) error {
	return errors.Join(r.b.dir.removeDoomed(ctx, r.now)...)
}
