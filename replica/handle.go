package replica

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// Handle is for who uses a replica of a Node: a producer, a reader, a tool. It is safe for concurrent use, and stays valid
// while the roles change; after the replica was deleted it refuses. One that is nil, or that no Node has given, is of no replica
// (ErrNoReplica).
type Handle struct{ r *runner }

func (h *Handle) none() bool { return h == nil || h.r == nil }

// RefusedError says why a request was not done: what was to be appended is not in the log. errors.Is(err,
// NotLeaderOrFollower) and the like.
type RefusedError struct {
	Partition   log.TopicPartition
	Request     string // what was asked for: "append to", "end of a transaction in", "fetch from", "end of an epoch in", "offset in", "status of", "settings of"
	Node        NodeID // that refused; NoNode: nobody was asked
	Code        ErrorCode
	Leader      NodeID // who leads, as far as this replica knows; NoNode
	LeaderEpoch int32  // its epoch; -1 unknown
	Cause       error  // the log's own error, if there is one; a *log.OffsetRangeError, a *NotEnoughReplicasError
}

// Error is one sentence.
func (e *RefusedError) Error() string {
	s := fmt.Sprintf("%s %s refused", e.Request, e.Partition)
	if e.Node != NoNode {
		s += fmt.Sprintf(" by node %d", e.Node)
	}
	s += ": " + e.Code.String()
	if (e.Code == NotLeaderOrFollower || e.Code == FencedLeaderEpoch) && e.Leader != NoNode {
		s += fmt.Sprintf(" (node %d leads epoch %d)", e.Leader, e.LeaderEpoch)
	}
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

// Unwrap gives the code and the cause.
func (e *RefusedError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.Cause}
}

// Append appends one encoded batch with base offset 0 and waits as acks says: 0 not at all (Base and Last are -1, and raw is
// copied), 1 until it is in the leader's log, -1 until all in-sync replicas have it and it is committed. raw is rewritten in
// place as log.Log.AppendBatches does, and is the caller's again when Append returns. ctx's deadline is the request's timeout;
// without one it is 30 s.
//
// *RefusedError: it is not in the log, and Code says why. *log.UnconfirmedError: it is in this leader's log, but not known
// to be committed: its Err is ctx's, RequestTimedOut, NotEnoughReplicasAfterAppend, or NotLeaderOrFollower when the
// leadership ended meanwhile and whether it survives is the next leader's to say. ctx's error alone: it is not in the
// log. ErrNodeClosed, ErrNoReplica.
func (h *Handle) Append(ctx context.Context, raw []byte, acks int8) (log.Appended, error) {
	return h.Produce(ctx, raw, acks, ProduceOptions{})
}

// Produce is Append with what else a producer may ask for.
func (h *Handle) Produce(ctx context.Context, raw []byte, acks int8, o ProduceOptions) (log.Appended, error) {
	if h.none() {
		return nothing, ErrNoReplica
	}
	if _, err := record.View(raw); err != nil {
		return nothing, notABatch(h.r.tp, err)
	}
	c := h.r.node.newCall(raw, acks)
	if o.LeaderEpoch != nil {
		epoch := *o.LeaderEpoch
		c.epoch = &epoch
	}
	if acks == 0 {
		c.raw, c.acks = bytes.Clone(raw), 1 // the replica answers, so that the request can be counted; nobody listens
	}
	return h.carry(ctx, c, acks != 0)
}

// EndTxn has the leader write the marker that ends a producer's transaction, and waits until it is committed (acks -1). p and o
// are those of log.Log.EndTxn; o.LeaderEpoch is the leader epoch under which the coordinator asks (FencedLeaderEpoch,
// UnknownLeaderEpoch), o.Durability is not looked at. Errors are Append's and *log.ConfigError. After an error that leaves it
// open whether the marker is in the log it is asked for again: a second marker does no harm.
func (h *Handle) EndTxn(ctx context.Context, p record.Producer, commit bool, o log.EndTxnOptions) (log.Appended, error) {
	if h.none() {
		return nothing, ErrNoReplica
	}
	if err := o.Validate(); err != nil {
		return nothing, err
	}
	c := newCall(nil, -1)
	c.marker = marker(p, commit, o)
	return h.carry(ctx, c, true)
}

var nothing = log.Appended{Base: -1, Last: -1, AppendTime: -1}

// carry hands a call to the replica, and waits for its end if it should.
func (h *Handle) carry(ctx context.Context, c *call, wait bool) (log.Appended, error) {
	r := h.r
	select {
	case r.slots <- struct{}{}:
	default:
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return nothing, ctx.Err()
		case <-r.node.ctx.Done():
			return nothing, ErrNodeClosed
		}
	}
	err := ctx.Err()
	if deadline, ok := ctx.Deadline(); ok && err == nil {
		if c.timeout = time.Until(deadline); c.timeout <= 0 {
			err = context.DeadlineExceeded
		}
	}
	if err != nil {
		<-r.slots
		return nothing, err
	}
	post := r.serve
	if !wait {
		post = func(c *call) bool { return r.post(mail{call: c}) }
	}
	if !post(c) {
		<-r.slots
		return nothing, h.gone()
	}
	if !wait {
		return nothing, nil
	}
	select {
	case res := <-c.done:
		request := c.request()
		r.node.free(c)
		got, err := outcome(r.tp, request, res)
		return got, by(r.node.conf.Self, err)
	case <-ctx.Done():
	}
	if c.withdraw() {
		return nothing, ctx.Err()
	}
	c.await() // raw is in use until then
	select {
	case res := <-c.done:
		got, err := outcome(r.tp, c.request(), res)
		return got, by(r.node.conf.Self, err)
	default:
	}
	if c.err != nil {
		return c.got, c.err
	}
	return c.got, &log.UnconfirmedError{Base: c.got.Base, Last: c.got.Last, Err: ctx.Err()}
}

func (h *Handle) gone() error {
	h.r.node.mu.RLock()
	defer h.r.node.mu.RUnlock()
	if h.r.node.closed {
		return ErrNodeClosed
	}
	return fmt.Errorf("%s: %w", h.r.tp, ErrNoReplica)
}

// Log is the replica's log, for reading: its high watermark is what is committed, as far as this replica knows. nil until it
// is open. It must not be appended to or truncated: nothing would stop that, and replicas would differ for good. A replica that
// failed and was made anew has another.
func (h *Handle) Log() *log.Log {
	if h.none() {
		return nil
	}
	return h.r.log.Load()
}

// TopicPartition names the partition.
func (h *Handle) TopicPartition() log.TopicPartition {
	if h.none() {
		return log.TopicPartition{}
	}
	return h.r.tp
}

// Status is the replica as it stands: role, in-sync replicas, what each follower lacks, high watermark, epochs, counts. It
// does not wait for a disk. Until its log is open a replica is Idle, with Phase "opening"; if it cannot be opened Failed, and
// LastError says why.
func (h *Handle) Status() Status {
	if h.none() {
		s := noStatus
		s.LastError = ErrNoReplica
		return s
	}
	r := h.r
	r.coreMu.Lock()
	defer r.coreMu.Unlock()
	if r.core != nil {
		return r.adds(r.core.Status())
	}
	s := noStatus
	s.Phase = "opening"
	if r.err != nil {
		s.Role, s.Phase, s.LastError = Failed, "", r.err
	}
	return r.adds(s)
}

// noStatus is that of a replica of which nothing is known.
var noStatus = Status{Node: NoNode, Leader: NoNode, LeaderEpoch: -1, PartitionEpoch: -1, EpochStart: -1, Removal: -1}

// adds says what the core does not know: how far a removal is, and how the log fares. Under coreMu.
func (r *runner) adds(s Status) Status {
	s.Node, s.At = r.node.conf.Self, time.Now()
	s.LogFailures, s.Reopening = r.mend.failures, r.mend.at
	s.Deleting, s.DeleteFailures = r.going.leaving, r.going.failures
	if r.going.err != nil {
		s.LastError = r.going.err
	}
	return s
}

// call is one Append or EndTxn. That of another node has no slot, and nobody waits for it here.
type call struct {
	raw     []byte
	marker  *EndTxn // nil: raw is appended
	acks    int8
	epoch   *int32 // leader epoch under which it is asked for; nil unchecked
	timeout time.Duration
	state   atomic.Int32
	done    chan Result                   // of capacity 1
	placed  atomic.Pointer[chan struct{}] // closed behind the log's append, if somebody waits for that
	got     log.Appended                  // with callPlaced
	err     error
}

const (
	callWaits     int32 = iota
	callBegun           // the log has raw
	callPlaced          // its append is over
	callWithdrawn       // nobody waits any more, it must not be appended
)

func (c *call) begin() bool    { return c.state.CompareAndSwap(callWaits, callBegun) }
func (c *call) withdraw() bool { return c.state.CompareAndSwap(callWaits, callWithdrawn) }

func newCall(raw []byte, acks int8) *call {
	return &call{raw: raw, acks: acks, done: make(chan Result, 1)}
}

// newCall takes one that was answered, if it can: its channel is as good as new.
func (n *Node) newCall(raw []byte, acks int8) *call {
	c, ok := n.calls.Get().(*call)
	if !ok {
		return newCall(raw, acks)
	}
	c.raw, c.acks = raw, acks
	return c
}

// free is for who has the answer: nobody else looks at the call any more.
func (n *Node) free(c *call) {
	*c = call{done: c.done}
	n.calls.Put(c)
}

// await returns when the append that has begun is over.
func (c *call) await() {
	over := make(chan struct{})
	c.placed.Store(&over)
	if c.state.Load() != callPlaced {
		<-over
	}
}

func (c *call) request() string {
	if c.marker != nil {
		return endTxnIn
	}
	return appendTo
}

// end notes what the log said. The runner calls it.
func (c *call) end(got log.Appended, err error) {
	c.got, c.err = got, err
	c.state.Store(callPlaced)
	if over := c.placed.Load(); over != nil {
		close(*over)
	}
}

// answer ends the call. The runner calls it once.
func (c *call) answer(r *runner, res Result) {
	c.done <- res
	<-r.slots
}

// outcome is a Result as a Go caller wants it.
func outcome(tp log.TopicPartition, request string, res Result) (log.Appended, error) {
	got := log.Appended{Base: res.Base, Last: res.Last, AppendTime: res.AppendTime, LogStart: res.LogStart, Duplicate: res.Duplicate}
	switch {
	case res.Err == None:
		return got, nil
	case res.Base >= 0:
		err := error(res.Err)
		if res.Cause != nil {
			err = fmt.Errorf("%w: %w", res.Err, res.Cause)
		}
		return got, &log.UnconfirmedError{Base: res.Base, Last: res.Last, Err: err}
	default:
		return got, refused(tp, request, res)
	}
}

func refused(tp log.TopicPartition, request string, res Result) *RefusedError {
	return &RefusedError{Partition: tp, Request: request, Node: NoNode, Code: res.Err, Leader: res.Leader, LeaderEpoch: res.LeaderEpoch, Cause: res.Cause}
}

// by says who refused.
func by(node NodeID, err error) error {
	if e, ok := err.(*RefusedError); ok {
		e.Node = node
	}
	return err
}

// Values of RefusedError.Request.
const (
	appendTo   = "append to"
	endTxnIn   = "end of a transaction in"
	fetchFrom  = "fetch from"
	epochIn    = "end of an epoch in"
	offsetIn   = "offset in"
	statusOf   = "status of"
	settingsOf = "settings of"
)

// produce hands a call to the core.
func (r *runner) produce(c *call) {
	r.lastTag++
	r.asked[r.lastTag] = asker{call: c}
	if m := c.marker; m != nil {
		m.Tag, m.Timeout, m.Extra = r.lastTag, c.timeout, c
		r.step(*m)
		return
	}
	r.events.produce = Produce{Tag: r.lastTag, Raw: c.raw, Acks: c.acks, Timeout: c.timeout, LeaderEpoch: c.epoch, Extra: c}
	r.step(&r.events.produce)
}
