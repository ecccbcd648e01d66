package controller

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

// Each of Kafka's settings of a controller has a field, which log.ConfigNotes names, with Kafka's default.
func TestSettingsHaveKafkasDefaults(t *testing.T) {
	config := Config{}.withDefaults()
	for key, want := range map[string]any{
		"auto.leader.rebalance.enable":            false, // the field says the opposite
		"default.replication.factor":              1,
		"leader.imbalance.check.interval.seconds": 300 * time.Second,
		"leader.imbalance.per.broker.percentage":  10,
		"num.partitions":                          1,
	} {
		notes := log.ConfigNotes(map[string]string{key: "1"})
		require.Len(t, notes, 1, key)
		name, _, ok := strings.Cut(strings.TrimPrefix(notes[0].Text, "controller.Config."), ",")
		require.True(t, ok, "%s: %s", key, notes[0].Text)
		field := reflect.ValueOf(config).FieldByName(name)
		require.True(t, field.IsValid(), "%s: %s", key, notes[0].Text)
		require.Equal(t, want, field.Interface(), key)
	}
	require.Equal(t, 1, config.MinISR, "min.insync.replicas")
	require.False(t, config.UncleanElection, "unclean.leader.election.enable")
	require.Equal(t, 5*time.Minute, config.UncleanInterval, "unclean.leader.election.interval.ms")
	require.Equal(t, 18*time.Second, NewController(nil, Options{}).options.SessionTTL, "zookeeper.session.timeout.ms")
}
