package replica

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// FetchOptions of a consumer's fetch; the zero value reads what is committed, at once.
type FetchOptions struct {
	// Isolation is isolation.level: ReadUncommitted sees all below the high watermark, ReadCommitted what is below the last stable
	// offset, where no transaction is open, without what was aborted.
	Isolation log.Isolation
	MaxBytes  int64         // max.partition.fetch.bytes: bounds the answer, except that the first batch always comes whole. 0: 1 MiB
	MinBytes  int64         // fetch.min.bytes: wait until there are as many, at most MaxWait
	MaxWait   time.Duration // fetch.max.wait.ms; 0: do not wait
	// LeaderEpoch, if given, is the one the consumer knows: FencedLeaderEpoch if there is a newer one, UnknownLeaderEpoch if the
	// replica does not know of it yet (KIP-320).
	LeaderEpoch *int32
	// LastFetchedEpoch, if given, is the leader epoch of the last record the consumer has: Diverging is set where the histories
	// part.
	LastFetchedEpoch *int32
}

func (o FetchOptions) validate(offset int64) error {
	bad := func(field string, value any, reason string) error {
		return &log.ConfigError{Field: "FetchOptions." + field, Value: fmt.Sprint(value), Reason: reason}
	}
	switch {
	case o.Isolation > log.ReadCommitted:
		return bad("Isolation", uint8(o.Isolation), "a consumer's is ReadUncommitted or ReadCommitted")
	case o.MaxBytes < 0:
		return bad("MaxBytes", o.MaxBytes, "negative")
	case o.MinBytes < 0:
		return bad("MinBytes", o.MinBytes, "negative")
	case o.MaxWait < 0:
		return bad("MaxWait", o.MaxWait, "negative")
	case offset < 0:
		return &RefusedError{Request: fetchFrom, Node: NoNode, Code: OffsetOutOfRange, Leader: NoNode, LeaderEpoch: -1}
	}
	return nil
}

// request is the fetch as the replica is asked. Its wait ends with ctx.
func (o FetchOptions) request(ctx context.Context, offset int64) FetchRequest {
	e := FetchRequest{From: NoNode, Offset: offset, LogStart: -1, LeaderEpoch: given(o.LeaderEpoch), LastFetchedEpoch: given(o.LastFetchedEpoch),
		BrokerEpoch: -1, Isolation: o.Isolation, MaxBytes: o.MaxBytes, MinBytes: o.MinBytes, MaxWait: o.MaxWait}
	if deadline, ok := ctx.Deadline(); ok {
		e.MaxWait = max(0, min(e.MaxWait, time.Until(deadline)))
	}
	return e
}

func given(epoch *int32) int32 {
	if epoch == nil {
		return -1
	}
	return *epoch
}

// Fetched is what a consumer's fetch brought. It is the caller's to keep.
type Fetched struct {
	HighWatermark, LastStable, LogStart int64  // offsets as they stood before the read
	Raw                                 []byte // whole batches as the log has them, one behind the other
	// Aborted are, for ReadCommitted, the aborted transactions that reach into Raw. Records leaves theirs out, Batches does not.
	Aborted []log.AbortedTxn
	// Diverging is set instead of records: the consumer's history parts from the log's at the end of this epoch.
	Diverging *log.EpochEnd
	// NextOffset is where the next fetch goes on.
	NextOffset int64

	from      int64
	committed bool
}

// fetched is a Result as a consumer wants it.
func fetched(tp log.TopicPartition, e *FetchRequest, res Result) (*Fetched, error) {
	if res.Err == OffsetOutOfRange && res.LogStart >= 0 {
		res.Cause = &log.OffsetRangeError{Offset: e.Offset, LogStart: res.LogStart, LogEnd: res.LogEnd}
	}
	if res.Err != None {
		return nil, refused(tp, fetchFrom, res)
	}
	f := &Fetched{HighWatermark: res.HighWatermark, LastStable: res.LastStable, LogStart: res.LogStart, Raw: res.Raw, Aborted: res.Aborted,
		NextOffset: e.Offset, from: e.Offset, committed: e.Isolation == log.ReadCommitted}
	if res.Diverged {
		f.Diverging = &res.EpochEnd
	}
	for b, err := range f.Batches() {
		if err != nil {
			return nil, fmt.Errorf("fetch from %s at %d: %w", tp, e.Offset, err)
		}
		f.NextOffset = max(f.NextOffset, b.NextOffset())
	}
	return f, nil
}

// Batches yields the batches, CRC checked, still compressed, markers and aborted ones included. The first may begin below the
// offset asked for. The error, if any, comes once and last.
func (f *Fetched) Batches() iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		if f == nil {
			return
		}
		for rest := f.Raw; len(rest) > 0; {
			n, _, err := record.Peek(rest)
			if err == nil && n > len(rest) {
				err = record.ErrIncomplete
			}
			var b record.Batch
			if err == nil {
				b, err = record.View(rest[:n])
			}
			if err == nil {
				err = b.Verify()
			}
			if !yield(b, err) || err != nil {
				return
			}
			rest = rest[n:]
		}
	}
}

// Records yields the records at or above the offset asked for, without markers and, for ReadCommitted, without those of aborted
// transactions. A record is a view, valid until the next step: Clone keeps it. The error, if any, comes once and last.
func (f *Fetched) Records() iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		d := record.NewDecoder(record.Limits{})
		for b, err := range f.Batches() {
			if err != nil {
				yield(record.Record{}, err)
				return
			}
			if b.Control() || f.committed && f.aborted(b) {
				continue
			}
			for r, err := range b.Records(d) {
				if err == nil && r.Offset < f.from {
					continue
				}
				if !yield(r, err) || err != nil {
					return
				}
			}
		}
	}
}

func (f *Fetched) aborted(b record.Batch) bool {
	if !b.Transactional() {
		return false
	}
	id, _, _ := b.Producer()
	for _, t := range f.Aborted {
		if t.ProducerID == id && b.BaseOffset() >= t.FirstOffset && b.BaseOffset() <= t.LastOffset {
			return true
		}
	}
	return false
}

// Fetch reads what a consumer may see, from a leader or, up to its own high watermark, a follower. At the end it is empty,
// without error, or waits as asked. *RefusedError: OffsetOutOfRange (its Cause is a *log.OffsetRangeError with the offsets
// there are), FencedLeaderEpoch, UnknownLeaderEpoch, NotLeaderOrFollower and what else Kafka answers; *log.ConfigError; ctx's
// error; ErrNodeClosed, ErrNoReplica.
func (h *Handle) Fetch(ctx context.Context, offset int64, o FetchOptions) (*Fetched, error) {
	if h.none() {
		return nil, ErrNoReplica
	}
	if err := o.validate(offset); err != nil {
		return nil, of(err, h.r.tp)
	}
	e := o.request(ctx, offset)
	res, err := h.ask(ctx, e)
	if err != nil {
		return nil, err
	}
	f, err := fetched(h.r.tp, &e, res)
	return f, by(h.r.node.conf.Self, err)
}

// of names the partition in a refusal that was made without it.
func of(err error, tp log.TopicPartition) error {
	if r, ok := err.(*RefusedError); ok {
		r.Partition = tp
	}
	return err
}

// EndOfEpoch says where an epoch ended in the leader's log (OffsetForLeaderEpoch): the largest epoch at or below it, and the
// offset behind its last record; -1, -1 if the leader does not know. leaderEpoch, if given, is the one the asker knows:
// FencedLeaderEpoch, UnknownLeaderEpoch. Errors as Fetch; NotLeaderOrFollower on a follower.
func (h *Handle) EndOfEpoch(ctx context.Context, epoch int32, leaderEpoch *int32) (log.EpochEnd, error) {
	if h.none() {
		return log.EpochEnd{Epoch: -1, End: -1}, ErrNoReplica
	}
	res, err := h.ask(ctx, EpochRequest{From: NoNode, LeaderEpoch: given(leaderEpoch), Epoch: epoch})
	end, err := epochEnd(h.r.tp, res, err)
	return end, by(h.r.node.conf.Self, err)
}

func epochEnd(tp log.TopicPartition, res Result, err error) (log.EpochEnd, error) {
	switch {
	case err != nil:
		return log.EpochEnd{Epoch: -1, End: -1}, err
	case res.Err != None:
		return log.EpochEnd{Epoch: -1, End: -1}, refused(tp, epochIn, res)
	}
	return res.EpochEnd, nil
}

// question is a request of this process that is no Produce.
type question struct {
	event Event
	tag   uint64      // the runner's
	done  chan Result // of capacity 1
}

// ask puts a question to the replica.
func (h *Handle) ask(ctx context.Context, e Event) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	q := &question{event: e, done: make(chan Result, 1)}
	if !h.r.post(mail{question: q}) {
		return Result{}, h.gone()
	}
	select {
	case res := <-q.done:
		return res, nil
	case <-ctx.Done():
		h.r.post(mail{question: q, withdrawn: true})
		return Result{}, ctx.Err()
	}
}

// pose puts a question to the core, or takes it back.
func (r *runner) pose(q *question, withdrawn bool) {
	if withdrawn {
		if _, ok := r.asked[q.tag]; ok {
			delete(r.asked, q.tag)
			r.step(Withdraw{Tag: q.tag})
		}
		return
	}
	r.lastTag++
	q.tag = r.lastTag
	r.asked[q.tag] = asker{question: q}
	switch e := q.event.(type) {
	case FetchRequest:
		e.Tag = q.tag
		r.step(e)
	case EpochRequest:
		e.Tag = q.tag
		r.step(e)
	case OffsetRequest:
		e.Tag = q.tag
		r.lookUp(e)
	}
}
