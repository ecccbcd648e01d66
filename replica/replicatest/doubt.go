package replicatest

import (
	"errors"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
)

// doubt is what work on a log that was not finished may leave.
type doubt struct {
	low   int64   // it may end there
	more  []entry // it may have some of these at its end
	reset int64   // or begin and end there; -1
	gone  bool    // or not exist
}

// begin notes what work on the log may leave if it is not finished.
func (m *model) begin(r *rep, a *replica.Action) {
	d := &m.doubts[r.n.id]
	m.finished(r.n.id)
	switch a.Kind {
	case replica.DoAppend:
		epoch := r.log.Offsets().LeaderEpoch
		if e, ok := a.Extra.(replica.EndTxn); ok {
			d.more = append(d.more, markerOf(e, epoch))
		}
		for raw := a.Raw; len(raw) > 0; {
			b, rest, err := record.Next(raw)
			if err != nil {
				break
			}
			if raw = rest; a.Role == log.Follower {
				epoch = b.LeaderEpoch()
				for gap := b.BaseOffset() - d.low - int64(len(d.more)); gap > 0; gap-- {
					d.more = append(d.more, entry{})
				}
			}
			d.more = m.decode(b, epoch, d.more)
		}
	case replica.DoTruncate:
		d.low = max(min(d.low, a.Offset-3), 0)
	case replica.DoSkip:
		for gap := a.Offset - d.low - int64(len(d.more)); gap > 0; gap-- {
			d.more = append(d.more, entry{})
		}
	case replica.DoEpoch:
		d.more = append(d.more, make([]entry, maxGap)...)
	case replica.DoReset:
		d.low, d.reset = 0, a.Offset
	case replica.Delete:
		d.low, d.gone = 0, true
	}
}

// finished says that a log is as its mirror.
func (m *model) finished(id replica.NodeID) {
	d := &m.doubts[id]
	*d = doubt{low: int64(len(m.mirrors[id])), more: d.more[:0], reset: -1}
}

// vanished is a start without a log.
func (m *model) vanished(id replica.NodeID) {
	if len(m.mirrors[id]) == 0 {
		return
	}
	d := &m.doubts[id]
	if !d.gone && (!m.power[id] || m.synced[id] > 0) {
		m.p.fail("the log of node %d is gone, %d was durable", id, m.synced[id])
	}
	if d.gone {
		m.ghosts[id] = m.mirrors[id]
	}
	m.mirrors[id] = nil
}

// opened compares a log with what it held.
func (m *model) opened(r *rep, saved int64) {
	n, s := r.n, m.s
	o := r.log.Offsets()
	list := m.mirrors[n.id]
	power := m.power[n.id]
	d := m.doubts[n.id]
	if ghost := m.ghosts[n.id]; power && len(list) == 0 && o.LogEnd > 0 && len(ghost) > 0 {
		s.counts.add("deleted logs that came back", 1)
		m.mirrors[n.id], list = ghost, ghost
	}
	m.ghosts[n.id] = nil
	if m.unfinished[n.id] {
		if o.LogStart == d.reset && o.LogEnd == d.reset {
			m.mirrors[n.id] = make([]entry, d.reset)
		} else if extra := o.LogEnd - int64(len(list)); extra > 0 && extra <= int64(len(d.more)) {
			for i, e := range d.more[:extra] {
				m.place(n.id, int64(len(list)+i), e)
			}
		} else if o.LogEnd >= d.low && extra < 0 {
			m.mirrors[n.id] = list[:o.LogEnd]
		}
		list = m.mirrors[n.id]
		m.unfinished[n.id] = false
	}
	switch end := o.LogEnd; {
	case end > int64(len(list)):
		m.p.fail("the log of node %d ends at %d, before it was %d", n.id, end, len(list))
	case end == int64(len(list)):
		if power && m.lost[n.id] && !m.surely[n.id] {
			m.lost[n.id] = false
			m.p.note("node %d has lost nothing", n.id)
		}
	case !power:
		m.p.fail("the log of node %d ends at %d, before the process was killed it was %d", n.id, end, len(list))
	case end < m.synced[n.id]:
		m.p.fail("the log of node %d ends at %d, %d was durable", n.id, end, m.synced[n.id])
	default:
		s.counts.add("tails lost", 1)
		s.counts.add("records of tails lost", int64(len(list))-end)
		m.p.note("node %d has lost what was between %d and %d", n.id, end, len(list))
		m.mirrors[n.id] = list[:end]
	}
	if s.failure != "" {
		return
	}
	m.power[n.id] = false
	if saved >= 0 && !power {
		if at := min(max(saved, o.LogStart), o.LogEnd); o.HighWatermark != at {
			m.p.fail("the checkpoint of node %d says %d, its high watermark is %d", n.id, saved, o.HighWatermark)
			return
		}
	}
	r.hw, r.checked = o.HighWatermark, 0
	m.scan(r)
	if m.p.compacted && m.s.failure == "" {
		m.autopsy(r, o.LogEnd) // what was removed when the process ended
	}
}

// scan reads a log and compares it with its mirror.
func (m *model) scan(r *rep) {
	s, list := m.s, m.mirrors[r.n.id]
	o := r.log.Offsets()
	next := o.LogStart
	for b, err := range r.log.Batches(s.ctx, o.LogStart, log.WithIsolation(log.LogEnd)) {
		if err != nil {
			if !errors.Is(err, log.ErrOffsetOutOfRange) {
				m.p.fail("the log of node %d cannot be read: %v", r.n.id, err)
			}
			return
		}
		m.scratch = m.decode(b, b.LeaderEpoch(), m.scratch[:0])
		for i, e := range m.scratch {
			at := b.BaseOffset() + int64(i)
			if at < next {
				continue
			}
			if at >= int64(len(list)) || !m.equal(e, list[at]) || at > next && !m.p.compacted {
				m.p.fail("node %d has %v at offset %d, it was %v", r.n.id, e, at, list[min(at, int64(len(list)-1))])
				return
			}
			next = at + 1
		}
	}
	if next < o.LogEnd && !m.p.compacted {
		m.p.fail("the log of node %d can be read to %d, it ends at %d", r.n.id, next, o.LogEnd)
	}
}
