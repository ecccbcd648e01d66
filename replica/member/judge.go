package member

import (
	"context"
	"errors"
	"sync"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// ruling is which node's controller rules.
type ruling struct {
	mu      sync.Mutex
	at      replica.NodeID
	changed chan struct{} // closed when another does
}

func (r *ruling) init() { r.at, r.changed = replica.NoNode, make(chan struct{}) }

func (r *ruling) set(at replica.NodeID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = at
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *ruling) now() (at replica.NodeID, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at, r.changed
}

func (m *Member) followRuler() {
	m.again(func() {
		for at, err := range controller.FollowRuler(m.ctx, m.store) {
			if err != nil {
				m.trouble(err)
				continue
			}
			m.judge.set(at)
		}
	})
}

// propose brings a leader's proposal before the controller.
func (m *Member) propose(ctx context.Context, tp log.TopicPartition, topicID [16]byte, p replica.Proposal) replica.ISRAnswer {
	return m.consult(ctx, tp, replica.ControlRequest{BrokerEpoch: m.epoch.Load(), TopicID: topicID, Proposal: p})
}

// consult asks the controller that rules, once: if another rules before there is an answer, it is RequestTimedOut.
func (m *Member) consult(ctx context.Context, tp log.TopicPartition, q replica.ControlRequest) replica.ISRAnswer {
	at, changed := m.judge.now()
	if at == replica.NoNode {
		select {
		case <-changed:
			at, changed = m.judge.now()
		case <-ctx.Done():
		}
	}
	switch at {
	case replica.NoNode:
		return replica.ISRAnswer{Err: replica.RequestTimedOut}
	case m.conf.Self:
		return m.answer(ctx, at, tp, q)
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching.Go(func() {
		select {
		case <-changed:
			cancel()
		case <-ctx.Done():
		}
	})
	a, err := m.node.AskController(ctx, at, tp, q)
	if err != nil {
		return replica.ISRAnswer{Err: replica.RequestTimedOut}
	}
	return a
}

// answer is what this member's controller says, to itself or to another member.
func (m *Member) answer(ctx context.Context, from replica.NodeID, tp log.TopicPartition, q replica.ControlRequest) replica.ISRAnswer {
	if q.Settings {
		return m.heed(ctx, tp, q)
	}
	if m.ctrl == nil {
		return replica.ISRAnswer{Err: replica.NotController}
	}
	if q.Stopping {
		return replica.ISRAnswer{Err: codeOf(m.ctrl.ControlledShutdown(ctx, from, q.BrokerEpoch))}
	}
	p, err := m.ctrl.AlterPartition(ctx, controller.AlterPartition{Node: from, BrokerEpoch: q.BrokerEpoch, TopicID: q.TopicID, Partition: tp, Proposal: q.Proposal})
	if err != nil {
		return replica.ISRAnswer{Err: codeOf(err)}
	}
	return replica.ISRAnswer{ISR: p.ISR, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
}

func codeOf(err error) replica.ErrorCode {
	code := replica.RequestTimedOut
	if err == nil {
		return replica.None
	}
	errors.As(err, &code)
	return code
}
