package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// rival is a controller whose messages to and from the store take any time, and which learns late or never that its
// session is over. Its writes do not go through the session: nothing but their guard keeps them from the store.
type rival struct {
	core    *Core
	session replica.Session
	epoch   int32
	outbox  []Commit    // not yet at the store
	inbox   []Committed // not yet back
	asked   map[uint64]AlterPartition
	since   map[uint64]int32 // by request: who ruled when it came
}

// rivals are several controllers over one store that are each told things at random.
type rivals struct {
	t       *rapid.T
	store   *replica.MemStore
	all     []*rival
	nodes   map[replica.NodeID]*life
	tag     uint64
	now     time.Time
	leaders map[string]replica.NodeID // who led in which epoch of which partition
	wins    int
	refused int
	answers int  // that change nothing or are granted
	guard   bool // writes carry their guard; without it the checks must fail
}

var topicName = "t"

func (w *rivals) state(n int) (Partition, int32, bool) {
	k := key{kind: stateKey, topic: topicName, partition: int32(n)}
	v, _ := w.store.Get(context.Background(), k.String())
	if v.Value == nil {
		return Partition{}, 0, false
	}
	return w.decode(v.Value)
}

func (w *rivals) decode(b []byte) (Partition, int32, bool) {
	_, p, err := decodeState(b)
	if err != nil {
		w.t.Fatalf("%s: %v", b, err)
	}
	var v stateValue
	if err := json.Unmarshal(b, &v); err != nil {
		w.t.Fatal(err)
	}
	return p, v.ControllerEpoch, true
}

func (w *rivals) step(r *rival, in Event) {
	for _, a := range r.core.Step(w.now, in, nil) {
		switch a := a.(type) {
		case Commit:
			r.outbox = append(r.outbox, a)
		case Reply:
			if ruled, ok := r.since[a.Tag]; ok && !errors.Is(a.Err, replica.NotController) && !errors.Is(a.Err, replica.RequestTimedOut) {
				w.answers++
				if r.epoch < ruled {
					w.t.Fatalf("the controller of epoch %d answered %v what it was asked in epoch %d", r.epoch, a.Err, ruled)
				}
			}
			if q, ok := r.asked[a.Tag]; ok && a.Err == nil {
				p, _, _ := w.state(int(q.Partition.Partition))
				if p.PartitionEpoch < a.Partition.PartitionEpoch || p.PartitionEpoch == a.Partition.PartitionEpoch && !p.equal(a.Partition) {
					w.t.Fatalf("the controller of epoch %d promised %+v, the store holds %+v", r.epoch, a.Partition, p)
				}
			}
		}
	}
}

// claim lets a controller take the rule if it is vacant, whatever it still believes.
func (w *rivals) claim(r *rival) {
	ctx := context.Background()
	session, _ := w.store.Session(ctx, time.Second)
	epoch, version, ok, err := Claim(ctx, w.store, session, replica.NodeID(len(w.all)), w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	if !ok {
		return
	}
	w.wins++
	keys, _ := w.store.List(ctx, "/")
	r.session, r.epoch = session, epoch
	w.step(r, Elected{Epoch: epoch, Version: version, Keys: keys})
}

// deliver lets a write reach the store and judges it.
func (w *rivals) deliver(r *rival) {
	ctx := context.Background()
	c := r.outbox[0]
	r.outbox = r.outbox[1:]
	before := make([]replica.Versioned, len(c.Transaction.Writes))
	for i, write := range c.Transaction.Writes {
		before[i], _ = w.store.Get(ctx, write.Key)
	}
	if !w.guard {
		c.Transaction.Guards = nil
	}
	versions, err := w.store.Commit(ctx, c.Transaction)
	r.inbox = append(r.inbox, Committed{c.Tag, versions, err})
	if err != nil {
		if !errors.Is(err, replica.ErrConflict) {
			w.t.Fatal(err)
		}
		w.refused++
		return
	}
	ruling, _ := w.store.Get(ctx, EpochKey)
	for i, write := range c.Transaction.Writes {
		k, _ := parseKey(write.Key)
		if k.kind != stateKey || write.Value == nil {
			continue
		}
		p, epoch, _ := w.decode(write.Value)
		if strconv.Itoa(int(epoch)) != string(ruling.Value) {
			w.t.Fatalf("the controller of epoch %d wrote %s in epoch %s", epoch, write.Key, ruling.Value)
		}
		id := fmt.Sprint(write.Key, " ", p.LeaderEpoch)
		if who, ok := w.leaders[id]; ok && who != p.Leader {
			w.t.Fatalf("%s: %d and %d", id, who, p.Leader)
		}
		w.leaders[id] = p.Leader
		if p.Leader != replica.NoNode && !slices.Contains(p.ISR, p.Leader) {
			w.t.Fatalf("the leader is not in sync: %+v", p)
		}
		if before[i].Value == nil {
			continue
		}
		q, old, _ := w.decode(before[i].Value)
		if p.PartitionEpoch <= q.PartitionEpoch || p.LeaderEpoch < q.LeaderEpoch || epoch < old || p.Leader != q.Leader && p.LeaderEpoch == q.LeaderEpoch {
			w.t.Fatalf("%s went from %+v to %+v", write.Key, q, p)
		}
	}
}

func (w *rivals) request(r *rival) {
	w.tag++
	p := rapid.IntRange(0, 1).Draw(w.t, "partition")
	tp := log.TopicPartition{Topic: topicName, Partition: int32(p)}
	node := replica.NodeID(rapid.IntRange(1, 3).Draw(w.t, "node"))
	life := w.nodes[node]
	if v, _ := w.store.Get(context.Background(), EpochKey); v.Value != nil {
		epoch, _ := strconv.Atoi(string(v.Value))
		r.since[w.tag] = int32(epoch)
	}
	switch rapid.IntRange(0, 6).Draw(w.t, "request") {
	case 0, 1, 2:
		s, _, ok := w.state(p)
		if !ok || s.Leader == replica.NoNode {
			return
		}
		leader := w.nodes[s.Leader]
		isr := union(ids{s.Leader}, ids{node})
		if rapid.Bool().Draw(w.t, "shrink") {
			isr = without(union(ids{s.Leader}, s.ISR), without(ids{node}, ids{s.Leader}))
		}
		q := AlterPartition{Tag: w.tag, Node: s.Leader, BrokerEpoch: leader.registered.Epoch(), TopicID: [16]byte{1}, Partition: tp,
			Proposal: replica.Proposal{ISR: isr, LeaderEpoch: s.LeaderEpoch, PartitionEpoch: s.PartitionEpoch}}
		r.asked[w.tag] = q
		w.step(r, q)
	case 3:
		w.step(r, Elect{Tag: w.tag, Election: ToLeader})
	case 4:
		w.step(r, Reassign{Tag: w.tag, Partition: tp, To: rapid.SampledFrom([]ids{{1, 2}, {2, 3}, {3, 1, 2}, nil}).Draw(w.t, "to")})
	case 5:
		w.step(r, ControlledShutdown{Tag: w.tag, Node: node, BrokerEpoch: life.registered.Epoch()})
	case 6:
		w.step(r, CreateTopic{Tag: w.tag, Topic: topicName, Assignment: [][]replica.NodeID{{1, 2, 3}, {2, 3, 1}}, ID: [16]byte{1}})
	}
}

// bounce ends a node's session, or starts it again.
func (w *rivals) bounce(id replica.NodeID) {
	ctx := context.Background()
	if life := w.nodes[id]; life != nil && !life.stopped {
		w.store.Expire(life.session)
		life.stopped = true
		return
	}
	session, _ := w.store.Session(ctx, time.Second)
	previous := int64(-1)
	if old := w.nodes[id]; old != nil && rapid.Bool().Draw(w.t, "clean") {
		previous = old.registered.Epoch()
	}
	registered, err := Register(ctx, w.store, session, Registration{Node: id, PreviousEpoch: previous})
	if err != nil {
		w.t.Fatal(err)
	}
	w.nodes[id] = &life{session: session, registered: registered}
}

func (w *rivals) play(steps int) {
	for id := range replica.NodeID(3) {
		w.bounce(id + 1)
	}
	first := w.all[0]
	w.claim(first)
	w.step(first, CreateTopic{Topic: topicName, Assignment: [][]replica.NodeID{{1, 2, 3}, {2, 3, 1}}, ID: [16]byte{1}})
	for len(first.outbox) > 0 {
		w.deliver(first)
		w.step(first, first.inbox[0])
		first.inbox = first.inbox[1:]
	}
	for range steps {
		r := w.all[rapid.IntRange(0, len(w.all)-1).Draw(w.t, "who")]
		switch rapid.IntRange(0, 9).Draw(w.t, "step") {
		case 0:
			w.claim(r)
		case 1:
			if r.session != nil {
				w.store.Expire(r.session) // and it does not know
			}
		case 2:
			node := replica.NodeID(rapid.IntRange(1, 3).Draw(w.t, "node"))
			w.bounce(node)
		case 3:
			v, _ := w.store.Get(context.Background(), IDsPrefix+strconv.Itoa(rapid.IntRange(1, 3).Draw(w.t, "node")))
			w.step(r, Seen{v})
		case 4:
			if len(r.inbox) > 0 {
				in := r.inbox[0]
				r.inbox = r.inbox[1:]
				if rapid.IntRange(0, 9).Draw(w.t, "lost") == 0 {
					in.Versions, in.Err = nil, errors.New("no answer")
				}
				w.step(r, in)
			}
		case 5, 6:
			if len(r.outbox) > 0 {
				w.deliver(r)
			}
		default:
			w.request(r)
		}
	}
}

func newRivals(t *rapid.T) *rivals {
	w := &rivals{t: t, store: replica.NewMemStore(), nodes: map[replica.NodeID]*life{}, now: time.UnixMilli(1e12), leaders: map[string]replica.NodeID{}, guard: true}
	for range 3 {
		w.all = append(w.all, &rival{core: New(Config{MinISR: 2}), asked: map[uint64]AlterPartition{}, since: map[uint64]int32{}})
	}
	return w
}

// However late the messages of controllers that each believe to rule arrive: only the last elected one writes, a leader
// epoch has one leader, epochs only grow, what a leader was promised is in the store, and nobody is granted or refused anything by
// one that did not rule any more when it was asked.
func TestOfSeveralControllersOneRules(t *testing.T) {
	runs, wins, refused, answers := 0, 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		w := newRivals(rt)
		w.play(rapid.IntRange(20, 150).Draw(rt, "steps"))
		runs++
		wins += w.wins
		refused += w.refused
		answers += w.answers
	})
	t.Logf("%d elections, %d transactions refused, %d answers", wins, refused, answers)
	if runs >= 20 && (wins < runs*3/2 || refused < runs/10 || answers < runs/20) {
		t.Errorf("too quiet: %d elections, %d transactions refused, %d answers", wins, refused, answers)
	}
}
