package replicatest

import (
	"encoding/binary"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
)

// producer sends one batch at a time.
type producer struct {
	s          *sim
	p          *part
	acks       int8
	idempotent bool
	txnal      bool

	pid   int64
	epoch int16
	seq   int32

	raw    []byte // of the request under way; nil: none
	ids    []uint64
	marker bool
	tag    uint64
	tries  int
	leader replica.NodeID
	txn    *txn
	left   int // batches until the transaction ends
	build  *record.Builder
}

// keys are how many there are, by whether the partition is compacted: with few of them each is soon written again, and with it
// what was deleted.
var keys = map[bool]int{false: 8, true: 24}

// consumer reads one batch after the other.
type consumer struct {
	s         *sim
	p         *part
	committed bool // read_committed
	position  int64
	stamp     uint64
	tag       uint64
	leader    replica.NodeID
}

func (s *sim) startClients() {
	for i := range max(s.profile.producers, len(s.parts)) {
		s.produceTo(s.parts[i%len(s.parts)])
	}
	for i := range max(s.profile.consumers, len(s.parts)) {
		committed := i%2 == 1
		if len(s.parts) > 1 {
			committed = (uint64(i)+s.Seed)%2 == 1
		}
		s.consume(s.parts[i%len(s.parts)], committed)
	}
	s.after(20*time.Millisecond, s.watchOver)
}

// serve starts clients of a partition that was made later.
func (s *sim) serve(p *part) {
	s.produceTo(p)
	s.consume(p, s.rng.IntN(2) == 0)
}

func (s *sim) produceTo(to *part) {
	i := len(s.producers)
	p := &producer{s: s, p: to, pid: int64(1000 * (i + 1)), leader: 1, acks: -1}
	switch (i + int(s.Seed)) % 4 {
	case 0:
		p.idempotent = true
	case 1:
		p.idempotent, p.txnal = true, true
	case 2:
		p.acks = int8(s.rng.IntN(3)) - 1
	}
	s.producers = append(s.producers, p)
	s.after(s.between(0, s.think), p.next)
}

func (s *sim) consume(from *part, committed bool) {
	c := &consumer{s: s, p: from, committed: committed, leader: 1}
	s.consumers = append(s.consumers, c)
	s.after(s.between(0, 10*time.Millisecond), c.fetch)
}

func (s *sim) someNode() replica.NodeID { return replica.NodeID(1 + s.rng.IntN(len(s.nodes))) }

// metadata is what a client that does not know the leader finds out.
func (p *part) metadata() replica.NodeID {
	if to := p.state.Leader; p.known && to != replica.NoNode && p.s.chance(0.7) {
		return to
	}
	return p.s.someNode()
}

func (p *producer) pause() time.Duration { return p.s.between(p.s.think/2, p.s.think*3/2) }

// idle says that nothing is under way or owed.
func (p *producer) idle() bool { return p.raw == nil && p.txn == nil && !p.marker }

// next begins a batch, or ends a transaction.
func (p *producer) next() {
	s := p.s
	if p.p.gone {
		p.raw, p.txn, p.marker = nil, nil, false
		return
	}
	if !p.p.known {
		s.after(p.pause(), p.next)
		return
	}
	if p.txn != nil && p.left == 0 {
		p.end(commitMarker)
		return
	}
	if s.calm && p.txn == nil {
		return
	}
	if p.txnal && p.txn == nil {
		p.txn, p.left = &txn{}, 1+s.rng.IntN(3)
		s.counts.add("transactions", 1)
	}
	if p.txn != nil {
		p.left--
	}
	p.marker = false
	p.ids = p.ids[:0]
	var pr *record.Producer
	if p.idempotent {
		pr = &record.Producer{ID: p.pid, Epoch: p.epoch, BaseSequence: p.seq, Transactional: p.txnal}
	}
	if p.build == nil {
		p.build = record.NewBuilder(record.BuilderOptions{Now: func() time.Time { return began.Add(s.now) }})
	}
	p.build.Reset()
	p.build.SetProducer(pr)
	for range 1 + s.rng.IntN(3) {
		key := s.rng.IntN(keys[p.p.compacted])
		tombstone := p.p.compacted && s.rng.IntN(4) == 0
		id := s.newRecord(origin{idempotent: p.idempotent, producer: p.pid, sequence: p.seq + int32(len(p.ids)), txn: p.txn, key: key, tombstone: tombstone})
		p.ids = append(p.ids, id)
		rec := record.Record{Key: []byte{byte('a' + key)}}
		if value := binary.BigEndian.AppendUint64(make([]byte, 0, 40), id); tombstone {
			rec.Headers = []record.Header{{Value: value}}
		} else {
			rec.Value = value[:8+s.rng.IntN(33)]
		}
		if err := p.build.Add(rec); err != nil {
			s.fail("%v", err)
			return
		}
	}
	b, err := p.build.Finish()
	if err != nil {
		s.fail("%v", err)
		return
	}
	p.raw = append(make([]byte, 0, b.Size()), b.Bytes()...)
	p.tries = 0
	p.send()
}

// end decides a transaction and has its marker written.
func (p *producer) end(how entryKind) {
	s := p.s
	if how == commitMarker && s.rng.IntN(3) == 0 {
		how = abortMarker
	}
	if p.txn.decided != hole {
		how = p.txn.decided
	}
	p.txn.decided = how
	if how == abortMarker {
		s.counts.add("transactions aborted", 1)
	}
	p.marker, p.tries = true, 0
	p.raw = nil
	p.send()
}

func (p *producer) send() {
	s := p.s
	if p.p.gone {
		p.next()
		return
	}
	p.tries++
	tag := s.tag()
	p.tag = tag
	acks := p.acks
	s.asked[tag] = p.answer
	to := p.leader
	raw, marker := p.raw, replica.EndTxn{}
	if p.marker {
		marker = replica.EndTxn{From: replica.NoNode, Tag: tag, ProducerID: p.pid, ProducerEpoch: p.epoch + 1, Commit: p.txn.decided == commitMarker,
			TransactionVersion: 2, LeaderEpoch: -1, BrokerEpoch: -1, Timeout: askLimit}
		if p.tries > 1 {
			s.counts.add("ends of transactions asked for again", 1)
		}
	}
	s.counts.add("produce requests", 1)
	s.send(clients, place(to), func() {
		if r := p.p.rep(to); r != nil && r.p != nil {
			a := acks
			if s.mutant.ackEarly && a == -1 {
				a = 1
			}
			if marker.ProducerID > 0 {
				r.step(marker)
				return
			}
			r.step(replica.Produce{Tag: tag, Raw: append([]byte(nil), raw...), Acks: a, Timeout: askLimit})
		}
	})
	limit := 2 * askLimit
	if acks == 0 {
		limit = time.Millisecond
	}
	s.after(limit, func() {
		if p.tag == tag {
			delete(s.asked, tag)
			p.answer(result{Result: replica.Result{Err: replica.NetworkException, Leader: replica.NoNode}})
		}
	})
}

// answer is what became of a request; an answer that is not clear is asked for again by those who can.
func (p *producer) answer(r result) {
	s := p.s
	p.tag = 0
	switch {
	case p.p.gone:
		p.next()
		return
	case r.Err == replica.None:
		if p.acks == -1 && !p.marker {
			p.p.model.acknowledged(r.Base, p.ids)
		}
		s.counts.add("produce requests confirmed", 1)
		p.done()
		return
	case p.acks == 0:
		p.done()
		return
	case r.Err == replica.NetworkException || r.Leader == replica.NoNode:
		p.leader = p.p.metadata()
	default:
		p.leader = r.Leader
		if p.leader < 1 {
			p.leader = p.p.metadata()
		}
	}
	s.counts.add("produce requests refused", 1)
	p.p.note("producer %d.%d, marker %v: node %d answers %v: %v", p.pid, p.epoch, p.marker, r.from, r.Err, r.Cause)
	switch {
	case r.Err == replica.OutOfOrderSequence || r.Err == replica.InvalidProducerEpoch || r.Err == replica.InvalidTxnState:
		s.counts.add("producers begun anew", 1)
		p.startOver(r.Err)
		return
	case !p.idempotent:
		p.raw = nil // it may be in the log or not
		s.after(p.pause(), p.next)
		return
	}
	s.after(s.between(backOff/2, backOff*2), p.send)
}

// startOver is for a producer that the log does not follow.
func (p *producer) startOver(why replica.ErrorCode) {
	s := p.s
	switch {
	case p.marker && why == replica.InvalidProducerEpoch:
		p.done() // an earlier try has written it
	case p.txn != nil:
		p.raw = nil
		p.end(abortMarker)
	default:
		p.raw = nil
		p.pid++
		p.epoch, p.seq = 0, 0
		s.after(p.pause(), p.next)
	}
}

func (p *producer) done() {
	p.raw = nil
	if p.marker {
		p.marker, p.txn = false, nil
		p.epoch++
		p.seq = 0
	} else {
		p.seq += int32(len(p.ids))
	}
	p.s.after(p.pause(), p.next)
}

func (c *consumer) fetch() {
	s := c.s
	if c.p.gone {
		return
	}
	if c.stamp != c.p.model.stamp && !c.p.model.excused {
		c.stamp, c.position = c.p.model.stamp, int64(len(c.p.model.committed))
	}
	tag := s.tag()
	c.tag = tag
	s.asked[tag] = c.answer
	to := c.leader
	if s.rng.IntN(10) == 0 {
		to = s.someNode()
	}
	isolation := log.ReadUncommitted
	if c.committed {
		isolation = log.ReadCommitted
	}
	f := replica.FetchRequest{From: replica.NoNode, Tag: tag, TopicID: c.p.id, Offset: c.position, LeaderEpoch: -1, LastFetchedEpoch: -1, BrokerEpoch: -1,
		Isolation: isolation, MaxBytes: 2 << 10, MinBytes: 1, MaxWait: fetchWait}
	s.send(clients, place(to), func() {
		if r := c.p.seat(to).rep; r != nil {
			r.step(f)
		}
	})
	s.after(askLimit, func() {
		if c.tag == tag {
			delete(s.asked, tag)
			c.tag = 0
			c.leader = c.p.metadata()
			c.fetch()
		}
	})
}

func (c *consumer) answer(r result) {
	s := c.s
	c.tag = 0
	switch {
	case r.Err != replica.None:
		c.leader = c.p.metadata()
		if r.Leader > 0 {
			c.leader = r.Leader
		}
		if r.Err == replica.OffsetOutOfRange && r.LogStart > c.position {
			c.position = r.LogStart // retention was faster
			s.counts.add("consumers overtaken by retention", 1)
		}
		s.after(s.between(backOff, 2*backOff), c.fetch)
		return
	case r.next >= 0 && !c.p.model.idle() && r.stamp == c.p.model.stamp && c.stamp == r.stamp:
		c.take(r)
	}
	s.after(s.between(time.Millisecond, 10*time.Millisecond), c.fetch)
}

// take compares what was read with what was committed.
func (c *consumer) take(r result) {
	s, m := c.s, &c.p.model
	next := c.position
	s.counts.add("records consumed", int64(len(r.records)))
	for _, rec := range r.records {
		if rec.offset < c.position {
			continue // of a batch that begins earlier
		}
		if !c.skips(next, rec.offset, r.from) {
			return
		}
		if rec.offset >= int64(len(m.committed)) || m.committed[rec.offset].id != rec.id && m.committed[rec.offset].kind != hole {
			c.p.fail("a consumer at node %d got record %d at offset %d, which is not what is committed", r.from, rec.id, rec.offset)
			return
		}
		if t := m.s.book[rec.id].txn; c.committed && t != nil && t.decided != commitMarker {
			c.p.fail("a read_committed consumer at node %d got record %d at offset %d of a transaction that is not committed", r.from, rec.id, rec.offset)
			return
		}
		next = rec.offset + 1
	}
	if c.skips(next, r.next, r.from) {
		c.position = max(c.position, r.next)
	}
}

// skips says whether a consumer may not get to see what lies in a gap.
func (c *consumer) skips(from, to int64, node replica.NodeID) bool {
	m := &c.p.model
	if to > int64(len(m.committed)) {
		c.p.fail("a consumer at node %d is to go on at offset %d, committed is everything below %d", node, to, len(m.committed))
		return false
	}
	for o := from; o < to && !c.p.compacted; o++ {
		e := m.committed[o]
		if e.kind != data {
			continue
		}
		if t := m.s.book[e.id].txn; c.committed && t != nil && t.decided == abortMarker {
			continue
		}
		c.p.fail("a consumer at node %d was not shown record %d at offset %d", node, e.id, o)
		return false
	}
	return true
}
