package log

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/partlog/partlog/compaction"
)

// cleanDue is Kafka's log cleaner: of all logs that are due it takes the dirtiest first, on CleanerThreads goroutines. One
// that cannot be cleaned does not hold up the others; it is tried again after a while, and the while grows.
func cleanDue(ctx context.Context, r *round) error {
	var mu sync.Mutex
	type dirty struct {
		log   *Log
		ratio float64
	}
	var found []dirty
	r.look(ctx, func(l *Log, plan compaction.Plan) {
		mu.Lock()
		defer mu.Unlock()
		found = append(found, dirty{l, plan.DirtyRatio})
	})
	mu.Lock()
	due := found
	found = nil // what a log that did not answer finds later is for the next round
	mu.Unlock()
	slices.SortStableFunc(due, func(a, b dirty) int { return cmp.Compare(b.ratio, a.ratio) })
	logs := make([]*Log, len(due))
	for i := range due {
		logs[i] = due[i].log
	}
	c := &r.b.dir.cfg
	o := CompactOptions{MapBytes: share(c.CleanerMapBytes, c.CleanerThreads), BytesPerSecond: share(c.CleanerBytesPerSecond, c.CleanerThreads)}
	r.beats = func() (n int64) { // a cleaning takes as long as it takes, but it moves
		for _, l := range logs {
			n += l.cleaner.beats.Load()
		}
		return n
	}
	r.over(ctx, c.CleanerThreads, logs, func(ctx context.Context, l *Log) error {
		for { // a full map still is progress
			if res, err := l.Compact(ctx, o); err != nil || !res.MapFull {
				return err
			}
		}
	})
	return nil
}

// look measures the logs that may be dirty, and hands on those that are due.
func (r *round) look(ctx context.Context, due func(*Log, compaction.Plan)) {
	var logs []*Log
	for l := range r.b.dir.open() {
		if l.mayBeDirty(r.now) {
			logs = append(logs, l)
		}
	}
	r.over(ctx, max(2, r.b.dir.cfg.CleanerThreads), logs, func(_ context.Context, l *Log) error {
		plan, err := l.lookDirty(r.now)
		if err != nil {
			return err
		}
		if plan.Due {
			due(l, plan)
		}
		if l.cleaner.snapshot().LastError != nil {
			return errAsBefore // what failed in the last cleaning is not mended by this
		}
		return nil
	})
}

// mayBeDirty says whether it is worth the while to measure a log.
func (l *Log) mayBeDirty(now time.Time) bool {
	if !l.cfg().Cleanup.Has(Compact) || l.ended() != nil {
		return false
	}
	list := l.list.Load()
	if len(*list) < 2 {
		return false
	}
	c := &l.cleaner
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.calm.valid && c.calm.list == list && c.calm.tuned == l.cfg() && c.calm.lastStable == l.load().LastStable:
		return false
	case c.stats.LastError != nil && c.tried == list:
		return now.Sub(c.stats.Last) >= c.retryAfter() || now.Before(c.stats.Last)
	}
	return true
}

// A log that could not be cleaned and has not changed is tried again after firstRetry, then after twice as long, and so on.
const (
	firstRetry = time.Minute
	lastRetry  = time.Hour
)

func (c *cleaner) retryAfter() time.Duration {
	wait := firstRetry
	for n := int64(1); n < c.inRow && wait < lastRetry; n++ {
		wait *= 2
	}
	return min(wait, lastRetry)
}

// lookDirty plans, and remembers a log in which there is nothing to do until something changes.
func (l *Log) lookDirty(now time.Time) (compaction.Plan, error) {
	seen := calm{list: l.list.Load(), tuned: l.cfg(), lastStable: l.load().LastStable}
	plan, err := l.PlanCompaction(now)
	seen.valid = err == nil && !plan.Due && l.cfg().Compaction.MinLag == 0 && l.cfg().Compaction.MaxLag < 0
	l.cleaner.mu.Lock()
	l.cleaner.calm = seen
	l.cleaner.mu.Unlock()
	return plan, err
}
