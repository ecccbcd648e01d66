package controller

import (
	"slices"

	"github.com/partlog/partlog/replica"
)

// alter judges a leader's proposal of another in-sync set. Its reply holds the partition as it is afterwards.
func (c *Core) alter(e AlterPartition) Reply {
	if err := c.checkEpoch(e.Node, e.BrokerEpoch); err != nil {
		return failed(err)
	}
	if c.ids[e.TopicID] == "" {
		return failed(refuse(replica.UnknownTopicID, "no topic has the id of %v", e.Partition))
	}
	if c.ids[e.TopicID] != e.Partition.Topic {
		return failed(refuse(replica.InconsistentTopicID, "the id is that of topic %s, not of %s", c.ids[e.TopicID], e.Partition.Topic))
	}
	t, err := c.find(e.Partition)
	if err != nil {
		return failed(err)
	}
	n := int(e.Partition.Partition)
	before := t.partitions[n].Partition
	if err := c.judge(e, before); err != nil {
		return failed(err)
	}
	r := c.rules(t, Online)
	abdicates := !slices.Contains(e.Proposal.ISR, e.Node)
	if abdicates { // its log has failed, and with it what was there
		r.Unclean = []replica.NodeID{e.Node}
	}
	c.change(t, n, r, Target{ISR: e.Proposal.ISR, Recovered: !abdicates && !e.Proposal.Recovering})
	after := t.partitions[n].Partition
	switch {
	case abdicates:
		return failed(refuse(replica.NewLeaderElected, "%d does not lead %v any more, %d does", e.Node, e.Partition, after.Leader))
	case after.Leader != e.Node:
		return failed(refuse(replica.NewLeaderElected, "%v completed its reassignment, %d leads it", e.Partition, after.Leader))
	}
	return Reply{Partition: after}
}

func (c *Core) judge(e AlterPartition, p Partition) *Error {
	at, prop := e.Partition, e.Proposal
	switch {
	case prop.LeaderEpoch > p.LeaderEpoch || prop.PartitionEpoch > p.PartitionEpoch:
		return refuse(replica.NotController, "%v is at leader epoch %d and partition epoch %d here; %d and %d are of somebody who rules later",
			at, p.LeaderEpoch, p.PartitionEpoch, prop.LeaderEpoch, prop.PartitionEpoch)
	case prop.LeaderEpoch < p.LeaderEpoch:
		return refuse(replica.FencedLeaderEpoch, "%v is in leader epoch %d, not %d", at, p.LeaderEpoch, prop.LeaderEpoch)
	case e.Node != p.Leader:
		return refuse(replica.InvalidRequest, "%v is led by %d, not by %d", at, p.Leader, e.Node)
	case prop.PartitionEpoch < p.PartitionEpoch:
		return refuse(replica.InvalidUpdateVersion, "%v is at partition epoch %d, not %d", at, p.PartitionEpoch, prop.PartitionEpoch)
	case len(prop.ISR) == 0 || !distinct(prop.ISR) || !containsAll(p.Replicas, prop.ISR):
		return refuse(replica.InvalidRequest, "%v cannot be in sync with %v, its replicas are %v", at, prop.ISR, p.Replicas)
	case !slices.Contains(prop.ISR, e.Node) && !containsAll(p.ISR, prop.ISR):
		return refuse(replica.InvalidRequest, "leader %d of %v gives up to %v, of which not all are in sync", e.Node, at, prop.ISR)
	case prop.BrokerEpochs != nil && len(prop.BrokerEpochs) != len(prop.ISR):
		return refuse(replica.InvalidRequest, "%d broker epochs for %d members of %v", len(prop.BrokerEpochs), len(prop.ISR), at)
	case prop.Recovering && len(prop.ISR) > 1:
		return refuse(replica.InvalidRequest, "%v has more than its leader in sync and is still recovering", at)
	case prop.Recovering && !p.Recovering:
		return refuse(replica.InvalidRequest, "%v has recovered and cannot recover again", at)
	}
	for i, id := range prop.ISR {
		b := c.brokers[id]
		switch {
		case !c.active(id):
			return refuse(replica.IneligibleReplica, "node %d is not in service and cannot be in sync with %v", id, at)
		case prop.BrokerEpochs != nil && prop.BrokerEpochs[i] != -1 && prop.BrokerEpochs[i] != b.epoch:
			return refuse(replica.IneligibleReplica, "node %d fetched %v in a life that is over: epoch %d, now %d", id, at, prop.BrokerEpochs[i], b.epoch)
		}
	}
	return nil
}
