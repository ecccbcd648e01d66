package log

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/epoch"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// Log is one partition, opened for writing. All methods are safe for concurrent use. It starts no goroutine and no
// timer; everything happens in the calls.
type Log struct {
	view

	dir   *Dir
	lone  bool                   // opened by Open: Close closes dir too
	tuned atomic.Pointer[tuning] // see cfg; replaced under write
	now   func() time.Time

	// names guards the names that the files of sealed segments have, and with them the list but for its end: who renames or
	// removes them in a log that is open holds it (compaction when it swaps, truncation, retention), and who must find them
	// where they were. It is held across renames and syncs of the directory, and waited for under the caller's context.
	// Appends and rolls, which need the end of the list, do not need it. It is taken before write: who holds write may at
	// most try it.
	names gate

	// starts admits one change of the log start at a time, and keeps truncations off meanwhile. It is held across the write of
	// the start's checkpoint, and waited for under the caller's context; who appends does not need it. Retention and an append
	// to a full log, which need not write that first, raise the start under names alone. It is taken behind names and before
	// write.
	starts gate

	// write guards everything that changes the log: appends, rolls, truncation, the start offset, the epoch cache and
	// the fields below. It is held across system calls, so it is waited for under the caller's context; never across a
	// callback or a channel operation other than taking the round token (see commit.go). The round token, points.writing,
	// points.mu and marks.mu come after it.
	write     gate
	epochs    *epoch.Cache
	producers *producers
	sealed    sealedBytes
	loose     bool  // segments below the log start went since the folder was last synced; guarded by names
	newest    int32 // highest leader epoch ever seen here; batches never fall below it
	topicID   checkpoint.ID
	commits   committer
	cleaner   cleaner
	recovery  RecoveryReport // of the open; nobody changes it afterwards
	loading   *loading       // nil once the log is open

	// snapshots admits one writer of producer snapshots. It is held across their syncs and taken behind all but points.writing.
	snapshots gate

	stats    counters
	discards discards

	// epochsOwed: the epochs' file lacks what an open found no room for (payEpochs). The round token guards it.
	epochsOwed bool

	// spare, if set, refuses an append of n bytes for which there should be no room: ErrNoSpace. It is called under write.
	spare func(n int64) error

	// For the Dir: events that wait until no lock is held, background work that failed, and the tasks at work (task.bit).
	out      outbox
	failures failures
	tended   atomic.Uint32
}

// view is what readers see of a partition, whoever writes it.
type view struct {
	fs   vfs.FS
	name string // partition folder below the root
	tp   TopicPartition
	list atomic.Pointer[segments]
	marks
	followers atomic.Int64 // readers that wait for more
	leaked    atomic.Int64 // Fetched that the garbage collector found open; see leak_on.go
	pinned    atomic.Int64 // segments held by iterators in a step and by Fetched

	sure   atomic.Int64  // a Reader: batches at or above are damaged; MaxInt64 if no end is known for sure, 0 in a Log
	limits record.Limits // of unpacking, for readers that do not say; zero: the defaults

	// refresh looks whether another process wrote more; nil where the writer is this Log. With doubt it looks closely:
	// something was read that what is known does not explain.
	refresh func(doubt bool) error

	// recent are aborted transactions that the indexes may not have yet, in the order of their markers; nil where the writer
	// is this Log. What it returns is not changed any more.
	recent func() []segment.AbortedTxn
	// intact says, in a Reader, whether the files of a segment are still the ones that were opened, and whether it can be that
	// its index of aborted transactions has read entries, or at least as many (more). Nil in a Log.
	intact  func(seg *segment.Segment, read int64, more bool) bool
	spoiled spoils // stand in for damaged indexes of aborted transactions
}

// over says that nothing can be read any more, or could ever be.
func (v *view) over() bool { return v.closed.Load() || v.list.Load() == nil }

// decoders serve the iterators.
var decoders = sync.Pool{New: func() any { return record.NewDecoder(record.Limits{}) }}

// endOf is segments.endOf, and for the last segment what is known for sure.
func (v *view) endOf(segs segments, i int) int64 {
	if sure := v.sure.Load(); sure > 0 && i+1 == len(segs) {
		return sure
	}
	return segs.endOf(i)
}

// lend gives a decoder with limits, or with the view's if those are zero; only one with the default limits is pooled.
func (v *view) lend(limits record.Limits) *record.Decoder {
	if limits == (record.Limits{}) {
		limits = v.limits
	}
	if limits == (record.Limits{}) {
		return decoders.Get().(*record.Decoder)
	}
	return record.NewDecoder(limits)
}

// giveBack takes a decoder back; limits are those it was asked for with.
func (v *view) giveBack(d *record.Decoder, limits record.Limits) {
	if limits == (record.Limits{}) && v.limits == (record.Limits{}) {
		decoders.Put(d)
	}
}

// await blocks until done says so for some reading of the marks.
func (v *view) await(ctx context.Context, done func(Offsets) bool) error {
	if v.refresh != nil {
		return v.poll(ctx, done)
	}
	_, err := v.wait(ctx, done)
	return err
}

type counters struct {
	appends   atomic.Int64 // append calls that wrote
	bytes     atomic.Int64 // bytes they wrote
	syncs     atomic.Int64
	lastFlush atomic.Int64 // Unix ms
	freed     atomic.Int64 // bytes of .log files that retention dropped
}

// TopicPartition names the partition.
func (l *Log) TopicPartition() TopicPartition { return l.tp }

// Config is the effective configuration, defaults filled in. SetConfig changes it.
func (l *Log) Config() Config { return l.cfg().Config }

// Offsets is one consistent reading of all marks.
func (l *Log) Offsets() Offsets { return l.load() }

// Wait blocks until the mark is at or past offset. Where that needs a sync (MarkDurable, and the marks that follow it in
// a Durable log) Wait joins the group commit as soon as the offset is written, so it also finishes an append that
// answered *UnconfirmedError. ErrTruncated: a truncation took away what was awaited; ErrClosed, ErrFailed: it will not
// come any more.
func (l *Log) Wait(ctx context.Context, m Mark, offset int64) error {
	if l.dir == nil {
		return ErrClosed
	}
	bySync := m == MarkDurable || m != MarkEnd && l.cfg().visibleWhenDurable()
	written, gone, cuts := false, false, uint64(0)
	for {
		o, err := l.wait(ctx, func(o Offsets) bool {
			gone = written && l.lostLocked(cuts, offset)
			if !written && o.LogEnd >= offset {
				written, cuts = true, l.cuts
			}
			return gone || o.at(m) >= offset || bySync && written && o.Durable < offset
		})
		switch {
		case err != nil:
			return err
		case gone:
			return ErrTruncated
		case o.at(m) >= offset:
			return nil
		}
		if err := l.commit(ctx, offset, cuts); err != nil {
			return err
		}
	}
}

// Err is nil, or the sticky reason why appends are refused: an error that is ErrFailed or ErrClosed.
func (l *Log) Err() error { return l.ended() }

// ended is the sticky error, or nil. A Log that Open did not make was never open.
func (l *Log) ended() error {
	if l.dir == nil {
		return ErrClosed
	}
	return l.marks.ended()
}

// fail makes cause the sticky answer of every later write and of everyone who waits, and returns that answer.
func (l *Log) fail(cause error) error {
	if failed := error(&failedError{cause}); l.finish(failed) {
		l.tellFailed(failed)
	}
	return l.ended()
}

// failedError is ErrFailed with the cause.
type failedError struct{ cause error }

func (e *failedError) Error() string        { return ErrFailed.Error() + ": " + e.cause.Error() }
func (e *failedError) Is(target error) bool { return target == ErrFailed }
func (e *failedError) Unwrap() error        { return e.cause }
