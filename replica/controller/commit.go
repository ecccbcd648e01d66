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
//	touch --> fresh --> queue --send--> flight --Committed--> Changed, and the replies that waited for it
//
// Only one transaction is under way; keys that are touched meanwhile wait, each once, and are written as they then are.
type book struct {
	guard      replica.Guard
	versions   map[string]int64 // of all keys there are, as committed
	generation uint64
	waits      map[key]bool // what is in fresh or queue
	fresh      []dirty      // touched since the last transaction was made
	queue      []dirty      // in the order of writing
	tag        uint64
	flight     []entry // of the transaction with this tag
	waiting    []held  // replies, oldest first
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
}

// touch notes that a key has to be written.
func (c *Core) touch(k key) {
	if !c.book.waits[k] {
		c.book.waits[k] = true
		c.book.fresh = append(c.book.fresh, dirty{k, c.book.generation})
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
	if len(b.flight) == 0 {
		c.send()
	}
	oldest := b.generation + 1
	switch {
	case len(b.flight) > 0:
		oldest = b.flight[0].generation
	case len(b.queue) > 0:
		oldest = b.queue[0].generation
	}
	n := 0
	for n < len(b.waiting) && b.waiting[n].generation < oldest {
		c.out = append(c.out, b.waiting[n].reply)
		n++
	}
	b.waiting = slices.Delete(b.waiting, 0, n)
}

// send makes a transaction of as many keys as one may hold, the oldest first; what is made is written from the outside in
// (a topic before its partitions), and what is deleted from the inside out.
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
	if len(b.flight) == 0 {
		return
	}
	b.tag++
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
