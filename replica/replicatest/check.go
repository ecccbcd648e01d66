package replicatest

import (
	"fmt"
	"slices"
)

// Check says what is wrong with options that no run can have: a Mutant that does not exist, a Plan that names nodes or kinds that
// there are not. Run says the same as the run's Failure: what was not played must not look as if all had been well. Numbers out
// of range are not wrong: they are drawn, or made as large as they may be.
func (o Options) Check() error {
	if _, known := mutants[o.Mutant]; o.Mutant != "" && !known {
		return fmt.Errorf("replicatest: there is no mutant %q; Mutants lists them", o.Mutant)
	}
	for i, f := range o.Plan {
		if why := f.wrong(o.Nodes); why != "" {
			return fmt.Errorf("replicatest: fault %d of the plan (%v): %s", i, f, why)
		}
	}
	return nil
}

// wrong is why a fault cannot be in a cluster of so many nodes; 0: a number that is not known yet.
func (f Fault) wrong(nodes int) string {
	if nodes <= 0 || nodes > 9 {
		nodes = 9
	}
	of := func(n int) bool { return n >= 1 && n <= nodes }
	switch {
	case int(f.Kind) >= faultKinds:
		return "there is no such kind"
	case f.At < 0 || f.For < 0:
		return "a time is negative"
	case f.Amount < 0 && f.Kind != Clock && f.Kind != FarClock:
		return "the amount is negative"
	case slices.Contains(strikesNode, f.Kind) && !of(f.Node):
		return fmt.Sprintf("nodes are 1 to %d", nodes)
	case (f.Kind == OneWay || f.Kind == Split) && !of(f.Other):
		return fmt.Sprintf("the other is none of the nodes 1 to %d", nodes)
	case f.Node < 0:
		return "the controller's number is negative"
	}
	return ""
}

// strikesNode are the kinds that strike the node Node.
var strikesNode = []FaultKind{Kill, PowerLoss, Midway, CleanStop, Pause, Isolate, OneWay, Split, CutStore, SlowDisk, FullDisk, Clock, SyncFails, Deaf, FarClock, Sizes}
