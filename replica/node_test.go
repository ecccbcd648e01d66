package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

var ordersZero = log.TopicPartition{Topic: "orders"}

// group is a few nodes of one process, with a controller that only the test calls: it knows one partition.
type group struct {
	t       testing.TB
	network *Network
	ids     []NodeID

	slow chan struct{}     // if not nil: the controller answers no proposal before it is closed
	tune func(*NodeConfig) // if not nil: of each node

	mu    sync.Mutex
	nodes map[NodeID]*member
	state Assign
	epoch int64 // of the last registration
}

type member struct {
	*Node
	dir   *log.Dir
	fs    vfs.FS
	alive bool
}

// quick makes things happen soon enough for a test.
var quick = Config{LagTimeMax: 500 * time.Millisecond, FetchWait: 100 * time.Millisecond, FetchLimit: 300 * time.Millisecond, Backoff: 20 * time.Millisecond}

func newGroup(t testing.TB, conf log.Config, ids ...NodeID) *group {
	return newTunedGroup(t, conf, nil, ids...)
}

func newTunedGroup(t testing.TB, conf log.Config, tune func(*NodeConfig), ids ...NodeID) *group {
	g := &group{t: t, network: NewNetwork(), ids: ids, nodes: map[NodeID]*member{}, tune: tune}
	g.state = Assign{TopicID: [16]byte{1}, Leader: ids[0], Replicas: ids, ISR: slices.Clone(ids)}
	for _, id := range ids {
		g.nodes[id] = &member{fs: vfs.Mem()}
		g.start(id, conf)
	}
	t.Cleanup(func() {
		for _, m := range g.nodes {
			if m.alive {
				require.NoError(t, m.Close())
				require.NoError(t, m.dir.Close())
			}
		}
	})
	g.assign(g.state)
	return g
}

func (g *group) start(id NodeID, conf log.Config) { g.startOver(id, conf, g.network.Transport(id)) }

func (g *group) startOver(id NodeID, conf log.Config, wire Transport) {
	m := g.nodes[id]
	d, err := log.OpenDir("mem", log.DirConfig{FS: m.fs, Defaults: conf})
	require.NoError(g.t, err)
	g.mu.Lock()
	g.epoch++
	c := quick
	c.Self, c.BrokerEpoch = id, g.epoch
	g.mu.Unlock()
	nc := NodeConfig{Config: c, Dir: d, Transport: wire, Propose: g.propose}
	if g.tune != nil {
		g.tune(&nc)
	}
	n, err := NewNode(nc)
	require.NoError(g.t, err)
	m.Node, m.dir, m.alive = n, d, true
}

// propose accepts what is of the present version.
func (g *group) propose(ctx context.Context, _ log.TopicPartition, _ [16]byte, p Proposal) ISRAnswer {
	if g.slow != nil {
		select {
		case <-g.slow:
		case <-ctx.Done():
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case p.LeaderEpoch != g.state.LeaderEpoch:
		return ISRAnswer{Err: FencedLeaderEpoch}
	case p.PartitionEpoch != g.state.PartitionEpoch:
		return ISRAnswer{Err: InvalidUpdateVersion}
	case !slices.Contains(p.ISR, g.state.Leader): // whose log has failed: this controller has no other way but elect
		return ISRAnswer{Err: InvalidRequest}
	}
	g.state.ISR = p.ISR
	g.state.PartitionEpoch++
	return ISRAnswer{ISR: slices.Clone(p.ISR), LeaderEpoch: p.LeaderEpoch, PartitionEpoch: g.state.PartitionEpoch}
}

// assign tells all live nodes.
func (g *group) assign(a Assign) {
	for id, m := range g.nodes {
		if m.alive {
			a.BrokerEpoch = m.conf.BrokerEpoch
			require.NoError(g.t, m.Assign(ordersZero, a), id)
		}
	}
}

// elect makes a node that is in sync the leader of the next epoch, without some others in sync.
func (g *group) elect(leader NodeID, without ...NodeID) {
	g.mu.Lock()
	for end := time.Now().Add(30 * time.Second); !slices.Contains(g.state.ISR, leader) && time.Now().Before(end); { // it lagged: a slow machine
		g.mu.Unlock()
		time.Sleep(time.Millisecond)
		g.mu.Lock()
	}
	g.state.Leader = leader
	g.state.LeaderEpoch++
	g.state.PartitionEpoch++
	g.state.ISR = slices.DeleteFunc(slices.Clone(g.state.ISR), func(id NodeID) bool { return slices.Contains(without, id) })
	a := g.state
	g.mu.Unlock()
	g.assign(a)
}

// kill ends a node as a power cut would, with disks that keep what was written.
func (g *group) kill(id NodeID) {
	m := g.nodes[id]
	m.alive = false
	require.NoError(g.t, m.Close())
	crashed := vfs.Mem()
	copyTree(g.t, m.fs, crashed, ".")
	_ = m.dir.Close()
	m.fs = crashed
}

func copyTree(t testing.TB, from, to vfs.FS, dir string) {
	entries, err := from.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		name := e.Name()
		if dir != "." {
			name = dir + "/" + name
		}
		if e.IsDir() {
			require.NoError(t, to.MkdirAll(name, 0o755))
			copyTree(t, from, to, name)
			continue
		}
		raw, err := vfs.ReadFile(from, name, 1<<30)
		require.NoError(t, err)
		f, err := to.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		require.NoError(t, err)
		_, err = f.WriteAt(raw, 0)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
}

func (g *group) handle(id NodeID) *Handle {
	h, err := g.nodes[id].Partition(ordersZero)
	require.NoError(g.t, err)
	return h
}

func (g *group) values(id NodeID) (list []string) {
	l := g.handle(id).Log()
	for r, err := range l.Records(g.t.Context(), l.Offsets().LogStart) {
		require.NoError(g.t, err)
		list = append(list, string(r.Value))
	}
	return list
}

func rawBatch(t testing.TB, values ...string) []byte {
	b := record.NewBuilder(record.BuilderOptions{})
	for _, v := range values {
		require.NoError(t, b.Add(record.Record{Timestamp: 1, Value: []byte(v)}))
	}
	batch, err := b.Finish()
	require.NoError(t, err)
	return slices.Clone(batch.Bytes())
}

// produce appends with acks=all at whoever leads until it is committed.
func (g *group) produce(value string) {
	require.Eventually(g.t, func() bool {
		g.mu.Lock()
		leader := g.state.Leader
		g.mu.Unlock()
		ctx, cancel := context.WithTimeout(g.t.Context(), 5*time.Second)
		defer cancel()
		h, err := g.nodes[leader].Partition(ordersZero)
		if err != nil {
			return false
		}
		_, err = h.Append(ctx, rawBatch(g.t, value), -1)
		if refused := (*RefusedError)(nil); errors.As(err, &refused) {
			return false
		}
		require.NoError(g.t, err)
		return true
	}, 10*time.Second, 5*time.Millisecond)
}

func (g *group) inSync(leader NodeID, n int) {
	require.Eventually(g.t, func() bool { return len(g.handle(leader).Status().ISR) == n }, 10*time.Second, 5*time.Millisecond,
		"%+v", g.handle(leader).Status())
}

func (g *group) caughtUp(leader NodeID, others ...NodeID) {
	g.t.Helper()
	for _, id := range others {
		require.Eventually(g.t, func() bool {
			want := g.handle(leader).Log().Offsets()
			l := g.handle(id).Log()
			return l != nil && l.Offsets().HighWatermark == want.HighWatermark && l.Offsets().LogEnd == want.LogEnd
		}, 10*time.Second, 5*time.Millisecond)
	}
}

func TestCommittedRecordsOutliveTheirLeader(t *testing.T) {
	for name, durability := range map[string]log.Durability{"buffered": log.Buffered, "durable": log.Durable} {
		t.Run(name, func(t *testing.T) {
			conf := log.Config{Durability: durability}
			g := newGroup(t, conf, 1, 2, 3)
			var want []string
			for i := range 20 {
				want = append(want, fmt.Sprint("v", i))
				g.produce(want[i])
			}
			g.kill(1)
			g.elect(2, 1)
			for i := 20; i < 40; i++ {
				want = append(want, fmt.Sprint("v", i))
				g.produce(want[i])
			}
			require.Equal(t, want, g.values(2))

			g.start(1, conf)
			require.True(t, g.nodes[1].UncleanStop())
			g.assign(g.state)
			g.inSync(2, 3)
			g.produce("after")
			want = append(want, "after")
			g.caughtUp(2, 1, 3)
			for _, id := range g.ids {
				require.Equal(t, want, g.values(id))
			}
			require.Equal(t, g.handle(2).Log().Epochs(), g.handle(1).Log().Epochs())
		})
	}
}
