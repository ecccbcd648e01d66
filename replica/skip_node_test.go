package replica

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

var hollowConf = log.Config{Durability: log.Buffered, SegmentBytes: 700, Cleanup: log.Compact,
	Compaction: log.CompactionConfig{MinDirtyRatio: log.AnyDirt, DeleteRetention: log.Immediately}}

// hollow makes the folder of a replica that has copied two deletions, which compaction then removed, and a record behind them that
// its newest segment lost: the log ends behind a gap, and the segment is empty. It ends at 8, its last record is the one at 5.
func hollow(t *testing.T, fsys vfs.FS) {
	t.Helper()
	d, err := log.OpenDir("mem", log.DirConfig{FS: fsys, Defaults: hollowConf})
	require.NoError(t, err)
	l, err := d.Open(t.Context(), ordersZero, hollowConf)
	require.NoError(t, err)
	put := func(key string, value []byte) {
		_, err := l.Append(t.Context(), record.Record{Key: []byte(key), Value: value})
		require.NoError(t, err)
	}
	clean := func() {
		require.NoError(t, l.Roll(t.Context()))
		time.Sleep(2 * time.Millisecond)
		_, err := l.Compact(t.Context(), log.CompactOptions{Force: true})
		require.NoError(t, err)
	}
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		put(key, bytes.Repeat([]byte(key), 20))
	}
	require.NoError(t, l.AssignEpoch(2))
	put("x", nil)
	put("y", nil)
	require.NoError(t, l.Roll(t.Context()))
	put("g", make([]byte, 500))
	clean()
	put("h", []byte("h"))
	clean() // the deletions have had their time
	end, err := l.Truncate(t.Context(), 8)
	require.NoError(t, err)
	require.Equal(t, int64(8), end)
	f, err := l.Fetch(t.Context(), 6, log.FetchOptions{Isolation: log.LogEnd})
	require.NoError(t, err)
	require.Zero(t, f.Len())
	require.NoError(t, f.Close())
	require.NoError(t, d.Close())
}

// hollowGroup is three nodes; the first leads with such a folder, alone in sync.
func hollowGroup(t *testing.T, wire func(g *group, id NodeID) Transport) *group {
	g := &group{t: t, network: NewNetwork(), ids: []NodeID{1, 2, 3}, nodes: map[NodeID]*member{}}
	g.tune = func(c *NodeConfig) { c.Config.MinISR = 2 }
	g.state = Assign{TopicID: [16]byte{1}, Leader: 1, LeaderEpoch: 5, PartitionEpoch: 9, Replicas: g.ids, ISR: []NodeID{1}}
	wires := map[NodeID]Transport{}
	for _, id := range g.ids {
		wires[id] = wire(g, id)
	}
	for _, id := range g.ids {
		g.nodes[id] = &member{fs: vfs.Mem()}
		if id == 1 {
			hollow(t, g.nodes[id].fs)
		}
		g.startOver(id, hollowConf, wires[id])
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

// joins waits until all are at the leader's end and in sync, though nothing was written: nothing could be.
func (g *group) joins() {
	g.t.Helper()
	g.inSync(1, 3)
	g.caughtUp(1, 2, 3)
	for _, id := range []NodeID{2, 3} {
		l := g.handle(id).Log()
		require.Equal(g.t, int64(8), l.Offsets().LogEnd)
		require.Equal(g.t, entries(0, 0, 2, 6), l.Epochs(), "node %d", id)
	}
}

// putAt appends a record at the leader, and wants it at an offset.
func (g *group) putAt(leader NodeID, offset int64, key string) {
	g.t.Helper()
	b := record.NewBuilder(record.BuilderOptions{})
	require.NoError(g.t, b.Add(record.Record{Timestamp: time.Now().UnixMilli(), Key: []byte(key), Value: []byte(key)}))
	batch, err := b.Finish()
	require.NoError(g.t, err)
	var got log.Appended
	require.Eventually(g.t, func() bool {
		got, err = g.handle(leader).Append(g.t.Context(), slices.Clone(batch.Bytes()), -1)
		return err == nil
	}, 10*time.Second, 5*time.Millisecond)
	require.Equal(g.t, offset, got.Base)
}

func (g *group) same(leader NodeID, others ...NodeID) {
	g.t.Helper()
	g.caughtUp(leader, others...)
	for _, id := range others {
		require.Equal(g.t, g.values(leader), g.values(id), "node %d", id)
		require.Equal(g.t, g.handle(leader).Log().Epochs(), g.handle(id).Log().Epochs(), "node %d", id)
	}
}

// New replicas of a leader whose log ends behind a gap reach its end without a record, and are in sync. It dies; one of them leads, from
// where it ended, and what is written then is the same everywhere, also on the old leader when it comes back.
func TestNewReplicasReachAnEndBehindAGapAndLeadFromThere(t *testing.T) {
	g := hollowGroup(t, func(g *group, id NodeID) Transport { return g.network.Transport(id) })
	g.joins()
	g.kill(1)
	g.elect(2, 1)
	g.putAt(2, 8, "after")
	g.start(1, hollowConf)
	g.assign(g.state)
	g.inSync(2, 3)
	g.putAt(2, 9, "later")
	g.same(2, 1, 3)
	require.Equal(t, entries(0, 0, 2, 6, 6, 8), g.handle(2).Log().Epochs())
	for id := range g.nodes {
		require.Zero(t, g.handle(id).Status().Counts.Truncations, "node %d", id)
	}

	g.kill(2) // whose gap lies inside the log by now
	g.elect(3, 2)
	g.putAt(3, 10, "last")
	g.start(2, hollowConf)
	g.assign(g.state)
	g.inSync(3, 3)
	g.same(3, 1, 2)
}

func TestNewReplicasReachAnEndBehindAGapOverTCP(t *testing.T) {
	wires := map[NodeID]*TCP{}
	g := hollowGroup(t, func(_ *group, id NodeID) Transport {
		tcp, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: id, Backoff: 5 * time.Millisecond})
		require.NoError(t, err)
		t.Cleanup(func() { _ = tcp.Close() })
		for other, w := range wires {
			tcp.SetPeer(other, w.Addr().String())
			w.SetPeer(id, tcp.Addr().String())
		}
		wires[id] = tcp
		return tcp
	})
	g.joins()
	g.kill(1)
	require.NoError(t, wires[1].Close())
	g.elect(3, 1)
	g.putAt(3, 8, "after")
	g.same(3, 2)
}
