package replicatest

import (
	"errors"
	"slices"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// grave is a tombstone that some replica's compaction removed, although nothing later had its key: a replica that comes upon
// its offset with an older value of the key keeps that for good.
//
//	offset        3     7     12                   a replica that ends at 7 when 12 is removed here
//	key k       value  ...  tombstone  (removed)   goes on with what is behind 12: k is alive there
type grave struct {
	offset int64
	key    int
}

// counts says whether an entry of a list is a record that somebody may see. Of a transaction's, the first marker behind it
// says so, which is another transaction's if its own was lost; what was decided counts where there is none.
func (m *model) counts(list []entry, at int64) bool {
	e := list[at]
	if e.kind != data || e.id >= uint64(len(m.s.book)) {
		return false
	}
	o := m.s.book[e.id]
	if o.txn == nil {
		return true
	}
	for _, e := range list[at+1:] {
		if (e.kind == commitMarker || e.kind == abortMarker) && int64(e.id) == o.producer {
			return e.kind == commitMarker
		}
	}
	return o.txn.decided == commitMarker
}

// latest is the last record of a key in a part of a list.
func (m *model) latest(list []entry, key int, from, to int64) (int64, bool) {
	for o := min(to, int64(len(list))) - 1; o >= from; o-- {
		if e := list[o]; e.kind == data && e.id < uint64(len(m.s.book)) && m.s.book[e.id].key == key && m.counts(list, o) {
			return o, true
		}
	}
	return 0, false
}

// cleaned looks at what a compaction removed for good: it must lie below the ceiling, and no replica may come upon it later.
func (m *model) cleaned(r *rep, res compaction.Result) {
	m.s.counts.add("compactions", 1)
	m.s.counts.add("tombstones removed", res.Tombstones)
	m.s.counts.add("markers removed", res.Markers)
	if res.Tombstones+res.Markers > 0 && m.s.failure == "" {
		m.autopsy(r, r.highest)
		r.highest = r.ceiling
	}
}

// autopsy finds what compaction has removed from a log since the last one.
func (m *model) autopsy(r *rep, ceiling int64) {
	s, o := m.s, r.log.Offsets()
	infos := r.log.SegmentInfos()
	end := infos[len(infos)-1].Base
	there := make([]bool, end)
	for b, err := range r.log.Batches(s.ctx, o.LogStart, log.WithIsolation(log.LogEnd)) {
		if err != nil {
			if !errors.Is(err, log.ErrOffsetOutOfRange) && !r.n.shaky() {
				m.p.fail("the log of node %d cannot be read: %v", r.n.id, err)
			}
			return
		}
		if b.BaseOffset() >= end {
			break
		}
		m.scratch = m.decode(b, b.LeaderEpoch(), m.scratch[:0])
		for i, e := range m.scratch {
			if at := b.BaseOffset() + int64(i); e.kind != hole && at < end {
				there[at] = true
			}
		}
	}
	list, removed := m.mirrors[r.n.id], m.removed[r.n.id]
	if removed == nil {
		removed = map[int64]bool{}
		m.removed[r.n.id] = removed
	}
	for at := o.LogStart; at < min(end, int64(len(list))); at++ {
		e := list[at]
		if there[at] || removed[at] || e.kind == hole || e.kind == data && (!m.counts(list, at) || !s.book[e.id].tombstone) {
			continue
		}
		removed[at] = true
		if e.kind == data {
			key := s.book[e.id].key
			if _, later := m.latest(list, key, at+1, end); later {
				continue
			}
			m.bury(grave{at, key})
			if r == m.p.leading() && !m.excused && !m.allHave(at, key) {
				return
			}
		}
		if at >= ceiling {
			m.p.fail("node %d has removed %v from offset %d, replicas are said to be at %d", r.n.id, e, at, ceiling)
			return
		}
	}
}

// allHave checks that a tombstone that the leader removed is where a power loss does not reach it, on every replica that has
// what it deleted.
func (m *model) allHave(at int64, key int) bool {
	for _, id := range m.p.state.Replicas {
		synced := m.synced[id]
		if r := m.p.rep(id); r != nil {
			synced = r.log.Offsets().Durable
		}
		if synced > at {
			continue
		}
		if old, ok := m.latest(m.mirrors[id], key, 0, at); ok && !m.s.book[m.mirrors[id][old].id].tombstone {
			m.p.fail("the tombstone of key %d at offset %d is gone, node %d has an older record at %d and nothing from %d on synced", key, at, id, old, synced)
			return false
		}
	}
	return true
}

func (m *model) bury(g grave) {
	if m.excused {
		return
	}
	i, known := slices.BinarySearchFunc(m.graves, g, func(a, b grave) int { return int(a.offset - b.offset) })
	if !known {
		m.graves = slices.Insert(m.graves, i, g)
	}
}

// passed is a follower's log that has grown from an offset on: of a key whose tombstone it did not get, it must have nothing,
// unless it is still to come upon a later record. That may be why its leader has none there, which removed nothing for good.
//
//	offset                    45     77         93
//	key k, a node in sync   value  (removed)  value   93 was not cleaned yet
//	its leader              value  (gone)     value   77 went because of 93
//	a new replica           value   ...               had read 45 before that
func (m *model) passed(r *rep, from int64) {
	list := m.mirrors[r.n.id]
	for _, g := range m.graves {
		if m.excused || g.offset < from || g.offset >= int64(len(list)) || list[g.offset].kind != hole {
			continue
		}
		at, ok := m.latest(list, g.key, r.log.Offsets().LogStart, g.offset)
		if !ok || m.s.book[list[at].id].tombstone {
			continue
		}
		if _, later := m.latest(m.committed, g.key, g.offset+1, int64(len(m.committed))); !later {
			m.p.fail("node %d keeps offset %d of key %d, and did not get to see its deletion at %d", r.n.id, at, g.key, g.offset)
			return
		}
	}
}

// pin keeps tombstones and markers from an offset on in the log.
func (r *rep) pin(ceiling int64) {
	if !r.part.compacted {
		return
	}
	if m := r.n.s.mutant; m.inSyncCeiling && ceiling >= 0 && r.role != replica.Idle {
		ceiling = max(ceiling, r.hw)
	}
	r.ceiling, r.highest = ceiling, max(r.highest, ceiling)
	old := r.unpin
	if r.unpin = func() {}; !r.n.s.mutant.noCeiling {
		r.unpin = r.log.PinRemoval("replicas", ceiling)
	}
	if old != nil {
		old()
	}
}
