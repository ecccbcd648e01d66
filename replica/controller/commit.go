package controller

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// book is what stands between the Core and the store. Each Step is a generation; a reply of generation g is given when
// everything that was touched up to g is written.
//
//	touch --> dirty --flush--> flight --Committed--> Changed, and the replies that waited for it
//
// Only one transaction is under way; keys that are touched meanwhile wait in dirty, each once.
type book struct {
	guard      replica.Guard
	versions   map[string]int64 // of all keys there are, as committed
	generation uint64
	dirty      map[key]uint64 // and the generation in which it was first touched since it was last written
	tag        uint64
	flight     []entry // of the transaction with this tag
	waiting    []held  // replies, oldest first
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
}

// touch notes that a key has to be written.
func (c *Core) touch(k key) {
	if _, ok := c.book.dirty[k]; !ok {
		c.book.dirty[k] = c.book.generation
	}
}

// reply answers a request as soon as all before it is written.
func (c *Core) reply(tag uint64, r Reply) {
	r.Tag = tag
	c.book.waiting = append(c.book.waiting, held{r, c.book.generation})
}

// flush sends what is dirty if nothing is under way, and answers who need not wait.
func (c *Core) flush() {
	b := &c.book
	if len(b.flight) == 0 && len(b.dirty) > 0 {
		c.send()
	}
	oldest := b.generation + 1
	for _, e := range b.flight {
		oldest = min(oldest, e.generation)
	}
	for _, g := range b.dirty {
		oldest = min(oldest, g)
	}
	n := 0
	for n < len(b.waiting) && b.waiting[n].generation < oldest {
		c.out = append(c.out, b.waiting[n].reply)
		n++
	}
	b.waiting = slices.Delete(b.waiting, 0, n)
}

// send makes a transaction of as many dirty keys as one may hold, the oldest first; what is made is written from the
// outside in (a topic before its partitions), and what is deleted from the inside out.
func (c *Core) send() {
	b := &c.book
	all := make([]entry, 0, len(b.dirty))
	for k, generation := range b.dirty {
		e := entry{key: k, generation: generation, name: k.String()}
		e.value, e.news = c.render(k)
		if e.value == nil && b.versions[e.name] == 0 {
			delete(b.dirty, k) // made and deleted before it was ever written
			continue
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(x, y entry) int {
		return cmp.Or(cmp.Compare(x.generation, y.generation), cmp.Compare(x.rank(), y.rank()), cmp.Compare(x.name, y.name))
	})

	tx := replica.Transaction{Guards: []replica.Guard{b.guard}}
	size := 0
	for _, e := range all {
		size += len(e.name) + len(e.value)
		if len(tx.Writes) == replica.MaxWrites-1 || len(tx.Writes) > 0 && size > replica.MaxTxBytes {
			break
		}
		tx.Writes = append(tx.Writes, replica.Write{Key: e.name, Value: e.value, IfVersion: b.versions[e.name]})
		b.flight = append(b.flight, e)
		delete(b.dirty, e.key)
	}
	if len(b.flight) == 0 {
		return
	}
	b.tag++
	c.out = append(c.out, Commit{Tag: b.tag, Transaction: tx})
}

// rank orders the writes of one generation.
func (e entry) rank() int {
	switch {
	case e.value != nil:
		return int(e.key.kind)
	case e.key.kind == stateKey:
		return int(stateKey) + 1
	case e.key.kind == markKey:
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
	if !c.ruling || e.Tag != b.tag || len(b.flight) == 0 {
		return // of an earlier rule
	}
	if e.Err == nil && len(e.Versions) != len(b.flight) {
		e.Err = errors.New("the store answered with too few versions")
	}
	if e.Err != nil {
		c.resign(e.Err)
		return
	}
	written := b.flight
	b.flight = nil
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
	sure := err == nil && len(c.book.flight) == 0 || errors.Is(err, replica.ErrConflict)
	refusal := refuse(replica.RequestTimedOut, "whether it was done is unknown, this node's rule ended")
	if sure {
		refusal = refuse(replica.NotController, "this node's rule ended")
	}
	for _, w := range c.book.waiting {
		c.out = append(c.out, Reply{Tag: w.reply.Tag, Err: refusal})
	}
	for _, name := range slices.Sorted(maps.Keys(c.topics)) {
		for _, tag := range c.topics[name].deleters {
			c.out = append(c.out, Reply{Tag: tag, Err: refusal})
		}
	}
	c.forget()
	if err != nil {
		c.out = append(c.out, Resign{err})
	}
}
