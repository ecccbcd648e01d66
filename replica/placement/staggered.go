package placement

import (
	"cmp"
	"fmt"
	"slices"
)

// Start is what Staggered needs of chance: two numbers from 0 to below the number of brokers; larger ones are taken modulo
// what they count. Kafka uses the same number for both when it is told where to start.
type Start struct {
	Index int // place of the first partition's leader
	Shift int // distance of the first follower behind its leader, less one
}

// Staggered places partitions as Kafka's classic assignment did, up to 3.9. The brokers are taken in the order given when
// none has a rack (Kafka's callers sort by id), and dealt out rack by rack when all have one. Element i of the answer
// belongs to partition FirstPartition + i. Errors: ErrPartitions, ErrReplicationFactor, ErrNotEnoughBrokers,
// ErrSomeWithoutRack, ErrDuplicateBroker, ErrStartOutOfSequence.
func Staggered(brokers []Broker, r Request, s Start) ([][]int32, error) {
	if err := check(brokers, r); err != nil {
		return nil, err
	}
	racks := make(map[string]bool)
	for _, b := range brokers {
		racks[b.Rack] = true
	}
	if len(racks) > 1 && racks[""] {
		return nil, fmt.Errorf("%w", ErrSomeWithoutRack)
	}
	order := brokers
	if aware := !racks[""]; aware {
		order = dealt(brokers)
	} else {
		racks = nil
	}

	n := len(order)
	index, shift := max(s.Index, 0)%n, max(s.Shift, 0)%max(n-1, 1)
	out := make([][]int32, 0, r.Partitions)
	for p := r.FirstPartition; p < r.FirstPartition+r.Partitions; p++ {
		if p > 0 && p%n == 0 {
			shift++
		}
		leader := (p + index) % n
		if racks == nil {
			out = append(out, followers(order, leader, shift, r.ReplicationFactor))
		} else {
			out = append(out, rackFollowers(order, leader, shift, r.ReplicationFactor, len(racks)))
		}
	}
	return out, nil
}

// dealt takes one broker of each rack in turn, racks by name and brokers by id, until all are taken.
func dealt(brokers []Broker) []Broker {
	sorted := slices.Clone(brokers)
	slices.SortFunc(sorted, func(a, b Broker) int { return cmp.Compare(a.ID, b.ID) })
	round := make(map[string]int)             // brokers of a rack dealt so far
	turn := make(map[int32]int, len(brokers)) // in which round a broker is dealt
	for _, b := range sorted {
		turn[b.ID] = round[b.Rack]
		round[b.Rack]++
	}
	slices.SortStableFunc(sorted, func(a, b Broker) int {
		return cmp.Or(cmp.Compare(turn[a.ID], turn[b.ID]), cmp.Compare(a.Rack, b.Rack))
	})
	return sorted
}

// behind is the place of the j-th candidate behind the leader, never the leader's own.
func behind(leader, shift, j, n int) int {
	return (leader + 1 + (shift+j)%(n-1)) % n
}

func followers(order []Broker, leader, shift, factor int) []int32 {
	replicas := make([]int32, 1, factor)
	replicas[0] = order[leader].ID
	for j := range factor - 1 {
		replicas = append(replicas, order[behind(leader, shift, j, len(order))].ID)
	}
	return replicas
}

// rackFollowers passes over a broker whose rack holds a replica as long as some rack holds none, and over one that holds
// the partition already.
func rackFollowers(order []Broker, leader, shift, factor, racks int) []int32 {
	replicas := make([]int32, 1, factor)
	replicas[0] = order[leader].ID
	used := map[string]bool{order[leader].Rack: true}
	for k := 0; len(replicas) < factor; k++ {
		b := order[behind(leader, shift*racks, k, len(order))]
		if used[b.Rack] && len(used) < racks || slices.Contains(replicas, b.ID) {
			continue
		}
		replicas = append(replicas, b.ID)
		used[b.Rack] = true
	}
	return replicas
}
