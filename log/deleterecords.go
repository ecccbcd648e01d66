package log

import (
	"context"
	"errors"
	"fmt"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/retention"
)

// ToHighWatermark given to DeleteRecords means everything that readers can see.
const ToHighWatermark int64 = -1

// DeleteRecords raises the log start offset to before (Kafka's DeleteRecords): records below are gone for every reader
// at once and durably. Files go with the next Retain, once a whole segment lies below the start; on a device without room for
// the new start they go first, and only if that makes none either it is ErrNoSpace. Below the present start it
// changes nothing; above the high watermark it is *OffsetRangeError; a log whose cleanup.policy lacks delete refuses
// with ErrPolicy.
func (l *Log) DeleteRecords(ctx context.Context, before int64) error {
	if err := l.admit(ctx); err != nil {
		return err
	}
	if !l.cfg().Cleanup.Has(Delete) {
		return fmt.Errorf("%w: cleanup.policy of %s does not delete", ErrPolicy, l.name)
	}
	return l.raise(ctx, before)
}

// raise is raiseTo, on a full device too.
func (l *Log) raise(ctx context.Context, start int64) error {
	err := l.raiseTo(ctx, start)
	if errors.Is(err, ErrNoSpace) {
		return l.raiseWithoutRoom(ctx, start, err)
	}
	return err
}

// raiseWithoutRoom is for a device on which the new start cannot be written: what lies below it as whole segments goes first,
// which takes no room.
func (l *Log) raiseWithoutRoom(ctx context.Context, before int64, full error) error {
	o, cuts := l.loadCuts()
	if before == ToHighWatermark {
		before = o.HighWatermark
	}
	segs, n := *l.list.Load(), 0
	for n+1 < len(segs) && segs[n+1].Base() <= before {
		n++
	}
	if n == 0 {
		return full
	}
	r := droppedReport(segs, n, retention.StartOffset)
	r.Dropped, r.Freed = 0, 0
	err := l.carryOut(ctx, &r, r.Plan.Drop, cuts)
	_, stuck := l.discardDue(l.now().UnixMilli())
	l.retained(r)
	l.deliver()
	if err := errors.Join(err, stuck); err != nil {
		return errors.Join(full, err)
	}
	return l.raiseTo(ctx, before)
}

// raiseTo raises the log start, if it is not there yet. What is to be deleted must have been shown to readers.
func (l *Log) raiseTo(ctx context.Context, start int64) error {
	if err := l.lockStart(ctx); err != nil {
		return err
	}
	defer l.starts.unlock()
	o := l.load()
	if start == ToHighWatermark {
		start = o.HighWatermark
	}
	if start < 0 || start > o.HighWatermark {
		return &OffsetRangeError{Offset: start, LogStart: o.LogStart, LogEnd: o.HighWatermark}
	}
	if start <= o.LogStart {
		return nil
	}
	return l.raiseStart(ctx, start)
}

// lockStart takes starts.
func (l *Log) lockStart(ctx context.Context) error {
	if err := l.starts.lock(ctx); err != nil {
		return err
	}
	if err := l.ready(ctx); err != nil {
		l.starts.unlock()
		return err
	}
	return nil
}

// ready is ended for a caller that will change something on the device and then has to take write, whatever its context says:
// if an append hangs it waits here, where it can still give up.
func (l *Log) ready(ctx context.Context) error {
	if err := l.write.lock(ctx); err != nil {
		return err
	}
	defer l.write.unlock()
	return l.ended()
}

// raiseStart writes the new start offset before anyone is refused by it: a reader that was told "gone" must not find
// the records back after a crash. Appends go on meanwhile. The caller holds starts.
func (l *Log) raiseStart(ctx context.Context, start int64) error {
	switch err := l.dir.points.store(ctx, checkpoint.LogStarts, l.tp, start); {
	case isNoSpace(err):
		return fmt.Errorf("raise the log start of %s: %w: %w", l.name, ErrNoSpace, err)
	case isContext(err):
		return err
	case err != nil:
		return l.fail(err) // the file may say either
	}
	l.beginAt(start)
	return l.storeEpochs(ctx)
}

// beginAt is raiseStart in memory.
func (l *Log) beginAt(start int64) {
	_ = l.write.lock(context.Background())
	defer l.write.unlock()
	l.producers.state.OnLogStart(max(start, l.load().LogStart))
	l.update(func(o *Offsets) { // retention may have been faster
		o.LogStart, o.HighWatermark = max(o.LogStart, start), max(o.HighWatermark, start)
		l.restable(o)
	})
	l.epochs.TruncateFromStart(start)
}

// storeEpochs writes the leader epochs after their beginning was cut, beside appends. Without room, or time, it is done without:
// loading cuts the file again. The caller holds starts or names, so that nobody moves the folder away.
func (l *Log) storeEpochs(ctx context.Context) error {
	if err := l.epochs.Flush(ctx); err != nil && !isNoSpace(err) && !isContext(err) {
		return l.fail(err)
	}
	return nil
}
