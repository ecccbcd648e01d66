package replica

import "github.com/partlog/partlog/log"

// deliver takes a message of another node.
func (n *Node) deliver(e Envelope) {
	n.mu.RLock()
	r := n.replicas[e.Partition]
	n.mu.RUnlock()
	switch m := e.Message.(type) {
	case FetchRequest:
		consumer := m.From == NoNode
		if !consumer && m.From != e.From {
			m.From = e.From
			e.Message = m
		}
		if r != nil {
			r.postBy(mail{event: e.Message, remote: true, from: e.From}, e.on.by)
			return
		}
		n.answer(e.From, e.Partition, m.Tag, consumer, refusal(UnknownTopicOrPartition))
	case FetchResponse:
		if m.From != e.From {
			m.From = e.From
			e.Message = m
		}
		if r != nil {
			r.postBy(mail{event: e.Message, lease: e.on.lease, remote: true, from: e.From}, e.on.by)
		}
	case EpochRequest:
		m.From = NoNode
		n.forward(r, e, m.Tag, m)
	case OffsetRequest:
		m.From = NoNode
		n.forward(r, e, m.Tag, m)
	case AppendRequest:
		m.From = e.From
		switch {
		case r == nil:
			n.answer(e.From, e.Partition, m.Tag, true, refusal(UnknownTopicOrPartition))
		case !r.post(mail{event: m, remote: true, from: e.From}): // it is not in the log, and can be asked for again
			n.answer(e.From, e.Partition, m.Tag, true, refusal(RequestTimedOut))
		}
	case StatusRequest:
		if r != nil {
			n.answer(e.From, e.Partition, m.Tag, true, r.told())
			return
		}
		n.answer(e.From, e.Partition, m.Tag, true, refusal(UnknownTopicOrPartition))
	case unsent:
		n.unsent(e.From, m)
	case Lost:
		n.lost(e.From, m.Why)
	case EndTxn:
		m.From = e.From
		n.forward(r, e, m.Tag, m)
	case Answer:
		n.answered(e.From, m.Tag, m)
	case ControlRequest:
		if n.asked.Add(1) > remoteLimit || n.ctx.Err() != nil { // it will be asked again
			n.asked.Add(-1)
			return
		}
		n.court.submit(taskFunc(func() {
			defer n.asked.Add(-1)
			n.judge(e.From, e.Partition, m)
		}))
	case ControlAnswer:
		n.answered(e.From, m.Tag, m)
	}
}

// forward gives what a client asks to the replica, or says that there is none.
func (n *Node) forward(r *runner, e Envelope, tag uint64, request Event) {
	if r == nil {
		n.answer(e.From, e.Partition, tag, true, refusal(UnknownTopicOrPartition))
		return
	}
	r.post(mail{event: request, remote: true, from: e.From})
}

// answer sends the Result of a request, to a follower or to who asked as a client.
func (n *Node) answer(to NodeID, tp log.TopicPartition, tag uint64, client bool, res Result) {
	n.answerBy(passing{}, to, tp, tag, client, res)
}

func (n *Node) answerBy(on passing, to NodeID, tp log.TopicPartition, tag uint64, client bool, res Result) {
	res.Cause = farError(res.Cause)
	if client {
		n.send(to, tp, Answer{From: n.conf.Self, Tag: tag, Result: res})
		return
	}
	n.sendBy(on, to, tp, FetchResponse{From: n.conf.Self, Tag: tag, Result: res})
}

// lost has whoever waits for an answer of a node ask again.
func (n *Node) lost(node NodeID, why error) {
	n.asking.Lock()
	for _, w := range n.awaited {
		if w.from == node {
			select {
			case w.lost <- why:
			default:
			}
		}
	}
	n.asking.Unlock()
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, r := range n.replicas {
		if NodeID(r.fetchAt.Load()) == node {
			r.post(mail{event: Lost{}, from: node})
		}
	}
}

// send hands a message to the transport, or to this node itself: no transport need know the way there.
func (n *Node) send(to NodeID, tp log.TopicPartition, m Message) { n.sendBy(passing{}, to, tp, m) }

// passing goes from node to node beside a message, within a process.
type passing struct {
	by    *worker // whose turn it was sent in: the receiver's can be next. nil: it cannot
	lease *lease  // of its records, held for the receiver; nil: they are not lent
}

func (n *Node) sendBy(on passing, to NodeID, tp log.TopicPartition, m Message) {
	if to == n.conf.Self {
		n.deliver(Envelope{From: to, Partition: tp, Message: m})
		return
	}
	if t, ok := n.conf.Transport.(localTransport); ok {
		t.send(to, tp, m, on)
		return
	}
	n.conf.Transport.Send(to, tp, m)
}

// refusal is a Result that knows nothing but a code.
func refusal(code ErrorCode) Result {
	return Result{Err: code, Base: -1, Last: -1, AppendTime: -1, HighWatermark: -1, LastStable: -1, LogStart: -1, LogEnd: -1, Removal: -1,
		EpochEnd: log.EpochEnd{Epoch: -1, End: -1}, Leader: NoNode, LeaderEpoch: -1}
}
