package replicatest

import (
	"fmt"
	"time"

	"github.com/partlog/partlog/replica"
)

// calmDown mends everything, and then all must come right within calmTime.
func (s *sim) calmDown() {
	s.calm = true
	s.net = network{}
	s.note("-- calm")
	for _, n := range s.nodes {
		n.paused = min(n.paused, s.now)
		n.drag = 0
		if n.up {
			n.full.SetQuota(-1)
		} else {
			n.start()
		}
	}
	wrong := ""
	for end := s.now + calmTime; s.now < end && s.failure == ""; {
		s.until(s.now + 10*time.Millisecond)
		if wrong = s.unwell(); wrong == "" {
			break
		}
	}
	if s.failure != "" {
		return
	}
	if wrong != "" {
		s.fail("%v after everything was mended: %s", calmTime, wrong)
		return
	}
	s.compareAll()
}

// unwell says what is not yet as it should be.
func (s *sim) unwell() string {
	for i, p := range s.producers {
		if !p.idle() {
			return fmt.Sprintf("producer %d waits for an answer", i+1)
		}
	}
	t := s.truth.state
	lead := s.leading()
	if lead == nil {
		return fmt.Sprintf("nobody leads: %v", t)
	}
	if len(t.ISR) != len(t.Replicas) {
		return fmt.Sprintf("in sync are %v of %v", t.ISR, t.Replicas)
	}
	end := lead.rep.log.Offsets().LogEnd
	for _, id := range t.Replicas {
		n := s.node(id)
		if n.rep == nil || n.rep.p == nil {
			return fmt.Sprintf("node %d has no replica", id)
		}
		if o := n.rep.log.Offsets(); o.LogEnd != end || o.HighWatermark != end {
			return fmt.Sprintf("node %d has a high watermark of %d and a log end of %d, the leader ends at %d", id, o.HighWatermark, o.LogEnd, end)
		}
		if n.rep.role == replica.Failed {
			return fmt.Sprintf("the replica of node %d has failed", id)
		}
		if o := n.rep.log.Offsets(); o.LastStable != end && !s.model.excused { // a marker may be lost
			return fmt.Sprintf("node %d has a last stable offset of %d, its log ends at %d", id, o.LastStable, end)
		}
	}
	return ""
}

// compareAll compares what is really in the logs.
func (s *sim) compareAll() {
	lead := s.leading()
	m := &s.model
	m.resync(lead.rep)
	if end := lead.rep.log.Offsets().LogEnd; int64(len(m.committed)) != end {
		s.fail("everything below %d is committed, the leader's log ends at %d", len(m.committed), end)
		return
	}
	for _, id := range s.truth.state.Replicas {
		n := s.node(id)
		m.scan(n.rep)
		m.has(n, 0, "is in sync in the calm")
	}
	if s.compacted && m.stamp == 0 { // else a transaction may have lost its marker
		s.keepsLast()
	}
}

// keepsLast checks that compaction left the last record of each key everywhere.
func (s *sim) keepsLast() {
	m := &s.model
	last := map[int]int64{}
	for o, e := range m.committed {
		if e.kind == data {
			if t := m.book[e.id].txn; t == nil || t.decided == commitMarker {
				last[m.book[e.id].key] = int64(o)
			}
		}
	}
	for _, id := range s.truth.state.Replicas {
		r := s.node(id).rep
		there := map[int64]bool{}
		for rec, err := range r.log.Records(s.ctx, r.log.Offsets().LogStart) {
			if err != nil {
				s.fail("the log of node %d cannot be read: %v", id, err)
				return
			}
			there[rec.Offset] = true
		}
		for key, o := range last {
			if !there[o] {
				s.fail("node %d lacks offset %d, the last record of key %d", id, o, key)
				return
			}
		}
	}
}
