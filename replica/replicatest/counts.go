package replicatest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/log"
)

// Counts is how often what happened.
type Counts map[string]int64

func (c Counts) add(what string, n int64) { c[what] += n }

// events counts what logs do by themselves.
func (c Counts) events() *log.Events {
	return &log.Events{
		Rolled:   func(log.TopicPartition, log.SegmentInfo) { c.add("segments rolled", 1) },
		Retained: func(log.TopicPartition, log.RetentionReport) { c.add("retentions", 1) },
		Cleaned:  func(log.TopicPartition, compaction.Result) { c.add("compactions", 1) },
	}
}

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
