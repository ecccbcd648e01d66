package replicatest

import (
	"math/rand/v2"
	"time"

	"github.com/partlog/partlog/replica"
)

// Options of a run. The zero value of a field but Seed is drawn from the seed.
type Options struct {
	Seed uint64
	// Storm is how long things go wrong, in simulated time; 0: 1 s.
	Storm time.Duration
	// Steps ends the storm early, after so many events; 0: no bound.
	Steps int

	Nodes      int // of the cluster, at most 9; 0: 3 to 5
	Partitions int // led by all nodes in turn, at most 99; 0: 1 to 4
	Replicas   int // of each partition, at most Nodes; 0: mostly 3
	MinISR     int // min.insync.replicas; 0: mostly 2
	// NoELR keeps no eligible leader replicas, as Kafka before 4.0: with fewer in sync than MinISR and without unclean elections only
	// who was in sync last may lead again.
	NoELR bool

	Truncation replica.Truncation
	// Patient overlooks members of the in-sync set that lack committed records for the moment, and reports only what is
	// lost or different for good: on leaders, in the eyes of consumers, and in the calm.
	Patient bool
	// Losses counts committed records that a new leader lacks, as if they had been lost for a reason, and goes on: what is
	// reported then is replicas that differ.
	Losses bool
	// Mutant breaks the code in a known way; Mutants lists the names.
	Mutant string

	// Plan is what goes wrong; nil: drawn from the seed. Plan of a run can be had from its Outcome, to run parts of it.
	Plan []Fault
	// Still is a network that loses, repeats and reorders nothing by itself.
	Still bool
	// History keeps what happened, for Outcome.History.
	History bool
}

// profile is Options with everything drawn.
type profile struct {
	Options
	rulers          int
	unclean         bool // unclean.leader.election.enable
	compacted       bool // its first topic is; and the other, if there is one
	second          bool
	secondCompacted bool
	segment         int64
	retention       int64           // retention.bytes; 0: none
	aging           bool            // retention.ms is an hour; else none
	skew            []time.Duration // of the nodes' wall clocks in the beginning
	loss, dup       float64
	late            float64 // chance of a message to be late by far
	producers       int
	consumers       int
	think           time.Duration
	synced          bool // replica.Config.CountSynced
}

// Times of the simulated cluster: Kafka's, shortened alike.
const (
	lagTime     = 120 * time.Millisecond // replica.lag.time.max.ms
	sessionTime = 90 * time.Millisecond
	fetchWait   = 40 * time.Millisecond
	fetchLimit  = 60 * time.Millisecond
	backOff     = 10 * time.Millisecond
	markTime    = 50 * time.Millisecond
	askLimit    = 80 * time.Millisecond // a client's or proposer's patience with one request
	calmTime    = 1200 * time.Millisecond
)

func (o Options) profile(rng *rand.Rand) profile {
	p := profile{Options: o}
	if p.Storm <= 0 {
		p.Storm = time.Second
	}
	pick := func(field *int, drawn int) {
		if *field <= 0 {
			*field = drawn
		}
	}
	pick(&p.Nodes, []int{3, 3, 3, 4, 5}[rng.IntN(5)])
	p.Nodes = min(p.Nodes, 9)
	pick(&p.Partitions, []int{1, 1, 1, 2, 3, 4}[rng.IntN(6)])
	p.Partitions = min(p.Partitions, 99)
	pick(&p.Replicas, []int{3, 3, 3, 3, 2, 4}[rng.IntN(6)])
	p.Replicas = min(p.Replicas, p.Nodes)
	pick(&p.MinISR, []int{2, 2, 2, 2, 1, 3}[rng.IntN(6)])
	p.MinISR = min(p.MinISR, p.Replicas)
	p.rulers = 1 + rng.IntN(3)
	p.unclean = rng.IntN(8) == 0
	p.compacted = rng.IntN(6) == 0
	p.second = rng.IntN(5) == 0
	p.secondCompacted = rng.IntN(2) == 0
	p.segment = []int64{1 << 20, 1 << 20, 4 << 10, 1 << 10}[rng.IntN(4)]
	if rng.IntN(4) == 0 {
		p.retention = 2 << 10
		p.segment = 1 << 10
	}
	p.synced = rng.IntN(8) == 0
	switch rng.IntN(3) {
	case 0:
	case 1:
		p.loss, p.dup = 0.005, 0.005
	case 2:
		p.loss, p.dup, p.late = 0.03*rng.Float64(), 0.03*rng.Float64(), 0.02*rng.Float64()
	}
	if o.Still {
		p.loss, p.dup, p.late = 0, 0, 0
	}
	p.producers = max(1+rng.IntN(3), p.Partitions)
	p.consumers = max(2, p.Partitions)
	p.think = time.Duration(10+rng.IntN(40)) * time.Millisecond
	p.aging = rng.IntN(4) == 0
	wide := []time.Duration{0, time.Second, 10 * time.Hour}[rng.IntN(3)]
	for range p.Nodes {
		p.skew = append(p.skew, time.Duration(float64(wide)*(2*rng.Float64()-1)))
	}
	return p
}
