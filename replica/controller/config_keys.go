package controller

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/partlog/partlog/log"
)

// ParseConfig reads a controller's settings, as they stand in a broker's server.properties: those that Config's fields name.
// What is left zero is Kafka's default. All settings are checked as log.ParseConfig does, whose errors, *log.ConfigError, it
// returns. Settings of the log are for log.ParseDirConfig, of replicas for replica.ParseConfig.
func ParseConfig(kafka map[string]string) (Config, error) {
	var c Config
	topic, err := log.ParseConfig(kafka)
	if err != nil {
		return c, err
	}
	c.MinISR, c.UncleanElection = topic.MinInSyncReplicas, topic.UncleanLeaderElection
	c.NoBalance = strings.EqualFold(strings.TrimSpace(kafka["auto.leader.rebalance.enable"]), "false")
	number := func(key string) (n int64, given bool) { // log.ParseConfig has checked it
		text, given := kafka[key]
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		return n, given && err == nil
	}
	for key, at := range map[string]*int{
		"num.partitions":                         &c.Partitions,
		"default.replication.factor":             &c.ReplicationFactor,
		"leader.imbalance.per.broker.percentage": &c.ImbalancePercent,
	} {
		if n, given := number(key); given {
			*at = int(n)
			if n == 0 {
				*at = EveryImbalance // the others are at least 1
			}
		}
	}
	for key, s := range map[string]struct {
		at   *time.Duration
		unit time.Duration
	}{
		"leader.imbalance.check.interval.seconds": {&c.ImbalanceInterval, time.Second},
		"unclean.leader.election.interval.ms":     {&c.UncleanInterval, time.Millisecond},
	} {
		if n, given := number(key); given {
			*s.at = time.Duration(min(n, math.MaxInt64/int64(s.unit))) * s.unit
		}
	}
	return c, nil
}
