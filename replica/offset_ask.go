package replica

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/partlog/partlog/log"
)

// Values of OffsetQuery.At that are no time; Kafka's numbers.
const (
	Latest   int64 = -1 // behind the last record the asker may see
	Earliest int64 = -2 // the log start
	MaxTime  int64 = -3 // the first record with the largest timestamp
)

// OffsetQuery is what ListOffsets looks for.
type OffsetQuery struct {
	// At is a time in Unix milliseconds, for the first record at or after it, or Latest, Earliest or MaxTime.
	At          int64
	Isolation   log.Isolation // how far the asker may see: ReadUncommitted or ReadCommitted
	LeaderEpoch *int32        // the one the asker knows, nil unchecked: FencedLeaderEpoch, UnknownLeaderEpoch
}

func (q OffsetQuery) validate(tp log.TopicPartition) error {
	switch {
	case q.Isolation > log.ReadCommitted:
		return &log.ConfigError{Field: "OffsetQuery.Isolation", Value: strconv.Itoa(int(q.Isolation)), Reason: "a consumer's is ReadUncommitted or ReadCommitted"}
	case q.At < MaxTime:
		return &RefusedError{Partition: tp, Request: offsetIn, Node: NoNode, Code: InvalidRequest, Leader: NoNode, LeaderEpoch: -1}
	}
	return nil
}

func (q OffsetQuery) request() OffsetRequest {
	return OffsetRequest{From: NoNode, At: q.At, Isolation: q.Isolation, LeaderEpoch: given(q.LeaderEpoch)}
}

// OffsetFound answers it.
type OffsetFound struct {
	Offset      int64 // -1: no record the asker may see is there
	Timestamp   int64 // of the record, Unix ms; -1 for Latest and Earliest
	LeaderEpoch int32 // the leader's beside Latest, else the record's; -1 unknown
}

var notFound = OffsetFound{-1, -1, -1}

// ListOffsets looks up an offset at a leader, as Kafka's ListOffsets for consumers. OffsetNotAvailable: a new leader does not know
// yet how far the log is committed, ask again. Other errors as Fetch; NotLeaderOrFollower on a follower.
func (h *Handle) ListOffsets(ctx context.Context, q OffsetQuery) (OffsetFound, error) {
	if h.none() {
		return notFound, ErrNoReplica
	}
	if err := q.validate(h.r.tp); err != nil {
		return notFound, err
	}
	res, err := h.ask(ctx, q.request())
	found, err := offsetFound(h.r.tp, res, err)
	return found, by(h.r.node.conf.Self, err)
}

// ListOffsets is Handle.ListOffsets at the other node.
func (r *Remote) ListOffsets(ctx context.Context, q OffsetQuery) (OffsetFound, error) {
	if r.none() {
		return notFound, ErrNodeClosed
	}
	if err := q.validate(r.tp); err != nil {
		return notFound, err
	}
	e := q.request()
	res, err := r.node.ask(ctx, r.at, r.tp, asking{once: r.once}, func(tag uint64) Message {
		e.Tag = tag
		return e
	})
	found, err := offsetFound(r.tp, res, err)
	return found, by(r.at, err)
}

func offsetFound(tp log.TopicPartition, res Result, err error) (OffsetFound, error) {
	switch {
	case err != nil:
		return notFound, err
	case res.Err != None:
		return notFound, refused(tp, offsetIn, res)
	}
	return OffsetFound{res.Base, res.AppendTime, res.LeaderEpoch}, nil
}

// lookUp answers an OffsetRequest with the runner's tag. What takes a look at the log is done in the slow pool.
func (r *runner) lookUp(e OffsetRequest) {
	l := r.log.Load()
	view := func() View {
		return r.core.View(NoNode, e.LeaderEpoch, e.Isolation, l.Offsets().LastStable)
	}
	v := view()
	res := r.core.result(v.Err)
	if v.Err != None && v.Err != OffsetNotAvailable || v.Err != None && e.At == Latest {
		r.reply(&Action{Tag: e.Tag, Result: res})
		return
	}
	res = refusal(None)
	if e.At == Latest {
		res.Base, res.LeaderEpoch = v.End, v.LeaderEpoch
		r.reply(&Action{Tag: e.Tag, Result: res})
		return
	}
	r.node.slow.submit(taskFunc(func() {
		at, err := find(r.node.ctx, l, e.At)
		r.post(mail{settled: func() Event {
			if r.core == nil || r.log.Load() != l { // made anew meanwhile
				r.reply(&Action{Tag: e.Tag, Result: refusal(NotLeaderOrFollower)})
				return nil
			}
			v := view() // it may lead no more
			switch {
			case v.Err != None && v.Err != OffsetNotAvailable:
				res = r.core.result(v.Err)
			case err != nil && !errors.Is(err, log.ErrNotFound):
				res = r.core.result(codeOf(err))
				res.Cause = err
			case err == nil && (e.At == Earliest || at.Offset < v.End):
				res.Base, res.AppendTime, res.LeaderEpoch = at.Offset, at.Timestamp, at.LeaderEpoch
			case !v.Settled:
				res = r.core.result(OffsetNotAvailable)
			}
			r.reply(&Action{Tag: e.Tag, Result: res})
			return nil
		}})
	}))
}

// find looks in the log.
func find(ctx context.Context, l *log.Log, at int64) (log.At, error) {
	switch at {
	case Earliest:
		found := log.At{Offset: l.Offsets().LogStart, Timestamp: -1, LeaderEpoch: -1}
		if list := l.Epochs(); len(list) > 0 && list[0].Start <= found.Offset {
			found.LeaderEpoch = list[0].Epoch
		}
		return found, nil
	case MaxTime:
		return l.OffsetOfMaxTime(ctx)
	}
	return l.OffsetForTime(ctx, time.UnixMilli(at))
}
