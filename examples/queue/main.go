// Command queue is a work queue for competing consumers: each job goes to one of them, and to another one if it does not say in time
// that it is done. Jobs are records of one log; what is done stands in a second one, as one record that is written again and again
// and that compaction keeps the last of. A crash delivers again what was in hand, never forgets, and never delivers what was done.
//
//	go run ./examples/queue
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// Queue is safe for concurrent use.
type Queue struct {
	root       *log.Dir
	jobs, done *log.Log
	lease      time.Duration

	noting sync.Mutex // held while progress is written, so that no older one comes behind a newer one
	mu     sync.Mutex // guards the rest; nothing waits under it
	now    progress
	next   int64               // of the jobs that nobody had yet
	leased map[int64]time.Time // until when a job in hand is its consumer's
}

// progress is all jobs below Low and those of Done above it.
type progress struct {
	Low  int64
	Done []int64
}

// Job is in the hand of one consumer for as long as its lease.
type Job struct {
	Offset int64 // its place in the queue, and its name
	Value  []byte
}

// Open opens the queue in dir. A job that is not done within lease goes to somebody else.
func Open(ctx context.Context, dir string, lease time.Duration) (*Queue, error) {
	root, err := log.OpenDir(dir, log.DirConfig{}) // in the background it drops what is done, and compacts
	if err != nil {
		return nil, err
	}
	q := &Queue{root: root, lease: lease, leased: map[int64]time.Time{}}
	q.jobs, err = root.Open(ctx, log.TopicPartition{Topic: "jobs"}, log.Config{RetentionTime: log.Forever}) // only what is done goes
	if err == nil {
		q.done, err = root.Open(ctx, log.TopicPartition{Topic: "jobs-done"}, log.Config{Cleanup: log.Compact, SegmentBytes: 1 << 20})
	}
	if err == nil {
		err = q.resume(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return q, nil
}

// resume reads how far the queue was. The last record tells.
func (q *Queue) resume(ctx context.Context) error {
	for r, err := range q.done.Records(ctx, q.done.Offsets().LogStart) {
		if err != nil {
			return err
		}
		q.now = progress{}
		if err := json.Unmarshal(r.Value, &q.now); err != nil {
			return err
		}
	}
	q.next = q.now.Low
	return nil
}

// Put adds a job. It is on the device when Put returns.
func (q *Queue) Put(ctx context.Context, value []byte) (offset int64, err error) {
	return q.jobs.Append(ctx, record.Record{Value: value})
}

// Take waits for a job and leases it.
func (q *Queue) Take(ctx context.Context) (Job, error) {
	for {
		offset, free := q.pick(time.Now())
		if offset >= 0 {
			for r, err := range q.jobs.Records(ctx, offset) {
				if errors.Is(err, log.ErrOffsetOutOfRange) {
					break // whoever had it before was done a moment ago
				}
				return Job{offset, r.Clone().Value}, err
			}
			continue
		}
		wait, cancel := context.WithDeadline(ctx, free) // until a lease ends, or a job comes
		err := q.jobs.Wait(wait, log.MarkHighWatermark, -offset)
		cancel()
		if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
			return Job{}, err
		}
	}
}

// pick leases the job whose lease is over, or the next one. Without any it says where the log must end for one, as a negative
// number, and when a lease ends.
func (q *Queue) pick(now time.Time) (offset int64, free time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	free = now.Add(q.lease)
	for o, until := range q.leased {
		if !until.After(now) {
			q.leased[o] = now.Add(q.lease)
			return o, free
		}
		if until.Before(free) {
			free = until
		}
	}
	for end := q.jobs.Offsets().HighWatermark; q.next < end; {
		offset, q.next = q.next, q.next+1
		if offset >= q.now.Low && !slices.Contains(q.now.Done, offset) {
			q.leased[offset] = now.Add(q.lease)
			return offset, free
		}
	}
	return -q.next - 1, free
}

// Done says that a job is done, by whoever had it: it is not delivered again once Done has returned.
func (q *Queue) Done(ctx context.Context, j Job) error {
	q.noting.Lock()
	defer q.noting.Unlock()
	q.mu.Lock()
	after := q.now.with(j.Offset)
	q.mu.Unlock()
	text, err := json.Marshal(after)
	if err != nil {
		return err
	}
	_, err = q.done.Append(ctx, record.Record{Key: []byte("progress"), Value: text})
	if u, written := errors.AsType[*log.UnconfirmedError](err); written {
		err = q.done.Wait(ctx, log.MarkDurable, u.Last+1)
	}
	if err != nil {
		return err
	}
	q.mu.Lock()
	q.now = after
	delete(q.leased, j.Offset)
	q.mu.Unlock()
	return q.jobs.DeleteRecords(ctx, after.Low) // whole segments of jobs that are done go with the next retention
}

// Left is how many jobs are not done.
func (q *Queue) Left() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.jobs.Offsets().HighWatermark - q.now.Low - int64(len(q.now.Done))
}

// with is p and one more.
func (p progress) with(offset int64) progress {
	if offset < p.Low || slices.Contains(p.Done, offset) {
		return p // a second consumer was slower
	}
	done := append(slices.Clone(p.Done), offset)
	slices.Sort(done)
	for len(done) > 0 && done[0] == p.Low {
		p.Low, done = p.Low+1, done[1:]
	}
	return progress{p.Low, done}
}

// Close ends the queue; who waits in Take is told log.ErrClosed.
func (q *Queue) Close() error { return q.root.Close() }

func main() {
	if err := show(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "queue:", err)
		os.Exit(1)
	}
}

func show(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "partlog-queue-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	const jobs, lease = 20, 200 * time.Millisecond
	q, err := Open(ctx, dir, lease)
	if err != nil {
		return err
	}
	for i := range jobs {
		if _, err := q.Put(ctx, fmt.Append(nil, "job ", i)); err != nil {
			return err
		}
	}
	lost, err := q.Take(ctx) // by a consumer that dies with it
	if err != nil {
		return err
	}
	var workers sync.WaitGroup
	var again atomic.Bool
	work, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	for range 3 {
		workers.Go(func() {
			for {
				j, err := q.Take(work)
				if err != nil {
					return
				}
				if j.Offset == lost.Offset {
					again.Store(true)
				}
				if q.Done(work, j) == nil && q.Left() == 0 {
					stop()
				}
			}
		})
	}
	workers.Wait()
	if again.Load() {
		fmt.Fprintf(out, "%q was delivered again\n", lost.Value)
	}
	fmt.Fprintf(out, "%d jobs done by 3 consumers\n", jobs-q.Left())
	if err := q.Close(); err != nil {
		return err
	}
	if q, err = Open(ctx, dir, lease); err != nil {
		return err
	}
	fmt.Fprintf(out, "opened again: %d of %d are left\n", q.Left(), jobs)
	return q.Close()
}
