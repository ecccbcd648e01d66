package controller

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// Scenario: Z007. A new leader and a replica taken away are new leader epochs; a larger or smaller in-sync set is none.
func TestWhatBeginsALeaderEpoch(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2, 3, 4)
	w.create("t", nil, ids{1, 2, 3})
	epochs := func(leader, partition int32, what string) {
		t.Helper()
		p := w.partition("t")
		require.Equal(t, [2]int32{leader, partition}, [2]int32{p.LeaderEpoch, p.PartitionEpoch}, what)
	}
	epochs(0, 0, "created")
	w.sync("t", 1, 2)
	epochs(0, 1, "shrunk")
	w.sync("t", 1, 2, 3)
	epochs(0, 2, "grown")
	w.sync("t", 3, 2, 1)
	epochs(0, 2, "nothing new")
	require.NoError(t, w.reassign("t", 1, 2, 4))
	epochs(0, 3, "a move begins")
	w.sync("t", 1, 2, 3, 4)
	epochs(1, 4, "3 was taken away, 1 leads on")
	require.NoError(t, w.reassign("t", 2, 1, 4))
	epochs(1, 5, "another order")
	require.NoError(t, w.electOne("t", ToLeader))
	epochs(2, 6, "2 leads")
	w.die(2)
	epochs(3, 7, "1 leads")
	require.NoError(t, w.reassign("t", 2, 1, 3))
	require.NoError(t, w.reassign("t"))
	epochs(4, 9, "3 is taken away again")
	require.Equal(t, ids{2, 1, 4}, w.partition("t").Replicas)
}

// Scenario: Z008. Eligible leader replicas: who comes in, who goes out, who may lead.
func TestEligibleLeaderReplicas(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2, 3, 4)
	w.create("t", map[string]string{minISRKey: "2"}, ids{1, 2, 3, 4})
	w.sync("t", 1, 2)
	require.Empty(t, w.partition("t").ELR, "who leaves while enough stay is not eligible")
	w.sync("t", 1)
	require.Equal(t, ids{2}, w.partition("t").ELR)
	w.sync("t", 1, 3)
	require.Empty(t, w.partition("t").ELR, "enough are in sync again")
	w.sync("t", 1)
	require.Equal(t, ids{3}, w.partition("t").ELR)
	w.die(2)
	w.die(3)
	require.Equal(t, ids{3}, w.partition("t").ELR, "whoever is away keeps what it has")
	w.die(1)
	p := w.partition("t")
	require.Equal(t, []any{replica.NoNode, ids{}, ids{1, 3}, ids{1}}, []any{p.Leader, append(ids{}, p.ISR...), p.ELR, p.LastKnownELR})
	w.start(2)
	require.Equal(t, replica.NoNode, w.partition("t").Leader, "who left earlier does not lead")
	w.start(3) // after an unclean stop
	require.Equal(t, ids{1}, w.partition("t").ELR)
	require.Equal(t, replica.NoNode, w.partition("t").Leader)
	w.nodes[1].stopped = true // it has lost nothing
	w.start(1)
	p = w.partition("t")
	require.Equal(t, []any{replica.NodeID(1), ids{1}, ids{}, false}, []any{p.Leader, p.ISR, append(ids{}, p.ELR...), p.Recovering})
	require.Empty(t, p.LastKnownELR)
}

// Scenario: Z008. The last member dies and comes back having lost what it had not synced: nobody is eligible, it leads uncleanly.
func TestTheLastKnownLeaderLeadsUncleanly(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2)
	w.create("t", nil, ids{1, 2})
	w.die(2)
	w.die(1)
	w.start(2)
	require.Equal(t, replica.NoNode, w.partition("t").Leader)
	w.start(1)
	p := w.partition("t")
	require.Equal(t, []any{replica.NodeID(1), ids{1}, true}, []any{p.Leader, p.ISR, p.Recovering})
	require.Empty(t, p.LastKnownELR)
	w.sync("t", 1, 2)
	require.False(t, w.partition("t").Recovering)
}

// Without eligible leader replicas the last member stays recorded, and nobody else leads.
func TestWithoutELRTheLastMemberStays(t *testing.T) {
	w := newWorld(t, Config{NoELR: true}, 1, 2)
	w.create("t", nil, ids{1, 2})
	w.die(2)
	w.die(1)
	p := w.partition("t")
	require.Equal(t, []any{replica.NoNode, ids{1}, 0, 0}, []any{p.Leader, p.ISR, len(p.ELR), len(p.LastKnownELR)})
	w.start(2)
	require.Equal(t, replica.NoNode, w.partition("t").Leader)
	w.start(1)
	require.Equal(t, replica.NodeID(1), w.partition("t").Leader)
}

func TestChangingMinISREmptiesELRs(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2, 3)
	w.create("t", map[string]string{minISRKey: "3"}, ids{1, 2, 3})
	w.sync("t", 1, 2)
	require.Equal(t, ids{3}, w.partition("t").ELR)
	set := func(config map[string]string) error {
		return w.ask(func(tag uint64) Event { return SetConfig{tag, "t", config} }).Err
	}
	require.NoError(t, set(map[string]string{minISRKey: "3", "retention.ms": "1"}))
	require.Equal(t, ids{3}, w.partition("t").ELR)
	require.NoError(t, set(map[string]string{minISRKey: "2"}))
	require.Empty(t, w.partition("t").ELR)
	require.Equal(t, "INVALID_CONFIG", code(set(map[string]string{minISRKey: "0"})))
	require.Equal(t, "INVALID_CONFIG", code(set(map[string]string{uncleanKey: "perhaps"})))
}

// While nobody leads, the last known leader is forgotten, too: who leads next is decided by hand. A default that is said again is a
// change as well.
func TestChangingMinISRForgetsTheLastKnownLeader(t *testing.T) {
	w := newWorld(t, Config{MinISR: 2}, 1, 2)
	w.create("t", map[string]string{}, ids{1, 2})
	w.die(2)
	w.die(1)
	p := w.partition("t")
	require.Equal(t, []any{replica.NoNode, ids{1, 2}, ids{1}}, []any{p.Leader, slices.Sorted(slices.Values(p.ELR)), p.LastKnownELR})
	require.NoError(t, w.ask(func(tag uint64) Event { return SetConfig{tag, "t", map[string]string{minISRKey: "2"}} }).Err)
	q := w.partition("t")
	require.Equal(t, []int{0, 0}, []int{len(q.ELR), len(q.LastKnownELR)})
	require.Equal(t, p.PartitionEpoch+1, q.PartitionEpoch)
	w.start(1)
	w.start(2)
	require.Equal(t, replica.NoNode, w.partition("t").Leader)
	require.NoError(t, w.electOne("t", Uncleanly))
	require.Equal(t, replica.NodeID(1), w.partition("t").Leader)
}

// What a leader may not propose, and what it is told.
//
// Report: B126.
func TestProposalsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		what, want string
		change     func(w *world, a *AlterPartition)
	}{
		{"nothing wrong", "NONE", func(*world, *AlterPartition) {}},
		{"members that never fetched", "NONE", func(_ *world, a *AlterPartition) { a.Proposal.BrokerEpochs = []int64{-1, -1, -1} }},
		{"no broker epochs at all", "NONE", func(_ *world, a *AlterPartition) { a.Proposal.BrokerEpochs = nil }},
		{"a leader of an earlier life", "STALE_BROKER_EPOCH", func(_ *world, a *AlterPartition) { a.BrokerEpoch-- }},
		{"a leader that never registered", "STALE_BROKER_EPOCH", func(_ *world, a *AlterPartition) { a.Node = 77 }},
		{"an unknown topic id", "UNKNOWN_TOPIC_ID", func(_ *world, a *AlterPartition) { a.TopicID[15]++ }},
		{"another topic's id", "INCONSISTENT_TOPIC_ID", func(_ *world, a *AlterPartition) { a.Partition.Topic = "x" }},
		{"an unknown partition", "UNKNOWN_TOPIC_OR_PARTITION", func(_ *world, a *AlterPartition) { a.Partition.Partition = 1 }},
		{"a negative partition", "UNKNOWN_TOPIC_OR_PARTITION", func(_ *world, a *AlterPartition) { a.Partition.Partition = -1 }},
		{"a leader epoch to come", "NOT_CONTROLLER", func(_ *world, a *AlterPartition) { a.Proposal.LeaderEpoch++ }},
		{"a partition epoch to come", "NOT_CONTROLLER", func(_ *world, a *AlterPartition) { a.Proposal.PartitionEpoch++ }},
		{"an old leader epoch", "FENCED_LEADER_EPOCH", func(_ *world, a *AlterPartition) { a.Proposal.LeaderEpoch-- }},
		{"an old partition epoch", "INVALID_UPDATE_VERSION", func(_ *world, a *AlterPartition) { a.Proposal.PartitionEpoch-- }},
		{"not the leader", "INVALID_REQUEST", func(w *world, a *AlterPartition) { a.Node, a.BrokerEpoch = 3, w.epoch(3) }},
		{"nobody in sync", "INVALID_REQUEST", func(_ *world, a *AlterPartition) { a.Proposal.ISR, a.Proposal.BrokerEpochs = ids{}, nil }},
		{"a member twice", "INVALID_REQUEST", func(_ *world, a *AlterPartition) { a.Proposal.ISR = ids{2, 3, 3} }},
		{"a member that is no replica", "INVALID_REQUEST", func(_ *world, a *AlterPartition) { a.Proposal.ISR = ids{2, 3, 4} }},
		{"without the leader", "INVALID_REQUEST", func(_ *world, a *AlterPartition) { a.Proposal.ISR, a.Proposal.BrokerEpochs = ids{3, 1}, nil }},
		{"too few broker epochs", "INVALID_REQUEST", func(_ *world, a *AlterPartition) { a.Proposal.BrokerEpochs = []int64{-1} }},
		{"recovering with followers", "INVALID_REQUEST", func(_ *world, a *AlterPartition) { a.Proposal.Recovering = true }},
		{"recovering again", "INVALID_REQUEST", func(_ *world, a *AlterPartition) {
			a.Proposal = replica.Proposal{ISR: ids{2}, LeaderEpoch: 1, PartitionEpoch: 2, Recovering: true}
		}},
		{"a member of an earlier life", "INELIGIBLE_REPLICA", func(w *world, a *AlterPartition) { a.Proposal.BrokerEpochs[2] = w.epoch(1) - 1 }},
		{"a fenced member", "INELIGIBLE_REPLICA", func(w *world, _ *AlterPartition) { w.die(1) }},
		{"a member that stops", "INELIGIBLE_REPLICA", func(w *world, _ *AlterPartition) {
			w.ask(func(tag uint64) Event { return ControlledShutdown{tag, 1, w.epoch(1)} })
		}},
	} {
		w := newWorld(t, Config{}, 1, 2, 3, 4)
		w.create("t", nil, ids{1, 2, 3})
		w.die(1)       // 2 leads in epoch 1
		w.sync("t", 2) // and is alone at partition epoch 2
		w.start(1)
		a := w.propose("t", 2, 3, 1)
		before := w.partition("t")
		c.change(w, &a)
		r := w.alter(a)
		require.Equal(t, c.want, code(r.Err), c.what)
		if r.Err != nil {
			require.Equal(t, before, w.partition("t"), c.what)
		} else {
			require.Equal(t, int32(3), r.Partition.PartitionEpoch, c.what)
		}
	}
}

// The leader's own proposal ends the move and its leadership.
func TestAProposalThatCompletesAMoveMayElectAnother(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2, 3, 4)
	w.create("t", nil, ids{1, 2})
	require.NoError(t, w.reassign("t", 3, 4))
	r := w.ask(func(tag uint64) Event { return ListReassignments{tag} })
	require.Equal(t, []Reassignment{{log.TopicPartition{Topic: "t"}, ids{3, 4, 1, 2}, ids{3, 4}, ids{1, 2}}}, r.Moves)
	w.sync("t", 1, 2, 3)
	require.True(t, w.partition("t").Reassigning(), "4 is not in sync yet")
	require.Equal(t, "NEW_LEADER_ELECTED", code(w.alter(w.propose("t", 1, 2, 3, 4)).Err))
	p := w.partition("t")
	require.Equal(t, []any{replica.NodeID(3), ids{3, 4}, ids{3, 4}, int32(1)}, []any{p.Leader, p.Replicas, p.ISR, p.LeaderEpoch})
	require.Empty(t, w.ask(func(tag uint64) Event { return ListReassignments{tag} }).Moves)
}

func TestMovesThatAreRefused(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2, 3, 4, 5)
	w.create("t", nil, ids{1, 2, 3})
	require.Equal(t, "NO_REASSIGNMENT_IN_PROGRESS", code(w.reassign("t")))
	require.Equal(t, "INVALID_REPLICA_ASSIGNMENT", code(w.reassign("t", 1, 1)))
	require.Equal(t, "INVALID_REPLICA_ASSIGNMENT", code(w.reassign("t", 1, 9)))
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", code(w.reassign("x", 1)))
	require.NoError(t, w.reassign("t", 1, 2, 3))
	require.Equal(t, int32(0), w.partition("t").PartitionEpoch, "it is so already")

	// The cancelled move leaves its order behind.
	require.NoError(t, w.reassign("t", 4, 2))
	require.Equal(t, ids{4, 2, 1, 3}, w.partition("t").Replicas)
	require.NoError(t, w.reassign("t"))
	require.Equal(t, ids{2, 1, 3}, w.partition("t").Replicas)

	// Only an added replica is left in sync: cancelling would lose records.
	require.NoError(t, w.reassign("t", 4, 5))
	w.sync("t", 1, 2, 3, 4)
	for _, id := range (ids{1, 2, 3}) {
		w.die(id)
	}
	require.Equal(t, ids{4}, w.partition("t").ISR)
	require.Equal(t, "INVALID_REPLICA_ASSIGNMENT", code(w.reassign("t")))
	require.NoError(t, w.ask(func(tag uint64) Event { return SetConfig{tag, "t", map[string]string{uncleanKey: "true"}} }).Err)
	w.start(2)
	require.NoError(t, w.reassign("t"))
	p := w.partition("t")
	require.Equal(t, []any{replica.NodeID(2), ids{2}, ids{1, 2, 3}, true}, []any{p.Leader, p.ISR, p.Replicas, p.Recovering})
}

// Where records may be lost a cancelled move leaves nobody in sync who is no replica, and where not it is refused while nobody else
// is in sync, also if nobody at all is.
func TestACancelledMoveLeavesOnlyReplicasInSync(t *testing.T) {
	for _, noELR := range []bool{false, true} {
		w := newWorld(t, Config{NoELR: noELR}, 1, 2, 4)
		w.create("t", nil, ids{1, 2})
		require.NoError(t, w.reassign("t", 4))
		w.sync("t", 1, 2)
		require.NoError(t, w.ask(func(tag uint64) Event { return SetConfig{tag, "t", map[string]string{uncleanKey: "true"}} }).Err)
		for _, id := range (ids{1, 2}) {
			w.die(id)
		}
		require.NoError(t, w.reassign("t"))
		p := w.partition("t")
		require.Equal(t, ids{1, 2}, p.Replicas)
		require.True(t, containsAll(p.Replicas, p.ISR), "%+v", p)
	}

	w := newWorld(t, Config{}, 1, 4)
	w.create("t", nil, ids{1})
	w.die(1)
	require.Equal(t, ids{1}, w.partition("t").ELR)
	require.NoError(t, w.reassign("t", 4))
	require.Equal(t, "INVALID_REPLICA_ASSIGNMENT", code(w.reassign("t")))
	w.start(1)
}

// A move does not by itself elect a leader that may lack records, also where such elections are allowed.
func TestTheBeginningOfAMoveElectsNobodyUncleanly(t *testing.T) {
	w := newWorld(t, Config{UncleanElection: true}, 1, 4)
	w.create("t", nil, ids{1})
	w.die(1)
	require.NoError(t, w.reassign("t", 1, 4))
	require.Equal(t, replica.NoNode, w.partition("t").Leader)
}

func TestElectionsByHand(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2)
	w.create("t", nil, ids{1, 2})
	require.Equal(t, "ELECTION_NOT_NEEDED", code(w.electOne("t", ToLeader)))
	require.Equal(t, "ELECTION_NOT_NEEDED", code(w.electOne("t", Uncleanly)))
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", code(w.electOne("x", ToLeader)))
	require.Equal(t, "INVALID_REQUEST", code(w.ask(func(tag uint64) Event { return Elect{Tag: tag} }).Err))
	w.die(1)
	require.Equal(t, "PREFERRED_LEADER_NOT_AVAILABLE", code(w.electOne("t", ToLeader)))
	w.die(2)
	require.Equal(t, "ELIGIBLE_LEADERS_NOT_AVAILABLE", code(w.electOne("t", Uncleanly)))
	w.start(1)
	require.Equal(t, replica.NoNode, w.partition("t").Leader)
	all := w.ask(func(tag uint64) Event { return Elect{Tag: tag, Election: Uncleanly} })
	require.Equal(t, []ElectionResult{{Partition: log.TopicPartition{Topic: "t"}}}, all.Elections)
	p := w.partition("t")
	require.Equal(t, []any{replica.NodeID(1), ids{1}, true}, []any{p.Leader, p.ISR, p.Recovering})
	require.Empty(t, w.ask(func(tag uint64) Event { return Elect{Tag: tag, Election: Uncleanly} }).Elections)
}

// Where elections may be unclean the clean one comes first all the same: replicas 3, 1, 2, of which only 2 is in sync.
//
// Report: B125.
func TestALiveMemberIsPreferredWhereUncleanElectionsAreAllowed(t *testing.T) {
	for _, c := range []struct {
		unclean  string
		live     ids
		leader   replica.NodeID
		isr      ids
		recovers bool
	}{
		{"true", ids{3, 2}, 2, ids{2}, false},
		{"true", ids{3}, 3, ids{3}, true},
		{"false", ids{3}, replica.NoNode, nil, false},
	} {
		w := newWorld(t, Config{}, 1, 2, 3)
		w.create("t", map[string]string{uncleanKey: c.unclean}, ids{3, 1, 2})
		w.die(3)
		w.sync("t", 1, 2)
		w.die(1)
		require.Equal(t, []any{replica.NodeID(2), ids{2}}, []any{w.partition("t").Leader, w.partition("t").ISR})
		w.start(3) // and lives, out of sync
		w.start(1)
		w.die(1)
		if !slices.Contains(c.live, 2) {
			w.die(2)
		}
		p := w.partition("t")
		require.Equal(t, c.leader, p.Leader, "%+v", c)
		require.Equal(t, c.recovers, p.Recovering, "%+v", c)
		if c.isr != nil {
			require.Equal(t, c.isr, p.ISR, "%+v", c)
		}
	}
}

// unclean.leader.election.enable: at once when the topic has it, and every five minutes for what is left.
func TestUncleanElectionsThatAreAllowed(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2)
	w.create("t", map[string]string{uncleanKey: "true"}, ids{1, 2})
	w.create("u", nil, ids{1, 2})
	for _, topic := range []string{"t", "u"} {
		w.sync(topic, 1)
	}
	w.die(1)
	require.Equal(t, replica.NodeID(2), w.partition("t").Leader)
	require.True(t, w.partition("t").Recovering)
	require.Equal(t, replica.NoNode, w.partition("u").Leader)
	require.NoError(t, w.ask(func(tag uint64) Event { return SetConfig{tag, "u", map[string]string{uncleanKey: "true"}} }).Err)
	w.do(Tick{})
	require.Equal(t, replica.NoNode, w.partition("u").Leader)
	w.now = w.now.Add(5 * time.Minute)
	w.do(Tick{})
	require.Equal(t, replica.NodeID(2), w.partition("u").Leader)
}

// One leader of ten away is not more than ten percent, two are; whoever is not in sync waits.
func TestLeadersGoHomeByTheClassicRule(t *testing.T) {
	for _, c := range []struct {
		what   string
		config Config
		away   int
		home   bool
	}{
		{"ten percent", Config{}, 1, false},
		{"twenty percent", Config{}, 2, true},
		{"any", Config{ImbalancePercent: EveryImbalance}, 1, true},
		{"half and less", Config{ImbalancePercent: 50}, 5, false},
		{"more than half", Config{ImbalancePercent: 50}, 6, true},
		{"never", Config{NoBalance: true}, 10, false},
	} {
		w := newWorld(t, c.config, 1, 2)
		lists := make([][]replica.NodeID, 10)
		for i := range lists {
			lists[i] = ids{1, 2}
		}
		w.create("t", nil, lists...)
		for n := range c.away { // 2 leads some
			tp := log.TopicPartition{Topic: "t", Partition: int32(n)}
			w.ask(func(tag uint64) Event { return Reassign{tag, tp, ids{2, 1}} })
			w.ask(func(tag uint64) Event { return Elect{tag, ToLeader, []log.TopicPartition{tp}} })
			w.ask(func(tag uint64) Event { return Reassign{tag, tp, ids{1, 2}} })
		}
		away := func() (n int) {
			for _, p := range w.topic("t").Partitions {
				if p.Leader == 2 {
					n++
				}
			}
			return n
		}
		require.Equal(t, c.away, away(), c.what)
		w.now = w.now.Add(299 * time.Second)
		w.do(Tick{})
		require.Equal(t, c.away, away(), c.what)
		w.now = w.now.Add(time.Second)
		w.do(Tick{})
		if c.home {
			require.Zero(t, away(), c.what)
		} else {
			require.Equal(t, c.away, away(), c.what)
		}
	}
}

// A node that hands over leaves no gap; the last one stops all the same.
func TestControlledShutdownMovesLeadersFirst(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2, 3)
	w.create("t", nil, ids{1, 2, 3})
	require.Equal(t, "STALE_BROKER_EPOCH", code(w.ask(func(tag uint64) Event { return ControlledShutdown{tag, 1, 1} }).Err))
	w.stop(1)
	p := w.partition("t")
	require.Equal(t, []any{replica.NodeID(2), ids{2, 3}, int32(1), int32(1)}, []any{p.Leader, p.ISR, p.LeaderEpoch, p.PartitionEpoch})
	w.start(1)
	require.True(t, w.core.active(1))
	w.sync("t", 1, 2, 3)
}

func TestANodeThatIsNotReadyLeadsNothing(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2)
	w.create("t", nil, ids{1, 2})
	w.die(1)
	w.register(Registration{Node: 1, Fenced: true, Rack: "a"})
	require.False(t, w.core.active(1))
	require.Equal(t, "a", w.core.brokers[1].rack)
	require.NoError(t, w.nodes[1].registered.Ready(t.Context()))
	epoch := w.epoch(1)
	w.seen(1)
	require.True(t, w.core.active(1))
	require.Equal(t, epoch, w.core.brokers[1].epoch)

	session, err := w.store.Session(t.Context(), time.Second)
	require.NoError(t, err)
	_, err = Register(t.Context(), w.store, session, Registration{Node: 1})
	require.ErrorIs(t, err, ErrNodeInUse)
}

// A node that comes back before anybody saw it go is taken out all the same.
func TestANodeThatIsBackAtOnceHasLeft(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2)
	w.create("t", nil, ids{1, 2})
	w.store.Expire(w.nodes[1].session)
	w.start(1)
	p := w.partition("t")
	require.Equal(t, []any{replica.NodeID(2), ids{2}}, []any{p.Leader, slices.Clone(p.ISR)})
	v, err := w.store.Get(t.Context(), RegistrationsPrefix+strconv.Itoa(1))
	require.NoError(t, err)
	require.Contains(t, string(v.Value), `"fenced":false`)
}

// The same with a clean marker: it has lost nothing, but it does not go on leading in the old epoch.
func TestANodeThatIsBackAtOnceLeadsInANewEpoch(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2)
	w.create("t", nil, ids{1, 2})
	w.create("u", nil, ids{1})
	old, err := w.store.Get(t.Context(), IDsPrefix+"1")
	require.NoError(t, err)
	w.store.Expire(w.nodes[1].session)
	w.nodes[1].stopped = true
	w.start(1)
	p := w.partition("t")
	require.Equal(t, []any{replica.NodeID(2), ids{2}}, []any{p.Leader, p.ISR})
	p = w.partition("u")
	require.Equal(t, []any{replica.NodeID(1), ids{1}, int32(2), false}, []any{p.Leader, p.ISR, p.LeaderEpoch, p.Recovering})

	w.die(1)
	w.do(Seen{old}) // late news of the first life
	require.False(t, w.core.active(1))
}
