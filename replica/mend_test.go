package replica

import (
	"errors"
	"math"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// groupOver is a group whose nodes have these disks.
func groupOver(t *testing.T, conf log.Config, tune func(*NodeConfig), disks ...vfs.FS) *group {
	g := &group{t: t, network: NewNetwork(), nodes: map[NodeID]*member{}, tune: tune}
	for i, fs := range disks {
		g.ids = append(g.ids, NodeID(i+1))
		g.nodes[NodeID(i+1)] = &member{fs: fs}
	}
	g.state = Assign{TopicID: [16]byte{1}, Leader: 1, Replicas: g.ids, ISR: slices.Clone(g.ids)}
	for _, id := range g.ids {
		g.start(id, conf)
	}
	t.Cleanup(func() {
		for _, m := range g.nodes {
			require.NoError(t, m.Close())
			_ = m.dir.Close() // of a log that failed it says so
		}
	})
	g.assign(g.state)
	return g
}

func (g *group) eventually(what string, ok func() bool) {
	g.t.Helper()
	require.Eventually(g.t, ok, 10*time.Second, time.Millisecond, what)
}

// A follower whose disk fails tries again by itself, with growing pauses, and needs no news for that.
func TestAFollowerWhoseLogFailedComesBackByItself(t *testing.T) {
	disk := vfstest.NewFault(vfs.Mem())
	var mu sync.Mutex
	var told []error
	g := groupOver(t, log.Config{Durability: log.Buffered}, func(nc *NodeConfig) {
		nc.Trouble = func(_ log.TopicPartition, err error) { mu.Lock(); defer mu.Unlock(); told = append(told, err) }
	}, vfs.Mem(), disk)
	g.produce("a")
	g.caughtUp(1, 2)
	_, mend := disk.Add(vfstest.Rule{Name: "orders-0/*", Ops: []vfstest.Kind{vfstest.OpWrite}, Times: vfstest.Always, Err: syscall.EIO})
	g.produce("b") // once the follower is out of sync
	h := g.handle(2)
	g.eventually("attempts", func() bool { return h.Status().LogFailures >= 3 })
	g.eventually("it waits", func() bool { s := h.Status(); return s.Role == Failed && !s.Reopening.IsZero() })
	require.GreaterOrEqual(t, g.nodes[2].Stats().LogFailures, int64(3))
	require.ErrorIs(t, h.Status().LastError, syscall.EIO)
	mu.Lock()
	require.ErrorIs(t, told[0], syscall.EIO)
	mu.Unlock()
	mend()
	g.inSync(1, 2)
	g.produce("c")
	g.caughtUp(1, 2)
	require.Equal(t, []string{"a", "b", "c"}, g.values(2))
	require.True(t, h.Status().Reopening.IsZero())
}

// So does a replica whose log cannot be opened, whatever its role.
func TestALogThatCannotBeOpenedIsTriedAgain(t *testing.T) {
	for name, disks := range map[string]func(bad vfs.FS) []vfs.FS{
		"a follower's": func(bad vfs.FS) []vfs.FS { return []vfs.FS{vfs.Mem(), bad} },
		"a leader's":   func(bad vfs.FS) []vfs.FS { return []vfs.FS{bad, vfs.Mem()} },
		"alone":        func(bad vfs.FS) []vfs.FS { return []vfs.FS{bad} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := vfstest.NewFault(vfs.Mem())
			_, mend := disk.Add(vfstest.Rule{Name: "orders-0", Ops: []vfstest.Kind{vfstest.OpMkdir}, Times: vfstest.Always, Err: syscall.EIO})
			g := groupOver(t, log.Config{Durability: log.Buffered}, nil, disks(disk)...)
			bad := g.ids[slices.IndexFunc(g.ids, func(id NodeID) bool { return g.nodes[id].fs == vfs.FS(disk) })]
			g.eventually("attempts", func() bool { return g.handle(bad).Status().LogFailures >= 2 })
			require.Equal(t, Failed, g.handle(bad).Status().Role)
			mend()
			g.produce("a")
			g.inSync(1, len(g.ids))
			g.caughtUp(1, g.ids...)
		})
	}
}

// A leader that is alone in sync leads on, in the same leader epoch, when its log was opened again and nothing is missing.
func TestALeaderThatIsAloneLeadsOnWhenItsLogIsOpenedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		durability log.Durability
		harm       func(t *testing.T, g *group, disk *vfstest.Fault)
	}{
		"closed by the host": {log.Buffered, func(t *testing.T, g *group, _ *vfstest.Fault) {
			require.NoError(t, g.handle(1).Log().Close())
			_, err := g.handle(1).Append(t.Context(), rawBatch(t, "refused"), -1)
			require.ErrorIs(t, err, KafkaStorageError)
		}},
		"a sync that fails": {log.Durable, func(t *testing.T, g *group, disk *vfstest.Fault) {
			disk.Add(vfstest.Rule{Name: "orders-0/*.log", Ops: []vfstest.Kind{vfstest.OpSync, vfstest.OpSyncData}, Err: syscall.EIO})
			_, err := g.handle(1).Append(t.Context(), rawBatch(t, "in doubt"), -1)
			require.ErrorAs(t, err, new(*log.UnconfirmedError))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			disk := vfstest.NewFault(vfs.Mem())
			g := groupOver(t, log.Config{Durability: c.durability}, nil, disk)
			g.produce("a")
			h := g.handle(1)
			hw := h.Status().HighWatermark
			c.harm(t, g, disk)
			g.produce("b") // whenever it can be
			s := h.Status()
			require.Equal(t, int64(1), s.LogFailures)
			require.Equal(t, int32(0), s.LeaderEpoch)
			require.GreaterOrEqual(t, s.HighWatermark, hw)
			values := g.values(1)
			require.Equal(t, "a", values[0])
			require.Equal(t, "b", values[len(values)-1])
			require.Len(t, h.Log().Epochs(), 1)
		})
	}
}

// If something is missing it does not lead that epoch again, and says so; a newer one it does.
func TestALeaderThatLostItsTailWaitsForANewEpoch(t *testing.T) {
	disk := vfstest.NewFault(vfstest.NewCrash(vfstest.CrashOptions{}))
	g := groupOver(t, log.Config{Durability: log.Durable}, nil, disk)
	g.produce("a")
	h := g.handle(1)
	disk.Add(vfstest.Rule{Name: "orders-0/*.log", Ops: []vfstest.Kind{vfstest.OpSync, vfstest.OpSyncData}, Err: syscall.EIO, LosePages: true})
	_, err := h.Append(t.Context(), rawBatch(t, "lost"), -1)
	require.ErrorAs(t, err, new(*log.UnconfirmedError))
	lost := (*LostTailError)(nil)
	g.eventually("it notices", func() bool { return errors.As(h.Status().LastError, &lost) })
	require.Equal(t, LostTailError{Partition: ordersZero, LeaderEpoch: 0, Had: 2, Has: 1}, *lost)
	require.ErrorIs(t, lost, log.ErrFailed)
	require.ErrorContains(t, lost, "orders-0 failed, and has lost offsets 1 to 1 of leader epoch 0")
	require.Equal(t, Failed, h.Status().Role)
	_, err = h.Append(t.Context(), rawBatch(t, "refused"), -1)
	require.ErrorIs(t, err, KafkaStorageError)
	require.ErrorAs(t, err, new(*LostTailError))
	g.mu.Lock()
	g.state.PartitionEpoch++
	g.mu.Unlock()
	g.assign(g.state)
	time.Sleep(100 * time.Millisecond)
	require.Equal(t, Failed, h.Status().Role, "the same epoch")

	g.elect(1)
	g.produce("b")
	require.Equal(t, []string{"a", "b"}, g.values(1))
}

// A log that was opened again, and fails before the replica leads on, is opened once more: what it must have is not forgotten.
func TestALeadersLogThatFailsOnceMoreIsOpenedOnceMore(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1)
	g.produce("a")
	r := &runner{node: &Node{conf: g.nodes[1].conf}}
	l := g.handle(1).Log()
	r.mend.wanted = &Assign{Leader: 1, ISR: []NodeID{1}}
	r.mend.claim = &claim{end: 1, hw: 1, epochs: l.Epochs()}
	require.NoError(t, g.nodes[1].Close())
	g.nodes[1].alive = false
	require.NoError(t, l.Close())
	require.ErrorIs(t, r.reclaim(l), log.ErrClosed)
	require.NotNil(t, r.mayMend())
	require.NoError(t, g.nodes[1].dir.Close())
}

// What is damaged does not mend by itself, and a replica that was stopped stays so.
func TestNothingIsTriedAgainInVain(t *testing.T) {
	r := newRunner(&Node{conf: NodeConfig{Config: quick}.withDefaults()}, ordersZero)
	r.node.ctx = t.Context()
	r.failed(log.ErrFailed)
	require.False(t, r.mend.at.IsZero())
	r.failed(&log.CorruptError{})
	require.True(t, r.mend.at.IsZero())
	last := time.Duration(0)
	for range 100 {
		r.failed(log.ErrFailed)
		pause := time.Until(r.mend.at)
		require.Greater(t, pause, last-50*time.Millisecond)
		require.LessOrEqual(t, pause, longestMend)
		last = pause
	}
	require.Greater(t, last, longestMend-time.Second)

	r.node.conf.Backoff = math.MaxInt32 * time.Millisecond // the most that replica.fetch.backoff.ms can be
	for range 20 {
		r.failed(log.ErrFailed)
		require.Greater(t, time.Until(r.mend.at), longestMend-time.Second, "after %d failures", r.mend.inRow)
	}

	r.mend.wanted = &Assign{LeaderEpoch: 3}
	r.heed(Stop{LeaderEpoch: 2})
	require.NotNil(t, r.mend.wanted, "it is older")
	r.heed(Stop{LeaderEpoch: -1})
	require.Nil(t, r.mend.wanted)
	require.True(t, r.mend.at.IsZero())
}
