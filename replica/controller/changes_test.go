package controller

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// A reassignment ends when the added replicas are in sync, though one that stays is not. Only where more go than come must all
// that stay be in sync.
func TestAMoveEndsWhenTheAddedReplicasAreInSync(t *testing.T) {
	for name, c := range map[string]struct {
		before      Partition
		replicas    ids // afterwards
		isr         ids
		leaderEpoch int32
	}{
		"one for one, another is down": {Partition{Leader: 1, Replicas: ids{4, 2, 1}, Adding: ids{4}, Removing: ids{1}, ISR: ids{1, 4}}, ids{4, 2}, ids{4}, 1},
		"one more, another is down":    {Partition{Leader: 1, Replicas: ids{1, 2, 4}, Adding: ids{4}, ISR: ids{1, 4}}, ids{1, 2, 4}, ids{1, 4}, 0},
		"one less, another is down":    {Partition{Leader: 1, Replicas: ids{1, 2, 4}, Removing: ids{4}, ISR: ids{1, 4}}, ids{1, 2, 4}, ids{1, 4}, 0},
		"two for one":                  {Partition{Leader: 1, Replicas: ids{1, 4, 2, 3}, Adding: ids{4}, Removing: ids{2, 3}, ISR: ids{4, 1, 2}}, ids{1, 4}, ids{4, 1}, 1},
		"the added one is not in sync": {Partition{Leader: 1, Replicas: ids{4, 2, 1}, Adding: ids{4}, Removing: ids{1}, ISR: ids{1, 2}}, ids{4, 2, 1}, ids{1, 2}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			q, changed := c.before.Change(Rules{Acceptable: func(replica.NodeID) bool { return true }, MinISR: 1}, Target{})
			ended := len(c.replicas) < len(c.before.Replicas) || name == "one more, another is down"
			require.Equal(t, ended, changed)
			require.Equal(t, !ended, q.Reassigning())
			require.Equal(t, c.replicas, q.Replicas)
			require.Equal(t, c.isr, q.ISR)
			require.Equal(t, c.leaderEpoch, q.LeaderEpoch)
		})
	}
}

// The last known leader is kept until another leads, whatever becomes of the in-sync set meanwhile.
func TestTheLastLeaderIsKnownUntilAnotherLeads(t *testing.T) {
	up := ids{}
	r := Rules{Acceptable: func(id replica.NodeID) bool { return slices.Contains(up, id) }, MinISR: 1, ELR: true}
	p, _ := Partition{Leader: 1, Replicas: ids{1, 2, 3}, ISR: ids{1, 2, 3}}.Change(r, Target{})
	require.Equal(t, replica.NoNode, p.Leader)
	require.Equal(t, ids{1}, p.LastKnownELR)
	p, _ = p.Change(r, Target{ISR: ids{2, 3}})
	require.Equal(t, ids{1}, p.LastKnownELR)
	up = ids{3}
	p, _ = p.Change(r, Target{})
	require.Equal(t, replica.NodeID(3), p.Leader)
	require.Empty(t, p.LastKnownELR)
}

// Whatever happens to a partition: the leader is in sync and a replica, sets are sets, epochs only grow, a leader epoch has
// one leader, and a leader that was elected cleanly was in sync or eligible.
func TestChangesKeepAPartitionSound(t *testing.T) {
	node := rapid.Int32Range(1, 6)
	nodes := func(rt *rapid.T, label string, least int) ids {
		var out ids
		for _, id := range rapid.SliceOfNDistinct(node, least, 6, rapid.ID[int32]).Draw(rt, label) {
			out = append(out, replica.NodeID(id))
		}
		return out
	}
	rapid.Check(t, func(rt *rapid.T) {
		replicas := nodes(rt, "replicas", 1)
		p := Partition{Leader: replicas[0], Replicas: replicas, ISR: replicas}
		elr := rapid.Bool().Draw(rt, "elr")
		for range rapid.IntRange(1, 40).Draw(rt, "changes") {
			up := nodes(rt, "up", 0)
			r := Rules{
				Election:   rapid.SampledFrom([]Election{Online, Online, ToLeader, Uncleanly}).Draw(rt, "election"),
				Acceptable: func(id replica.NodeID) bool { return slices.Contains(up, id) },
				MinISR:     rapid.IntRange(1, 3).Draw(rt, "min"), ELR: elr,
			}
			var target Target
			switch rapid.IntRange(0, 4).Draw(rt, "what") {
			case 0: // the leader's proposal
				if p.Leader != replica.NoNode {
					isr := without(nodes(rt, "isr", 0), without(ids{1, 2, 3, 4, 5, 6}, p.Replicas))
					target = Target{ISR: union(ids{p.Leader}, isr), Recovered: true}
				}
			case 1: // nodes go
				target.ISR = without(p.ISR, nodes(rt, "gone", 0))
			case 2: // or come back having lost what they had
				r.Unclean = nodes(rt, "unclean", 0)
				target.ISR = without(p.ISR, r.Unclean)
			case 3:
				to := nodes(rt, "to", 1)
				target = Target{Replicas: union(to, without(p.Replicas, to)), Adding: without(to, p.Replicas), Removing: without(p.Replicas, to)}
			}
			q, changed := p.Change(r, target)
			wrong := func(what string) {
				rt.Fatalf("%s:\n%+v became\n%+v\nby %+v, up %v, %v, min %d, elr %v", what, p, q, target, up, r.Election, r.MinISR, elr)
			}
			switch {
			case changed != (q.PartitionEpoch == p.PartitionEpoch+1) || !changed && q.PartitionEpoch != p.PartitionEpoch:
				wrong("the partition epoch does not count changes")
			case q.LeaderEpoch < p.LeaderEpoch || q.LeaderEpoch > p.LeaderEpoch+1:
				wrong("the leader epoch went astray")
			case q.Leader != p.Leader && q.LeaderEpoch == p.LeaderEpoch:
				wrong("two leaders in an epoch")
			case q.Leader != replica.NoNode && !slices.Contains(q.Replicas, q.Leader):
				wrong("the leader is no replica")
			case q.Leader != p.Leader && q.Leader != replica.NoNode && !slices.Contains(q.ISR, q.Leader):
				wrong("the leader is not in sync")
			case !distinct(q.Replicas) || !distinct(q.ISR) || !distinct(q.ELR) || len(q.LastKnownELR) > 1:
				wrong("somebody is there twice")
			case !containsAll(q.Replicas, q.ISR) || !containsAll(q.Replicas, q.ELR):
				wrong("in sync or eligible without being a replica")
			case len(without(q.ELR, q.ISR)) != len(q.ELR):
				wrong("in sync and eligible")
			case !elr && (len(q.ELR) > 0 || len(q.LastKnownELR) > 0 || len(q.ISR) == 0):
				wrong("something that only ELR can bring about")
			case q.Leader != p.Leader && q.Leader != replica.NoNode && !q.Recovering && !slices.Contains(union(p.ISR, p.ELR), q.Leader) && !slices.Contains(target.ISR, q.Leader):
				wrong("a clean leader from nowhere")
			case q.Leader != p.Leader && q.Leader != replica.NoNode && !r.Acceptable(q.Leader):
				wrong("a leader that is not there")
			}
			p = q
		}
	})
}

// A successor that loads what was written knows what the predecessor knew.
func TestTheStoreHoldsAllTheCoreKnows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, Config{MinISR: 2, NoELR: rapid.IntRange(0, 3).Draw(rt, "elr") == 0}, 1, 2, 3, 4)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			id := replica.NodeID(rapid.IntRange(1, 4).Draw(rt, "node"))
			topic := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "topic")
			tp := log.TopicPartition{Topic: topic, Partition: int32(rapid.IntRange(0, 2).Draw(rt, "partition"))}
			switch rapid.IntRange(0, 8).Draw(rt, "step") {
			case 0:
				if w.core.active(id) {
					w.die(id)
				}
			case 1:
				if w.core.active(id) {
					w.stop(id)
				}
			case 2:
				if !w.core.active(id) {
					w.start(id)
				}
			case 3, 4:
				w.placed(CreateTopic{Topic: topic, Partitions: rapid.IntRange(1, 3).Draw(rt, "partitions"),
					ReplicationFactor: rapid.IntRange(1, 4).Draw(rt, "factor"), Seed: rapid.Uint64().Draw(rt, "seed")})
			case 5:
				w.ask(func(tag uint64) Event { return DeleteTopic{tag, topic} })
			case 6:
				to := rapid.SampledFrom([]ids{{1, 2}, {2, 3, 4}, {4, 1}, {3}, nil}).Draw(rt, "to")
				w.ask(func(tag uint64) Event { return Reassign{tag, tp, to} })
			case 7:
				w.ask(func(tag uint64) Event {
					return Elect{tag, rapid.SampledFrom([]Election{ToLeader, Uncleanly}).Draw(rt, "election"), []log.TopicPartition{tp}}
				})
			case 8:
				for _, d := range w.ask(func(tag uint64) Event { return Describe{Tag: tag} }).Topics {
					if p := d.Partitions[0]; p.Leader != replica.NoNode {
						isr := slices.DeleteFunc(union(ids{p.Leader}, without(p.Replicas, ids{p.Leader, id})), func(n replica.NodeID) bool { return !w.core.active(n) })
						w.alter(w.propose(d.Name, isr...))
					}
				}
			}
		}
		describe := func() string {
			return fmt.Sprint(w.ask(func(tag uint64) Event { return Describe{Tag: tag} }).Topics, w.core.brokers)
		}
		before, commits := describe(), w.commits
		w.elect(w.core.config)
		if after := describe(); after != before || w.commits != commits || len(w.damaged) > 0 || w.resigns > 0 {
			rt.Fatalf("%d more commits, damaged %v, %d resigns:\n%s\n%s", w.commits-commits, w.damaged, w.resigns, before, after)
		}
	})
}

// Nothing in the store can hurt: what is accepted is written back as it was read.
func FuzzValuesOfTheStore(f *testing.F) {
	f.Add(encodeState(3, [16]byte{1}, Partition{Leader: 1, LeaderEpoch: 2, PartitionEpoch: 3, Replicas: ids{1, 2, 3}, ISR: ids{1},
		ELR: ids{2}, LastKnownELR: ids{1}, Adding: ids{3}, Removing: ids{2}, Recovering: true}))
	f.Add(encodeTopic([16]byte{2}, []partition{{Partition: Partition{Replicas: ids{1, 2}, Adding: ids{2}}}}))
	f.Add([]byte(`{"version":1,"broker_epoch":7,"rack":"a","fenced":true}`))
	f.Add([]byte(`{"version":1,"config":{"min.insync.replicas":"2"}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if id, p, err := decodeState(b); err == nil {
			id2, q, err := decodeState(encodeState(0, id, p))
			require.NoError(t, err)
			require.Equal(t, id, id2)
			require.True(t, p.equal(q) && p.PartitionEpoch == q.PartitionEpoch)
		}
		if id, list, err := decodeTopic(b); err == nil {
			var partitions []partition
			for _, p := range list {
				partitions = append(partitions, partition{Partition: p})
			}
			again := encodeTopic(id, partitions)
			_, list2, err := decodeTopic(again)
			require.NoError(t, err)
			require.Len(t, list2, len(list))
			require.True(t, bytes.Contains(again, []byte(encodeID(id))))
		}
		// A core that begins with it does as well as it can.
		c := New(Config{})
		keys := []replica.Versioned{{Key: "/brokers/registrations/1", Value: []byte(`{"broker_epoch":1}`), Version: 1}}
		for _, k := range []string{"/brokers/topics/t", "/brokers/topics/t/partitions/0/state", "/config/topics/t", "/brokers/registrations/2", "/brokers/ids/1"} {
			keys = append(keys, replica.Versioned{Key: k, Value: b, Version: 1, Created: 2})
		}
		for _, e := range []Event{Elected{1, 1, keys}, Describe{}, Reassign{Partition: log.TopicPartition{Topic: "t"}, To: ids{1}}, Tick{}, Deposed{}} {
			c.Step(time.UnixMilli(0), e, nil)
		}
	})
}
