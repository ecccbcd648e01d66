package replicatest

import (
	"strconv"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// topic is a topic as the run wants it. Whoever rules is asked until it is so.
type topic struct {
	s         *sim
	index     int
	name      string
	compacted bool
	slots     []int // by partition

	life   byte // the one wanted; a topic of an earlier one is to be deleted
	wanted int  // partitions
	min    int  // min.insync.replicas wanted; 0: the topic does not say

	inForce int  // min.insync.replicas that the store has; 0: the topic does not say
	floor   int  // the least that ever was: so many hold what was committed
	tending bool // tend is going to be called
}

// minNews is what the store says of a topic's min.insync.replicas.
type minNews struct {
	topic *topic
	min   int
}

// goneNews is a partition that was deleted.
type goneNews struct{}

func (s *sim) newTopic(name string, partitions int, compacted bool) {
	t := &topic{s: s, index: len(s.topics), name: name, compacted: compacted, life: 1, wanted: partitions, floor: s.MinISR}
	s.topics = append(s.topics, t)
	for n := range partitions {
		t.part(n, t.id(1))
	}
}

// topic is the one with a name, which must be one of the run's.
func (s *sim) topic(name string) *topic {
	for _, t := range s.topics {
		if t.name == name {
			return t
		}
	}
	return nil
}

// id is the topic id of a life.
func (t *topic) id(life byte) [16]byte { return [16]byte{byte(t.index + 1), life} }

// part is a partition in the life of the topic that has an id. Who had its place before is past.
func (t *topic) part(n int, id [16]byte) *part {
	s := t.s
	tp := log.TopicPartition{Topic: t.name, Partition: int32(n)}
	for n >= len(t.slots) {
		t.slots = append(t.slots, -1)
	}
	slot := t.slots[n]
	if slot < 0 {
		slot = len(s.parts)
		t.slots[n] = slot
		s.parts = append(s.parts, newPart(t, id, slot, tp))
		for _, node := range s.nodes {
			node.seats = append(node.seats, &seat{n: node, index: slot, asks: map[uint64]bool{}})
		}
	} else if old := s.parts[slot]; old.id != id {
		s.past = append(s.past, old)
		s.parts[slot] = newPart(t, id, slot, tp)
	}
	return s.parts[slot]
}

// lives are all partitions that ever had a slot, the present one first.
func (s *sim) lives(slot int, yield func(*part)) {
	yield(s.parts[slot])
	for _, p := range s.past {
		if p.index == slot {
			yield(p)
		}
	}
}

// all are all partitions that ever were.
func (s *sim) all(yield func(*part)) {
	for slot := range s.parts {
		s.lives(slot, yield)
	}
}

// hear is what was decided about a partition.
func (t *topic) hear(news controller.News) {
	s, n := t.s, int(news.Partition.Partition)
	if news.Deleted {
		if p := s.parts[t.slots[n]]; p.known && !p.gone {
			p.note("deleted")
			s.counts.add("partitions deleted", 1)
			p.gone = true
			s.tell(p, goneNews{})
		}
		return
	}
	p := t.part(n, news.TopicID)
	first := !p.known
	p.decided(news)
	s.tell(p, p.assign)
	if first && (t.life > 1 || n >= s.Partitions) {
		s.counts.add("partitions made in the storm", 1)
		s.serve(p)
	}
}

// set is what the store says of the topic's settings.
func (t *topic) set(v replica.Versioned) {
	c, err := controller.LookupSettings(t.s.ctx, t.s.truly, t.name)
	if err != nil {
		t.s.fail("what the store holds of %s: %v", v.Key, err)
		return
	}
	if c.MinISR() != t.inForce {
		t.inForce = c.MinISR()
		t.s.note("decided: %s has min.insync.replicas %d", t.name, t.minISR(t.inForce))
		t.s.counts.add("changes of min.insync.replicas", 1)
		t.s.tell(nil, minNews{t, t.inForce})
	}
}

// minISR is min.insync.replicas where the topic says n.
func (t *topic) minISR(n int) int {
	if n > 0 {
		return n
	}
	return t.s.MinISR
}

// there says which life of the topic is in the store, 0 if none, how many partitions it has, and whether it is being deleted.
func (t *topic) there() (life byte, partitions int, leaving bool) {
	s := t.s
	for _, slot := range t.slots {
		if p := s.parts[slot]; p.known && !p.gone {
			life = p.id[1]
			partitions++
		}
	}
	for _, key := range []string{controller.DeletePrefix + t.name, controller.TopicsPrefix + t.name} {
		if v, err := s.truly.Get(s.ctx, key); err != nil {
			s.fail("%v", err)
		} else if v.Value != nil && life == 0 || v.Value != nil && key == controller.DeletePrefix+t.name {
			leaving = true
		}
	}
	return life, partitions, leaving
}

// unsettled says what is not yet as it is wanted.
func (t *topic) unsettled() string {
	life, partitions, leaving := t.there()
	switch {
	case leaving:
		return "topic " + t.name + " is being deleted"
	case life != t.life:
		return "topic " + t.name + " is to be made anew"
	case partitions < t.wanted:
		return "topic " + t.name + " has too few partitions"
	case t.min != 0 && t.inForce != t.min:
		return "topic " + t.name + " has another min.insync.replicas"
	}
	return ""
}

// tend asks for what is wanted, until it is so.
func (t *topic) tend() {
	if t.tending || t.unsettled() == "" {
		return
	}
	t.tending = true
	s := t.s
	s.after(s.between(2*time.Millisecond, 20*time.Millisecond), func() {
		t.tending = false
		t.ask()
		t.tend()
	})
}

// ask asks for the next thing.
func (t *topic) ask() {
	s := t.s
	life, partitions, leaving := t.there()
	e := controller.Event(nil)
	switch {
	case leaving:
	case life == 0:
		for _, n := range s.nodes {
			if s.truth.registered[n.id] == 0 {
				return
			}
		}
		e = controller.CreateTopic{Topic: t.name, Assignment: t.assignment(0), ID: t.id(t.life)}
		if t.min > 0 {
			e = controller.CreateTopic{Topic: t.name, Assignment: t.assignment(0), ID: t.id(t.life), Config: t.settings()}
		}
	case life != t.life:
		e = controller.DeleteTopic{Topic: t.name}
	case partitions < t.wanted:
		e = controller.AddPartitions{Topic: t.name, Partitions: t.wanted, Assignment: t.assignment(partitions)}
	case t.min != 0 && t.inForce != t.min:
		e = controller.SetConfig{Topic: t.name, Config: t.settings()}
	}
	if r := s.ruling(); e != nil && r.core != nil {
		r.ask(e, func(controller.Reply) {})
	}
}

func (t *topic) settings() map[string]string {
	return map[string]string{"min.insync.replicas": strconv.Itoa(t.min)}
}

// assignment is where the replicas are in the beginning: each node is the preferred leader of as many as any other, or one less.
func (t *topic) assignment(from int) (all [][]replica.NodeID) {
	s := t.s
	for n := from; n < t.wanted; n++ {
		nodes := make([]replica.NodeID, 0, s.Replicas)
		for i := range s.Replicas {
			nodes = append(nodes, replica.NodeID((n+i+t.index)%s.Nodes+1))
		}
		all = append(all, nodes)
	}
	return all
}

// remake has the topic deleted and made again.
func (t *topic) remake() {
	t.life++
	t.tend()
}

// grow has it get another partition.
func (t *topic) grow() {
	if t.wanted < 4 {
		t.wanted++
		t.tend()
	}
}

// require changes min.insync.replicas. From now on it may count.
func (t *topic) require(n int) {
	t.min = n
	t.floor = min(t.floor, n)
	t.tend()
}

// minISR is min.insync.replicas of a topic, as far as the node knows.
func (n *node) minISR(t *topic) int {
	if t.index < len(n.mins) {
		return t.minISR(n.mins[t.index].value)
	}
	return t.minISR(0)
}

// learn takes news of a topic's min.insync.replicas.
func (n *node) learn(t *topic, value int, revision int64) {
	for t.index >= len(n.mins) {
		n.mins = append(n.mins, setting{})
	}
	if m := &n.mins[t.index]; revision > m.revision {
		changed := m.value != value
		*m = setting{value, revision}
		for _, slot := range t.slots {
			if r := n.seats[slot].rep; changed && r != nil && r.p != nil {
				r.step(replica.Reconfigure{Config: r.config()})
			}
		}
	}
}

// setting is what a node knows of one.
type setting struct {
	value    int
	revision int64
}
