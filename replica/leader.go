package replica

import (
	"slices"
	"time"
)

// peer is what the controller knows of a node.
type peer struct {
	node        NodeID
	brokerEpoch int64
	barred      bool // fenced or shutting down: it may not become in-sync
}

// remote is what a leader knows of another replica.
type remote struct {
	node       NodeID
	logStart   int64 // -1 unknown, like the next three
	logEnd     int64 // the offset it fetched at last: it has everything below
	unsynced   int64 // of that, what it may lose
	leaderEnd  int64 // the leader's log end at that fetch
	broker     int64 // broker epoch of that fetch
	fetchedAt  time.Time
	caughtUpAt time.Time // when it had everything last; zero: not known to
	unclean    bool      // says that it may lack what it had
	inISR      bool      // committed
	inMaximal  bool      // or about to be
}

func unknownRemote(node NodeID) remote {
	return remote{node: node, logStart: -1, logEnd: -1, leaderEnd: -1, broker: -1}
}

// leading is what only a leader has.
type leading struct {
	active     bool // the epoch is in the log
	again      bool // it led the epoch before, too
	failed     bool // it leads in the controller's eyes, but its log is of no use: others are to lead
	epochStart int64
	remotes    []remote // the assignment without this node, in its order
	isr        []NodeID // committed
	maximal    int      // size of the committed set with the candidate

	pending      change
	candidate    NodeID
	proposed     []NodeID
	proposal     uint64    // tag of the proposal whose answer is outstanding, 0 if none; outlives epochs
	retryAt      time.Time // when to propose the same again; zero: not at all
	refusedUntil time.Time // no candidate before that
	checkAt      time.Time
}

func (p *Partition) remote(node NodeID) *remote {
	for i := range p.lead.remotes {
		if p.lead.remotes[i].node == node {
			return &p.lead.remotes[i]
		}
	}
	return nil
}

// setReplicas brings the remotes in line with the assignment; who stays keeps its state.
func (p *Partition) setReplicas() {
	old := p.lead.remotes
	if slices.EqualFunc(old, slices.DeleteFunc(slices.Clone(p.replicas), func(n NodeID) bool { return n == p.conf.Self }),
		func(r remote, n NodeID) bool { return r.node == n }) {
		return
	}
	remotes := make([]remote, 0, len(p.replicas))
	for _, node := range p.replicas {
		if node == p.conf.Self {
			continue
		}
		r := unknownRemote(node)
		if i := slices.IndexFunc(old, func(o remote) bool { return o.node == node }); i >= 0 {
			r = old[i]
		}
		remotes = append(remotes, r)
	}
	p.lead.remotes = remotes
}

// resetRemotes is for the beginning of an epoch. Of an epoch led before, what the replicas have is still known; but who is
// not in sync counts as long behind, so that it cannot hold back the high watermark.
func (p *Partition) resetRemotes() {
	for i := range p.lead.remotes {
		r := &p.lead.remotes[i]
		if !p.lead.again {
			in, maximal := r.inISR, r.inMaximal
			*r = unknownRemote(r.node)
			r.inISR, r.inMaximal = in, maximal
		} else {
			r.leaderEnd = p.lead.epochStart
			r.fetchedAt = time.Time{}
			if r.inISR {
				r.fetchedAt = p.now
			}
		}
		r.caughtUpAt = time.Time{}
		if r.inISR {
			r.caughtUpAt = p.now
		}
	}
}

// noteFetch takes what a follower's fetch says about it. leaderEnd is the log end it was answered from.
func (p *Partition) noteFetch(r *remote, f *FetchRequest, leaderEnd int64) {
	switch {
	case f.Offset >= leaderEnd:
		r.caughtUp(p.now)
	case f.Offset >= r.leaderEnd: // it has all there was when it fetched before
		r.caughtUp(r.fetchedAt)
	}
	moved := r.logEnd != f.Offset
	r.logStart, r.logEnd, r.unsynced = f.LogStart, f.Offset, f.Unsynced
	r.leaderEnd = leaderEnd // it never falls while an epoch lasts
	r.fetchedAt = p.now
	if f.BrokerEpoch >= 0 {
		r.broker = f.BrokerEpoch
	}
	r.unclean = f.UncleanStop
	p.counts.Fetches++
	if r.unclean && r.inISR {
		p.shrink()
	}
	p.expand(r)
	if moved {
		p.advance()
	}
	if r.logEnd-r.unsynced < p.removal {
		p.lowerRemoval()
	}
}

func (r *remote) caughtUp(t time.Time) {
	if t.After(r.caughtUpAt) {
		r.caughtUpAt = t
	}
}

// current says whether a replica has everything, or had not long ago.
func (p *Partition) current(r *remote) bool {
	return r.logEnd == p.state.LogEnd || p.now.Sub(r.caughtUpAt) <= p.conf.LagTimeMax
}

// eligible says whether a replica may become in-sync: the node is alive and means to stay, it fetches in its present life,
// and it lost nothing.
func (p *Partition) eligible(r *remote) bool {
	if r.unclean {
		return false
	}
	for _, o := range p.peers {
		if o.node == r.node {
			return !o.barred && (r.broker < 0 || o.brokerEpoch < 0 || r.broker == o.brokerEpoch)
		}
	}
	return true
}

// staleBroker says whether a request comes from a life of the node that is over.
func (p *Partition) staleBroker(node NodeID, epoch int64) bool {
	if epoch < 0 {
		return false
	}
	if r := p.remote(node); r != nil && epoch < r.broker {
		return true
	}
	for _, o := range p.peers {
		if o.node == node {
			return epoch < o.brokerEpoch
		}
	}
	return false
}
