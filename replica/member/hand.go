package member

import (
	"errors"
	"fmt"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// told is what the node was told last of a replica here.
type told struct {
	id       [16]byte // of the topic
	restored int64    // how often the store had been restored when it said so
}

// hand passes on to the node what the store says.
func (m *Member) hand() {
	known := map[log.TopicPartition]told{}
	for {
		peers, parts, wake := m.board.take()
		for _, p := range peers {
			m.node.Peer(p)
		}
		var failed []controller.News
		for _, n := range parts {
			if err := m.pass(n, known); err != nil {
				m.trouble(err)
				failed = append(failed, n)
			}
		}
		var again <-chan time.Time
		if len(failed) > 0 {
			m.board.back(failed)
			again = time.After(m.conf.Retry)
			wake = nil
		}
		select {
		case <-wake:
		case <-again:
		case <-m.ctx.Done():
			return
		}
	}
}

// pass tells the node of one partition.
func (m *Member) pass(n controller.News, known map[log.TopicPartition]told) error {
	tp := n.Partition
	last, here := known[tp]
	other := here && last.id != n.TopicID
	if here && (n.Deleted || other) {
		still, lost, err := m.believe(n, last)
		switch {
		case err != nil || !still:
			return err
		case lost:
			_ = m.node.Stop(tp, replica.Stop{LeaderEpoch: -1})
			m.trouble(fmt.Errorf("member: topic %s with the id %x %w", tp.Topic, last.id, errLost))
			return nil
		}
	}
	if gone := !m.board.mineToo(n); gone || other {
		s := replica.Stop{Delete: true, LeaderEpoch: -1}
		if here {
			if s.TopicID = last.id; !n.Deleted && !other {
				s.PartitionEpoch = n.State.PartitionEpoch
			}
		}
		_ = m.node.Stop(tp, s) // there may be none
		delete(known, tp)
		if gone {
			return nil
		}
	}
	if err := m.learn(tp.Topic, n.TopicID); err != nil {
		return err
	}
	if err := m.find(n.State.Leader); err != nil {
		return err
	}
	a := n.State.Assign(n.TopicID)
	a.BrokerEpoch = m.epoch.Load()
	err := m.node.Assign(tp, a)
	if errors.Is(err, replica.ErrNodeClosed) {
		return nil
	}
	if err == nil {
		known[tp] = told{n.TopicID, m.board.heard(tp)}
	}
	return err
}
