package member

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/vfs"
)

// wipe takes everything out of the store, and answers what puts it back. Keys of sessions stay gone.
func (c *cluster) wipe() (restore func()) {
	c.t.Helper()
	all, err := c.store.List(c.t.Context(), "")
	require.NoError(c.t, err)
	for part := range slices.Chunk(all, 100) {
		tx := replica.Transaction{}
		for _, v := range part {
			tx.Writes = append(tx.Writes, replica.Write{Key: v.Key, IfVersion: replica.AnyVersion})
		}
		_, err := c.store.Commit(c.t.Context(), tx)
		require.NoError(c.t, err)
	}
	return func() {
		// Whoever ruled an empty store must not go on with it.
		_, err := c.store.Commit(c.t.Context(), replica.Transaction{Writes: []replica.Write{{Key: controller.ClaimKey, IfVersion: replica.AnyVersion}}})
		require.NoError(c.t, err)
		for _, v := range all {
			if v.Key == controller.ClaimKey || strings.HasPrefix(v.Key, controller.IDsPrefix) {
				continue
			}
			_, err := replica.Put(c.t.Context(), c.store, v.Key, v.Value, replica.AnyVersion)
			require.NoError(c.t, err)
		}
	}
}

// A store that was set up anew knows no topic. That is no reason to delete what it once knew.
func TestAStoreThatCameBackEmptyDeletesNothing(t *testing.T) {
	for name, how := range map[string]func(*cluster) func(){
		"while the members watch": func(c *cluster) func() { return c.wipe() },
		"while they do not reach it": func(c *cluster) func() {
			for _, n := range c.nodes {
				n.store.down.Store(true)
				n.store.cut()
			}
			restore := c.wipe()
			for _, n := range c.nodes {
				n.store.expire()
				n.store.down.Store(false)
			}
			return restore
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1, 2)
			c.create("orders", nil, ids{1, 2})
			c.produce("a")
			c.inSync(2)
			restore := how(c)
			for _, n := range c.nodes {
				n.store.expire() // so that they register once more
				require.NoError(t, n.Await(c.ctx(), func(s Status) bool { return s.BrokerEpoch == 0 && errors.Is(s.LastError, ErrOtherCluster) }))
			}
			time.Sleep(100 * time.Millisecond)
			for id, n := range c.nodes {
				h, err := n.Node().Partition(orders)
				require.NoError(t, err, "node %d has lost its replica", id)
				require.NotNil(t, h.Log())
				require.ErrorIs(t, n.Status().LastError, ErrOtherCluster)
			}
			restore()
			for id := range c.nodes {
				c.inService(id)
			}
			c.produce("b")
			c.inSync(2)
			for id := range c.nodes {
				c.holds(id, "a", "b")
			}
		})
	}
}

// The Dir's meta.properties say which cluster its logs are of: the first member gives the store that id, and one of another
// cluster does not register.
func TestTheStoreIsOfTheClusterThatTheDirIsOf(t *testing.T) {
	store, network := replica.NewMemStore(), replica.NewNetwork()
	start := func(id replica.NodeID, cluster string) *Member {
		conf := log.DirConfig{FS: vfs.Mem(), Manual: true, ClusterID: cluster}
		if cluster != "" {
			conf.NodeID = int32(id)
		}
		dir, err := log.OpenDir("mem", conf)
		require.NoError(t, err)
		m, err := Start(Config{
			NodeConfig: replica.NodeConfig{Config: replica.Config{Self: id}, Dir: dir, Transport: network.Transport(id)},
			Store:      store, Retry: 5 * time.Millisecond, Controller: &controller.Options{},
		})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, m.Close())
			require.NoError(t, dir.Close())
		})
		return m
	}
	require.NoError(t, start(1, "lV5hs7S-RuCUsoJO4Pz0hw").InService(t.Context()))
	id, err := controller.ClusterID(t.Context(), store)
	require.NoError(t, err)
	require.Equal(t, "lV5hs7S-RuCUsoJO4Pz0hw", id)
	require.NoError(t, start(2, "").InService(t.Context()), "one that does not say joins")
	other := start(3, "another")
	require.NoError(t, other.Await(t.Context(), func(s Status) bool { return s.LastError != nil }))
	require.ErrorIs(t, other.Status().LastError, ErrOtherCluster)
	require.Zero(t, other.Status().BrokerEpoch)
	at, err := controller.LookupNode(t.Context(), store, 3)
	require.NoError(t, err)
	require.Zero(t, at.BrokerEpoch)
}
