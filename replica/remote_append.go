package replica

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// ProduceOptions of Produce; the zero value checks nothing.
type ProduceOptions struct {
	// LeaderEpoch is the one the producer believes in: FencedLeaderEpoch if there is a newer one, UnknownLeaderEpoch if the replica
	// does not know of it yet. nil: unchecked.
	LeaderEpoch *int32
}

// UncertainError says that an answer did not come: what was asked for may be done, or be done later, or not.
type UncertainError struct {
	Partition log.TopicPartition
	Node      NodeID // that was asked
	Request   string // as in RefusedError
	Err       error  // ctx's, ErrNodeClosed, NetworkException when the connection broke, or RequestTimedOut
}

// Error is one sentence.
func (e *UncertainError) Error() string {
	return fmt.Sprintf("%s %s at node %d, it is unknown whether that was done: %v", e.Request, e.Partition, e.Node, e.Err)
}

// Unwrap gives the reason.
func (e *UncertainError) Unwrap() error { return e.Err }

// Append is Produce without options.
func (r *Remote) Append(ctx context.Context, raw []byte, acks int8) (log.Appended, error) {
	return r.Produce(ctx, raw, acks, ProduceOptions{})
}

// Produce is Handle.Produce at the other node. raw is not changed, and the caller's again when Produce returns.
//
// A batch of an idempotent producer is sent again, each FetchLimit, until there is an answer: the log knows it again. Any other
// is sent once, so that it is in the log once at most: if no answer comes within the request's timeout (ctx's deadline, else
// 30 s) and FetchLimit, or if the transport says that the connection broke, the error is an *UncertainError. So it is, for
// either, when ctx ends first. *UnansweredError, NetworkException: the node cannot be reached, and nothing was sent. Acks 0 waits for nothing.
func (r *Remote) Produce(ctx context.Context, raw []byte, acks int8, o ProduceOptions) (log.Appended, error) {
	if r.none() {
		return nothing, ErrNodeClosed
	}
	b, err := record.View(raw)
	if err != nil {
		return nothing, notABatch(r.tp, err)
	}
	if err := r.node.mayAsk(ctx); err != nil {
		return nothing, err
	}
	m := AppendRequest{From: NoNode, Raw: bytes.Clone(raw), Acks: acks, LeaderEpoch: given(o.LeaderEpoch), BrokerEpoch: r.node.brokerEpoch(), Timeout: defaultProduceTimeout}
	if deadline, ok := ctx.Deadline(); ok {
		m.Timeout = max(time.Until(deadline), 1)
	}
	if acks == 0 {
		m.Tag = r.node.nextAsk()
		r.node.send(r.at, r.tp, m)
		return nothing, nil
	}
	how := asking{}
	if id, _, _ := b.Producer(); id < 0 || r.once {
		how = asking{once: true, patience: m.Timeout}
	}
	res, err := r.node.ask(ctx, r.at, r.tp, how, func(tag uint64) Message {
		m.Tag = tag
		return m
	})
	if err != nil {
		return nothing, r.unsure(appendTo, err)
	}
	got, err := outcome(r.tp, appendTo, res)
	return got, by(r.at, err)
}

func notABatch(tp log.TopicPartition, err error) *RefusedError {
	return &RefusedError{Partition: tp, Request: appendTo, Node: NoNode, Code: CorruptMessage, Leader: NoNode, LeaderEpoch: -1, Cause: err}
}

// appendFor carries out what another node asks for. What is a copy of a request was answered, or will be.
func (r *runner) appendFor(e AppendRequest) {
	if !r.copies.first(e.From, e.BrokerEpoch, e.Tag) {
		return
	}
	refuse := func(code ErrorCode) {
		r.tell(asker{node: e.From, tag: e.Tag, client: true}, refusal(code))
	}
	if _, err := record.View(e.Raw); err != nil {
		refuse(CorruptMessage)
		return
	}
	tag, ok := r.remoteOf(asker{node: e.From, tag: e.Tag, client: true, size: int64(len(e.Raw))})
	if !ok {
		refuse(RequestTimedOut) // it is not in the log, and can be asked for again
		return
	}
	if e.Acks == 0 {
		e.Acks = 1 // so that it is answered, and counted; nobody listens
	}
	r.step(Produce{Tag: tag, Raw: bytes.Clone(e.Raw), Acks: e.Acks, Timeout: min(e.Timeout, remotePatience), LeaderEpoch: &e.LeaderEpoch,
		Extra: newCall(nil, e.Acks)})
}

// copies recognises requests that came before, by the tags of who asks: those of one life of a node grow, and have their upper
// half in common. Of nodes it remembers the latest, those in young, and in old, which goes when young is full. What a client asks
// comes once, on a connection of its own.
type copies struct{ young, old map[NodeID]*seenTags }

// seenTags is a window below the highest tag that came; what is below it counts as a copy.
type seenTags struct {
	any     bool
	epoch   int64
	highest uint64
	bits    [copyWindow / 64]uint64
}

const (
	copyWindow = 4096
	maxCopies  = 256 // nodes that are remembered, at least half of it of the latest
)

// of is what is known of a node, which is among the latest from now on.
func (c *copies) of(from NodeID) *seenTags {
	if s := c.young[from]; s != nil {
		return s
	}
	s := c.old[from]
	if s == nil {
		s = &seenTags{}
	}
	if c.young == nil || len(c.young) >= maxCopies/2 {
		c.young, c.old = make(map[NodeID]*seenTags), c.young
	}
	delete(c.old, from)
	c.young[from] = s
	return s
}

func (c *copies) first(from NodeID, epoch int64, tag uint64) bool {
	if from < 0 {
		return true
	}
	s := c.of(from)
	switch {
	case !s.any || epoch > s.epoch || epoch == s.epoch && tag>>32 != s.highest>>32:
		*s = seenTags{any: true, epoch: epoch, highest: tag}
	case epoch > 0 && epoch < s.epoch:
		return false // of an earlier life
	case tag > s.highest:
		for t := max(s.highest+1, tag-min(tag, copyWindow)); t <= tag; t++ {
			s.bits[t%copyWindow/64] &^= 1 << (t % 64)
		}
		s.highest = tag
	case s.highest-tag >= copyWindow || s.bits[tag%copyWindow/64]>>(tag%64)&1 == 1:
		return false
	}
	s.bits[tag%copyWindow/64] |= 1 << (tag % 64)
	return true
}
