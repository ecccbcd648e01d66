package controller

import (
	"fmt"
	"testing"

	"github.com/partlog/partlog/replica"
)

// A node of four that holds three quarters of 10,000 partitions dies, and all is written.
func BenchmarkNodeDies(b *testing.B) {
	w := newWorld(b, Config{NoBalance: true}, 1, 2, 3, 4)
	lists := make([][]replica.NodeID, 1000)
	for i := range lists {
		lists[i] = ids{replica.NodeID(i%4 + 1), replica.NodeID((i+1)%4 + 1), replica.NodeID((i+2)%4 + 1)}
	}
	for n := range 10 {
		w.create(fmt.Sprint("t", n), nil, lists...)
	}
	b.ResetTimer()
	for b.Loop() {
		w.die(1)
		b.StopTimer()
		w.nodes[1].stopped = true
		w.start(1)
		for n := range 10 {
			topic := w.topic(fmt.Sprint("t", n))
			for i, p := range topic.Partitions {
				w.core.set(w.core.topics[topic.Name], i, Partition{Leader: p.Replicas[0], LeaderEpoch: p.LeaderEpoch + 1,
					PartitionEpoch: p.PartitionEpoch + 1, Replicas: p.Replicas, ISR: p.Replicas})
			}
		}
		w.do(Tick{})
		w.news = nil
		b.StartTimer()
	}
}
