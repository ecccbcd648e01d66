package replica

// advance moves a leader's high watermark to the smallest log end among the replicas that count: the maximal in-sync set,
// and who is current and about to join it. With fewer in sync than required it stands still.
func (p *Partition) advance() {
	if p.role != Leader || !p.lead.active || len(p.lead.isr) < p.minISR() {
		return
	}
	hw := p.counted()
	for i := range p.lead.remotes {
		r := &p.lead.remotes[i]
		if r.logEnd < hw && (r.inMaximal || p.current(r) && p.eligible(r)) {
			hw = r.logEnd
		}
	}
	if hw <= p.hw {
		return
	}
	p.setHighWatermark(hw)
	p.completeProduces()
	p.wake(true)
}

// setHighWatermark moves the mark here and in the log.
func (p *Partition) setHighWatermark(hw int64) {
	p.hw = hw
	if hw >= p.state.LogEnd {
		p.hwGrown = p.grown
	}
	p.do(Action{Kind: SetHighWatermark, Offset: hw})
	p.armPersist()
}

func (p *Partition) armPersist() {
	if p.hw != p.persisted {
		if p.persistAt.IsZero() {
			p.persistAt = p.now.Add(p.conf.Checkpoint)
		}
		p.arm(p.persistAt)
	}
}

// persistIfDue gives the mark out for the checkpoint, now and then.
func (p *Partition) persistIfDue() {
	if p.hw == p.persisted || p.role == Deleted {
		return
	}
	if p.now.Before(p.persistAt) {
		p.arm(p.persistAt)
		return
	}
	p.persist()
}

func (p *Partition) persist() {
	p.persistAt = p.now.Add(p.conf.Checkpoint)
	if p.hw != p.persisted {
		p.persisted = p.hw
		p.do(Action{Kind: PersistHighWatermark, Offset: p.hw})
	}
}

// lowerHighWatermark is for a cut of the log below the mark: what is on disk must not be above it when the cut begins.
func (p *Partition) lowerHighWatermark(hw int64) {
	if hw >= p.hw {
		return
	}
	p.counts.RecordsBelowHWCut += p.hw - hw
	p.hw = hw
	if hw < p.persisted {
		p.persist()
	}
}

// slowest is where the assigned replica is that has the least, after a loss of power at that; 0 if one was not heard of in this
// epoch. One that goes back below a tombstone it had would otherwise not get to see it again, and keep what it deleted.
func (p *Partition) slowest() int64 {
	low := p.state.LogEnd - p.unsynced()
	for i := range p.lead.remotes {
		low = min(low, p.lead.remotes[i].logEnd-p.lead.remotes[i].unsynced)
	}
	return max(low, 0)
}

// unsynced is how many of the offsets here a loss of power may take.
func (p *Partition) unsynced() int64 { return max(p.state.LogEnd-p.state.Durable, 0) }

// lowerRemoval takes the ceiling back at once when a replica turns out to have less.
func (p *Partition) lowerRemoval() {
	if low := p.slowest(); p.removal < 0 || low < p.removal {
		p.setRemoval(low)
	}
}

// raiseRemoval is for now and then: nothing waits for it.
func (p *Partition) raiseRemoval() {
	if low := p.slowest(); low != p.removal {
		p.setRemoval(low)
	}
}

func (p *Partition) setRemoval(offset int64) {
	p.removal = offset
	p.do(Action{Kind: SetRemoval, Offset: offset})
}
