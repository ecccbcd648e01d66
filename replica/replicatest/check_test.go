package replicatest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A run that could not be as it was asked for must not end as if all had been well.
func TestOptionsThatNoRunCanHaveAreAFailure(t *testing.T) {
	for want, o := range map[string]Options{
		`there is no mutant "ack-erly"`:                   {Mutant: "ack-erly"},
		"fault 1 of the plan (at 0s for 0s: kill, node 4": {Nodes: 3, Plan: []Fault{{Kind: Kill, Node: 3}, {Kind: Kill, Node: 4}}},
		"nodes are 1 to 2":                                {Nodes: 2, Plan: []Fault{{Kind: Isolate, Node: 3}}},
		"nodes are 1 to 9":                                {Plan: []Fault{{Kind: Isolate, Node: 99}}},
		"nodes are 1 to 3":                                {Nodes: 3, Plan: []Fault{{Kind: Midway}}},
		"the other is none of the nodes 1 to 3":           {Nodes: 3, Plan: []Fault{{Kind: Split, Node: 1}}},
		"there is no such kind":                           {Plan: []Fault{{Kind: 200, Node: 1}}},
		"a time is negative":                              {Plan: []Fault{{Kind: Kill, Node: 1, At: -time.Second}}},
		"the amount is negative":                          {Plan: []Fault{{Kind: SlowDisk, Node: 1, Amount: -1}}},
		"the controller's number is negative":             {Plan: []Fault{{Kind: Depose, Node: -1}}},
	} {
		require.ErrorContains(t, o.Check(), want)
		r := Run(o)
		require.True(t, r.Failed())
		require.Equal(t, o.Check().Error(), r.Failure)
		require.Zero(t, r.Steps)
	}
	// A plan for as many nodes as are drawn is looked at when they are.
	require.NoError(t, Options{Plan: []Fault{{Kind: Kill, Node: 9}}}.Check())
	require.Contains(t, Run(Options{Seed: 1, Plan: []Fault{{Kind: Kill, Node: 9}}}).Failure, "nodes are 1 to")
	for seed := range uint64(300) {
		o := Options{Seed: seed}
		p := newSim(o)
		o.Plan, o.Nodes = p.Plan, p.Nodes
		require.NoError(t, o.Check(), "plans that are drawn are good")
		for _, n := range p.nodes {
			n.discard()
		}
	}
}
