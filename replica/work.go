package replica

import (
	"errors"

	"github.com/partlog/partlog/log"
)

// work is the one change of the log that is under way. While there is some, nothing else that writes is asked for, so
// that its answer says how the log is.
type work struct {
	kind   Kind // DoAppend, DoTruncate, DoReset, DoSkip, DoEpoch; 0: the log is free
	tag    uint64
	epoch  int32 // leader epoch it was asked under
	ours   bool  // an append of this node as leader
	entry  entry // the request behind it
	raw    []byte
	marks  Result // of the leader, to be taken over after a follower's append
	rescue bool   // raw is appended for the second time, after the log was emptied for it
}

// markerBytes is no less than a transaction marker takes, which is appended without bytes of its own.
const markerBytes = 128

// begin asks the log for work.
func (p *Partition) begin(w work, a Action) {
	w.kind, w.tag, w.epoch = a.Kind, p.tag(), p.leaderEpoch
	a.Tag = w.tag
	p.work = w
	p.do(a)
}

// end takes the answer to work; false if it is not the one awaited.
func (p *Partition) end(tag uint64, kinds ...Kind) (w work, ok bool) {
	w = p.work
	for _, k := range kinds {
		if tag == w.tag && k == w.kind {
			p.work = work{}
			return w, true
		}
	}
	p.counts.StaleEventsIgnored++
	return work{}, false
}

// take believes a state that came with the end of work: nothing was under way beside it.
func (p *Partition) take(s LogState) {
	p.state = s
	p.clamp()
}

// clamp keeps the high watermark inside the log.
func (p *Partition) clamp() {
	hw := min(max(p.hw, p.state.LogStart), p.state.LogEnd)
	if hw != p.hw {
		p.hw = hw
		p.armPersist()
	}
	if hw == p.state.LogEnd {
		p.hwGrown = p.grown
	}
}

// logChanged believes of a state what can have changed beside the work under way; the log end cannot.
func (p *Partition) logChanged(s LogState) {
	if s.LogStart > p.state.LogStart {
		p.state.LogStart = min(s.LogStart, p.state.LogEnd)
		if s.LogEnd == p.state.LogEnd {
			p.state.Epochs = s.Epochs
		}
	}
	p.state.LastStable = s.LastStable
	p.noteSynced(s)
	p.clamp()
	p.wake(true)
}

// noteSynced lets what is on the device count, if that matters.
func (p *Partition) noteSynced(s LogState) {
	p.state.Durable = min(max(p.state.Durable, s.Durable), p.state.LogEnd)
	p.state.RecoveryPoint = min(max(p.state.RecoveryPoint, s.RecoveryPoint), p.state.LogEnd)
	if p.conf.CountSynced {
		p.advance()
		p.settle()
	}
}

// counted is the end of what this replica has.
func (p *Partition) counted() int64 {
	if p.conf.CountSynced {
		return min(p.state.Durable, p.state.LogEnd)
	}
	return p.state.LogEnd
}

// sync asks for what was appended to reach the device, if only that counts.
func (p *Partition) sync() {
	if p.syncTag == 0 && p.counted() < p.state.LogEnd {
		p.syncTag = p.tag()
		p.do(Action{Kind: DoSync, Tag: p.syncTag})
	}
}

func (p *Partition) synced(e Synced) {
	if e.Tag != p.syncTag || e.Tag == 0 {
		p.counts.StaleEventsIgnored++
		return
	}
	p.syncTag = 0
	switch {
	case isAny(e.Err, log.ErrTruncated): // what was to be synced is not in the log any more
	case e.Err != nil:
		p.fail(e.Err)
		return
	}
	p.noteSynced(e.State)
	if p.role == Leader {
		p.sync()
	}
}

// settle asks for the next thing the present role needs of the log, once it is free.
func (p *Partition) settle() {
	if p.work.kind != 0 {
		return
	}
	switch {
	case p.deleting:
		p.deleting = false
		p.do(Action{Kind: Delete})
	case p.role == Leader && !p.lead.active:
		p.assignEpoch()
	case p.role == Leader:
		p.appendNext()
	case p.role == Follower:
		p.fetchNext()
	}
}

// appended is the end of an append, whoever asked for it.
func (p *Partition) appended(e Appended) {
	w, ok := p.end(e.Tag, DoAppend)
	if !ok {
		return
	}
	if p.role == Failed || p.role == Deleted {
		p.settle()
		return
	}
	p.take(e.State)
	if e.Err == nil && e.Last >= e.Base && !e.Duplicate {
		p.grown += int64(len(w.raw))
		if len(w.raw) == 0 {
			p.grown += markerBytes
		}
		p.counts.Appends++
	}
	if w.ours {
		p.produced(w, e)
	} else {
		p.copied(w, e)
	}
	p.settle()
}

func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}
