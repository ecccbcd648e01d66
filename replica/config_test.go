package replica

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

// Each of Kafka's settings of replication has a field, which log.ConfigNotes names, with Kafka's default.
func TestSettingsHaveKafkasDefaults(t *testing.T) {
	node := NodeConfig{}.withDefaults()
	node.Config = node.Config.withDefaults()
	for key, want := range map[string]any{
		"min.insync.replicas":              1,
		"num.replica.fetchers":             1,
		"replica.fetch.backoff.ms":         time.Second,
		"replica.fetch.max.bytes":          int64(1 << 20),
		"replica.fetch.min.bytes":          int64(1),
		"replica.fetch.response.max.bytes": int64(10 << 20),
		"replica.fetch.wait.max.ms":        500 * time.Millisecond,
		"replica.lag.time.max.ms":          30 * time.Second,
	} {
		notes := log.ConfigNotes(map[string]string{key: "1"})
		require.Len(t, notes, 1, key)
		_, name, ok := strings.Cut(strings.TrimRight(notes[0].Text, ")"), "Config.")
		require.True(t, ok, "%s: %s", key, notes[0].Text)
		field := reflect.ValueOf(node).FieldByName(name)
		require.True(t, field.IsValid(), "%s: %s", key, notes[0].Text)
		require.Equal(t, want, field.Interface(), key)
	}
	require.Equal(t, 5*time.Second, node.Checkpoint, "replica.high.watermark.checkpoint.interval.ms")
	require.Equal(t, 30*time.Second, node.FetchLimit, "replica.socket.timeout.ms")
}
