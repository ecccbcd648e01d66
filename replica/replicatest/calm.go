package replicatest

import (
	"fmt"
	"slices"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// calmDown mends everything, and then all must come right within calmTime.
func (s *sim) calmDown() {
	s.calm = true
	s.net = network{}
	s.note("-- calm")
	s.store.fails, s.store.slow = 0, 0
	for _, r := range s.rulers {
		r.stalled = 0
		if r.deaf > 0 {
			r.deaf = 0
			r.lookAgain()
		}
	}
	for _, n := range s.nodes {
		if n.deaf > 0 {
			n.deaf, n.ready = 0, s.mutant.staysDeaf && n.ready
		}
		n.paused = min(n.paused, s.now)
		n.sizes = 0
		n.resize()
		n.drag = 0
		if n.up {
			n.full.SetQuota(-1)
		} else {
			n.start()
		}
	}
	for _, t := range s.topics {
		t.tend()
	}
	wrong := ""
	for end := s.now + calmTime; s.now < end && s.failure == ""; {
		s.until(s.now + 10*time.Millisecond)
		if wrong = s.unwell(); wrong == "" {
			break
		}
		for _, p := range s.parts {
			p.electByHand()
		}
	}
	if s.failure != "" {
		return
	}
	if wrong != "" {
		s.fail("%v after everything was mended: %s", calmTime, wrong)
		return
	}
	for _, p := range s.parts {
		p.compareAll()
	}
	s.noStrays()
}

// noStrays checks that nobody has a folder of what was deleted, or is elsewhere.
func (s *sim) noStrays() {
	for _, n := range s.nodes {
		there, _, err := n.dir.Folders()
		if err != nil {
			s.fail("node %d: %v", n.id, err)
		}
		for _, tp := range there {
			if !slices.ContainsFunc(s.parts, func(p *part) bool { return p.tp == tp && p.rep(n.id) != nil }) {
				s.fail("node %d still has %v", n.id, tp)
			}
		}
	}
}

// unwell says what is not yet as it should be.
func (s *sim) unwell() string {
	for i, p := range s.producers {
		if !p.idle() {
			return fmt.Sprintf("producer %d waits for an answer", i+1)
		}
	}
	for _, t := range s.topics {
		if wrong := t.unsettled(); wrong != "" {
			return wrong
		}
	}
	for _, p := range s.parts {
		if wrong := p.unwell(); wrong != "" {
			return p.prefix() + wrong
		}
	}
	for i, c := range s.consumers {
		if m := &c.p.model; !m.idle() && (c.stamp != m.stamp || c.position < int64(len(m.committed))) {
			return fmt.Sprintf("%sconsumer %d is at %d, committed is everything below %d", c.p.prefix(), i+1, c.position, len(m.committed))
		}
	}
	return ""
}

func (p *part) unwell() string {
	t := p.state
	lead := p.leading()
	if lead == nil {
		return fmt.Sprintf("nobody leads: %v", t)
	}
	if len(t.ISR) != len(t.Replicas) {
		return fmt.Sprintf("in sync are %v of %v", t.ISR, t.Replicas)
	}
	if t.Leader != t.Replicas[0] {
		return fmt.Sprintf("node %d leads, the first of %v should", t.Leader, t.Replicas)
	}
	end := lead.log.Offsets().LogEnd
	for _, n := range p.s.nodes {
		if r := p.seat(n.id).rep; r != nil && (r.part != p || !slices.Contains(t.Replicas, n.id)) {
			return fmt.Sprintf("node %d still has a replica", n.id)
		}
	}
	for _, id := range t.Replicas {
		r := p.rep(id)
		if r == nil || r.p == nil {
			return fmt.Sprintf("node %d has no replica", id)
		}
		if o := r.log.Offsets(); o.LogEnd != end || o.HighWatermark != end {
			return fmt.Sprintf("node %d has a high watermark of %d and a log end of %d, the leader ends at %d", id, o.HighWatermark, o.LogEnd, end)
		}
		if r.role == replica.Failed {
			return fmt.Sprintf("the replica of node %d has failed", id)
		}
		if o := r.log.Offsets(); o.LastStable != end && !p.model.excused { // a marker may be lost
			return fmt.Sprintf("node %d has a last stable offset of %d, its log ends at %d", id, o.LastStable, end)
		}
	}
	return ""
}

// compareAll compares what is really in the logs.
func (p *part) compareAll() {
	lead := p.leading()
	m := &p.model
	m.resync(lead)
	if end := lead.log.Offsets().LogEnd; int64(len(m.committed)) != end {
		p.fail("everything below %d is committed, the leader's log ends at %d", len(m.committed), end)
		return
	}
	for _, id := range p.state.Replicas {
		m.scan(p.rep(id))
		m.has(id, 0, "is in sync in the calm")
	}
	p.compareTxns()
	if p.compacted && m.stamp == 0 { // else a transaction may have lost its marker
		p.keepsLast()
	}
}

// keepsLast checks that compaction left the last record of each key everywhere, or of a deleted one nothing.
func (p *part) keepsLast() {
	m := &p.model
	last := map[int]int64{}
	for o, e := range m.committed {
		if m.counts(m.committed, int64(o)) {
			last[m.s.book[e.id].key] = int64(o)
		}
	}
	for _, id := range p.state.Replicas {
		r := p.rep(id)
		there := map[int]int64{}
		for rec, err := range r.log.Records(p.s.ctx, r.log.Offsets().LogStart, log.WithIsolation(log.ReadCommitted)) {
			if err != nil {
				p.fail("the log of node %d cannot be read: %v", id, err)
				return
			}
			there[m.s.book[idOf(rec)].key] = rec.Offset
		}
		for key, o := range last {
			if o < r.log.Offsets().LogStart {
				continue
			}
			deleted := m.s.book[m.committed[o].id].tombstone
			switch at, ok := there[key]; {
			case ok && at == o, !ok && deleted:
			case deleted:
				p.fail("node %d has offset %d as the last record of key %d, which was deleted at %d", id, at, key, o)
				return
			default:
				p.fail("node %d lacks offset %d, the last record of key %d", id, o, key)
				return
			}
		}
	}
}
