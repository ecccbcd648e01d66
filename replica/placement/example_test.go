package placement_test

import (
	"fmt"

	"github.com/partlog/partlog/replica/placement"
)

// Sixteen partitions of three replicas on four brokers, as classic Kafka lays them out.
func ExampleStaggered() {
	brokers := []placement.Broker{{ID: 0}, {ID: 1}, {ID: 2}, {ID: 3}}
	replicas, err := placement.Staggered(brokers, placement.Request{Partitions: 16, ReplicationFactor: 3}, placement.Start{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for p := 0; p < 16; p += 4 {
		fmt.Println(replicas[p], replicas[p+1], replicas[p+2], replicas[p+3])
	}
	// Output:
	// [0 1 2] [1 2 3] [2 3 0] [3 0 1]
	// [0 2 3] [1 3 0] [2 0 1] [3 1 2]
	// [0 3 1] [1 0 2] [2 1 3] [3 2 0]
	// [0 1 2] [1 2 3] [2 3 0] [3 0 1]
}
