package replica

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// Remote is a replica of another node, asked over the Transport. What is not answered within Config.FetchLimit is asked again, and
// sooner if the transport says that something may be lost (Lost), until ctx ends: whether the node is down, unknown to the
// Transport or slow cannot be told apart. Then the error is an *UnansweredError with ctx's, or an *UncertainError of what changes
// something. A refusal (*RefusedError) names the leader, where the node knows one. It is safe for concurrent use. One that is nil, or
// that no Node has given, refuses with ErrNodeClosed.
type Remote struct {
	node *Node
	at   NodeID
	tp   log.TopicPartition
	once bool // a client's: what is lost is asked of somebody else
}

func (r *Remote) none() bool { return r == nil || r.node.none() }

// Remote is the replica of a partition at another node, whether there is one or not. At this node itself it is what Partition
// has, without the way over the network, so that who follows the leader need not look where it is.
func (n *Node) Remote(at NodeID, tp log.TopicPartition) *Remote {
	return &Remote{node: n, at: at, tp: tp}
}

// Fetch is Handle.Fetch at the other node. One that ctx ends is forgotten there after MaxWait. Errors are those of Handle.Fetch, and
// *UnansweredError.
func (r *Remote) Fetch(ctx context.Context, offset int64, o FetchOptions) (*Fetched, error) {
	if r.none() {
		return nil, ErrNodeClosed
	}
	if err := o.validate(offset); err != nil {
		return nil, of(err, r.tp)
	}
	e := o.request(ctx, offset)
	res, err := r.node.ask(ctx, r.at, r.tp, asking{patience: e.MaxWait, once: r.once}, func(tag uint64) Message {
		e.Tag = tag
		return e
	})
	if err != nil {
		return nil, err
	}
	f, err := fetched(r.tp, &e, res)
	return f, by(r.at, err)
}

// EndOfEpoch is Handle.EndOfEpoch at the other node. Errors are those of Handle.EndOfEpoch, and *UnansweredError.
func (r *Remote) EndOfEpoch(ctx context.Context, epoch int32, leaderEpoch *int32) (log.EpochEnd, error) {
	if r.none() {
		return log.EpochEnd{Epoch: -1, End: -1}, ErrNodeClosed
	}
	res, err := r.node.ask(ctx, r.at, r.tp, asking{once: r.once}, func(tag uint64) Message {
		return EpochRequest{From: NoNode, Tag: tag, LeaderEpoch: given(leaderEpoch), Epoch: epoch}
	})
	end, err := epochEnd(r.tp, res, err)
	return end, by(r.at, err)
}

// EndTxn is Handle.EndTxn at the other node. When it has been answered, no copy of the request that is still on its way can end
// the producer's next transaction: a request that arrives after a later one of the same producer is not carried out, and only
// the answer to what was sent last counts; the pause before it is sent again doubles.
//
// If ctx ends before the answer the error is an *UncertainError: it is unknown whether the marker is in the log, or will be. Until
// a later EndTxn for this producer has been answered, the producer must not begin another transaction. The later one must be under
// the same leader, and o.LeaderEpoch say so, or under a newer one: a node whose turn to lead comes again does not know what was
// answered elsewhere meanwhile, and the epoch is all that keeps a late copy off. Client.EndTxn sees to that by itself.
func (r *Remote) EndTxn(ctx context.Context, p record.Producer, commit bool, o log.EndTxnOptions) (log.Appended, error) {
	if r.none() {
		return nothing, ErrNodeClosed
	}
	if err := o.Validate(); err != nil {
		return nothing, err
	}
	m := *marker(p, commit, o)
	if deadline, ok := ctx.Deadline(); ok {
		m.Timeout = max(time.Until(deadline), 1)
	}
	res, err := r.node.ask(ctx, r.at, r.tp, asking{once: r.once, lastCounts: true}, func(tag uint64) Message {
		m.Tag, m.BrokerEpoch = tag, r.node.brokerEpoch()
		return m
	})
	if err != nil {
		return nothing, r.unsure(endTxnIn, err)
	}
	got, err := outcome(r.tp, endTxnIn, res)
	return got, by(r.at, err)
}

// marker is the request of a marker.
func marker(p record.Producer, commit bool, o log.EndTxnOptions) *EndTxn {
	return &EndTxn{From: NoNode, ProducerID: p.ID, ProducerEpoch: p.Epoch, Commit: commit, CoordinatorEpoch: o.CoordinatorEpoch,
		TransactionVersion: int8(o.TransactionVersion), LeaderEpoch: given(o.LeaderEpoch), BrokerEpoch: -1}
}

// write has the log make the marker.
func (e *EndTxn) write(ctx context.Context, l *log.Log, leaderEpoch *int32) (log.Appended, error) {
	return l.EndTxn(ctx, record.Producer{ID: e.ProducerID, Epoch: e.ProducerEpoch}, e.Commit, log.EndTxnOptions{
		CoordinatorEpoch: e.CoordinatorEpoch, TransactionVersion: int(e.TransactionVersion), LeaderEpoch: leaderEpoch, Durability: log.Buffered})
}

func (n *Node) brokerEpoch() int64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.epoch <= 0 {
		return -1
	}
	return n.epoch
}

// awaited is who waits for the Answer of a node.
type awaited struct {
	from   NodeID
	answer chan Message // of capacity 1; what comes second is not needed
	lost   chan error   // of capacity 1: the transport says that the answer may not come, and why, if it knows
	unsent chan error   // of capacity 1: the transport says that the request has not gone out; nil: it will be sent again anyway
}

// UnansweredError says that no answer came, of what changes nothing, or of what has not been sent: it can be asked again.
type UnansweredError struct {
	Partition log.TopicPartition
	Node      NodeID // that was asked
	// Err is ctx's, NetworkException when the connection broke or could not be made, RequestTimedOut, or ErrNodeClosed; with what the
	// transport says of it, as text.
	Err error

	unsent bool
}

// notSent notes that the request has not gone out.
func notSent(e *UnansweredError) *UnansweredError {
	e.unsent = true
	return e
}

// Error is one sentence.
func (e *UnansweredError) Error() string {
	if e.Partition == (log.TopicPartition{}) {
		return fmt.Sprintf("replica: node %d has not answered: %v", e.Node, e.Err)
	}
	return fmt.Sprintf("replica: node %d has not answered about %s: %v", e.Node, e.Partition, e.Err)
}

// Unwrap gives the reason.
func (e *UnansweredError) Unwrap() error { return e.Err }

// unsure is what became of a request that changes something, when there was no answer.
func (r *Remote) unsure(request string, err error) error {
	if e := (*UnansweredError)(nil); errors.As(err, &e) && !e.unsent {
		return &UncertainError{r.tp, r.at, request, e.Err}
	}
	return err // nothing was sent
}

// asking is how a request is repeated until it is answered.
type asking struct {
	patience   time.Duration // how long the other side may take by what the request itself says
	once       bool          // it is sent once; without an answer the error is RequestTimedOut or NetworkException
	lastCounts bool          // an answer to what was sent before the last time means nothing
}

// ask sends a request until it is answered, each time with another tag.
func (n *Node) ask(ctx context.Context, at NodeID, tp log.TopicPartition, how asking, request func(tag uint64) Message) (Result, error) {
	if err := tp.Validate(); err != nil {
		return Result{}, err
	}
	m, err := n.exchange(ctx, at, tp, how, request)
	if err != nil {
		return Result{}, err
	}
	a, ok := m.(Answer)
	if !ok {
		return refusal(Unknown), nil
	}
	return a.Result, nil
}

// nextAsk is a tag that no request of this node had before.
func (n *Node) nextAsk() uint64 {
	n.asking.Lock()
	defer n.asking.Unlock()
	n.lastAsk++
	return n.lastAsk
}

// mayAsk is why nothing is sent: nobody is there to take the answer.
func (n *Node) mayAsk(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n.ctx.Err() != nil {
		return ErrNodeClosed
	}
	return nil
}

// longer is a+b of two that are not negative; what does not fit is for ever.
func longer(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func (n *Node) exchange(ctx context.Context, at NodeID, tp log.TopicPartition, how asking, request func(tag uint64) Message) (Message, error) {
	if err := n.mayAsk(ctx); err != nil {
		return nil, err
	}
	wait := awaited{from: at, answer: make(chan Message, 1), lost: make(chan error, 1)}
	if how.once {
		wait.unsent = make(chan error, 1)
	}
	var why error // the transport gave last
	gone := func(err error) *UnansweredError {
		if why != nil {
			err = fmt.Errorf("%w: %v", err, why) // what it is itself, a time limit of its own, say, is not the caller's
		}
		return &UnansweredError{Partition: tp, Node: at, Err: err}
	}
	pause := longer(how.patience, n.conf.Config.withDefaults().FetchLimit)
	var tags []uint64
	forget := func() {
		n.asking.Lock()
		defer n.asking.Unlock()
		for _, tag := range tags {
			delete(n.awaited, tag)
		}
		tags = tags[:0]
	}
	defer forget()
	for {
		tag := n.nextAsk()
		n.asking.Lock()
		n.awaited[tag] = wait
		n.asking.Unlock()
		tags = append(tags, tag)
		n.send(at, tp, request(tag))
		again := time.NewTimer(pause)
		select {
		case m := <-wait.answer:
			again.Stop()
			return m, nil
		case <-again.C:
			if how.once {
				return nil, gone(RequestTimedOut)
			}
		case why = <-wait.unsent:
			again.Stop()
			return nil, notSent(gone(NetworkException))
		case reason := <-wait.lost:
			again.Stop()
			if reason != nil {
				why = reason
			}
			if how.once {
				select { // which say more
				case m := <-wait.answer:
					return m, nil
				case why = <-wait.unsent:
					return nil, notSent(gone(NetworkException))
				default:
					return nil, gone(NetworkException)
				}
			}
			breath := time.NewTimer(min(n.conf.Config.withDefaults().Backoff, pause)) // the answer may be here, or the node down
			select {
			case m := <-wait.answer:
				breath.Stop()
				return m, nil
			case <-breath.C:
			case <-ctx.Done():
				breath.Stop()
				return nil, gone(ctx.Err())
			case <-n.ctx.Done():
				breath.Stop()
				return nil, gone(ErrNodeClosed)
			}
		case <-ctx.Done():
			again.Stop()
			return nil, gone(ctx.Err())
		case <-n.ctx.Done():
			again.Stop()
			return nil, gone(ErrNodeClosed)
		}
		if how.lastCounts {
			forget()
			wait.answer = make(chan Message, 1) // what came too late is dropped with the old one
			pause = longer(pause, pause)        // else one that always takes longer would never be answered
		}
	}
}

// AskController asks the controller at another node, which may not rule (any more): then the answer is NotController. What is
// not answered within Config.FetchLimit is asked again, until ctx ends. InvalidRequest: tp is no partition, or the proposal has more
// members than a message takes.
func (n *Node) AskController(ctx context.Context, at NodeID, tp log.TopicPartition, q ControlRequest) (ISRAnswer, error) {
	if n.none() {
		return ISRAnswer{}, ErrNodeClosed
	}
	if err := q.validate(tp); err != nil {
		return ISRAnswer{}, err
	}
	m, err := n.exchange(ctx, at, tp, asking{}, func(tag uint64) Message {
		q.Tag = tag
		return q
	})
	if err != nil {
		return ISRAnswer{}, err
	}
	a, ok := m.(ControlAnswer)
	if !ok {
		return ISRAnswer{Err: Unknown}, nil
	}
	return a.Answer, nil
}

// validate finds what no other node would take for a message.
func (q *ControlRequest) validate(tp log.TopicPartition) error {
	if tp != (log.TopicPartition{}) {
		if err := tp.Validate(); err != nil {
			return fmt.Errorf("%w: %w", InvalidRequest, err)
		}
	}
	if n := len(q.Proposal.ISR); n > maxMembers {
		return fmt.Errorf("%w: %d members in sync, of at most %d", InvalidRequest, n, maxMembers)
	}
	return nil
}

// judge answers a node that asks this one's controller.
func (n *Node) judge(from NodeID, tp log.TopicPartition, q ControlRequest) {
	answer := ISRAnswer{Err: NotController}
	if n.conf.Judge != nil {
		ctx, cancel := context.WithTimeout(n.ctx, n.conf.ProposeTimeout)
		defer cancel()
		answer = n.conf.Judge(ctx, from, tp, q)
	}
	n.send(from, tp, ControlAnswer{Tag: q.Tag, Answer: answer})
}

// unsent tells who waits that his request has not gone out.
func (n *Node) unsent(from NodeID, m unsent) {
	n.asking.Lock()
	defer n.asking.Unlock()
	if w, ok := n.awaited[m.tag]; ok && w.from == from {
		select {
		case w.unsent <- m.why:
		default:
		}
	}
}

// answered gives an answer to who waits for it.
func (n *Node) answered(from NodeID, tag uint64, m Message) {
	n.asking.Lock()
	defer n.asking.Unlock()
	if w, ok := n.awaited[tag]; ok && w.from == from {
		select {
		case w.answer <- m:
		default:
		}
	}
}
