package member

import (
	"errors"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// hand passes on to the node what the store says.
func (m *Member) hand() {
	told := map[log.TopicPartition][16]byte{} // topic ids of the replicas here
	for {
		peers, parts, wake := m.board.take()
		for _, p := range peers {
			m.node.Peer(p)
		}
		var failed []controller.News
		for _, n := range parts {
			if err := m.pass(n, told); err != nil {
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
func (m *Member) pass(n controller.News, told map[log.TopicPartition][16]byte) error {
	tp := n.Partition
	id, here := told[tp]
	if here && (n.Deleted || id != n.TopicID) {
		if still, err := m.believe(n); err != nil || !still {
			return err
		}
	}
	if gone := !m.board.mineToo(n); gone || here && id != n.TopicID {
		_ = m.node.Stop(tp, replica.Stop{Delete: true, LeaderEpoch: -1}) // there may be none
		delete(told, tp)
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
		told[tp] = n.TopicID
	}
	return err
}
