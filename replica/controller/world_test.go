package controller

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// world is a cluster's metadata with one controller, in which everything takes effect at once.
type world struct {
	t       testing.TB
	store   *replica.MemStore
	core    *Core
	now     time.Time
	rule    replica.Session
	nodes   map[replica.NodeID]*life
	news    []News // all that was announced
	damaged []Damaged
	replies map[uint64]Reply
	resigns int
	tag     uint64
	commits int // with writes
	checks  int // without
}

// life is a node from its start to its end.
type life struct {
	session    replica.Session
	registered *Registered
	stopped    bool // cleanly
}

func newWorld(t testing.TB, c Config, nodes ...replica.NodeID) *world {
	w := &world{t: t, store: replica.NewMemStore(), now: time.UnixMilli(1_700_000_000_000), nodes: map[replica.NodeID]*life{}}
	w.elect(c)
	for _, id := range nodes {
		w.start(id)
	}
	return w
}

// elect replaces the controller: the old one's claim ends and a new one takes over what the store holds.
func (w *world) elect(c Config) {
	ctx := context.Background()
	if w.rule != nil {
		require.NoError(w.t, w.rule.Close())
	}
	var err error
	w.rule, err = w.store.Session(ctx, time.Second)
	require.NoError(w.t, err)
	epoch, version, ok, err := Claim(ctx, w.store, w.rule, 100, w.now)
	require.NoError(w.t, err)
	require.True(w.t, ok)
	keys, err := w.store.List(ctx, "/")
	require.NoError(w.t, err)
	w.core = New(c)
	w.replies = map[uint64]Reply{}
	w.do(Elected{Epoch: epoch, Version: version, Keys: keys})
}

// do steps the core and carries out what it asks for.
func (w *world) do(in Event) {
	todo := []Event{in}
	for len(todo) > 0 {
		acts := w.core.Step(w.now, todo[0], nil)
		todo = todo[1:]
		for _, a := range acts {
			switch a := a.(type) {
			case Commit:
				if len(a.Transaction.Writes) > 0 {
					w.commits++
				} else {
					w.checks++
				}
				versions, err := w.rule.Commit(context.Background(), a.Transaction)
				todo = append(todo, Committed{a.Tag, versions, err})
			case Reply:
				w.replies[a.Tag] = a
			case Changed:
				w.news = append(w.news, a.News)
			case Damaged:
				w.damaged = append(w.damaged, a)
			case Resign:
				w.resigns++
			}
		}
	}
}

// ask makes a request and returns its answer, which must be there at once.
func (w *world) ask(make func(tag uint64) Event) Reply {
	w.t.Helper()
	w.tag++
	w.do(make(w.tag))
	r, ok := w.replies[w.tag]
	require.True(w.t, ok, "no answer")
	return r
}

func (w *world) seen(id replica.NodeID) {
	v, err := w.store.Get(context.Background(), IDsPrefix+strconv.Itoa(int(id)))
	require.NoError(w.t, err)
	w.do(Seen{v})
}

// start registers a node; how it stopped the last time decides whether it had a clean marker.
func (w *world) start(id replica.NodeID) { w.register(Registration{Node: id}) }

func (w *world) register(r Registration) {
	w.t.Helper()
	ctx := context.Background()
	r.PreviousEpoch = -1
	if old := w.nodes[r.Node]; old != nil && old.stopped {
		r.PreviousEpoch = old.registered.Epoch()
	}
	session, err := w.store.Session(ctx, time.Second)
	require.NoError(w.t, err)
	registered, err := Register(ctx, w.store, session, r)
	require.NoError(w.t, err)
	w.nodes[r.Node] = &life{session: session, registered: registered}
	w.seen(r.Node)
}

// die ends a node's session.
func (w *world) die(id replica.NodeID) {
	w.store.Expire(w.nodes[id].session)
	w.seen(id)
}

// stop stops a node cleanly.
func (w *world) stop(id replica.NodeID) {
	w.t.Helper()
	r := w.ask(func(tag uint64) Event { return ControlledShutdown{tag, id, w.epoch(id)} })
	require.NoError(w.t, r.Err)
	w.nodes[id].stopped = true
	w.die(id)
}

func (w *world) epoch(id replica.NodeID) int64 { return w.nodes[id].registered.Epoch() }

func (w *world) create(topic string, config map[string]string, assignment ...[]replica.NodeID) {
	w.t.Helper()
	id := [16]byte{}
	copy(id[:], topic)
	r := w.ask(func(tag uint64) Event {
		return CreateTopic{Tag: tag, Topic: topic, Assignment: assignment, Config: config, ID: id}
	})
	require.NoError(w.t, r.Err)
}

func (w *world) topic(name string) Topic {
	w.t.Helper()
	r := w.ask(func(tag uint64) Event { return Describe{tag, []string{name}} })
	require.NoError(w.t, r.Err)
	return r.Topics[0]
}

func (w *world) partition(name string) Partition {
	w.t.Helper()
	return w.topic(name).Partitions[0]
}

// propose is the leader's proposal with everything in order.
func (w *world) propose(topic string, isr ...replica.NodeID) AlterPartition {
	d := w.topic(topic)
	p := d.Partitions[0]
	prop := replica.Proposal{ISR: isr, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
	for _, id := range isr {
		epoch := int64(-1)
		if w.nodes[id] != nil {
			epoch = w.epoch(id)
		}
		prop.BrokerEpochs = append(prop.BrokerEpochs, epoch)
	}
	a := AlterPartition{Node: p.Leader, TopicID: d.ID, Partition: log.TopicPartition{Topic: topic}, Proposal: prop}
	if w.nodes[p.Leader] != nil {
		a.BrokerEpoch = w.epoch(p.Leader)
	}
	return a
}

func (w *world) alter(a AlterPartition) Reply {
	w.t.Helper()
	return w.ask(func(tag uint64) Event { a.Tag = tag; return a })
}

func (w *world) sync(topic string, isr ...replica.NodeID) {
	w.t.Helper()
	require.NoError(w.t, w.alter(w.propose(topic, isr...)).Err)
}

func (w *world) electOne(topic string, e Election) error {
	w.t.Helper()
	r := w.ask(func(tag uint64) Event { return Elect{tag, e, []log.TopicPartition{{Topic: topic}}} })
	require.NoError(w.t, r.Err)
	return r.Elections[0].Err
}

func (w *world) reassign(topic string, to ...replica.NodeID) error {
	w.t.Helper()
	return w.ask(func(tag uint64) Event { return Reassign{tag, log.TopicPartition{Topic: topic}, to} }).Err
}

func code(err error) string {
	var c replica.ErrorCode
	if err == nil {
		return replica.None.String()
	}
	if errors.As(err, &c) {
		return c.String()
	}
	return err.Error()
}
