package log

import (
	"context"
	"fmt"

	"github.com/partlog/partlog/internal/checkpoint"
)

// ToHighWatermark given to DeleteRecords means everything that readers can see.
const ToHighWatermark int64 = -1

// DeleteRecords raises the log start offset to before (Kafka's DeleteRecords): records below are gone for every reader
// at once and durably. Files go with the next Retain, once a whole segment lies below the start. Below the present start it
// changes nothing; above the high watermark it is *OffsetRangeError; a log whose cleanup.policy lacks delete refuses
// with ErrPolicy.
func (l *Log) DeleteRecords(ctx context.Context, before int64) error {
	if err := l.admit(ctx); err != nil {
		return err
	}
	if !l.cfg().Cleanup.Has(Delete) {
		return fmt.Errorf("%w: cleanup.policy of %s does not delete", ErrPolicy, l.name)
	}
	if err := l.write.lock(ctx); err != nil {
		return err
	}
	defer l.write.unlock()
	if err := l.ended(); err != nil {
		return err
	}
	o := l.load()
	if before == ToHighWatermark {
		before = o.HighWatermark
	}
	if before < 0 || before > o.HighWatermark {
		return &OffsetRangeError{Offset: before, LogStart: o.LogStart, LogEnd: o.HighWatermark}
	}
	if before <= o.LogStart {
		return nil
	}
	return l.raiseStart(ctx, before)
}

// raiseStart writes the new start offset before anyone is refused by it: a reader that was told "gone" must not find
// the records back after a crash. The caller holds write.
func (l *Log) raiseStart(ctx context.Context, start int64) error {
	switch err := l.dir.points.store(ctx, checkpoint.LogStarts, l.tp, start); {
	case isNoSpace(err):
		return fmt.Errorf("raise the log start of %s: %w: %w", l.name, ErrNoSpace, err)
	case isContext(err):
		return err
	case err != nil:
		return l.fail(err) // the file may say either
	}
	l.producers.state.OnLogStart(start)
	l.update(func(o *Offsets) {
		o.LogStart = start
		l.restable(o)
	})
	if l.epochs.TruncateFromStart(start) {
		if err := l.epochs.Flush(); err != nil {
			return l.epochRefused(err)
		}
	}
	return nil
}
