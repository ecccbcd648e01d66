package member

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// heeds waits until all logs of the topic orders have a configuration as wanted.
func (c *cluster) heeds(want map[string]string, ids ...replica.NodeID) {
	c.t.Helper()
	for _, id := range ids {
		require.Eventually(c.t, func() bool {
			h, err := c.nodes[id].Node().Partition(orders)
			if err != nil || h.Log() == nil {
				return false
			}
			got := h.Log().Config().Kafka()
			for k, v := range want {
				if got[k] != v {
					return false
				}
			}
			return true
		}, 20*time.Second, 5*time.Millisecond, "node %d heeds %v", id, want)
	}
}

func (c *cluster) alter(e controller.AlterConfig) {
	c.t.Helper()
	e.Topic = "orders"
	c.ask(func(ctx context.Context, ctrl *controller.Controller) error { return ctrl.AlterConfig(ctx, e) })
}

func TestMembersHeedAllSettingsOfATopic(t *testing.T) {
	c := newCluster(t, 1, 2)
	own := map[string]string{"retention.ms": "3600000", "cleanup.policy": "compact,delete", "segment.bytes": "2000000", "max.message.bytes": "5000",
		"message.timestamp.type": "LogAppendTime", "min.insync.replicas": "2", "compression.type": "gzip", "compression.gzip.level": "9"}
	c.create("orders", own, ids{1, 2})
	c.heeds(own, 1, 2)

	c.alter(controller.AlterConfig{Set: map[string]string{"max.message.bytes": "100", "segment.ms": "60000"}, Delete: []string{"cleanup.policy"},
		Subtract: nil})
	c.heeds(map[string]string{"max.message.bytes": "100", "segment.ms": "60000", "cleanup.policy": "delete", "retention.ms": "3600000"}, 1, 2)
	p := c.inSync(2)
	h, err := c.nodes[p.Leader].Node().Partition(orders)
	require.NoError(t, err)
	b := record.NewBuilder(record.BuilderOptions{})
	require.NoError(t, b.Add(record.Record{Key: []byte("k"), Value: make([]byte, 200)}))
	batch, err := b.Finish()
	require.NoError(t, err)
	_, err = h.Append(t.Context(), batch.Bytes(), -1)
	require.ErrorIs(t, err, replica.MessageTooLarge)
	require.ErrorIs(t, err, log.ErrTooLarge)

	c.ask(func(ctx context.Context, ctrl *controller.Controller) error {
		return ctrl.SetConfig(ctx, "orders", nil)
	})
	c.heeds(log.Config{}.Kafka(), 1, 2)
	require.False(t, h.Status().UnderMin)
	c.produce("a")
	c.holds(1, "a")
	c.holds(2, "a")
}

// What changed while a member was down, or its watch of the store, counts when it is back.
func TestSettingsThatChangedUnseenAreLookedUp(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.create("orders", map[string]string{"retention.ms": "1000", "segment.ms": "7000"}, ids{1, 2})
	c.heeds(map[string]string{"retention.ms": "1000"}, 1, 2)
	n := c.nodes[2]
	n.store.down.Store(true)
	n.store.cut()
	c.ask(func(ctx context.Context, ctrl *controller.Controller) error {
		return ctrl.SetConfig(ctx, "orders", nil)
	})
	c.heeds(map[string]string{"retention.ms": "604800000"}, 1)
	c.heeds(map[string]string{"retention.ms": "1000"}, 2)
	n.store.down.Store(false)
	c.heeds(map[string]string{"retention.ms": "604800000", "segment.ms": "604800000"}, 2)

	c.stop(2)
	c.alter(controller.AlterConfig{Set: map[string]string{"retention.ms": "2000"}})
	c.start(2, nil)
	c.inService(2)
	c.heeds(map[string]string{"retention.ms": "2000"}, 1, 2)

	// The topic is another one, with the same name.
	c.ask(func(ctx context.Context, ctrl *controller.Controller) error { return ctrl.DeleteTopic(ctx, "orders") })
	c.create("orders", nil, ids{1, 2})
	c.produce("a")
	c.heeds(map[string]string{"retention.ms": "604800000"}, 1, 2)
}

// What a topic does not say is the member's own: of Partitions, then of the Dir. What does not go with that is told and left out.
func TestATopicsSettingsLieOverTheMembersOwn(t *testing.T) {
	c := newCluster(t, 1)
	c.stop(1)
	var troubles atomic.Int64
	c.start(1, func(conf *Config) {
		conf.Partitions = func(log.TopicPartition) (log.Config, replica.Config) {
			return log.Config{TimestampType: record.LogAppendTime, RetentionTime: time.Hour, Compaction: log.CompactionConfig{MinLag: time.Hour}}, conf.Config
		}
		conf.Trouble = func(error) { troubles.Add(1) }
	})
	c.inService(1)
	c.create("orders", map[string]string{"message.timestamp.type": "CreateTime"}, ids{1})
	c.heeds(map[string]string{"message.timestamp.type": "CreateTime", "retention.ms": "3600000"}, 1)
	c.produce("a")
	before := troubles.Load()
	c.alter(controller.AlterConfig{Set: map[string]string{"max.compaction.lag.ms": "1000"}}) // below the member's own minimum
	require.Eventually(t, func() bool { return troubles.Load() > before }, 10*time.Second, time.Millisecond)
	c.heeds(map[string]string{"message.timestamp.type": "LogAppendTime", "min.compaction.lag.ms": "3600000"}, 1)
	c.produce("b")
	c.alter(controller.AlterConfig{Delete: []string{"max.compaction.lag.ms"}})
	c.heeds(map[string]string{"message.timestamp.type": "CreateTime"}, 1)
	c.holds(1, "a", "b")
}
