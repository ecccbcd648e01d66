package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

func TestABrokersSettingsOfReplicationAreANodes(t *testing.T) {
	c, err := ParseConfig(map[string]string{
		"node.id": "3", "min.insync.replicas": "2", "replica.lag.time.max.ms": "10000", "replica.fetch.max.bytes": "2097152",
		"replica.fetch.min.bytes": "5", "replica.fetch.wait.max.ms": "100", "replica.fetch.backoff.ms": "0", "replica.socket.timeout.ms": "20000",
		"replica.high.watermark.checkpoint.interval.ms": "700", "replica.fetch.response.max.bytes": "4194304", "num.replica.fetchers": "4",
		"log.retention.hours": "5", "num.partitions": "9",
	})
	require.NoError(t, err)
	require.Equal(t, NodeConfig{Config: Config{Self: 3, MinISR: 2, LagTimeMax: 10 * time.Second, FetchBytes: 2097152, FetchMin: 5, FetchWait: 100 * time.Millisecond,
		Backoff: time.Millisecond, FetchLimit: 20 * time.Second, Checkpoint: 700 * time.Millisecond}, ResponseBytes: 4194304, Fetchers: 4}, c)

	c, err = ParseConfig(nil)
	require.NoError(t, err)
	require.Equal(t, NodeConfig{}, c, "zero is the default")

	for _, bad := range []map[string]string{
		{"replica.fetch.max.bytes": "-1"}, {"num.replica.fetchers": "0"}, {"replica.fetch.wait.max.ms": "30001"},
		{"replica.lag.time.max.ms": "499"}, {"replica.socket.timeout.ms": "400"}, {"replica.lag.time": "1"},
	} {
		_, err := ParseConfig(bad)
		var e *log.ConfigError
		require.ErrorAs(t, err, &e, "%v", bad)
	}
}
