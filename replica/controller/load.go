package controller

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/partlog/partlog/replica"
)

// begin takes over what the store holds, goes on with what a predecessor left undone, and looks who is there.
func (c *Core) begin(e Elected) {
	c.resign(nil)
	c.forget()
	c.ruling, c.epoch = true, e.Epoch
	c.book.guard = replica.Guard{Key: EpochKey, Version: e.Version}
	c.nextBalance = c.now.Add(c.config.ImbalanceInterval)
	c.nextUnclean = c.now.Add(c.config.UncleanInterval)

	present := make(map[replica.NodeID]replica.Versioned)
	var states, marks []replica.Versioned
	for _, v := range e.Keys {
		if v.Value == nil {
			continue
		}
		c.book.versions[v.Key] = v.Version
		if id, ok := parseNode(v.Key, IDsPrefix); ok {
			present[id] = v
			continue
		}
		switch k, ok := parseKey(v.Key); {
		case !ok:
		case k.kind == stateKey:
			states = append(states, v)
		case k.kind == markKey:
			marks = append(marks, v)
		case k.kind == configKey:
			// with the topics
		case k.kind == topicKey:
			c.loadTopic(k.topic, v)
		default:
			c.loadRegistration(k.node, v)
		}
	}
	for _, v := range e.Keys {
		if name, ok := strings.CutPrefix(v.Key, ConfigPrefix); ok && v.Value != nil {
			c.loadConfig(name, v)
		}
	}
	for _, v := range states {
		c.loadState(v)
	}
	for _, v := range marks {
		name := strings.TrimPrefix(v.Key, DeletePrefix)
		if c.topics[name] == nil {
			c.topics[name] = &topic{name: name}
		}
		c.strike(c.topics[name])
	}
	c.firstStates()
	c.roll(present)
}

func (c *Core) damaged(v replica.Versioned, err error) {
	c.out = append(c.out, Damaged{v.Key, err})
}

func (c *Core) loadRegistration(id replica.NodeID, v replica.Versioned) {
	var r registrationValue
	if err := json.Unmarshal(v.Value, &r); err != nil {
		c.damaged(v, err)
		c.brokers[id] = broker{fenced: true} // as if it had stopped uncleanly
		return
	}
	c.brokers[id] = broker{epoch: r.BrokerEpoch, rack: r.Rack, fenced: r.Fenced, stopping: r.ShuttingDown}
}

func (c *Core) loadTopic(name string, v replica.Versioned) {
	t := &topic{name: name}
	c.topics[name] = t
	id, assignment, err := decodeTopic(v.Value)
	if err == nil && c.ids[id] != "" {
		err = errors.New("it has the id of topic " + c.ids[id])
	}
	if err != nil {
		t.damaged = true
		c.damaged(v, err)
		return
	}
	t.id = id
	c.ids[id] = name
	for _, p := range assignment {
		p.PartitionEpoch = -1 // no state was found yet
		t.partitions = append(t.partitions, partition{Partition: p})
	}
}

func (c *Core) loadConfig(name string, v replica.Versioned) {
	t := c.topics[name]
	if t == nil {
		return // of a topic that is no more; it is replaced when one is made
	}
	var value configValue
	if err := json.Unmarshal(v.Value, &value); err != nil {
		t.damaged = true // min.insync.replicas may be anything
		c.damaged(v, err)
		return
	}
	t.config = value.Config
}

// loadState believes the state of a partition rather than the topic's list, which is written for others to read.
func (c *Core) loadState(v replica.Versioned) {
	k, _ := parseKey(v.Key)
	t := c.topics[k.topic]
	if t == nil || t.damaged || int(k.partition) >= len(t.partitions) {
		return
	}
	at := &t.partitions[k.partition]
	id, p, err := decodeState(v.Value)
	if err == nil && id != t.id {
		err = errors.New("it is of another topic of this name, with the id " + encodeID(id))
	}
	if err != nil {
		at.damaged = true
		c.damaged(v, err)
		return
	}
	listed := at.Partition
	at.Partition = p
	if !slices.Equal(listed.Replicas, p.Replicas) || !slices.Equal(listed.Adding, p.Adding) || !slices.Equal(listed.Removing, p.Removing) {
		c.touch(key{kind: topicKey, topic: t.name})
	}
}

// firstStates makes states for partitions that have none: the predecessor ended between a topic and its partitions.
// Everybody is in sync with a partition that nobody has written to.
func (c *Core) firstStates() {
	c.each(func(t *topic, n int, p Partition) {
		if p.PartitionEpoch >= 0 {
			return
		}
		first := c.first(p.Replicas)
		if first.Leader == replica.NoNode {
			first.ISR = p.Replicas
		}
		c.set(t, n, first)
	})
}

// roll compares who is there with who was.
func (c *Core) roll(present map[replica.NodeID]replica.Versioned) {
	for _, id := range slices.Sorted(maps.Keys(c.brokers)) {
		if _, ok := present[id]; !ok {
			c.down(id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(present)) {
		c.seen(present[id])
	}
	c.each(func(t *topic, n int, p Partition) {
		if p.Leader == replica.NoNode || !c.active(p.Leader) {
			c.change(t, n, c.rules(t, Online), Target{})
		}
	})
}
