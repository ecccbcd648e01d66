package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

func TestABrokersSettingsOfTheControllerAreItsConfig(t *testing.T) {
	c, err := ParseConfig(map[string]string{
		"num.partitions": "6", "default.replication.factor": "3", "min.insync.replicas": "2", "unclean.leader.election.enable": "true",
		"auto.leader.rebalance.enable": "false", "leader.imbalance.per.broker.percentage": "0", "leader.imbalance.check.interval.seconds": "60",
		"unclean.leader.election.interval.ms": "1000",
	})
	require.NoError(t, err)
	require.Equal(t, Config{Partitions: 6, ReplicationFactor: 3, MinISR: 2, UncleanElection: true, NoBalance: true, ImbalancePercent: EveryImbalance,
		ImbalanceInterval: time.Minute, UncleanInterval: time.Second}, c)
	c, err = ParseConfig(map[string]string{"auto.leader.rebalance.enable": "true"})
	require.NoError(t, err)
	require.Equal(t, Config{}, c, "zero is the default")
	for _, key := range []string{"num.partitions", "default.replication.factor", "leader.imbalance.check.interval.seconds", "auto.leader.rebalance.enable"} {
		_, err := ParseConfig(map[string]string{key: "0"})
		var bad *log.ConfigError
		require.ErrorAs(t, err, &bad, key)
		require.Equal(t, key, bad.Key)
	}
}
