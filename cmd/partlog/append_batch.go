package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// appender gathers records into batches, writes them, and prints their base offsets once they are acknowledged.
type appender struct {
	w       *writing
	e       *env
	o       *appendOptions
	out     lines
	outErr  error // printing ended; appending goes on
	builder *record.Builder

	recs    []record.Record // the batch in the making
	numbers []int           // their lines
	bytes   int             // bound of what they take encoded
	limit   int             // bytes a batch may take
	since   time.Time       // when the first of them came

	waiting  []written // batches whose offsets are not printed yet
	oldest   time.Time // when the first of them was written
	appended int64     // records in the log
	first    int64     // offset of the first of them
	next     int64     // offset behind the last of them
	lastLine int       // line of the last of them
	began    bool      // the leader epoch is assigned
	progress progress
}

// written is a batch in the log.
type written struct{ base, last int64 }

// Batches are confirmed by one sync together, but not later than this.
const (
	confirmAfter   = 50 * time.Millisecond
	confirmBatches = 64
)

func newAppender(w *writing, e *env, o *appendOptions) *appender {
	c := w.Config()
	codec, err := record.CodecByName(c.CompressionType)
	if err != nil {
		codec = record.None // "producer", and we are the producer
	}
	return &appender{
		w: w, e: e, o: o, out: lines{w: e.out}, progress: progress{e: e},
		builder: record.NewBuilder(record.BuilderOptions{Codec: codec, Level: c.CompressionLevel}),
		limit:   int(min(int64(max(c.MaxMessageBytes, 0)), c.SegmentBytes)),
	}
}

// consume appends until the input, ctx or a bad line ends it.
func (a *appender) consume(ctx context.Context, in <-chan inputLine) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var it inputLine
		open, got := true, false
		select {
		case it, open = <-in:
			got = true
		default:
		}
		if !got {
			timer.Reset(a.patience())
			select {
			case it, open = <-in:
				got = true
			case <-timer.C:
			case <-ctx.Done():
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		switch {
		case !got:
			if err := a.due(ctx); err != nil {
				return err
			}
		case !open:
			if err := a.flush(ctx); err != nil {
				return err
			}
			return a.endTxn(ctx)
		case it.err != nil:
			if err := a.flush(ctx); err != nil {
				return err
			}
			return fmt.Errorf("line %d: %w", it.number, it.err)
		default:
			if err := a.take(ctx, it); err != nil {
				return err
			}
		}
	}
}

// patience is how long the appender may wait for input before something is due.
func (a *appender) patience() time.Duration {
	wait := time.Hour
	if len(a.recs) > 0 {
		wait = min(wait, a.o.linger-time.Since(a.since))
	}
	if len(a.waiting) > 0 {
		wait = min(wait, confirmAfter-time.Since(a.oldest))
	}
	return max(wait, 0)
}

// due does what is due while the input pauses.
func (a *appender) due(ctx context.Context) error {
	if len(a.recs) > 0 && time.Since(a.since) >= a.o.linger {
		return a.flush(ctx)
	}
	if len(a.waiting) > 0 && time.Since(a.oldest) >= confirmAfter {
		return a.confirm(ctx)
	}
	return nil
}

// take adds a record to the batch, writing the batch before or after when it is full.
func (a *appender) take(ctx context.Context, it inputLine) error {
	if !it.stamped {
		it.rec.Timestamp = time.Now().UnixMilli()
	}
	size := it.rec.EncodedSize() + 13
	if len(a.recs) > 0 && record.HeaderSize+a.bytes+size > a.limit {
		if err := a.write(ctx); err != nil {
			return err
		}
	}
	if len(a.recs) == 0 {
		a.since = time.Now()
	}
	a.recs, a.numbers, a.bytes = append(a.recs, it.rec), append(a.numbers, it.number), a.bytes+size
	if len(a.recs) < a.o.batch {
		return nil
	}
	return a.write(ctx)
}

// flush writes and confirms all there is.
func (a *appender) flush(ctx context.Context) error {
	if err := a.write(ctx); err != nil {
		return err
	}
	return a.confirm(ctx)
}

// write appends the batch in the making. Where a record is refused, those before it are appended.
func (a *appender) write(ctx context.Context) error {
	recs, numbers := a.recs, a.numbers
	a.bytes = 0
	defer func() {
		clear(recs)
		a.recs, a.numbers = recs[:0], numbers[:0]
	}()
	if err := a.put(ctx, recs, numbers); err != nil {
		return err
	}
	if len(a.waiting) >= confirmBatches || len(a.waiting) > 0 && time.Since(a.oldest) >= confirmAfter {
		return a.confirm(ctx)
	}
	return nil
}

func (a *appender) put(ctx context.Context, recs []record.Record, numbers []int) error {
	if len(recs) == 0 {
		return nil
	}
	if err := a.begin(); err != nil {
		return err
	}
	res, err := a.appendBatch(ctx, recs)
	var bad *record.InvalidRecordError
	switch {
	case err == nil:
		a.note(res, len(recs), numbers[len(recs)-1])
		return nil
	case errors.As(err, &bad) && bad.Index > 0 && bad.Index < len(recs):
		if err := a.put(ctx, recs[:bad.Index], numbers); err != nil {
			return err
		}
		return fmt.Errorf("line %d: %w", numbers[bad.Index], reasonOf(err, bad))
	case errors.Is(err, log.ErrTooLarge) && len(recs) > 1: // compression made it larger than the bound
		half := len(recs) / 2
		if err := a.put(ctx, recs[:half], numbers[:half]); err != nil {
			return err
		}
		return a.put(ctx, recs[half:], numbers[half:])
	case ctx.Err() != nil:
		return err
	}
	return fmt.Errorf("line %d: %w", numbers[0], reasonOf(err, bad))
}

// begin tells the log of --leader-epoch, before the first batch.
func (a *appender) begin() error {
	if a.o.epoch == nil || a.began {
		return nil
	}
	a.began = true
	err := a.w.AssignEpoch(*a.o.epoch)
	if errors.Is(err, log.ErrFenced) {
		return worded(err, "leader epoch %d is below the log's own, %d", *a.o.epoch, a.w.Offsets().LeaderEpoch)
	}
	return err
}

// reasonOf drops the index within the batch, which means nothing to whoever wrote the lines.
func reasonOf(err error, bad *record.InvalidRecordError) error {
	if bad == nil {
		return worded(err, "%s", sentence(err))
	}
	return worded(err, "%s", bad.Reason)
}

func (a *appender) appendBatch(ctx context.Context, recs []record.Record) (log.Appended, error) {
	a.builder.Reset()
	if p := &a.o.producer; p.given {
		a.resume()
		a.builder.SetProducer(&p.Producer)
	}
	for i := range recs {
		recs[i].Offset = int64(i)
		if err := a.builder.AddAt(recs[i]); err != nil {
			return log.Appended{}, err
		}
	}
	b, err := a.builder.Finish()
	if err != nil {
		return log.Appended{}, err
	}
	res, err := a.w.AppendBatches(ctx, b.Bytes(), log.AppendOptions{Durability: log.Buffered})
	if err == nil && a.o.producer.given {
		a.o.producer.BaseSequence = record.IncrementSequence(a.o.producer.BaseSequence, int32(len(recs)))
	}
	return res, err
}

func (a *appender) note(res log.Appended, count, line int) {
	if a.appended == 0 {
		a.first = res.Base
	}
	if len(a.waiting) == 0 {
		a.oldest = time.Now()
	}
	a.waiting = append(a.waiting, written{res.Base, res.Last})
	a.appended += int64(count)
	a.next, a.lastLine = max(a.next, res.Last+1), line
	a.progress.show("%s appended, the next offset is %d", counted(a.appended, "record"), a.next)
}

// confirm waits until all that was written is as safe as --ack says, and prints it.
func (a *appender) confirm(ctx context.Context) error {
	if len(a.waiting) == 0 {
		return nil
	}
	if !a.o.buffered {
		if err := a.w.Wait(ctx, log.MarkDurable, a.next); err != nil {
			return err
		}
	}
	a.print()
	return nil
}

// print prints the base offsets of what is acknowledged. That nobody reads them any more does not stop the work.
func (a *appender) print() {
	for _, w := range a.waiting {
		if a.outErr != nil {
			break
		}
		line := strconv.FormatInt(w.base, 10)
		if a.o.json {
			line = fmt.Sprintf(`{"baseOffset":%d,"lastOffset":%d,"records":%d}`, w.base, w.last, w.last-w.base+1)
		}
		a.outErr = a.out.text(line)
	}
	a.waiting = a.waiting[:0]
	if a.outErr == nil {
		a.outErr = a.out.flush()
	}
}

// finish closes the log, which makes everything durable, and says how far the work got if err ended it.
func (a *appender) finish(err error) error {
	a.progress.done()
	unconfirmed := len(a.waiting)
	closed := a.w.close()
	if closed == nil {
		a.print()
	}
	if err != nil {
		err = &stoppedError{cause: err, done: a.done(unconfirmed > 0 && closed != nil)}
	}
	switch {
	case closed == nil:
	case err == nil:
		return closed
	default:
		return fmt.Errorf("%v; %w", err, closed)
	}
	if err != nil {
		return err
	}
	if a.outErr != nil && !errors.Is(a.outErr, syscall.EPIPE) {
		return fmt.Errorf("everything is appended, but the offsets could not be printed: %w", a.outErr)
	}
	return nil
}

func (a *appender) done(unsure bool) string {
	switch {
	case a.appended == 0:
		return "nothing was appended"
	case unsure:
		return fmt.Sprintf("the lines up to %d were written, at %s, the last of them without confirmation", a.lastLine, span(a.first, a.next))
	}
	return fmt.Sprintf("the lines up to %d are appended, at %s", a.lastLine, span(a.first, a.next))
}
