package member

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// Once a larger min.insync.replicas has been waited for, at any member, nothing is acknowledged by the old one, even if the leader is
// not told of it by the store for hours.
func TestALargerMinISRThatWasWaitedForCounts(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.create("orders", nil, ids{1, 2})
	c.produce("a")
	c.stop(2)
	c.until("alone", func(p controller.Partition) bool { return len(p.ISR) == 1 })
	c.produce("b")
	b := record.NewBuilder(record.BuilderOptions{})
	require.NoError(t, b.Add(record.Record{Timestamp: 1, Value: []byte("c")}))
	batch, err := b.Finish()
	require.NoError(t, err)
	h, err := c.nodes[1].Node().Partition(orders)
	require.NoError(t, err)
	append := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := h.Append(ctx, slices.Clone(batch.Bytes()), -1)
		return err
	}
	c.nodes[1].store.mute.Store(true)
	for round, by := range []replica.NodeID{3, 1, 3, 1} {
		c.alter(controller.AlterConfig{Set: map[string]string{"min.insync.replicas": "2", "retention.ms": "5000"}})
		if round == 0 {
			require.NoError(t, append(), "without the wait it counts later")
		}
		require.NoError(t, c.nodes[by].AwaitConfig(c.ctx(), "orders"))
		require.ErrorIs(t, append(), replica.NotEnoughReplicas)
		require.Equal(t, "5000", h.Log().Config().Kafka()["retention.ms"])
		c.alter(controller.AlterConfig{Delete: []string{"min.insync.replicas"}, Set: map[string]string{"retention.ms": "6000"}})
		require.NoError(t, c.nodes[by].AwaitConfig(c.ctx(), "orders"))
		require.NoError(t, append())
		require.Equal(t, "6000", h.Log().Config().Kafka()["retention.ms"])
	}
}

func TestWaitingForSettingsEnds(t *testing.T) {
	c := newCluster(t, 1, 2)
	require.ErrorIs(t, c.nodes[1].AwaitConfig(c.ctx(), "orders"), replica.UnknownTopicOrPartition)
	c.create("orders", nil, ids{2})
	c.produce("a")
	h, err := c.nodes[2].Node().Partition(orders)
	require.NoError(t, err)
	c.network.Isolate(1, true, 2)
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = c.nodes[1].AwaitConfig(short, "orders")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "settings of orders-0: node 2")
	c.network.Isolate(1, false, 2)
	require.NoError(t, c.nodes[1].AwaitConfig(c.ctx(), "orders"))
	done, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, h.Reconfigure(done), context.Canceled)
	require.NoError(t, h.Reconfigure(c.ctx()))
}

// Settings that are looked up and come late are not laid over newer ones that the watch has told meanwhile.
func TestAnAnswerOfTheStoreThatComesLateBringsNoOldSettings(t *testing.T) {
	c := newCluster(t, 1)
	c.create("orders", map[string]string{"retention.ms": "1000"}, ids{1})
	c.heeds(map[string]string{"retention.ms": "1000"}, 1)
	m := c.nodes[1]
	hold := make(chan struct{})
	reads := m.store.holdKey(controller.ConfigPrefix+"orders", hold)
	id := c.look(orders).TopicID
	done := make(chan replica.ISRAnswer, 1)
	go func() { done <- m.heed(t.Context(), orders, replica.ControlRequest{TopicID: id, Settings: true}) }()
	<-reads
	m.store.holdKey("", nil)
	c.ask(func(ctx context.Context, ctrl *controller.Controller) error {
		return ctrl.SetConfig(ctx, "orders", map[string]string{"retention.ms": "2000"})
	})
	c.heeds(map[string]string{"retention.ms": "2000"}, 1)
	close(hold)
	require.Equal(t, replica.None, (<-done).Err)
	c.heeds(map[string]string{"retention.ms": "2000"}, 1)
}
