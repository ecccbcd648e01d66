package controller

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/replica"
)

type ids = []replica.NodeID

type vectorState struct {
	Leader         replica.NodeID `json:"leader"`
	LeaderEpoch    int32          `json:"leaderEpoch"`
	PartitionEpoch int32          `json:"partitionEpoch"`
	Replicas       ids            `json:"replicas"`
	ISR            ids            `json:"isr"`
	ELR            ids            `json:"elr"`
	LastKnownELR   ids            `json:"lastKnownElr"`
	Recovering     bool           `json:"recovering"`
}

func (s vectorState) partition() Partition {
	return Partition{Leader: s.Leader, LeaderEpoch: s.LeaderEpoch, PartitionEpoch: s.PartitionEpoch, Replicas: s.Replicas,
		ISR: s.ISR, ELR: s.ELR, LastKnownELR: s.LastKnownELR, Recovering: s.Recovering}
}

func eachLine[T any](t *testing.T, file string, want int, visit func(T)) {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := bufio.NewScanner(bytes.NewReader(raw))
	n := 0
	for ; lines.Scan(); n++ {
		var v T
		require.NoError(t, json.Unmarshal(lines.Bytes(), &v))
		visit(v)
	}
	require.Equal(t, want, n)
}

func TestChangesGiveKafkasAnswers(t *testing.T) {
	elections := map[string]Election{"online": Online, "preferred": ToLeader, "unclean": Uncleanly}
	type vector struct {
		Case            int         `json:"case"`
		Election        string      `json:"election"`
		ELREnabled      bool        `json:"elrEnabled"`
		MinISR          int         `json:"minIsr"`
		Acceptable      ids         `json:"acceptable"`
		TargetISR       ids         `json:"targetIsr"`
		UncleanShutdown ids         `json:"uncleanShutdown"`
		Before          vectorState `json:"before"`
		After           vectorState `json:"after"`
		Changed         bool        `json:"changed"`
	}
	eachLine(t, "testdata/election.jsonl", 300, func(v vector) {
		got, changed := v.Before.partition().Change(Rules{
			Election:   elections[v.Election],
			Acceptable: func(id replica.NodeID) bool { return slices.Contains(v.Acceptable, id) },
			MinISR:     v.MinISR, ELR: v.ELREnabled, Unclean: v.UncleanShutdown,
		}, Target{ISR: v.TargetISR})
		want := v.After.partition()
		if changed != v.Changed || !got.equal(want) || got.PartitionEpoch != want.PartitionEpoch {
			in, _ := json.Marshal(v)
			t.Errorf("case %d: %v %+v\n%s", v.Case, changed, got, in)
		}
	})
}

func TestClassicElectionsGiveKafkasAnswers(t *testing.T) {
	type vector struct {
		Case               int             `json:"case"`
		Assignment         ids             `json:"assignment"`
		ISR                ids             `json:"isr"`
		Live               ids             `json:"live"`
		ShuttingDown       ids             `json:"shuttingDown"`
		UncleanAllowed     bool            `json:"uncleanAllowed"`
		Offline            *replica.NodeID `json:"offline"`
		Preferred          *replica.NodeID `json:"preferred"`
		Reassign           *replica.NodeID `json:"reassign"`
		ControlledShutdown *replica.NodeID `json:"controlledShutdown"`
	}
	node := func(id *replica.NodeID) replica.NodeID {
		if id == nil {
			return replica.NoNode
		}
		return *id
	}
	eachLine(t, "testdata/election-classic.jsonl", 300, func(v vector) {
		c := Classic{Assignment: v.Assignment, ISR: v.ISR, Live: v.Live}
		require.Equal(t, node(v.Offline), c.Offline(v.UncleanAllowed), "case %d: offline", v.Case)
		require.Equal(t, node(v.Preferred), c.Preferred(), "case %d: preferred", v.Case)
		require.Equal(t, node(v.Reassign), c.Reassigned(v.Assignment), "case %d: reassign", v.Case)
		require.Equal(t, node(v.ControlledShutdown), c.ControlledShutdown(v.ShuttingDown), "case %d: controlled shutdown", v.Case)
	})
}
