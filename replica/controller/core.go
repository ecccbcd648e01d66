package controller

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// Core is the controller as a pure state machine: it does no I/O, starts nothing, looks at no clock and throws no dice. It
// rules between Elected and Resign or Deposed; at other times every request is refused with replica.NotController. It is
// not safe for concurrent use, and the same events give the same actions.
//
// A request changes the Core at once and the store a little later: what changes while a Commit is under way goes with the
// next one. Nobody is answered, and nothing is announced, before all that the answer rests on is in the store. And nobody is
// refused, or told that all is as wanted, before the store has shown, after the request came, that this Core rules: if there is
// nothing to write, by a Commit without writes. Describe, DescribeConfig and ListReassignments alone show what is known without
// asking the store; of a Core that was deposed and is not told so, that is of the past.
type Core struct {
	config  Config
	ruling  bool
	epoch   int32 // of this rule
	brokers map[replica.NodeID]broker
	topics  map[string]*topic
	ids     map[[16]byte]string // names of topics
	book    book

	now                      time.Time
	out                      []Action
	nextBalance, nextUnclean time.Time
}

// topic is what is known of a topic.
type topic struct {
	name       string
	id         [16]byte
	partitions []partition
	config     map[string]string
	leaving    departure
	deleters   []held // what the requests that wait for the mark are told
	damaged    bool   // its keys cannot be read
}

type partition struct {
	Partition
	damaged bool // its state cannot be read: it is left as it is
}

// departure is how far the deletion of a topic is.
type departure uint8

const (
	staying  departure = iota
	marking            // the mark is being written: from then on every controller goes on with the deletion
	striking           // the keys are being deleted
)

// New makes a Core that does not rule yet.
func New(c Config) *Core {
	core := &Core{config: c.withDefaults()}
	core.forget()
	return core
}

// Ruling says whether the Core rules, and in which epoch.
func (c *Core) Ruling() (epoch int32, ok bool) { return c.epoch, c.ruling }

func (c *Core) forget() {
	c.ruling, c.epoch = false, 0
	c.brokers = make(map[replica.NodeID]broker)
	c.topics = make(map[string]*topic)
	c.ids = make(map[[16]byte]string)
	c.book = book{tag: c.book.tag, generation: c.book.generation, versions: make(map[string]int64), waits: make(map[key]bool)}
}

// Step takes one event at a time and appends what follows from it to out. now must not go backwards.
func (c *Core) Step(now time.Time, in Event, out []Action) []Action {
	c.now, c.out = now, out
	c.book.generation++
	switch e := in.(type) {
	case Elected:
		c.begin(e)
	case Deposed:
		c.resign(nil)
	case Committed:
		c.committed(e)
	default:
		if !c.ruling {
			if tag, ok := requestTag(in); ok {
				c.out = append(c.out, Reply{Tag: tag, Err: refuse(replica.NotController, "this node does not rule")})
			}
			break
		}
		c.act(in)
	}
	if c.ruling {
		c.flush()
	}
	out, c.out = c.out, nil
	return out
}

func (c *Core) act(in Event) {
	switch e := in.(type) {
	case Seen:
		c.seen(e.Versioned)
	case Tick:
		c.tick()
	case CreateTopic:
		c.reply(e.Tag, c.create(e))
	case AddPartitions:
		c.reply(e.Tag, c.addPartitions(e))
	case DeleteTopic:
		c.deleteTopic(e)
	case SetConfig:
		c.reply(e.Tag, c.setConfig(e))
	case AlterConfig:
		c.reply(e.Tag, c.alterConfig(e))
	case DescribeConfig:
		c.show(e.Tag, c.describeConfig(e))
	case Describe:
		c.show(e.Tag, c.describe(e))
	case AlterPartition:
		c.reply(e.Tag, c.alter(e))
	case ControlledShutdown:
		c.reply(e.Tag, c.controlledShutdown(e))
	case Elect:
		c.reply(e.Tag, c.electByHand(e))
	case Reassign:
		c.reply(e.Tag, c.reassign(e))
	case ListReassignments:
		c.show(e.Tag, Reply{Moves: c.moves()})
	}
}

func requestTag(in Event) (uint64, bool) {
	switch e := in.(type) {
	case CreateTopic:
		return e.Tag, true
	case AddPartitions:
		return e.Tag, true
	case DeleteTopic:
		return e.Tag, true
	case SetConfig:
		return e.Tag, true
	case AlterConfig:
		return e.Tag, true
	case DescribeConfig:
		return e.Tag, true
	case Describe:
		return e.Tag, true
	case AlterPartition:
		return e.Tag, true
	case ControlledShutdown:
		return e.Tag, true
	case Elect:
		return e.Tag, true
	case Reassign:
		return e.Tag, true
	case ListReassignments:
		return e.Tag, true
	}
	return 0, false
}

// failed is the reply that says no.
func failed(err *Error) Reply { return Reply{Err: err} }

// staying are all topics that are not being deleted, by name.
func (c *Core) staying() iter.Seq[*topic] {
	return func(yield func(*topic) bool) {
		for _, name := range slices.Sorted(maps.Keys(c.topics)) {
			if t := c.topics[name]; t.leaving == staying && !t.damaged && !yield(t) {
				return
			}
		}
	}
}

// each visits every partition that can be acted upon, topics by name.
func (c *Core) each(visit func(t *topic, n int, p Partition)) {
	for t := range c.staying() {
		for n := range t.partitions {
			if !t.partitions[n].damaged {
				visit(t, n, t.partitions[n].Partition)
			}
		}
	}
}

// find is the partition that a request names.
func (c *Core) find(tp log.TopicPartition) (*topic, *Error) {
	t := c.topics[tp.Topic]
	switch {
	case t == nil || t.leaving != staying:
		return nil, refuse(replica.UnknownTopicOrPartition, "there is no topic %s", tp.Topic)
	case tp.Partition < 0 || !t.damaged && int(tp.Partition) >= len(t.partitions):
		return nil, refuse(replica.UnknownTopicOrPartition, "there is no partition %v", tp)
	case t.damaged || t.partitions[tp.Partition].damaged:
		return nil, refuse(replica.KafkaStorageError, "what the store holds of %v cannot be read", tp)
	}
	return t, nil
}

func (c *Core) rules(t *topic, e Election) Rules {
	if e == Online && c.config.unclean(t.config) {
		e = Uncleanly
	}
	return Rules{Election: e, Acceptable: c.active, MinISR: c.config.minISR(t.config), ELR: !c.config.NoELR}
}

// change applies a change to a partition, and notes what has to be written; false if nothing changed.
func (c *Core) change(t *topic, n int, r Rules, target Target) bool {
	before := t.partitions[n].Partition
	after, changed := before.Change(r, target)
	if !changed {
		return false
	}
	c.set(t, n, after)
	return true
}

func (c *Core) set(t *topic, n int, after Partition) {
	before := t.partitions[n].Partition
	t.partitions[n].Partition = after
	c.touch(key{kind: stateKey, topic: t.name, partition: int32(n)})
	if !slices.Equal(before.Replicas, after.Replicas) || !slices.Equal(before.Adding, after.Adding) ||
		!slices.Equal(before.Removing, after.Removing) {
		c.touch(key{kind: topicKey, topic: t.name})
	}
}

func (t *topic) at(n int) log.TopicPartition {
	return log.TopicPartition{Topic: t.name, Partition: int32(n)}
}

// tick does what is due.
func (c *Core) tick() {
	if !c.config.NoBalance && !c.now.Before(c.nextBalance) {
		c.nextBalance = c.now.Add(c.config.ImbalanceInterval)
		c.balance()
	}
	if !c.now.Before(c.nextUnclean) {
		c.nextUnclean = c.now.Add(c.config.UncleanInterval)
		c.each(func(t *topic, n int, p Partition) {
			if p.Leader == replica.NoNode && c.config.unclean(t.config) {
				c.change(t, n, c.rules(t, Uncleanly), Target{})
			}
		})
	}
}
