package member

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// AwaitConfig waits until the leaders of all partitions of a topic go by the settings that the store has of it now, wherever they
// are. Who has altered settings (controller.AlterConfig, SetConfig) and calls it afterwards knows that they count: after a larger
// min.insync.replicas nothing is acknowledged any more that fewer have, neither by these leaders nor by any that is elected later.
// Without it they count soon, as with Kafka: a request may be judged by the old ones a moment after AlterConfig has returned.
//
// Any member may be asked. A partition without a leader is not waited for; other settings than min.insync.replicas reach who leads
// it later soon, as they reach followers. replica.InvalidConfig: a leader's log refuses some of the settings;
// replica.UnknownTopicOrPartition; ctx's error, if a leader does not answer or its log has failed, say; the store's.
func (m *Member) AwaitConfig(ctx context.Context, topic string) error {
	if m.none() {
		return replica.ErrNodeClosed
	}
	all, err := controller.LookupTopic(ctx, m.store, topic)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("settings of %s: %w", topic, replica.UnknownTopicOrPartition)
	}
	led := map[replica.NodeID][]controller.News{}
	for _, n := range all {
		led[n.State.Leader] = append(led[n.State.Leader], n)
	}
	var asking sync.WaitGroup
	errs := make(chan error, len(led))
	for _, list := range led {
		asking.Go(func() {
			for _, n := range list {
				if err := m.awaitLeader(ctx, n); err != nil {
					errs <- fmt.Errorf("settings of %s: %w", n.Partition, err)
					return
				}
			}
		})
	}
	asking.Wait()
	close(errs)
	return <-errs
}

// awaitLeader asks the leader of a partition, whoever that is, until it goes by the version and the settings of now.
func (m *Member) awaitLeader(ctx context.Context, n controller.News) error {
	id := n.TopicID
	q := replica.ControlRequest{TopicID: id, Settings: true, Proposal: replica.Proposal{LeaderEpoch: -1, PartitionEpoch: n.State.PartitionEpoch}}
	last := error(replica.RequestTimedOut)
	for !n.Deleted && n.TopicID == id && n.State.Leader != replica.NoNode {
		a := m.askLeader(ctx, n, q)
		switch {
		case a.Err == replica.None:
			return nil
		case a.Err == replica.InvalidConfig:
			return a.Err
		case ctx.Err() != nil:
			return fmt.Errorf("node %d: %w: %w", n.State.Leader, ctx.Err(), last)
		}
		last = a.Err
		pause := time.NewTimer(m.conf.Retry / 4)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		case <-m.ctx.Done():
			pause.Stop()
			return replica.ErrNodeClosed
		}
		now, err := controller.Lookup(ctx, m.store, n.Partition)
		if err != nil {
			return errors.Join(err, last)
		}
		n = now
	}
	return nil
}

func (m *Member) askLeader(ctx context.Context, n controller.News, q replica.ControlRequest) replica.ISRAnswer {
	ctx, cancel := context.WithTimeout(ctx, m.conf.ask())
	defer cancel()
	if n.State.Leader == m.conf.Self {
		return m.heed(ctx, n.Partition, q)
	}
	a, err := m.node.AskController(ctx, n.State.Leader, n.Partition, q)
	if err != nil {
		return replica.ISRAnswer{Err: replica.RequestTimedOut}
	}
	return a
}

// heed answers once the replica here leads in the version asked for and goes by its settings. It does not wait for the watches.
func (m *Member) heed(ctx context.Context, tp log.TopicPartition, q replica.ControlRequest) replica.ISRAnswer {
	if err := m.lookUpAndSettle(ctx, tp.Topic); err != nil {
		return replica.ISRAnswer{Err: replica.RequestTimedOut}
	}
	now, err := m.lookUp(ctx, tp)
	if err != nil {
		return replica.ISRAnswer{Err: replica.RequestTimedOut}
	}
	if now.Deleted || now.TopicID != q.TopicID {
		return replica.ISRAnswer{Err: replica.UnknownTopicOrPartition}
	}
	for {
		if h, err := m.node.Partition(tp); err == nil {
			switch s := h.Status(); {
			case s.PartitionEpoch < q.Proposal.PartitionEpoch || s.Role == replica.Leader && !s.Active:
			case s.Role == replica.Failed:
				return replica.ISRAnswer{Err: replica.KafkaStorageError}
			case s.Role != replica.Leader:
				return replica.ISRAnswer{Err: replica.NotLeaderOrFollower}
			default:
				return replica.ISRAnswer{Err: codeOf(configError(h.Reconfigure(ctx)))}
			}
		}
		pause := time.NewTimer(2 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return replica.ISRAnswer{Err: replica.RequestTimedOut}
		}
	}
}

// configError makes what a log refuses of its settings a replica.InvalidConfig.
func configError(err error) error {
	if errors.As(err, new(*log.ConfigError)) {
		return replica.InvalidConfig
	}
	return err
}
