package controller

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// book is what stands between the Core and the store. Each Step is a generation; a reply of generation g is given when
// everything that was touched up to g is written, and a transaction that was made in g or later is committed.
//
//	touch --> fresh --> queue --send--> flight --Committed--> Changed, and the replies that waited for it
//
// Only one transaction is under way; keys that are touched meanwhile wait, each once, and are written as they then are.
//
// The second condition is for what is answered out of memory, a refusal mostly: a node that was deposed and does not know would
// refuse what its successor grants, and who asks takes many a refusal for final. So where there is nothing to write, a
// transaction is made of the guard alone: one for all replies that wait then, and only while none is under way. One that was made
// before a request came proves nothing for it: it may have been applied then, too. What only looks (show) does without.
//
// The rule may be lost between the check and the answer, and the answer still be given. It is right all the same: the guard's
// version only grows, so nobody else had ruled until the check, which is after the request, and what this node knew when the
// request came was so. It is as if it had been answered then and the answer had taken long, which can happen to any. Who is
// refused for what it does not know yet (its topic is deleted, there is a newer version of the partition) learns of it: that was
// in the store before the check. What a successor decides afterwards is newer, and comes as news as well.
type book struct {
	guard      replica.Guard
	versions   map[string]int64 // of all keys there are, as committed
	generation uint64
	waits      map[key]bool // what is in fresh or queue
	fresh      []dirty      // touched since the last transaction was made
	queue      []dirty      // in the order of writing
	tag        uint64
	underway   bool    // the transaction with this tag
	flight     []entry // what it writes; it may be nothing
	sent       uint64  // the generation in which it was made
	proven     uint64  // the generation in which the last one was made that is committed: this node ruled after that
	waiting    []held  // replies, oldest first
	shown      []held  // those that need no proof, oldest first
}

// dirty is a key that has to be written, and the generation in which it was first touched since it last was.
type dirty struct {
	key        key
	generation uint64
}

// entry is a write under way.
type entry struct {
	key        key
	generation uint64
	name       string
	value      []byte // nil: deletion
	news       News   // of a partition's state
}

type held struct {
	reply      Reply
	generation uint64
	begun      bool // part of what it promises is in the store
}

// touch notes that a key has to be written.
func (c *Core) touch(k key) {
	if !c.book.waits[k] {
		c.book.waits[k] = true
		c.book.fresh = append(c.book.fresh, dirty{k, c.book.generation})
	}
}

// reply answers a request as soon as all before it is written, and this node has shown that it still rules.
func (c *Core) reply(tag uint64, r Reply) {
	r.Tag = tag
	c.book.waiting = append(c.book.waiting, held{reply: r, generation: c.book.generation})
}

// show answers a request that only looks as soon as all before it is written. What is not there is a refusal like any other.
func (c *Core) show(tag uint64, r Reply) {
	if r.Err != nil {
		c.reply(tag, r)
		return
	}
	r.Tag = tag
	c.book.shown = append(c.book.shown, held{reply: r, generation: c.book.generation})
}

// flush sends what is dirty if nothing is under way, and answers who need not wait.
func (c *Core) flush() {
	b := &c.book
	if !b.underway {
		c.send()
	}
	written := b.generation // all of this generation and those before is
	switch {
	case len(b.flight) > 0:
		written = b.flight[0].generation - 1
	case len(b.queue) > 0:
		written = b.queue[0].generation - 1
	case len(b.fresh) > 0:
		written = b.fresh[0].generation - 1
	}
	b.waiting = c.release(b.waiting, min(written, b.proven))
	b.shown = c.release(b.shown, written)
}

// release gives the replies up to a generation, and answers those that stay.
func (c *Core) release(list []held, last uint64) []held {
	n := 0
	for n < len(list) && list[n].generation <= last {
		c.out = append(c.out, list[n].reply)
		n++
	}
	return slices.Delete(list, 0, n)
}

// send makes a transaction of as many keys as one may hold, the oldest first; what is made is written from the outside in
// (a topic before its partitions), and what is deleted from the inside out. If there is no key, but somebody who waits for a
// proof, it is of the guard alone.
func (c *Core) send() {
	b := &c.book
	slices.SortFunc(b.fresh, func(x, y dirty) int {
		return cmp.Or(cmp.Compare(x.generation, y.generation), cmp.Compare(c.rank(x.key), c.rank(y.key)),
			cmp.Compare(x.key.topic, y.key.topic), cmp.Compare(x.key.partition, y.key.partition), cmp.Compare(x.key.node, y.key.node))
	})
	b.queue = append(b.queue, b.fresh...)
	b.fresh = b.fresh[:0]

	tx := replica.Transaction{Guards: []replica.Guard{b.guard}}
	size, taken := 0, 0
	for ; taken < len(b.queue) && len(tx.Writes) < replica.MaxWrites-1; taken++ {
		d := b.queue[taken]
		e := entry{key: d.key, generation: d.generation, name: d.key.String()}
		e.value, e.news = c.render(d.key)
		if e.value == nil && b.versions[e.name] == 0 {
			delete(b.waits, d.key) // made and deleted before it was ever written
			continue
		}
		if size += len(e.name) + len(e.value); size > replica.MaxTxBytes && len(tx.Writes) > 0 {
			break
		}
		delete(b.waits, d.key)
		tx.Writes = append(tx.Writes, replica.Write{Key: e.name, Value: e.value, IfVersion: b.versions[e.name]})
		b.flight = append(b.flight, e)
	}
	b.queue = slices.Delete(b.queue, 0, taken)
	if n := len(b.waiting); len(tx.Writes) == 0 && (n == 0 || b.waiting[n-1].generation <= b.proven) {
		return
	}
	b.tag++
	b.underway, b.sent = true, b.generation
	c.out = append(c.out, Commit{Tag: b.tag, Transaction: tx})
}

// rank orders the writes of one generation.
func (c *Core) rank(k key) int {
	t := c.topics[k.topic]
	switch {
	case k.kind == registrationKey || t != nil && t.leaving != striking:
		return int(k.kind)
	case k.kind == stateKey:
		return int(stateKey) + 1
	case k.kind == markKey:
		return int(stateKey) + 3
	default:
		return int(stateKey) + 2
	}
}

// render is what a key is to hold; nil: it is not to exist.
func (c *Core) render(k key) ([]byte, News) {
	if k.kind == registrationKey {
		b := c.brokers[k.node]
		return encode(registrationValue{1, b.epoch, b.rack, b.fenced, b.stopping}), News{}
	}
	t := c.topics[k.topic]
	tp := log.TopicPartition{Topic: k.topic, Partition: k.partition}
	if t == nil || t.leaving == striking {
		return nil, News{Partition: tp, Deleted: true}
	}
	switch k.kind {
	case markKey:
		return []byte{}, News{}
	case configKey:
		if len(t.config) == 0 {
			return nil, News{}
		}
		return encode(configValue{1, t.config}), News{}
	case topicKey:
		return encodeTopic(t.id, t.partitions), News{}
	default:
		p := t.partitions[k.partition].Partition
		return encodeState(c.epoch, t.id, p), News{Partition: tp, TopicID: t.id, State: p}
	}
}

// committed ends the transaction under way.
func (c *Core) committed(e Committed) {
	b := &c.book
	if !c.ruling || e.Tag != b.tag || !b.underway {
		return // of an earlier rule
	}
	if e.Err == nil && len(e.Versions) != len(b.flight) {
		e.Err = fmt.Errorf("the store answered with %d versions for %d writes", len(e.Versions), len(b.flight))
	}
	if e.Err != nil {
		c.resign(e.Err)
		return
	}
	written := b.flight
	b.underway, b.flight, b.proven = false, nil, b.sent
	for i, w := range written {
		if w.value == nil {
			delete(b.versions, w.name)
		} else {
			b.versions[w.name] = e.Versions[i]
		}
		switch w.key.kind {
		case stateKey:
			c.out = append(c.out, Changed{w.news})
		case markKey:
			if t := c.topics[w.key.topic]; w.value != nil {
				c.strike(t)
			} else {
				delete(c.ids, t.id)
				delete(c.topics, t.name)
			}
		}
	}
}

// resign ends the rule. What is promised is refused: with NotController if it surely did not happen, else with
// RequestTimedOut.
func (c *Core) resign(err error) {
	if !c.ruling {
		return
	}
	promised := slices.Clone(c.book.waiting)
	for _, name := range slices.Sorted(maps.Keys(c.topics)) {
		promised = append(promised, c.topics[name].deleters...)
	}
	over := refuse(replica.NotController, "this node's rule ended")
	unknown := refuse(replica.RequestTimedOut, "whether it was done is unknown, this node's rule ended")
	for _, w := range promised {
		refusal := over
		if c.book.mayBeDone(w, err) {
			refusal = unknown
		}
		c.out = append(c.out, Reply{Tag: w.reply.Tag, Err: refusal})
	}
	for _, w := range c.book.shown {
		c.out = append(c.out, Reply{Tag: w.reply.Tag, Err: over})
	}
	c.forget()
	if err != nil {
		c.out = append(c.out, Resign{err})
	}
}

// mayBeDone says whether something of what a reply promises may be in the store, or get there, when the rule ends with err. What
// takes several transactions may be there in part, and a successor goes on with it. Only the guard's conflict says that
// nothing was written: a client of the store that sends a transaction again, whose first answer was lost, tells of one with itself.
func (b *book) mayBeDone(w held, err error) bool {
	conflict := (*replica.ConflictError)(nil)
	refused := errors.As(err, &conflict) && conflict.Guard
	return w.begun || w.generation <= b.proven || w.generation <= b.sent && len(b.flight) > 0 && !refused
}
