package interop

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// some is a random part of a list, in its order.
func some(r *rand.Rand, of []int32, chance float64) []int32 {
	out := []int32{}
	for _, id := range of {
		if r.Float64() < chance {
			out = append(out, id)
		}
	}
	return out
}

func not(of, those []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(of), func(id int32) bool { return slices.Contains(those, id) })
}

// someChange is a partition in any state, also those that a cluster rarely shows, and what happens to it: nodes gone, another ISR, a move
// begun, finished or taken back, an unclean stop, a leader that has recovered.
func someChange(r *rand.Rand) PartitionChange {
	nodes := []int32{0, 1, 2, 3, 4, 5, 6, 7}
	pick := func(n int) []int32 {
		out := slices.Clone(nodes)
		r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		return out[:n]
	}
	replicas := pick(1 + r.IntN(5))
	p := PartitionState{Leader: -1, LeaderEpoch: int32(r.IntN(50)), PartitionEpoch: int32(r.IntN(90)), Recovering: r.IntN(6) == 0,
		Replicas: replicas, ISR: some(r, replicas, 0.6), ELR: []int32{}, LastKnownELR: []int32{}, Adding: []int32{}, Removing: []int32{}}
	c := PartitionChange{Election: []string{"ONLINE", "PREFERRED", "UNCLEAN"}[r.IntN(3)], ELREnabled: r.IntN(3) > 0,
		MinISR: 1 + r.IntN(len(replicas)), Acceptable: some(r, nodes, []float64{0.9, 0.6, 0.3}[r.IntN(3)])}
	if c.ELREnabled {
		p.ELR = some(r, not(replicas, p.ISR), 0.5)
		slices.Sort(p.ELR)
		if len(p.ISR)+len(p.ELR) == 0 || r.IntN(4) == 0 {
			p.LastKnownELR = pick(1)
			if r.IntN(3) > 0 {
				p.LastKnownELR = []int32{replicas[r.IntN(len(replicas))]}
			}
		}
	} else if len(p.ISR) == 0 {
		p.ISR = replicas[:1]
	}
	if r.IntN(4) > 0 {
		p.Leader = replicas[r.IntN(len(replicas))]
		if len(p.ISR) > 0 && r.IntN(6) > 0 {
			p.Leader = p.ISR[r.IntN(len(p.ISR))]
		}
	}
	if r.IntN(3) == 0 { // a move is under way
		p.Adding = some(r, replicas, 0.3)
		p.Removing = some(r, not(replicas, p.Adding), 0.3)
	}
	c.Before = p
	if r.IntN(2) == 0 {
		c.TargetISR = some(r, p.ISR, 0.7)
		if r.IntN(2) == 0 {
			c.TargetISR = some(r, replicas, 0.6)
		}
	}
	switch r.IntN(6) {
	case 0: // begin a move
		to := pick(1 + r.IntN(4))
		c.TargetRemoving = not(replicas, to)
		c.TargetAdding = not(to, replicas)
		c.TargetReplicas = append(to, c.TargetRemoving...)
	case 1: // take it back
		if left := not(replicas, p.Adding); len(left) > 0 && len(p.Adding) > 0 {
			c.TargetReplicas, c.TargetAdding, c.TargetRemoving = left, []int32{}, []int32{}
			c.TargetISR = not(p.ISR, p.Adding)
		}
	}
	if r.IntN(5) == 0 {
		c.UncleanShutdown = some(r, replicas, 0.4)
	}
	if p.Recovering && r.IntN(2) == 0 && slices.Contains(c.Acceptable, p.Leader) { // it says so, and that it is in sync
		c.Recovered, c.TargetReplicas, c.TargetAdding, c.TargetRemoving = true, nil, nil, nil
		c.Before.Adding, c.Before.Removing = []int32{}, []int32{}
		c.TargetISR = append(some(r, not(replicas, []int32{p.Leader}), 0.5), p.Leader)
	}
	return c
}

func nodeIDs(list []int32) []replica.NodeID {
	if list == nil {
		return nil
	}
	out := []replica.NodeID{}
	for _, id := range list {
		out = append(out, replica.NodeID(id))
	}
	return out
}

// plainIDs are node ids as a set, or as they are.
func plainIDs(list []replica.NodeID, set bool) []int32 {
	out := []int32{}
	for _, id := range list {
		out = append(out, int32(id))
	}
	if set {
		slices.Sort(out)
	}
	return out
}

func partitionOf(s PartitionState) controller.Partition {
	return controller.Partition{Leader: replica.NodeID(s.Leader), LeaderEpoch: s.LeaderEpoch, PartitionEpoch: s.PartitionEpoch, Recovering: s.Recovering,
		Replicas: nodeIDs(s.Replicas), ISR: nodeIDs(s.ISR), ELR: nodeIDs(s.ELR), LastKnownELR: nodeIDs(s.LastKnownELR),
		Adding: nodeIDs(s.Adding), Removing: nodeIDs(s.Removing)}
}

// stateOfPartition is a partition for comparing: all but the assignment are sets.
func stateOfPartition(p controller.Partition) PartitionState {
	return PartitionState{Leader: int32(p.Leader), LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Recovering: p.Recovering,
		Replicas: plainIDs(p.Replicas, false), ISR: plainIDs(p.ISR, true), ELR: plainIDs(p.ELR, true), LastKnownELR: plainIDs(p.LastKnownELR, true),
		Adding: plainIDs(p.Adding, true), Removing: plainIDs(p.Removing, true)}
}

func TestPartitionsChangeAsTheControllerChangesThem(t *testing.T) {
	_, d := kafka(t)
	elections := map[string]controller.Election{"ONLINE": controller.Online, "PREFERRED": controller.ToLeader, "UNCLEAN": controller.Uncleanly}
	r := rand.New(rand.NewPCG(33, uint64(rounds(t, "PARTLOG_INTEROP_SEED", 5))))
	cases := make([]PartitionChange, rounds(t, "PARTLOG_INTEROP_ELECTIONS", 20_000))
	for i := range cases {
		cases[i] = someChange(r)
	}
	theirs, err := d.ChangePartitions(cases)
	require.NoError(t, err)
	require.Len(t, theirs, len(cases))
	differ, same, strange := 0, 0, 0
	for i, c := range cases {
		got, changed := partitionOf(c.Before).Change(controller.Rules{
			Election:   elections[c.Election],
			Acceptable: func(id replica.NodeID) bool { return slices.Contains(c.Acceptable, int32(id)) },
			MinISR:     c.MinISR, ELR: c.ELREnabled, Unclean: nodeIDs(c.UncleanShutdown),
		}, controller.Target{ISR: nodeIDs(c.TargetISR), Replicas: nodeIDs(c.TargetReplicas), Adding: nodeIDs(c.TargetAdding),
			Removing: nodeIDs(c.TargetRemoving), Recovered: c.Recovered})
		want := partitionOf(c.Before)
		if theirs[i] != nil {
			var proper bool
			if want, proper = kept(*theirs[i]); !proper {
				strange++
				continue
			}
		} else {
			same++
		}
		a, b := stateOfPartition(want), stateOfPartition(got)
		if changed != (theirs[i] != nil) || !equalJSON(a, b) {
			differ++
			if differ <= 5 {
				in, _ := json.Marshal(c)
				aj, _ := json.Marshal(a)
				bj, _ := json.Marshal(b)
				t.Errorf("case %d\n%s\nKafka %v %s\nours  %v %s", i, in, theirs[i] != nil, aj, changed, bj)
			}
		}
	}
	require.Zero(t, differ)
	t.Logf("%d changes, %d of them none, %d not compared", len(cases), same, strange)
}

// kept is a partition of Kafka's with replicas only where replicas belong. Kafka keeps those that a reassignment took away in the
// ELR, and may elect one as the last known leader; and it notes nobody (-1) as the last known leader when a reassignment of a
// leaderless partition ends. Not proper is what follows from that: a leader that holds no replica, and one that was not
// looked for because somebody who is gone stood in the way.
func kept(s PartitionState) (p controller.Partition, proper bool) {
	replicas := append([]int32{-1}, s.Replicas...)
	gone := not(s.ELR, replicas)
	s.ELR, s.LastKnownELR = not(s.ELR, gone), not(s.LastKnownELR, []int32{-1})
	return partitionOf(s), slices.Contains(replicas, s.Leader) && (len(gone) == 0 || len(s.ISR) > 0)
}

func equalJSON(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return slices.Equal(x, y)
}

func TestClassicElectsAsTheClassicController(t *testing.T) {
	d := classic(t)
	r := rand.New(rand.NewPCG(34, uint64(rounds(t, "PARTLOG_INTEROP_SEED", 5))))
	nodes := []int32{0, 1, 2, 3, 4, 5, 6}
	cases := make([]ClassicElection, rounds(t, "PARTLOG_INTEROP_ELECTIONS", 20_000))
	for i := range cases {
		all := slices.Clone(nodes)
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:1+r.IntN(5)]
		cases[i] = ClassicElection{Assignment: all, ISR: some(r, all, 0.5), Live: some(r, nodes, []float64{0.8, 0.3}[r.IntN(2)]),
			ShuttingDown: some(r, nodes, 0.3), UncleanAllowed: r.IntN(2) == 0}
		if r.IntN(10) == 0 {
			cases[i].ISR = some(r, nodes, 0.5)
		}
	}
	theirs, err := d.ClassicElections(cases)
	require.NoError(t, err)
	require.Len(t, theirs, len(cases))
	nobody := 0
	for i, c := range cases {
		elect := controller.Classic{Assignment: nodeIDs(c.Assignment), ISR: nodeIDs(c.ISR), Live: nodeIDs(c.Live)}
		for name, a := range map[string]struct {
			theirs *int32
			ours   replica.NodeID
		}{
			"offline":    {theirs[i].Offline, elect.Offline(c.UncleanAllowed)},
			"preferred":  {theirs[i].Preferred, elect.Preferred()},
			"reassigned": {theirs[i].Reassign, elect.Reassigned(nodeIDs(c.Assignment))},
			"shutdown":   {theirs[i].ControlledShutdown, elect.ControlledShutdown(nodeIDs(c.ShuttingDown))},
		} {
			want := replica.NoNode
			if a.theirs != nil {
				want = replica.NodeID(*a.theirs)
			} else {
				nobody++
			}
			require.Equal(t, want, a.ours, "%s: %+v", name, c)
		}
	}
	t.Logf("%d elections, in %d of them nobody can lead", 4*len(cases), nobody)
}
