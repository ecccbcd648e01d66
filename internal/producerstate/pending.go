package producerstate

import (
	"math"

	"github.com/partlog/partlog/record"
)

// Completed is a transaction that a marker of the append ends.
type Completed struct {
	ProducerID  int64
	FirstOffset int64
	LastOffset  int64 // of the marker
	// LastStable is the last stable offset right after the marker, taking all below it for replicated: the first offset
	// of the oldest transaction still open, or the offset behind the marker. The index of aborted transactions wants it.
	LastStable int64
	Aborted    bool
}

// Duplicate is an earlier append that the batch repeats.
type Duplicate struct {
	FirstOffset, LastOffset int64
	Timestamp               int64 // largest of that batch; -1 none
}

// Pending is what an append will change. It belongs to its State and is void with the next Check or Replay.
type Pending struct {
	state     *State
	done      bool
	changes   uint64
	end       int64 // behind the last batch; -1 nothing was checked
	last      int64 // last offset of the last batch of a producer; -1 none
	updates   []update
	byID      map[int64]int // index in updates, once these are many
	started   []txn         // dead: ended in the same append
	completed []Completed
	notes     []Note
	duplicate Duplicate
	repeats   bool

	openAt, startedAt int // all before these are over, as far as the append was checked
}

// few updates are searched one by one.
const few = 8

// keep bounds what a Pending holds on to between appends.
const keep = 64

// update is the new state of one producer; batches holds only those of the append.
type update struct {
	producer
	known         *producer // as it was before; nil if not known
	cleared       bool      // the epoch changed, batches from before do not count any more
	ended         bool      // the transaction that was open before is over
	transactional bool      // what was verified is over
}

// Duplicate says whether the append repeats an earlier one, which happens to clients only. Nothing must be written then.
func (p *Pending) Duplicate() (Duplicate, bool) { return p.duplicate, p.repeats }

// Completed are the transactions that the append ends, in order of their markers. An aborted one belongs into the index
// of the segment before the append is visible. The slice is void with the next Check or Replay.
func (p *Pending) Completed() []Completed { return p.completed }

// Notes are what a leader would have refused, in order; only an append of origin Replication has any.
func (p *Pending) Notes() []Note { return p.notes }

func (s *State) begin() *Pending {
	p := &s.pending
	if cap(p.updates) > keep {
		p.updates = nil
	}
	if cap(p.started) > keep {
		p.started = nil
	}
	if cap(p.completed) > keep {
		p.completed = nil
	}
	*p = Pending{state: s, changes: s.changes, end: -1, last: -1,
		updates: p.updates[:0], started: p.started[:0], completed: p.completed[:0]}
	return p
}

// find is the index of a producer's update; -1 if there is none.
func (p *Pending) find(id int64) int {
	if p.byID != nil {
		if at, ok := p.byID[id]; ok {
			return at
		}
		return -1
	}
	for i := range p.updates {
		if p.updates[i].id == id {
			return i
		}
	}
	return -1
}

// update of a producer, made from its present state if this is its first batch in the append. Valid until the next call.
func (p *Pending) update(id int64) *update {
	if at := p.find(id); at >= 0 {
		return &p.updates[at]
	}
	u := update{producer: unknown(id), known: p.state.producers[id]}
	if c := u.known; c != nil {
		u.timestamp, u.txnFirst, u.coordinator, u.epoch = c.timestamp, c.txnFirst, c.coordinator, c.epoch
	}
	p.updates = append(p.updates, u)
	at := len(p.updates) - 1
	switch {
	case p.byID != nil:
		p.byID[id] = at
	case at >= few:
		p.byID = make(map[int64]int, 2*few)
		for i := range p.updates {
			p.byID[p.updates[i].id] = i
		}
	}
	return &p.updates[at]
}

// setEpoch takes a batch's epoch over; batches of another one do not count any more.
func (u *update) setEpoch(epoch int16) {
	if u.epoch != epoch {
		u.epoch, u.n, u.cleared = epoch, 0, true
	}
}

func (p *Pending) start(u *update, first int64) {
	u.txnFirst = first
	p.started = append(p.started, txn{first: first, id: u.id})
}

// complete ends the producer's transaction at marker.
func (p *Pending) complete(u *update, marker int64, commit bool) {
	first, id := u.txnFirst, u.id
	u.txnFirst = -1
	if !p.endStarted(first, id) {
		u.ended = true
	}
	stable := p.oldest()
	if stable == math.MaxInt64 {
		stable = marker + 1
	}
	p.completed = append(p.completed, Completed{ProducerID: id, FirstOffset: first, LastOffset: marker, LastStable: stable, Aborted: !commit})
}

// endStarted marks a transaction that began in this append; false if it began before.
func (p *Pending) endStarted(first, id int64) bool {
	for i := len(p.started) - 1; i >= 0 && p.started[i].first >= first; i-- {
		if t := &p.started[i]; t.first == first && t.id == id && !t.dead {
			t.dead = true
			return true
		}
	}
	return false
}

// oldest is the first offset of the oldest transaction open after what was checked so far; math.MaxInt64 if none. What
// is over stays over, so each transaction is passed once.
func (p *Pending) oldest() int64 {
	for items := p.state.open.items; p.openAt < len(items); p.openAt++ {
		t := items[p.openAt]
		if at := p.find(t.id); !t.dead && (at < 0 || !p.updates[at].ended) {
			return t.first
		}
	}
	for ; p.startedAt < len(p.started); p.startedAt++ {
		if t := p.started[p.startedAt]; !t.dead {
			return t.first
		}
	}
	return math.MaxInt64
}

// Commit takes over what Check found, once the batches and the index entries of its aborted transactions are written,
// and before the log end moves. It cannot fail. Committing a Pending twice, one of a duplicate, or nil changes nothing.
func (s *State) Commit(p *Pending) {
	if p == nil || p.state != s || p.done {
		return
	}
	p.done = true
	if p.repeats {
		return
	}
	s.end = max(s.end, p.end)
	s.last = max(s.last, p.last)
	for i := range p.updates {
		s.merge(&p.updates[i], p.changes != s.changes)
	}
	for _, t := range p.started {
		if !t.dead {
			s.open.add(t.first, t.id)
		}
	}
	if len(p.started)+len(p.completed) > 0 {
		s.unstable.commit(p.completed, s.open.oldest())
	}
}

// merge makes an update the producer's state. stale: the producer may have been forgotten since the update was made.
func (s *State) merge(u *update, stale bool) {
	c := u.known
	if stale {
		c = s.producers[u.id]
	}
	if c == nil {
		c = &producer{id: u.id, txnFirst: -1}
		s.put(c)
	}
	if u.ended {
		s.open.remove(c.txnFirst, c.id)
	}
	if u.cleared {
		c.n = 0
	}
	for _, b := range u.batches[:u.n] {
		c.push(b)
	}
	c.timestamp, c.txnFirst, c.coordinator, c.epoch = u.timestamp, u.txnFirst, u.coordinator, u.epoch
	s.see(c)
	if u.transactional && len(s.verifying) > 0 {
		delete(s.verifying, u.id)
	}
}

// Replay takes over one batch that the log already has: recovery, load, rebuild. Batches come in order; one that is
// wholly below End changes nothing. It refuses nothing. The Pending is committed already, and says which transactions
// ended and what was odd.
func (s *State) Replay(b record.Batch) *Pending {
	p := s.begin()
	if b.LastOffset() >= s.end {
		_ = p.add(b, Options{Origin: record.Replication}) // never an error
	}
	s.Commit(p)
	return p
}
