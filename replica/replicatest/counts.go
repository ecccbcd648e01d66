package replicatest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Counts is how often what happened.
type Counts map[string]int64

func (c Counts) add(what string, n int64) { c[what] += n }

// Add adds another run's.
func (c Counts) Add(o Counts) {
	for what, n := range o {
		c[what] += n
	}
}

// String is a table, by name.
func (c Counts) String() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, "%12d  %s\n", c[what], what)
	}
	return b.String()
}
