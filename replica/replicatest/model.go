package replicatest

import (
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
)

func itoa(n int) string { return strconv.Itoa(n) }

// entry is what stands at an offset.
type entry struct {
	kind  entryKind
	epoch int32
	id    uint64 // of a record; of a marker, its transaction
}

type entryKind uint8

const (
	hole entryKind = iota // nothing: compacted, or before a log that began later
	data
	commitMarker
	abortMarker
)

type seenRecord struct {
	offset int64
	id     uint64
}

func seen(r record.Record) seenRecord { return seenRecord{r.Offset, idOf(r)} }

// idOf is the number of a record, which a tombstone has in a header.
func idOf(r record.Record) uint64 {
	where := r.Value
	if r.Value == nil && len(r.Headers) > 0 {
		where = r.Headers[0].Value
	}
	if len(where) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(where)
}

// origin is where a record comes from.
type origin struct {
	idempotent bool
	producer   int64
	sequence   int32
	txn        *txn
	key        int
	tombstone  bool
}

// txn is a transaction; it is decided before its marker is written.
type txn struct{ decided entryKind }

// model is what must be so.
type model struct {
	s   *sim
	p   *part
	dec *record.Decoder
	all map[uint64]uint64 // by epoch and offset

	committed []entry          // by offset
	once      map[uint64]int64 // where the idempotent records are in it, by id
	next      map[int64]int32  // sequence of an idempotent producer's next record
	leaders   map[int32]replica.NodeID
	marks     map[uint64]int64 // high watermark by epoch

	excused bool   // committed records may be lost
	stamp   uint64 // how often that began or ended
	unknown int64  // below it nobody knows what was committed: there the log began of the leader that was believed last

	mirrors    [10][]entry // what the log of a node holds
	lost       [10]bool    // a part of it, or that may be, and the node has not caught up since
	surely     [10]bool    // so it was when the power was lost again
	unfinished [10]bool    // what the log was doing when the process ended
	synced     [10]int64   // of it, what survives a power loss, of a node that is down
	power      [10]bool    // it was lost since the log was open
	starts     [10]int64
	doubts     [10]doubt
	graves     []grave            // deletions of keys that are deleted themselves, by offset
	removed    [10]map[int64]bool // tombstones and markers that its compaction took
	ghosts     [10][]entry        // of a log whose deletion was not finished, and may not be on the device
	scratch    []entry
}

// idle says that nothing is asked any more of what was committed: it may be lost, or is deleted.
func (m *model) idle() bool { return m.excused || m.p.gone }

func newModel(p *part) model {
	return model{s: p.s, p: p, dec: record.NewDecoder(record.Limits{}), all: map[uint64]uint64{}, once: map[uint64]int64{}, next: map[int64]int32{},
		leaders: map[int32]replica.NodeID{}, marks: map[uint64]int64{}}
}

// newRecord gives out an id.
func (s *sim) newRecord(o origin) uint64 {
	s.book = append(s.book, o)
	return uint64(len(s.book) - 1)
}

// excuse says that committed records may be lost from now on.
func (m *model) excuse(why string) {
	if !m.excused {
		m.p.note("from here on committed records may be lost: %s", why)
		m.s.counts.add("times committed records may be lost", 1)
		m.excused = true
		m.stamp++
		m.graves = nil
	}
}

// equal says whether two entries of an offset may stand beside each other.
func (m *model) equal(a, b entry) bool {
	return a == b || m.p.compacted && (a.kind == hole || b.kind == hole)
}

// decode appends the entries of a batch that begins at base in an epoch.
func (m *model) decode(b record.Batch, epoch int32, list []entry) []entry {
	if b.Control() && b.Count() > 0 { // compaction leaves markers without their record
		id, _, _ := b.Producer()
		kind := abortMarker
		if commits(b, m.dec) {
			kind = commitMarker
		}
		return append(list, entry{kind, epoch, uint64(id)})
	}
	next := b.BaseOffset()
	for r, err := range b.Records(m.dec) {
		if err != nil {
			m.p.fail("a batch cannot be read: %v", err)
			return list
		}
		for ; next < r.Offset; next++ {
			list = append(list, entry{})
		}
		list = append(list, entry{data, epoch, idOf(r)})
		next++
	}
	for ; next <= b.LastOffset(); next++ {
		list = append(list, entry{})
	}
	return list
}

// markerOf is what the end of a transaction writes.
func markerOf(e replica.EndTxn, epoch int32) entry {
	if e.Commit {
		return entry{commitMarker, epoch, uint64(e.ProducerID)}
	}
	return entry{abortMarker, epoch, uint64(e.ProducerID)}
}

// place puts an entry into a node's mirror.
func (m *model) place(id replica.NodeID, offset int64, e entry) {
	list := m.mirrors[id]
	for int64(len(list)) < offset {
		list = append(list, entry{})
	}
	m.mirrors[id] = append(list[:offset], e)
	if e.kind == hole {
		return
	}
	key := uint64(e.epoch)<<40 | uint64(offset)
	what := e.id<<2 | uint64(e.kind)
	if known, ok := m.all[key]; !ok {
		m.all[key] = what
	} else if known != what {
		m.p.fail("epoch %d, offset %d is record %d at node %d, and %d elsewhere", e.epoch, offset, e.id, id, known>>2)
	}
	if offset > 0 && list[offset-1].kind != hole && list[offset-1].epoch > e.epoch {
		m.p.fail("node %d has epoch %d at offset %d behind epoch %d", id, e.epoch, offset, list[offset-1].epoch)
	}
}

// appended is what a log took.
func (m *model) appended(r *rep, a *replica.Action, done log.Appended) {
	raw := a.Raw
	if e, ok := a.Extra.(replica.EndTxn); ok {
		m.place(r.n.id, done.Base, markerOf(e, r.log.Offsets().LeaderEpoch))
		return
	}
	if a.Role == log.Leader {
		b, err := record.View(raw)
		if err != nil {
			m.p.fail("%v", err)
			return
		}
		m.scratch = m.decode(b, r.log.Offsets().LeaderEpoch, m.scratch[:0])
		for i, e := range m.scratch {
			m.place(r.n.id, done.Base+int64(i), e)
		}
		return
	}
	end := r.log.Offsets().LogEnd
	defer m.passed(r, int64(len(m.mirrors[r.n.id])))
	for len(raw) > 0 {
		b, rest, err := record.Next(raw)
		if err != nil {
			break
		}
		raw = rest
		if b.LastOffset() >= end {
			break
		}
		m.scratch = m.decode(b, b.LeaderEpoch(), m.scratch[:0])
		for i, e := range m.scratch {
			m.place(r.n.id, b.BaseOffset()+int64(i), e)
		}
	}
}

// cut is a truncation that was carried out.
func (m *model) cut(r *rep, end int64) {
	id := r.n.id
	if end < int64(len(m.mirrors[id])) {
		m.mirrors[id] = m.mirrors[id][:end]
	}
	r.checked, r.hw = min(r.checked, end), min(r.hw, end)
	if slices.Contains(m.p.state.ISR, id) {
		m.member(id, end)
	}
}

func (m *model) reset(r *rep, start int64) {
	m.mirrors[r.n.id], m.removed[r.n.id] = make([]entry, start), nil
	r.checked, r.hw = start, start
	if slices.Contains(m.p.state.ISR, r.n.id) {
		m.member(r.n.id, start)
	}
}

// member checks that a member of the in-sync set has what is committed from an offset on.
func (m *model) member(id replica.NodeID, from int64) {
	if m.idle() || m.lost[id] || m.s.Patient {
		return
	}
	m.has(id, from, "is in sync")
}

func (m *model) has(id replica.NodeID, from int64, why string) {
	if r := m.p.rep(id); r != nil {
		from = max(from, r.log.Offsets().LogStart)
	} else {
		from = max(from, m.starts[id])
	}
	from = max(from, m.unknown)
	list := m.mirrors[id]
	if len(list) < len(m.committed) {
		m.p.fail("node %d %s and its log ends at %d, committed is everything below %d", id, why, len(list), len(m.committed))
		return
	}
	for o := from; o < int64(len(m.committed)); o++ {
		if !m.equal(list[o], m.committed[o]) {
			m.p.fail("node %d %s and has %v at offset %d, committed is %v", id, why, list[o], o, m.committed[o])
			return
		}
	}
}

// elected is a leader that begins to serve.
func (m *model) elected(r *rep, mark int64) {
	epoch := r.leads
	if other, ok := m.leaders[epoch]; ok && other != r.n.id {
		m.p.fail("epoch %d has two leaders: %d and %d", epoch, other, r.n.id)
		return
	}
	m.leaders[epoch] = r.n.id
	m.s.counts.add("leaders that began", 1)
	if m.idle() || epoch != m.p.state.LeaderEpoch {
		return
	}
	if m.s.Losses && int64(len(m.mirrors[r.n.id])) < int64(len(m.committed)) {
		m.excuse("a leader lacks some")
		return
	}
	if !m.lost[r.n.id] {
		m.has(r.n.id, 0, "leads epoch "+itoa(int(epoch)))
	}
}

// marked is a high watermark that moved.
func (m *model) marked(r *rep, to int64) {
	s, n := m.s, r.n
	s.noteMark(m.p, n.id, to)
	r.hw = to
	list := m.mirrors[n.id]
	if to > int64(len(list)) {
		m.p.fail("node %d has a high watermark of %d and a log that ends at %d", n.id, to, len(list))
		return
	}
	if r.leads >= 0 {
		key := uint64(r.leads)<<8 | uint64(n.id)
		if to < m.marks[key] {
			m.p.fail("the high watermark of leader %d fell from %d to %d in epoch %d", n.id, m.marks[key], to, r.leads)
			return
		}
		m.marks[key] = to
	}
	if m.idle() {
		return
	}
	known := int64(len(m.committed))
	if r.leads >= 0 && to > known {
		for o := known; o < to; o++ {
			m.commit(list[o], r.log.Offsets().LogStart)
		}
		for _, id := range m.p.state.ISR {
			m.member(id, known)
		}
	}
	if to > int64(len(m.committed)) {
		m.p.fail("node %d has a high watermark of %d, committed is everything below %d", n.id, to, len(m.committed))
		return
	}
	for o := max(r.checked, r.log.Offsets().LogStart, m.unknown); o < to; o++ {
		if !m.equal(list[o], m.committed[o]) {
			m.p.fail("node %d has %v at offset %d below its high watermark, committed is %v", n.id, list[o], o, m.committed[o])
			return
		}
	}
	r.checked = max(r.checked, to)
}

// commit notes what a leader whose log begins at start has committed. A producer whose records are all below that is not
// known to a replica that was made since, so a late repetition may come in again.
func (m *model) commit(e entry, start int64) {
	m.committed = append(m.committed, e)
	if e.kind == data && e.id < uint64(len(m.s.book)) && m.s.book[e.id].idempotent {
		first, twice := m.once[e.id]
		if twice && first < start {
			m.s.counts.add("records repeated behind the log start", 1)
		} else if twice {
			m.p.fail("record %d of an idempotent producer is committed twice, now at offset %d", e.id, len(m.committed)-1)
		}
		m.once[e.id] = int64(len(m.committed) - 1)
		o := m.s.book[e.id]
		if due := m.next[o.producer]; !twice && o.sequence != due && o.sequence != 0 {
			m.p.fail("record %d of producer %d has sequence %d, committed at offset %d, due was %d", e.id, o.producer, o.sequence, len(m.committed)-1, due)
		}
		m.next[o.producer] = o.sequence + 1
	}
	m.s.counts.add("records committed", 1)
}

// acknowledged is what a producer was told with acks=all.
func (m *model) acknowledged(base int64, ids []uint64) {
	if m.idle() {
		return
	}
	m.s.counts.add("records acknowledged by all", int64(len(ids)))
	for i, id := range ids {
		o := base + int64(i)
		if o >= int64(len(m.committed)) {
			m.p.fail("record %d is acknowledged at offset %d, committed is everything below %d", id, o, len(m.committed))
			return
		}
		if e := m.committed[o]; e.id != id && e.kind != hole {
			m.p.fail("record %d is acknowledged at offset %d, committed there is %v", id, o, e)
			return
		}
	}
}

// closed is a process that ends.
func (m *model) closed(r *rep) {
	o := r.log.Offsets()
	m.synced[r.n.id], m.starts[r.n.id], m.power[r.n.id] = o.Durable, o.LogStart, false
}

func (m *model) deleted(id replica.NodeID) {
	m.mirrors[id], m.synced[id], m.starts[id], m.removed[id] = nil, 0, 0, nil
}

// powerLost marks a disk that may have lost what was not synced.
func (m *model) powerLost(id replica.NodeID) {
	m.power[id], m.surely[id] = true, m.lost[id]
	if m.synced[id] < int64(len(m.mirrors[id])) {
		m.lost[id] = true
	}
	m.tooMany()
}

func (m *model) tooMany() {
	lost := 0
	for _, is := range m.lost {
		if is {
			lost++
		}
	}
	if !m.p.gone && lost >= m.p.topic.floor && !m.s.synced {
		m.excuse("as many nodes as min.insync.replicas may have lost a tail")
	}
}

// resync believes a leader after committed records were lost.
func (m *model) resync(leader *rep) {
	if !m.excused {
		return
	}
	m.excused = false
	m.stamp++
	list := m.mirrors[leader.n.id][:leader.hw]
	m.unknown = leader.log.Offsets().LogStart // others may begin below, for a while
	lost := 0
	for o, e := range m.committed {
		if o >= len(list) || int64(o) >= m.unknown && !m.equal(list[o], e) {
			lost++
		}
	}
	m.s.counts.add("committed records lost", int64(lost))
	m.p.note("%d committed records were lost", lost)
	m.committed = m.committed[:0]
	clear(m.once)
	clear(m.next)
	for _, e := range list {
		m.committed = append(m.committed, e)
		if e.kind == data && m.s.book[e.id].idempotent {
			m.once[e.id] = int64(len(m.committed) - 1)
		}
	}
	for _, n := range m.s.nodes {
		if r := m.p.rep(n.id); r != nil {
			r.checked = 0
		}
	}
}
