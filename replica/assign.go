package replica

import (
	"fmt"
	"slices"
	"time"

	"github.com/partlog/partlog/log"
)

// validate finds what no controller may tell a node. The error is an InvalidReplicaAssignment.
func (a *Assign) validate(self NodeID) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{InvalidReplicaAssignment}, args...)...)
	}
	for i, id := range a.Replicas {
		if id < 0 || slices.Contains(a.Replicas[:i], id) {
			return bad("replica %d of %v is no node, or is named twice", id, a.Replicas)
		}
	}
	for i, id := range a.ISR {
		if !slices.Contains(a.Replicas, id) || slices.Contains(a.ISR[:i], id) {
			return bad("%d of %v in sync is no replica of %v, or is named twice", id, a.ISR, a.Replicas)
		}
	}
	switch {
	case a.Leader != NoNode && !slices.Contains(a.Replicas, a.Leader):
		return bad("leader %d is no replica of %v", a.Leader, a.Replicas)
	case a.Leader == self && !slices.Contains(a.ISR, self):
		return bad("leader %d is not in sync, %v are", self, a.ISR)
	case a.LeaderEpoch < 0 || a.PartitionEpoch < 0:
		return bad("leader epoch %d, partition epoch %d", a.LeaderEpoch, a.PartitionEpoch)
	}
	return nil
}

// eachOnce appends the nodes of list, each once: one that counted twice would make up for another that is not there.
func eachOnce(dst, list []NodeID) []NodeID {
	for _, id := range list {
		if !slices.Contains(dst, id) {
			dst = append(dst, id)
		}
	}
	return dst
}

// assign takes the controller's word on who leads and who replicates, if it is not older than what is known.
func (p *Partition) assign(a Assign) {
	none := [16]byte{}
	fresh := p.role == Idle || a.LeaderEpoch > p.leaderEpoch
	switch {
	case p.role == Failed && p.lead.failed && a.Leader == p.conf.Self && a.LeaderEpoch == p.leaderEpoch && a.PartitionEpoch > p.partitionEpoch:
		p.partitionEpoch = a.PartitionEpoch // another version of what it cannot lead
		p.lead.isr, p.lead.pending = eachOnce(p.lead.isr[:0], a.ISR), noChange
		p.abdicate()
		return
	case p.role == Failed || p.role == Deleted,
		a.LeaderEpoch < 0, a.LeaderEpoch < p.leaderEpoch, a.PartitionEpoch < p.partitionEpoch,
		!fresh && a.Leader != p.leader, // an epoch has one leader
		a.BrokerEpoch > 0 && a.BrokerEpoch < p.conf.BrokerEpoch,
		a.TopicID != none && p.topicID != none && a.TopicID != p.topicID:
		p.counts.StaleEventsIgnored++
		return
	}
	same := !fresh && a.PartitionEpoch == p.partitionEpoch
	if p.partitionEpoch < 0 {
		p.ownTags(a)
	}
	if a.TopicID != none {
		p.topicID = a.TopicID
	}
	least, before := p.required(p.told), p.leaderEpoch // by what was said so far
	p.leader, p.leaderEpoch, p.partitionEpoch, p.told = a.Leader, a.LeaderEpoch, a.PartitionEpoch, a.MinISR
	p.replicas = eachOnce(p.replicas[:0], a.Replicas)
	p.adding = append(p.adding[:0], a.Adding...)
	p.removing = append(p.removing[:0], a.Removing...)
	switch {
	case a.Leader == p.conf.Self && fresh:
		p.becomeLeader(a, before)
	case a.Leader == p.conf.Self:
		p.stayLeader(a, same, least)
	case fresh:
		p.becomeFollower()
	}
	p.settle()
}

// becomeLeader begins an epoch of its own. It serves once the log has noted where the epoch begins. What it knew of the others as
// leader of the epoch before still holds, but only of that one: in an epoch that it was not told of another may have led, and had
// them cut off what they had fetched here.
func (p *Partition) becomeLeader(a Assign, before int32) {
	again := p.role == Leader && a.LeaderEpoch == before+1
	p.role, p.halted, p.recovering = Leader, false, a.Recovering
	p.follow = following{}
	if !again {
		p.lead = leading{remotes: p.lead.remotes[:0], proposal: p.lead.proposal}
	}
	p.lead.active, p.lead.again, p.lead.epochStart = false, again, -1
	p.lead.pending = noChange
	p.setReplicas()
	p.setISR(a.ISR)
	p.recheckFetches()
}

// stayLeader takes another version of the same epoch. A candidate whose proposal may have been accepted stays one when the
// version is the same: the controller may count it in sync already. That fewer must be in sync than before (least) moves nothing
// by itself: the high watermark waits for the next append or fetch, as where that comes with the configuration.
func (p *Partition) stayLeader(a Assign, same bool, least int) {
	if same && p.lead.pending == expanding {
		return
	}
	p.lead.pending = noChange
	p.setReplicas()
	p.setISR(a.ISR)
	p.recheckFetches()
	if len(p.lead.isr) >= min(least, len(p.replicas)) {
		p.advance()
	}
	p.lowerRemoval()
}

// becomeFollower follows the leader of a new epoch, or waits without one.
func (p *Partition) becomeFollower() {
	p.role, p.halted, p.recovering = Follower, false, false
	p.lead = leading{remotes: p.lead.remotes[:0], proposal: p.lead.proposal, epochStart: -1}
	p.follow = following{start: true}
	p.catchUp = -1
	p.refuseProduces(NotLeaderOrFollower)
	p.recheckFetches()
}

// assignEpoch has the log note where the epoch begins, even if nothing will be written in it.
func (p *Partition) assignEpoch() {
	if !p.halted {
		p.begin(work{}, Action{Kind: DoEpoch, LeaderEpoch: p.leaderEpoch})
	}
}

// assigned lets a leader begin.
func (p *Partition) assigned(e Assigned) {
	w, ok := p.end(e.Tag, DoEpoch)
	if !ok {
		return
	}
	defer p.settle()
	if p.role == Failed || p.role == Deleted {
		return
	}
	stale := w.epoch != p.leaderEpoch || p.role != Leader
	switch {
	case e.Err != nil && !isAny(e.Err, log.ErrFenced):
		p.fail(e.Err)
		return
	case e.Err != nil && stale:
		return
	case e.Err != nil:
		p.halted, p.trouble = true, e.Err // the log has seen a newer leader
		p.refuseProduces(NotLeaderOrFollower)
		p.recheckFetches()
		return
	}
	p.take(e.State)
	if stale {
		return
	}
	p.lead.active = true
	p.lead.epochStart = p.state.LogEnd
	p.lead.checkAt = p.now.Add(p.conf.LagTimeMax / 2)
	p.arm(p.lead.checkAt)
	p.unclean = false // this log is the truth now
	p.counts.Elections++
	p.resetRemotes()
	p.lowerRemoval()
	p.sync()
	p.advance()
	p.serveHeld()
}

// late says that e is about another topic than a replica's, or an earlier time of it.
func (e Stop) late(topicID [16]byte, leaderEpoch, partitionEpoch int32) bool {
	none := [16]byte{}
	return e.LeaderEpoch >= 0 && e.LeaderEpoch < leaderEpoch ||
		e.PartitionEpoch > 0 && e.PartitionEpoch < partitionEpoch ||
		e.TopicID != none && topicID != none && e.TopicID != topicID
}

// says whether e is about a topic, or a version.
func (e Stop) says() bool { return e.PartitionEpoch > 0 || e.TopicID != [16]byte{} }

// olderThan says that another version of the same topic's partition is newer.
func (a *Assign) olderThan(o *Assign) bool {
	return a.TopicID == o.TopicID && (a.LeaderEpoch < o.LeaderEpoch || a.LeaderEpoch == o.LeaderEpoch && a.PartitionEpoch < o.PartitionEpoch)
}

// stop ends the replica here.
func (p *Partition) stop(e Stop) {
	if p.role == Deleted || e.late(p.topicID, p.leaderEpoch, p.partitionEpoch) {
		p.counts.StaleEventsIgnored++
		return
	}
	p.leader = NoNode
	if p.partitionEpoch >= 0 { // else the first Assign is still to come, and is told by that
		p.partitionEpoch = max(p.partitionEpoch, e.PartitionEpoch)
	}
	if p.role != Failed || e.Delete {
		p.role = Idle
	}
	if e.Delete {
		p.role, p.deleting = Deleted, true
	} else {
		p.persist()
	}
	p.lead = leading{remotes: p.lead.remotes[:0], proposal: p.lead.proposal, epochStart: -1}
	p.follow = following{}
	p.halted = false
	p.refuseProduces(NotLeaderOrFollower)
	p.recheckFetches()
	p.due = time.Time{}
	p.settle()
}

// peer notes what the controller knows of a node.
func (p *Partition) peer(e Peer) {
	i := slices.IndexFunc(p.peers, func(o peer) bool { return o.node == e.Node })
	if i < 0 {
		i = len(p.peers)
		p.peers = append(p.peers, peer{})
	}
	if e.BrokerEpoch >= 0 && e.BrokerEpoch < p.peers[i].brokerEpoch {
		p.counts.StaleEventsIgnored++
		return
	}
	p.peers[i] = peer{node: e.Node, brokerEpoch: e.BrokerEpoch, barred: !e.Alive || e.ShuttingDown}
	p.lead.refusedUntil = time.Time{}
}
