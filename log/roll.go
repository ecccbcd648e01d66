package log

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/partlog/partlog/segment"
)

var errSyncFirst = errors.New("log: to be synced before the segment is rolled")

// rollIfNeeded starts a new segment when Kafka's rules ask for one before these batches: size, age by message time,
// a full index, or an offset too far from the base. The caller holds write.
//
// errSyncFirst: the roll has to make the active segment durable, and the caller does that first, without the lock: then
// nobody else waits for it, and ctx is heard.
func (l *Log) rollIfNeeded(ctx context.Context, p *prepared) error {
	active := l.list.Load().active()
	next := segment.Incoming{Bytes: int64(len(p.raw)), LastOffset: p.last, MaxTimestamp: p.maxTime}
	if roll, _ := active.NeedsRoll(next, p.now); !roll {
		return nil
	}
	if o := l.load(); !p.synced && o.Durable < o.LogEnd {
		return errSyncFirst
	}
	base := p.first
	if p.legacy { // Kafka's way: the lowest base from which the last offset is still representable
		base = p.last - math.MaxInt32
	}
	return l.roll(ctx, base)
}

// Roll closes the active segment and starts a new one at the log end. An empty active segment is kept: there is
// nothing to close. Like every roll it first makes all records durable, so that a crash can only take from the newest
// segment and never leaves a hole in the log.
func (l *Log) Roll(ctx context.Context) error {
	return l.rolling(ctx, func() error { return l.roll(ctx, l.load().LogEnd) })
}

// rolling has a roll done under write, with next to nothing left to sync there.
func (l *Log) rolling(ctx context.Context, roll func() error) error {
	if err := l.admit(ctx); err != nil {
		return err
	}
	defer l.deliver()
	if err := l.commitAll(ctx); err != nil {
		return err
	}
	if err := l.write.lock(ctx); err != nil {
		return err
	}
	defer l.write.unlock()
	if err := l.ended(); err != nil {
		return err
	}
	return roll()
}

// roll starts a segment at base, or at the log end if that is higher. The caller holds write.
//
// Everything in the log is made durable first: were the old segment's tail lost and the new segment kept, the log would
// have a hole that no recovery can tell from a legal gap. What an append or Roll synced before it took the lock need not be
// synced here.
//
// The new files are created first: when that fails (no space, say) the log goes on in the old segment as if nothing
// had been asked. Their directory entry becomes durable in the next commit round, before the first ack (commit.go).
func (l *Log) roll(ctx context.Context, base int64) error {
	segs := *l.list.Load()
	active := segs.active()
	base = max(base, l.load().LogEnd)
	if base == active.Base() {
		if active.Size() == 0 {
			return nil
		}
		return fmt.Errorf("roll %s: segment %d already exists and is not empty", l.name, base)
	}
	if err := l.syncBelowRoll(ctx); err != nil {
		return err
	}
	next, err := segment.Create(l.name, base, l.cfg().segOpts)
	if err != nil {
		return l.rollRefused(err)
	}
	if err := active.Seal(context.Background()); err != nil {
		err = errors.Join(err, discard(next))
		return l.rollRefused(err)
	}
	list := segs.with(next)
	l.list.Store(&list)
	l.tellRolled()
	if err := l.producers.remember(base, l.load().LogEnd); err != nil {
		return l.rollRefused(err)
	}
	return nil
}

// unroll takes back a roll that left a gap in front of batches which then could not be written: an empty segment above the
// log end would move the end when the log is opened again. The error is the sticky one. The caller holds write.
func (l *Log) unroll() error {
	segs, end := *l.list.Load(), l.load().LogEnd
	if segs.active().Base() <= end || l.ended() != nil {
		return nil
	}
	if err := l.commits.acquire(context.Background()); err != nil {
		return err
	}
	defer l.commits.release()
	active, before := segs.active(), segs[len(segs)-2]
	if _, err := before.Truncate(end); err != nil { // cuts nothing, and makes it take appends again
		return l.fail(err)
	}
	rest := segs[: len(segs)-1 : len(segs)-1]
	l.list.Store(&rest)
	l.producers.drop(-1, end)
	l.commits.born = min(l.commits.born, before.Base())
	if err := errors.Join(discard(active), l.syncDir()); err != nil {
		return l.fail(err)
	}
	return nil
}

func (l *Log) rollRefused(err error) error {
	if isNoSpace(err) {
		return fmt.Errorf("roll %s: %w: %w", l.name, ErrNoSpace, err)
	}
	return fmt.Errorf("roll %s: %w", l.name, err)
}
