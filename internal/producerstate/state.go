package producerstate

import (
	"math"
	"slices"

	"github.com/partlog/partlog/record"
)

// Config of a State; the zero value is Kafka's.
type Config struct {
	// ExpireAfter is producer.id.expiration.ms: producers without an open transaction are forgotten when their last
	// record is that many milliseconds old. 0 = one day; negative = never.
	ExpireAfter int64
	// ExpireEvery is producer.id.expiration.check.interval.ms: how often ExpireDue looks. 0 = ten minutes.
	ExpireEvery int64
}

const (
	defaultExpireAfter = 24 * 60 * 60 * 1000
	defaultExpireEvery = 10 * 60 * 1000
)

// maxBatches is how many batches of a producer are remembered: retries of older ones are not recognised.
const maxBatches = 5

// State is what a log knows of its producers: epochs, sequences, the last five batches of each, open transactions. It
// changes in two steps: Check judges an append and changes nothing, Commit takes it over once it is written.
//
// A State has no lock: every method needs the log's write lock (or a State nobody else sees yet). Only what Unstable
// returns may be used without it. A producer costs about 200 bytes; a log without producers a few words.
type State struct {
	cfg        Config
	producers  map[int64]*producer
	peak       int // most producers since the map was made
	open       ongoing
	unstable   *Unstable
	verifying  map[int64]*verification
	end        int64 // everything below it counted
	snapshot   int64 // offset of the last one taken or loaded
	last       int64 // no batch of a producer is known at or above it +1
	nextExpiry int64
	clock      int64 // Unix ms, as it was told last
	until      int64 // end of the reload, while one is
	reloading  bool
	changes    uint64 // counts what may not happen between Check and Commit
	pending    Pending
	dec        *record.Decoder
}

// New makes the empty state of a log that begins at start.
func New(cfg Config, start int64) *State {
	if cfg.ExpireAfter == 0 {
		cfg.ExpireAfter = defaultExpireAfter
	}
	if cfg.ExpireEvery <= 0 {
		cfg.ExpireEvery = defaultExpireEvery
	}
	s := &State{cfg: cfg, unstable: &Unstable{open: math.MaxInt64, limit: math.MaxInt64}}
	s.clear(start)
	return s
}

// producer is one entry. It holds no pointers, so that many of them cost the garbage collector little.
type producer struct {
	id          int64
	timestamp   int64 // of the last record or marker; -1 none
	txnFirst    int64 // -1 none
	batches     [maxBatches]batch
	coordinator int32  // epoch; -1 none
	seen        uint32 // by the clock, Unix seconds: what the age counts from where the last record has no time
	epoch       int16  // -1 none
	n           uint8  // batches, oldest first
}

// batch is what is remembered of one.
type batch struct {
	last      int64 // offset
	timestamp int64
	sequence  int32 // of the last record; -1 none
	delta     int32 // last minus first offset, and sequence
}

func (b batch) firstSequence() int32 { return record.DecrementSequence(b.sequence, b.delta) }

func unknown(id int64) producer {
	return producer{id: id, timestamp: -1, txnFirst: -1, coordinator: -1, epoch: -1}
}

func (p *producer) push(b batch) {
	if p.n == maxBatches {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = b
	p.n++
}

// lastSequence is -1 without batches.
func (p *producer) lastSequence() int32 {
	if p.n == 0 {
		return -1
	}
	return p.batches[p.n-1].sequence
}

// find looks for a batch with exactly these sequences.
func (p *producer) find(first, last int32) (batch, bool) {
	for _, b := range p.batches[:p.n] {
		if b.sequence == last && b.firstSequence() == first {
			return b, true
		}
	}
	return batch{}, false
}

func (p *producer) entry() Entry {
	e := Entry{ProducerID: p.id, Epoch: p.epoch, LastSequence: -1, LastOffset: -1, Timestamp: p.timestamp, CoordinatorEpoch: p.coordinator, TxnFirstOffset: p.txnFirst}
	if p.n > 0 {
		b := p.batches[p.n-1]
		e.LastSequence, e.LastOffset, e.OffsetDelta = b.sequence, b.last, b.delta
	}
	return e
}

// End is the offset up to which the state is complete.
func (s *State) End() int64 { return s.end }

// Len is the number of known producers.
func (s *State) Len() int { return len(s.producers) }

// Unstable is what readers are bounded by. It stays the same object for the life of the State.
func (s *State) Unstable() *Unstable { return s.unstable }

// Producer is the entry of one producer.
func (s *State) Producer(id int64) (Entry, bool) {
	p := s.producers[id]
	if p == nil {
		return Entry{}, false
	}
	return p.entry(), true
}

// Batches is how many batches of a producer are remembered, at most five: retries of these are recognised.
func (s *State) Batches(id int64) int {
	if p := s.producers[id]; p != nil {
		return int(p.n)
	}
	return 0
}

// Producers are all entries in order of producer id: the content of a snapshot at End.
func (s *State) Producers() []Entry {
	all := make([]Entry, 0, len(s.producers))
	for _, id := range s.ids() {
		all = append(all, s.producers[id].entry())
	}
	return all
}

// ids are those of all producers, in order.
func (s *State) ids() []int64 {
	ids := make([]int64, 0, len(s.producers))
	for id := range s.producers {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// OpenTxn is a transaction that has records and no marker yet.
type OpenTxn struct {
	ProducerID       int64
	Epoch            int16
	CoordinatorEpoch int32 // of the producer's last marker; -1 none
	FirstOffset      int64
	LastOffset       int64 // of its last batch; -1 if that is not known
	LastTimestamp    int64 // of its last record, Unix ms; -1 none: what its age is counted from
}

// Late says whether the transaction hangs (Kafka's partitions-with-late-transactions): its last record is older than
// maxTimeout, transaction.max.timeout.ms, and five minutes. Both in Unix milliseconds; records without time are never
// late.
func (t OpenTxn) Late(now, maxTimeout int64) bool {
	return t.LastTimestamp > 0 && t.LastTimestamp < now-maxTimeout-5*60*1000
}

// Open lists the open transactions, the oldest first: the first one holds the last stable offset back.
func (s *State) Open() []OpenTxn {
	all := make([]OpenTxn, 0, s.open.len())
	for _, t := range s.open.items {
		p := s.producers[t.id]
		if t.dead || p == nil {
			continue
		}
		e := p.entry()
		all = append(all, OpenTxn{ProducerID: t.id, Epoch: e.Epoch, CoordinatorEpoch: e.CoordinatorEpoch, FirstOffset: t.first, LastOffset: e.LastOffset, LastTimestamp: e.Timestamp})
	}
	return all
}

// OnHighWatermark tells that everything below offset is replicated.
func (s *State) OnHighWatermark(offset int64) { s.unstable.Advance(offset) }

// OnLogStart tells that records below offset were deleted. Producers stay known.
func (s *State) OnLogStart(offset int64) {
	s.unstable.Advance(offset)
	s.end = max(s.end, offset)
}

// SetEnd says that there is no batch between End and offset, as at a roll or behind the last batch of a reload. A lower
// offset changes nothing.
func (s *State) SetEnd(offset int64) {
	s.end = max(s.end, offset)
	if s.reloading && s.end >= s.until {
		s.reloading = false
		s.unstable.hold(math.MaxInt64)
	}
}

// ExpireDue is Expire, but only if ExpireEvery has gone by since the last time, or the clock was put back: call it with every
// append.
func (s *State) ExpireDue(now int64) int {
	s.clock = now
	if now < s.nextExpiry && now >= s.nextExpiry-s.cfg.ExpireEvery {
		return 0
	}
	return s.Expire(now)
}

// SetExpiry replaces Config.ExpireAfter, milliseconds; negative: never.
func (s *State) SetExpiry(after int64) {
	if s.cfg.ExpireAfter != after {
		s.cfg.ExpireAfter, s.nextExpiry = after, 0
	}
}

// Expire forgets producers and verifications that are older than ExpireAfter, and returns how many producers. A
// producer with an open transaction stays. The age of a producer is its last record's; of one whose last record has no time,
// when it was written, or loaded. (Kafka forgets that one at once, its fenced epochs included.) now is Unix milliseconds.
func (s *State) Expire(now int64) (forgotten int) {
	s.clock, s.nextExpiry = now, now+s.cfg.ExpireEvery
	for id, p := range s.producers {
		if s.expired(p.txnFirst, p.since(), now) {
			delete(s.producers, id)
			forgotten++
		}
	}
	for id, v := range s.verifying {
		if s.expired(-1, v.since, now) {
			delete(s.verifying, id)
		}
	}
	if forgotten > 0 {
		s.changes++
		s.shrink()
	}
	return forgotten
}

// since is what the age of a producer counts from, Unix ms.
func (p *producer) since() int64 {
	if p.timestamp < 0 {
		return int64(p.seen) * 1000
	}
	return p.timestamp
}

// see says that a producer wrote now, if nothing else does.
func (s *State) see(p *producer) {
	if p.timestamp < 0 {
		p.seen = uint32(max(0, min(s.clock/1000, math.MaxUint32)))
	}
}

func (s *State) expired(txnFirst, timestamp, now int64) bool {
	return txnFirst < 0 && s.cfg.ExpireAfter > 0 && timestamp <= now-s.cfg.ExpireAfter
}

// shrink gives memory back once most producers are gone: a map never does by itself.
func (s *State) shrink() {
	if s.peak < 1024 || len(s.producers)*4 > s.peak {
		return
	}
	smaller := make(map[int64]*producer, len(s.producers))
	for id, p := range s.producers {
		smaller[id] = p
	}
	s.producers, s.peak = smaller, len(smaller)
}

// Reset makes it the state of a log that was emptied and begins at start. Its snapshots must go too.
func (s *State) Reset(start int64) {
	s.clear(start)
	s.snapshot = 0
	s.reloading = false
	s.unstable.hold(math.MaxInt64)
}

// clear forgets producers and transactions. Verifications stay: they are of the coordinator, not of the log.
func (s *State) clear(start int64) {
	s.producers, s.peak, s.open = nil, 0, ongoing{}
	s.unstable.reset()
	s.end, s.snapshot, s.last = start, start, start-1
	s.changes++
}

func (s *State) put(p *producer) {
	if s.producers == nil {
		s.producers = map[int64]*producer{}
	}
	s.producers[p.id] = p
	s.peak = max(s.peak, len(s.producers))
}
