package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// ruled is a cluster of one partition under a controller of ours, in which all takes effect at once.
type ruled struct {
	t     *testing.T
	store *replica.MemStore
	core  *controller.Core
	rule  replica.Session
	now   time.Time
	lives map[int32]*ruledLife
	reply controller.Reply
}

type ruledLife struct {
	session replica.Session
	epoch   int64
	up      bool
}

var ruledPartition = log.TopicPartition{Topic: "t"}

func newRuled(t *testing.T, c RuleCourse) *ruled {
	ctx := context.Background()
	w := &ruled{t: t, store: replica.NewMemStore(), now: time.UnixMilli(1_700_000_000_000), lives: map[int32]*ruledLife{}}
	var err error
	w.rule, err = w.store.Session(ctx, time.Second)
	require.NoError(t, err)
	epoch, version, ok, err := controller.Claim(ctx, w.store, w.rule, 100, w.now)
	require.NoError(t, err)
	require.True(t, ok)
	w.core = controller.New(controller.Config{NoELR: !c.ELR, MinISR: c.MinISR, UncleanElection: c.Unclean, NoBalance: true})
	w.do(controller.Elected{Epoch: epoch, Version: version})
	return w
}

func (w *ruled) do(in controller.Event) {
	for todo := []controller.Event{in}; len(todo) > 0; todo = todo[1:] {
		for _, a := range w.core.Step(w.now, todo[0], nil) {
			switch a := a.(type) {
			case controller.Commit:
				versions, err := w.rule.Commit(context.Background(), a.Transaction)
				require.NoError(w.t, err)
				todo = append(todo, controller.Committed{Tag: a.Tag, Versions: versions})
			case controller.Reply:
				w.reply = a
			}
		}
	}
}

func (w *ruled) ask(e controller.Event) error {
	w.reply = controller.Reply{}
	w.do(e)
	return w.reply.Err
}

func (w *ruled) partition() controller.Partition {
	require.NoError(w.t, w.ask(controller.Describe{Topics: []string{"t"}}))
	return w.reply.Topics[0].Partitions[0]
}

// play does one step and answers Kafka's name of the refusal.
func (w *ruled) play(s RuleStep) string {
	ctx := context.Background()
	var err error
	switch s.Do {
	case "create":
		err = w.ask(controller.CreateTopic{Topic: "t", Assignment: [][]replica.NodeID{nodeIDs(s.To)}, ID: [16]byte{1}})
	case "up":
		w.down(s.Node)
		r := controller.Registration{Node: replica.NodeID(s.Node), PreviousEpoch: -1}
		life := w.lives[s.Node]
		if life != nil && s.Clean {
			r.PreviousEpoch = life.epoch
		}
		session, err := w.store.Session(ctx, time.Second)
		require.NoError(w.t, err)
		registered, err := controller.Register(ctx, w.store, session, r)
		require.NoError(w.t, err)
		w.lives[s.Node] = &ruledLife{session: session, epoch: registered.Epoch(), up: true}
		w.seen(s.Node)
	case "down":
		w.down(s.Node)
	case "stop":
		if life := w.lives[s.Node]; life != nil {
			err = w.ask(controller.ControlledShutdown{Node: replica.NodeID(s.Node), BrokerEpoch: life.epoch})
		}
	case "alter":
		p := w.partition()
		prop := replica.Proposal{ISR: nodeIDs(s.ISR), LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Recovering: s.Recovering}
		for _, id := range s.ISR {
			prop.BrokerEpochs = append(prop.BrokerEpochs, w.epoch(id))
		}
		err = w.ask(controller.AlterPartition{Node: replica.NodeID(s.Node), BrokerEpoch: w.epoch(s.Node), TopicID: [16]byte{1}, Partition: ruledPartition, Proposal: prop})
	case "elect":
		e := controller.Elect{Election: controller.ToLeader, Partitions: []log.TopicPartition{ruledPartition}}
		if s.Unclean {
			e.Election = controller.Uncleanly
		}
		if err = w.ask(e); err == nil {
			err = w.reply.Elections[0].Err
		}
	case "reassign":
		err = w.ask(controller.Reassign{Partition: ruledPartition, To: nodeIDs(s.To)})
	case "unclean":
		w.now = w.now.Add(6 * time.Minute)
		w.do(controller.Tick{})
	}
	var code replica.ErrorCode
	if err == nil {
		return ""
	}
	require.True(w.t, errors.As(err, &code), "%v", err)
	return code.String()
}

func (w *ruled) epoch(id int32) int64 {
	if life := w.lives[id]; life != nil {
		return life.epoch
	}
	return -1
}

func (w *ruled) down(id int32) {
	if life := w.lives[id]; life != nil && life.up {
		life.up = false
		w.store.Expire(life.session)
		w.seen(id)
	}
}

func (w *ruled) seen(id int32) {
	v, err := w.store.Get(context.Background(), controller.IDsPrefix+strconv.Itoa(int(id)))
	require.NoError(w.t, err)
	w.do(controller.Seen{Versioned: v})
}

// someStep is what may happen to a partition next, refusals among it.
func (w *ruled) someStep(r *rand.Rand) RuleStep {
	p := w.partition()
	nodes := []int32{1, 2, 3, 4, 5}
	node := nodes[r.IntN(len(nodes))]
	if p.Leader >= 0 && r.IntN(3) == 0 {
		node = int32(p.Leader)
	}
	replicas := plainIDs(p.Replicas, false)
	switch n := r.IntN(20); {
	case n < 6:
		return RuleStep{Do: "up", Node: node, Clean: r.IntN(3) > 0}
	case n < 9:
		return RuleStep{Do: "down", Node: node}
	case n < 10 && w.lives[node].up:
		return RuleStep{Do: "stop", Node: node}
	case n < 15 && p.Leader >= 0:
		s := RuleStep{Do: "alter", Node: int32(p.Leader), ISR: append(some(r, not(replicas, []int32{int32(p.Leader)}), 0.7), int32(p.Leader))}
		if p.Recovering && r.IntN(3) == 0 {
			s.Recovering, s.ISR = true, s.ISR[len(s.ISR)-1:]
		}
		if r.IntN(8) == 0 {
			s.Node, s.ISR = node, some(r, nodes, 0.4)
			if leader := int32(p.Leader); node == leader && !slices.Contains(s.ISR, leader) { // ours says so when its log has failed; no leader of Kafka's does
				s.ISR = append(s.ISR, leader)
			}
		}
		if p.Recovering || !equalJSON(plainIDs(nodeIDs(s.ISR), true), plainIDs(p.ISR, true)) { // no leader proposes what is
			return s
		}
		fallthrough
	case n < 16:
		return RuleStep{Do: "elect", Unclean: r.IntN(2) == 0}
	case n < 18:
		r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		to := nodes[:1+r.IntN(4)]
		if p.Reassigning() && (len(not(to, replicas)) == 0 || len(not(replicas, to)) == 0) {
			return RuleStep{Do: "reassign"} // Kafka would go on with the old list where the new one is empty
		}
		return RuleStep{Do: "reassign", To: to}
	case n < 19:
		return RuleStep{Do: "reassign"}
	}
	return RuleStep{Do: "unclean"}
}

// TestAControllerRulesAsKafkas plays what happens to a partition (nodes that come, die and stop, cleanly or not, proposals, elections,
// reassignments) through our Core and through the managers of the KRaft controller: after each step both have the same partition, or
// refused for the same reason.
func TestAControllerRulesAsKafkas(t *testing.T) {
	_, d := kafka(t)
	r := rand.New(rand.NewPCG(35, uint64(rounds(t, "PARTLOG_INTEROP_SEED", 5))))
	courses := make([]RuleCourse, rounds(t, "PARTLOG_INTEROP_COURSES", 150))
	type step struct {
		err   string
		after PartitionState
	}
	ours := make([][]step, len(courses))
	for i := range courses {
		c := RuleCourse{ELR: r.IntN(3) > 0, MinISR: 1 + r.IntN(3), Unclean: r.IntN(3) == 0}
		w := newRuled(t, c)
		add := func(s RuleStep) {
			c.Steps = append(c.Steps, s)
			err := w.play(s)
			after := PartitionState{}
			if len(c.Steps) > 5 {
				after = stateOfPartition(w.partition())
			}
			ours[i] = append(ours[i], step{err, after})
		}
		for id := range int32(5) {
			add(RuleStep{Do: "up", Node: id + 1})
		}
		nodes := []int32{1, 2, 3, 4, 5}
		r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		add(RuleStep{Do: "create", To: nodes[:1+r.IntN(4)]})
		for range 50 {
			add(w.someStep(r))
		}
		courses[i] = c
	}
	theirs, err := d.Rule(courses)
	require.NoError(t, err)
	refused, differ, left := map[string]int{}, 0, 0
	for i, c := range courses {
		for n, s := range c.Steps {
			if n < 5 {
				require.Empty(t, theirs[i][n].Error)
				continue
			}
			a, b := theirs[i][n], ours[i][n]
			if a.Error == "broken" {
				left++
				break
			}
			require.NotNil(t, a.Partition, "%s", a.Error)
			p, _ := kept(*a.Partition)
			want := stateOfPartition(p)
			if b.err != "" {
				refused[b.err]++
			}
			if a.Error != b.err || !equalJSON(want, b.after) {
				differ++
				if differ <= 6 {
					t.Errorf("course %d, ELR %v, min %d, unclean %v, step %d: %s\nbefore %s\nKafka  %s %s\nours   %s %s", i, c.ELR, c.MinISR, c.Unclean, n, brief(s),
						brief(ours[i][n-1].after), brief(want), a.Error, brief(b.after), b.err)
				}
				break
			}
			if len(want.ELR) < len(a.Partition.ELR) || len(want.LastKnownELR) < len(a.Partition.LastKnownELR) {
				left++
				break // from here on Kafka goes by nodes that have nothing to do with the partition
			}
		}
	}
	require.Zero(t, differ)
	t.Logf("%d courses, %d of them left early; refused: %v", len(courses), left, refused)
}

func brief(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(b)
}
