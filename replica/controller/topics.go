package controller

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/placement"
)

const (
	maxPartitions = 10_000    // of a topic, Kafka's limit for one request
	maxTopicBytes = 256 << 10 // of a topic's list of replicas, which is one value in the store
)

func (c *Core) create(e CreateTopic) Reply {
	if err := c.checkName(e.Topic); err != nil {
		return failed(err)
	}
	if err := checkSettings(e.Config); err != nil {
		return failed(err)
	}
	if e.ID == ([16]byte{}) || c.ids[e.ID] != "" {
		return failed(refuse(replica.InvalidRequest, "the id for topic %s is not new", e.Topic))
	}
	n, factor := e.Partitions, e.ReplicationFactor
	if e.Assignment != nil {
		if n > 0 || factor > 0 {
			return failed(refuse(replica.InvalidRequest, "an assignment by hand and numbers to place by do not go together"))
		}
		n, factor = len(e.Assignment), 0
	} else {
		if n == 0 || n == -1 {
			n = c.config.Partitions
		}
		if factor == 0 || factor == -1 {
			factor = c.config.ReplicationFactor
		}
	}
	t := &topic{name: e.Topic, id: e.ID, config: maps.Clone(e.Config)}
	if err := c.grow(t, n, factor, e.Assignment, e.Seed); err != nil {
		return failed(err)
	}
	if !e.ValidateOnly {
		c.topics[t.name] = t
		c.ids[t.id] = t.name
		c.touch(key{kind: topicKey, topic: t.name})
		c.touch(key{kind: configKey, topic: t.name})
		c.touchStates(t, 0)
	}
	return Reply{Topics: []Topic{t.describe()}}
}

func (c *Core) touchStates(t *topic, from int) {
	for n := from; n < len(t.partitions); n++ {
		c.touch(key{kind: stateKey, topic: t.name, partition: int32(n)})
	}
}

// checkName refuses what cannot be a folder's name, is taken, or looks like another topic where a dot and an underscore
// are the same.
func (c *Core) checkName(name string) *Error {
	if err := (log.TopicPartition{Topic: name}).Validate(); err != nil {
		return refuse(replica.InvalidTopic, "%v", err)
	}
	if c.topics[name] != nil {
		return refuse(replica.TopicAlreadyExists, "topic %s exists", name)
	}
	plain := strings.ReplaceAll(name, ".", "_")
	for other := range c.topics {
		if strings.ReplaceAll(other, ".", "_") == plain {
			return refuse(replica.InvalidTopic, "topic %s collides with %s: dots and underscores are the same in names of metrics", name, other)
		}
	}
	return nil
}

// grow gives a topic n partitions in all, by hand or placed.
func (c *Core) grow(t *topic, n, factor int, byHand [][]replica.NodeID, seed uint64) *Error {
	from := len(t.partitions)
	switch {
	case n <= from:
		return refuse(replica.InvalidPartitions, "%d partitions are not more than %d", n, from)
	case n > maxPartitions:
		return refuse(replica.PolicyViolation, "%d partitions, more than %d", n, maxPartitions)
	case byHand != nil && len(byHand) != n-from:
		return refuse(replica.InvalidReplicaAssignment, "%d lists of replicas for %d new partitions", len(byHand), n-from)
	}
	lists := byHand
	if lists == nil {
		var err *Error
		if lists, err = c.place(from, n-from, factor, seed); err != nil {
			return err
		}
	} else if factor == 0 {
		factor = len(lists[0])
	}

	grown := slices.Clone(t.partitions)
	for i, replicas := range lists {
		if byHand != nil {
			if err := c.checkReplicas(replicas, factor); err != nil {
				return err
			}
		}
		p := c.first(replicas)
		if p.Leader == replica.NoNode {
			return refuse(replica.InvalidReplicaAssignment, "no replica of partition %d is in service: %v", from+i, replicas)
		}
		if from > 0 {
			p.MinISR = t.partitions[0].MinISR
		}
		grown = append(grown, partition{Partition: p})
	}
	if size := len(encodeTopic(t.id, grown)); size > maxTopicBytes {
		return refuse(replica.PolicyViolation, "the list of replicas of %d partitions takes %d bytes, more than %d", n, size, maxTopicBytes)
	}
	t.partitions = grown
	return nil
}

// first is a partition nobody has written to: who is in service is in sync.
func (c *Core) first(replicas []replica.NodeID) Partition {
	p := Partition{Leader: replica.NoNode, Replicas: slices.Clone(replicas), ISR: []replica.NodeID{}}
	for _, id := range replicas {
		if c.active(id) {
			p.ISR = append(p.ISR, id)
		}
	}
	if len(p.ISR) > 0 {
		p.Leader = p.ISR[0]
	}
	return p
}

// checkReplicas checks a list made by hand; factor 0: it may have any length.
func (c *Core) checkReplicas(replicas []replica.NodeID, factor int) *Error {
	switch {
	case len(replicas) == 0:
		return refuse(replica.InvalidReplicaAssignment, "a partition without replicas")
	case !distinct(replicas):
		return refuse(replica.InvalidReplicaAssignment, "a replica twice in %v", replicas)
	case factor > 0 && len(replicas) != factor:
		return refuse(replica.InvalidReplicaAssignment, "%d replicas where another partition has %d", len(replicas), factor)
	}
	for _, id := range replicas {
		if _, known := c.brokers[id]; !known {
			return refuse(replica.InvalidReplicaAssignment, "node %d never registered", id)
		}
	}
	return nil
}

// place lets chance and the layout decide.
func (c *Core) place(from, n, factor int, seed uint64) ([][]replica.NodeID, *Error) {
	r := placement.Request{Partitions: n, ReplicationFactor: factor, FirstPartition: from}
	draws := rand.New(rand.NewPCG(seed, 0))
	brokers := make([]placement.Broker, 0, len(c.brokers))
	for _, id := range slices.Sorted(maps.Keys(c.brokers)) {
		if c.config.Placement == Striped || c.active(id) {
			brokers = append(brokers, placement.Broker{ID: int32(id), Rack: c.brokers[id].rack, Fenced: !c.active(id)})
		}
	}
	var lists [][]int32
	var err error
	if c.config.Placement == Staggered {
		width := max(len(brokers), 1)
		lists, err = placement.Staggered(brokers, r, placement.Start{Index: draws.IntN(width), Shift: draws.IntN(width)})
	} else {
		lists, err = placement.Striped(brokers, r, placement.Random(draws))
	}
	if err != nil {
		return nil, refuse(replica.InvalidReplicationFactor, "%v", err)
	}
	out := make([][]replica.NodeID, len(lists))
	for i, list := range lists {
		for _, id := range list {
			out[i] = append(out[i], replica.NodeID(id))
		}
	}
	return out, nil
}

func (c *Core) addPartitions(e AddPartitions) Reply {
	t, err := c.find(log.TopicPartition{Topic: e.Topic})
	if err != nil {
		return failed(err)
	}
	from := len(t.partitions)
	if err := c.grow(t, e.Partitions, len(t.partitions[0].Replicas), e.Assignment, e.Seed); err != nil {
		return failed(err)
	}
	c.touch(key{kind: topicKey, topic: t.name})
	c.touchStates(t, from)
	return Reply{Topics: []Topic{t.describe()}}
}

// deleteTopic writes a mark first: once it is there the deletion goes on whoever rules.
func (c *Core) deleteTopic(e DeleteTopic) {
	t := c.topics[e.Topic]
	if t == nil || t.leaving != staying {
		c.reply(e.Tag, failed(refuse(replica.UnknownTopicOrPartition, "there is no topic %s", e.Topic)))
		return
	}
	t.leaving = marking
	t.deleters = append(t.deleters, held{reply: Reply{Tag: e.Tag}, generation: c.book.generation})
	c.touch(key{kind: markKey, topic: t.name})
}

// strike deletes all keys of a topic that is marked. What was to be written of it was written before the mark.
func (c *Core) strike(t *topic) {
	t.leaving = striking
	for name := range c.book.versions {
		if k, ok := parseKey(name); ok && k.topic == t.name && (k.kind == topicKey || k.kind == stateKey || k.kind == configKey) {
			c.touch(k)
		}
	}
	c.touch(key{kind: topicKey, topic: t.name})
	c.touch(key{kind: configKey, topic: t.name})
	c.touch(key{kind: markKey, topic: t.name})
	for _, w := range t.deleters {
		w.generation, w.begun = c.book.generation, true
		c.book.waiting = append(c.book.waiting, w)
	}
	t.deleters = nil
}

func (c *Core) describe(e Describe) Reply {
	var r Reply
	if len(e.Topics) == 0 {
		for t := range c.staying() {
			r.Topics = append(r.Topics, t.describe())
		}
		return r
	}
	for _, name := range e.Topics {
		t := c.topics[name]
		if t == nil || t.leaving != staying || t.damaged {
			return failed(refuse(replica.UnknownTopicOrPartition, "there is no topic %s", name))
		}
		r.Topics = append(r.Topics, t.describe())
	}
	return r
}

func (t *topic) describe() Topic {
	d := Topic{Name: t.name, ID: t.id, Config: maps.Clone(t.config)}
	for _, p := range t.partitions {
		d.Partitions = append(d.Partitions, p.Partition)
	}
	return d
}
