package member

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/vfs"
)

type ids = []replica.NodeID

var orders = log.TopicPartition{Topic: "orders"}

// cluster is some members in this process over one store.
type cluster struct {
	t       *testing.T
	store   *replica.MemStore
	network *replica.Network
	nodes   map[replica.NodeID]*node
}

// node is a member and what outlives it.
type node struct {
	*Member // nil: it is down
	dir     *log.Dir
	fs      vfs.FS
	store   *troubled
}

func newCluster(t *testing.T, members ...replica.NodeID) *cluster {
	c := &cluster{t: t, store: replica.NewMemStore(), network: replica.NewNetwork(), nodes: map[replica.NodeID]*node{}}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			if n.Member != nil {
				require.NoError(t, n.Close())
				require.NoError(t, n.dir.Close())
			}
		}
	})
	for _, id := range members {
		c.nodes[id] = &node{fs: vfs.Mem(), store: newTroubled(c.store)}
		c.start(id, nil)
	}
	for _, id := range members {
		c.inService(id)
	}
	return c
}

func (c *cluster) start(id replica.NodeID, change func(*Config)) {
	c.t.Helper()
	n := c.nodes[id]
	d, err := log.OpenDir("mem", log.DirConfig{FS: n.fs, Defaults: log.Config{Durability: log.Buffered}})
	require.NoError(c.t, err)
	conf := Config{
		NodeConfig: replica.NodeConfig{
			Config: replica.Config{Self: id, LagTimeMax: 500 * time.Millisecond, FetchWait: 50 * time.Millisecond, FetchLimit: 200 * time.Millisecond, Backoff: 10 * time.Millisecond},
			Dir:    d, Transport: c.network.Transport(id), ProposeTimeout: 2 * time.Second,
		},
		Store: n.store, Retry: 10 * time.Millisecond, Controller: &controller.Options{},
	}
	if change != nil {
		change(&conf)
	}
	n.dir = d
	n.Member, err = Start(conf)
	require.NoError(c.t, err)
}

// stop ends a member in good order.
func (c *cluster) stop(id replica.NodeID) {
	c.t.Helper()
	n := c.nodes[id]
	require.NoError(c.t, n.Shutdown(c.ctx()))
	require.NoError(c.t, n.dir.Close())
	n.Member = nil
}

// kill ends a member as a crash does that takes nothing from the disk; the session is over at once.
func (c *cluster) kill(id replica.NodeID) {
	c.t.Helper()
	n := c.nodes[id]
	require.NoError(c.t, n.Close())
	require.NoError(c.t, n.dir.Close())
	if err := n.fs.Remove(".kafka_cleanshutdown"); !errors.Is(err, fs.ErrNotExist) { // not all was recovered from a kill before
		require.NoError(c.t, err)
	}
	n.Member = nil
}

func (c *cluster) ctx() context.Context {
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	c.t.Cleanup(cancel)
	return ctx
}

func (c *cluster) inService(id replica.NodeID) {
	c.t.Helper()
	require.NoError(c.t, c.nodes[id].InService(c.ctx()), "node %d", id)
}

// ask tries all controllers until one rules.
func (c *cluster) ask(do func(ctx context.Context, ctrl *controller.Controller) error) {
	c.t.Helper()
	var err error
	require.Eventually(c.t, func() bool {
		for _, n := range c.nodes {
			if n.Member == nil || n.Controller() == nil {
				continue
			}
			ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
			err = do(ctx, n.Controller())
			cancel()
			if err == nil {
				return true
			}
		}
		return false
	}, 20*time.Second, 5*time.Millisecond, "nobody did it")
}

func (c *cluster) create(topic string, config map[string]string, assignment ...ids) {
	c.t.Helper()
	c.ask(func(ctx context.Context, ctrl *controller.Controller) error {
		_, err := ctrl.CreateTopic(ctx, controller.CreateTopic{Topic: topic, Assignment: assignment, Config: config})
		if errors.Is(err, replica.TopicAlreadyExists) {
			return nil
		}
		return err
	})
}

// look is what the store says.
func (c *cluster) look(tp log.TopicPartition) controller.News {
	n, err := controller.Lookup(c.t.Context(), c.store, tp)
	require.NoError(c.t, err)
	return n
}

func (c *cluster) until(what string, ok func(p controller.Partition) bool) controller.Partition {
	c.t.Helper()
	var p controller.Partition
	require.Eventually(c.t, func() bool {
		n := c.look(orders)
		p = n.State
		return !n.Deleted && ok(p)
	}, 20*time.Second, 5*time.Millisecond, what)
	return p
}

func (c *cluster) inSync(n int) controller.Partition {
	c.t.Helper()
	return c.until("in sync", func(p controller.Partition) bool { return len(p.ISR) == n && p.Leader != replica.NoNode })
}

// produce appends with acks=all at whoever leads until it is committed. A value may be there twice.
func (c *cluster) produce(value string) {
	c.t.Helper()
	c.produceWithin(20*time.Second, value)
}

func (c *cluster) produceWithin(limit time.Duration, value string) {
	c.t.Helper()
	b := record.NewBuilder(record.BuilderOptions{})
	require.NoError(c.t, b.Add(record.Record{Timestamp: time.Now().UnixMilli(), Key: []byte(value), Value: []byte(value)}))
	batch, err := b.Finish()
	require.NoError(c.t, err)
	require.Eventually(c.t, func() bool {
		now := c.look(orders)
		n := c.nodes[now.State.Leader]
		if n == nil || n.Member == nil {
			return false
		}
		h, err := n.Node().Partition(orders)
		if err != nil || h.Status().TopicID != now.TopicID { // of a topic that had the name before
			return false
		}
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		defer cancel()
		_, err = h.Append(ctx, slices.Clone(batch.Bytes()), -1)
		return err == nil
	}, limit, 5*time.Millisecond, value)
}

// holds waits for a member to show what was committed.
func (c *cluster) holds(id replica.NodeID, want ...string) {
	c.t.Helper()
	var got []string
	ok := func() bool {
		h, err := c.nodes[id].Node().Partition(orders)
		if err != nil || h.Log() == nil {
			return false
		}
		got = nil
		for r, err := range h.Log().Records(c.t.Context(), 0) {
			if err != nil {
				return false
			}
			got = append(got, string(r.Value))
		}
		got = slices.Compact(got)
		return slices.Equal(want, got)
	}
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("node %d shows %v, not %v", id, got, want)
		}
	}
}

// tell shows how all stand, if the test has failed.
func (c *cluster) tell() {
	if !c.t.Failed() {
		return
	}
	c.t.Logf("the store: %+v", c.look(orders).State)
	for id, n := range c.nodes {
		if n.Member == nil {
			c.t.Logf("node %d is down", id)
			continue
		}
		c.t.Logf("node %d: %+v", id, n.Status())
		if h, err := n.Node().Partition(orders); err == nil {
			s := h.Status()
			c.t.Logf("node %d: %v %s, leader %d epoch %d version %d, isr %v, pending %s, %+v, unclean %v, followers %+v, epochs %v, error %v", id, s.Role, s.Phase, s.Leader,
				s.LeaderEpoch, s.PartitionEpoch, s.ISR, s.Pending, s.Offsets, s.UncleanStop, s.Followers, s.Epochs, s.LastError)
		}
	}
}
