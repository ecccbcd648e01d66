package replicatest_test

import (
	"fmt"

	"github.com/partlog/partlog/replica/replicatest"
)

// A cluster of three, a leader that is killed, and all is well again.
func ExampleRun() {
	o := replicatest.Run(replicatest.Options{
		Seed: 1, Nodes: 3, Replicas: 3, MinISR: 2, Still: true,
		Plan: []replicatest.Fault{{Kind: replicatest.Kill, At: 200e6, For: 300e6, Node: 1}},
	})
	fmt.Println(o.Failed(), o.Counts["kills"], o.Counts["elections"] > 0)
	// Output: false 1 true
}
