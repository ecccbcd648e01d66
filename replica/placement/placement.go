package placement

import (
	"errors"
	"fmt"
)

// Broker is a place for replicas.
type Broker struct {
	ID     int32
	Rack   string // broker.rack; "" none
	Fenced bool   // registered, but not in service; Staggered does not look at it: its callers name live brokers only
}

// Request says what is to be placed.
type Request struct {
	Partitions        int // how many, at least 1
	ReplicationFactor int // replicas of each, at least 1 and at most the number of brokers
	FirstPartition    int // number of the first one: not 0 when partitions are added to a topic; Striped does not look at it
}

// Errors of a request that cannot be met; they come wrapped in a sentence with the numbers.
var (
	ErrPartitions         = errors.New("number of partitions must be positive")
	ErrReplicationFactor  = errors.New("replication factor must be positive")
	ErrNotEnoughBrokers   = errors.New("replication factor is larger than the number of brokers")
	ErrAllFenced          = errors.New("all brokers are fenced")
	ErrSomeWithoutRack    = errors.New("some brokers have a rack and some have none")
	ErrDuplicateBroker    = errors.New("a broker is listed twice")
	ErrStartOutOfSequence = errors.New("first partition must not be negative")
)

// check finds what no way of placing can do.
func check(brokers []Broker, r Request) error {
	switch {
	case r.Partitions <= 0:
		return fmt.Errorf("%w: %d", ErrPartitions, r.Partitions)
	case r.ReplicationFactor <= 0:
		return fmt.Errorf("%w: %d", ErrReplicationFactor, r.ReplicationFactor)
	case r.FirstPartition < 0:
		return fmt.Errorf("%w: %d", ErrStartOutOfSequence, r.FirstPartition)
	case r.ReplicationFactor > len(brokers):
		return fmt.Errorf("%w: %d of %d", ErrNotEnoughBrokers, r.ReplicationFactor, len(brokers))
	}
	seen := make(map[int32]bool, len(brokers))
	for _, b := range brokers {
		if seen[b.ID] {
			return fmt.Errorf("%w: %d", ErrDuplicateBroker, b.ID)
		}
		seen[b.ID] = true
	}
	return nil
}
