package controller

import "time"

// Placement is the way partitions are laid out.
type Placement uint8

const (
	Striped   Placement = iota // as Kafka's KRaft controller does
	Staggered                  // as Kafka's classic controller did
)

// EveryImbalance is Config.ImbalancePercent for Kafka's 0: one partition in the wrong place is enough.
const EveryImbalance = -1

// Config of a Core; zero values are Kafka's defaults. ParseConfig reads it from a broker's settings.
type Config struct {
	Partitions        int           // num.partitions, 1
	ReplicationFactor int           // default.replication.factor, 1
	MinISR            int           // min.insync.replicas of topics that do not say, 1
	UncleanElection   bool          // unclean.leader.election.enable of topics that do not say
	NoELR             bool          // eligible leader replicas (KIP-966) are not kept
	Placement         Placement     // of new partitions
	NoBalance         bool          // not auto.leader.rebalance.enable
	ImbalancePercent  int           // leader.imbalance.per.broker.percentage, 10; EveryImbalance
	ImbalanceInterval time.Duration // leader.imbalance.check.interval.seconds, 300 s
	UncleanInterval   time.Duration // between attempts to lead partitions uncleanly that may be, 5 min
}

func (c Config) withDefaults() Config {
	c.Partitions = max(c.Partitions, 1)
	c.ReplicationFactor = max(c.ReplicationFactor, 1)
	c.MinISR = max(c.MinISR, 1)
	switch {
	case c.ImbalancePercent == 0:
		c.ImbalancePercent = 10
	case c.ImbalancePercent < 0:
		c.ImbalancePercent = 0
	}
	if c.ImbalanceInterval <= 0 {
		c.ImbalanceInterval = 300 * time.Second
	}
	if c.UncleanInterval <= 0 {
		c.UncleanInterval = 5 * time.Minute
	}
	return c
}
