package replica

import (
	"slices"
	"time"
)

// change of the in-sync set that is under way.
//
//	            in sync, committed      counted for the high watermark and acks=all (maximal)
//	noChange    {1 2}                   {1 2}
//	expanding   {1 2}                   {1 2 3}     the controller may count 3 already
//	shrinking   {1 2 3}                 {1 2 3}     the controller may still elect 3
type change uint8

const (
	noChange change = iota
	expanding
	shrinking
)

var changeNames = [...]string{"", "expand", "shrink"}

// setISR commits an in-sync set.
func (p *Partition) setISR(isr []NodeID) {
	p.lead.isr = eachOnce(p.lead.isr[:0], isr)
	p.markISR()
}

// markISR notes at the replicas which set they are in.
func (p *Partition) markISR() {
	p.lead.maximal = len(p.lead.isr)
	if p.lead.pending == expanding {
		p.lead.maximal++
	} else {
		p.lead.candidate = NoNode
	}
	for i := range p.lead.remotes {
		r := &p.lead.remotes[i]
		r.inISR = slices.Contains(p.lead.isr, r.node)
		r.inMaximal = r.inISR || r.node == p.lead.candidate
	}
}

// minISR is how many must be in sync: no more than there are replicas.
func (p *Partition) minISR() int { return min(p.required(p.told), len(p.replicas)) }

// required is min.insync.replicas where an Assign says told.
func (p *Partition) required(told int) int {
	if told > 0 {
		return told
	}
	return max(p.conf.MinISR, -told)
}

// expand proposes a replica that has all that is committed.
func (p *Partition) expand(r *remote) {
	if p.lead.pending != noChange || p.lead.proposal != 0 || r.inISR || r.logEnd < p.hw || r.logEnd < p.lead.epochStart ||
		p.now.Before(p.lead.refusedUntil) || !p.eligible(r) {
		return
	}
	p.lead.pending, p.lead.candidate = expanding, r.node
	p.lead.proposed = append(slices.Clone(p.lead.isr), r.node)
	p.markISR()
	p.propose()
}

// shrink proposes to leave out who is behind for too long, or may have lost what it had.
func (p *Partition) shrink() {
	if p.lead.pending != noChange || p.lead.proposal != 0 || !p.lead.active {
		return
	}
	behind := 0
	for _, node := range p.lead.isr {
		if p.behind(node) {
			behind++
		}
	}
	if behind == 0 {
		return
	}
	p.lead.pending = shrinking
	p.lead.proposed = make([]NodeID, 0, len(p.lead.isr)-behind)
	for _, node := range p.lead.isr {
		if !p.behind(node) {
			p.lead.proposed = append(p.lead.proposed, node)
		}
	}
	p.propose()
}

func (p *Partition) behind(node NodeID) bool {
	if node == p.conf.Self {
		return false
	}
	r := p.remote(node)
	return r == nil || r.unclean || !p.current(r)
}

// propose sends the change under way to the controller.
func (p *Partition) propose() {
	p.lead.retryAt = time.Time{}
	p.lead.proposal = p.tag()
	epochs := make([]int64, len(p.lead.proposed))
	for i, node := range p.lead.proposed {
		epochs[i] = -1
		if node == p.conf.Self {
			epochs[i] = p.conf.BrokerEpoch
		} else if r := p.remote(node); r != nil && !p.lead.failed {
			epochs[i] = r.broker
		}
	}
	p.do(Action{Kind: ProposeISR, Tag: p.lead.proposal, Proposal: Proposal{
		ISR: slices.Clone(p.lead.proposed), BrokerEpochs: epochs,
		LeaderEpoch: p.leaderEpoch, PartitionEpoch: p.partitionEpoch,
	}})
}

// isrAnswer takes the controller's answer. What became of a change that was neither accepted nor refused for good is not
// known: it stays under way until newer news come.
func (p *Partition) isrAnswer(e ISRAnswer) {
	if e.Tag == 0 || e.Tag != p.lead.proposal {
		p.counts.StaleEventsIgnored++
		return
	}
	p.lead.proposal = 0
	if p.role == Failed {
		p.abdicated(e)
		return
	}
	if p.role != Leader || !p.lead.active {
		return
	}
	if p.lead.pending != noChange {
		p.resolve(e)
	}
	p.shrinkUnclean()
}

func (p *Partition) resolve(e ISRAnswer) {
	switch e.Err {
	case None:
		if e.LeaderEpoch != p.leaderEpoch || e.PartitionEpoch < p.partitionEpoch {
			p.counts.StaleEventsIgnored++
			return
		}
		if p.lead.pending == expanding {
			p.counts.Expands++
		} else {
			p.counts.Shrinks++
		}
		p.partitionEpoch, p.recovering = e.PartitionEpoch, false
		p.lead.pending = noChange
		p.setISR(e.ISR)
		p.advance()
	case IneligibleReplica, OperationNotAttempted:
		p.counts.ISRFailures++
		p.lead.pending = noChange
		p.lead.refusedUntil = p.now.Add(p.conf.Backoff)
		p.markISR()
	case FencedLeaderEpoch, InvalidUpdateVersion, InvalidRequest, UnknownTopicOrPartition, UnknownTopicID, NewLeaderElected:
		p.counts.ISRFailures++
	default:
		p.lead.retryAt = p.now.Add(p.conf.Backoff)
		p.arm(p.lead.retryAt)
	}
}

// shrinkUnclean makes up for a shrink that had to wait for another change.
func (p *Partition) shrinkUnclean() {
	for i := range p.lead.remotes {
		if r := &p.lead.remotes[i]; r.unclean && r.inISR {
			p.shrink()
			return
		}
	}
}

// checkISR looks for members that fell behind, every half of the lag they are allowed, and repeats a proposal.
func (p *Partition) checkISR() {
	if !p.lead.active {
		return
	}
	if !p.lead.retryAt.IsZero() {
		if p.now.Before(p.lead.retryAt) {
			p.arm(p.lead.retryAt)
		} else if p.lead.pending != noChange && p.lead.proposal == 0 {
			p.propose()
		}
	}
	if !p.now.Before(p.lead.checkAt) {
		p.lead.checkAt = p.now.Add(p.conf.LagTimeMax / 2)
		p.shrink()
		p.raiseRemoval()
	}
	p.arm(p.lead.checkAt)
}

// abdicate proposes an in-sync set without this node, whose log has failed: the controller has another of the set lead. One that is
// alone in it has nobody to propose: the shell opens its log again.
func (p *Partition) abdicate() {
	if !p.lead.failed || p.lead.proposal != 0 {
		return
	}
	if p.now.Before(p.lead.retryAt) {
		p.arm(p.lead.retryAt)
		return
	}
	p.lead.proposed = withoutSelf(p.lead.isr, p.conf.Self)
	if len(p.lead.proposed) > 0 {
		p.propose()
	}
}

// abdicated takes the answer, or that to what was proposed before the log failed. It asks again until others lead.
func (p *Partition) abdicated(e ISRAnswer) {
	switch {
	case givenUp(e.Err):
		p.lead.failed = false
	case e.Err == None:
		if e.LeaderEpoch == p.leaderEpoch && e.PartitionEpoch >= p.partitionEpoch {
			p.partitionEpoch = e.PartitionEpoch
			p.lead.isr, p.lead.pending = eachOnce(p.lead.isr[:0], e.ISR), noChange
		}
		p.abdicate()
	default:
		if e.Err == IneligibleReplica || e.Err == OperationNotAttempted {
			p.lead.pending = noChange
		}
		p.lead.retryAt = p.now.Add(p.conf.Backoff)
		p.arm(p.lead.retryAt)
	}
}

// givenUp says that a node leads no more, or that the controller does not know this way to say so.
func givenUp(code ErrorCode) bool {
	switch code {
	case FencedLeaderEpoch, InvalidRequest, UnknownTopicOrPartition, UnknownTopicID, NewLeaderElected:
		return true
	}
	return false
}

// withoutSelf is an in-sync set without this node.
func withoutSelf(isr []NodeID, self NodeID) []NodeID {
	return slices.DeleteFunc(slices.Clone(isr), func(n NodeID) bool { return n == self })
}
