package member

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/vfs"
)

func TestMembersGoOnWithoutTheirLeaderAndTheirController(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.create("orders", map[string]string{"min.insync.replicas": "2"}, ids{1, 2, 3})
	c.produce("a")
	p := c.inSync(3)
	c.kill(p.Leader)
	c.produce("b")
	var ruler replica.NodeID
	require.Eventually(t, func() bool {
		for id, n := range c.nodes {
			if n.Member != nil && n.Status().Rules {
				ruler = id
				return true
			}
		}
		return false
	}, 10*time.Second, time.Millisecond)
	c.start(p.Leader, nil)
	c.inService(p.Leader)
	c.inSync(3)
	c.kill(ruler)
	c.produce("c")
	c.start(ruler, nil)
	c.inSync(3)
	for id := range c.nodes {
		c.holds(id, "a", "b", "c")
	}
}

func TestAControlledShutdownLeavesNoGap(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.create("orders", nil, ids{1, 2})
	c.produce("a")
	c.inSync(2)
	first := c.nodes[1].Member
	c.stop(1)
	p := c.look(orders).State
	require.EqualValues(t, 2, p.Leader)
	require.EqualValues(t, 1, p.LeaderEpoch, "the leadership went over once")
	require.ErrorIs(t, first.Close(), replica.ErrNodeClosed)
	require.ErrorIs(t, first.Shutdown(t.Context()), replica.ErrNodeClosed)
	require.ErrorIs(t, first.InService(t.Context()), replica.ErrNodeClosed)
	c.produce("b")
	c.start(1, nil)
	c.inSync(2)
	c.holds(1, "a", "b")
	require.False(t, c.look(orders).State.Recovering)
}

func TestAShutdownThatNoControllerAnswersStopsAllTheSame(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[1]
	n.store.down.Store(true)
	n.store.expire()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, n.Shutdown(ctx), context.DeadlineExceeded)
	require.NoError(t, n.dir.Close())
	n.Member = nil
}

// The only replica of a partition loses its session, while the process lives on: it comes back under a new broker epoch, has
// lost nothing, and leads again, cleanly.
func TestALostSessionIsReplacedByAnother(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.create("orders", nil, ids{1})
	c.produce("a")
	n := c.nodes[1]
	for range 3 {
		before := n.Status()
		require.True(t, before.InService)
		n.store.expire()
		require.NoError(t, n.Await(c.ctx(), func(s Status) bool { return s.InService && s.BrokerEpoch > before.BrokerEpoch }))
		p := c.until("it leads", func(p controller.Partition) bool { return p.Leader == 1 })
		require.False(t, p.Recovering, "nothing was lost")
		c.produce("b")
		c.holds(1, "a", "b")
	}
	require.NotZero(t, c.look(orders).State.LeaderEpoch)
}

// Nobody rules while a member registers, loses its session and registers again: the controller that comes then compares with
// the last registration that one before it has noticed, and that one ended cleanly.
func TestARegistrationThatNobodyNoticedIsNotTheOneToCompareWith(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.create("orders", nil, ids{1})
	c.produce("a")
	c.stop(1)
	c.stop(2)
	noted, err := controller.LastRegistration(t.Context(), c.store, 1)
	require.NoError(t, err)
	c.start(1, func(c *Config) { c.Controller = nil })
	n := c.nodes[1]
	for range 2 {
		var epoch int64
		require.NoError(t, n.Await(c.ctx(), func(s Status) bool { epoch = s.BrokerEpoch; return epoch > 0 }))
		n.store.expire()
		require.NoError(t, n.Await(c.ctx(), func(s Status) bool { return s.BrokerEpoch > epoch }))
	}
	last, err := controller.LastRegistration(t.Context(), c.store, 1)
	require.NoError(t, err)
	require.Equal(t, noted, last)
	require.False(t, n.Status().InService)
	c.start(2, nil)
	c.inService(1)
	p := c.until("it leads", func(p controller.Partition) bool { return p.Leader == 1 })
	require.False(t, p.Recovering, "nothing was lost")
	c.holds(1, "a")
}

// The store still says that the node leads, as it did before it crashed. It must not, in that epoch.
func TestWhatAnEarlierLifeLedIsHeldBack(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.create("orders", nil, ids{1})
	c.create("more", nil, ids{2})
	c.produce("a")
	c.stop(2) // so that nobody rules when the other is gone
	c.kill(1)
	led := c.look(orders).State
	require.EqualValues(t, 1, led.Leader)
	c.start(1, func(c *Config) { c.Controller = nil })
	n := c.nodes[1]
	require.NoError(t, n.Await(c.ctx(), func(s Status) bool { return s.BrokerEpoch > 0 }))
	time.Sleep(50 * time.Millisecond)
	_, err := n.Node().Partition(orders)
	require.ErrorIs(t, err, replica.ErrNoReplica)
	require.False(t, n.Status().InService)
	c.start(2, nil)
	c.inService(1)
	p := c.until("it leads", func(p controller.Partition) bool { return p.Leader == 1 })
	require.Greater(t, p.LeaderEpoch, led.LeaderEpoch)
	c.holds(1, "a")
	h, err := n.Node().Partition(orders)
	require.NoError(t, err)
	for e := range h.Log().Epochs() {
		require.NotEqual(t, led.LeaderEpoch+1, h.Log().Epochs()[e].Epoch, "nobody led when it was down")
	}
}

func TestATopicMadeAnewIsAnother(t *testing.T) {
	c := newCluster(t, 1, 2)
	for round := range 4 {
		c.create("orders", nil, ids{1, 2})
		c.produce(fmt.Sprint(round))
		c.inSync(2)
		c.holds(1, fmt.Sprint(round))
		c.holds(2, fmt.Sprint(round))
		if round == 2 {
			c.nodes[1].store.flaky.Store(100) // it misses what comes
			c.nodes[1].store.cut()
		}
		c.ask(func(ctx context.Context, ctrl *controller.Controller) error {
			err := ctrl.DeleteTopic(ctx, "orders")
			if c.look(orders).Deleted {
				return nil
			}
			return err
		})
		require.Eventually(t, func() bool { return c.look(orders).Deleted }, 10*time.Second, time.Millisecond)
		if round == 2 {
			c.create("orders", nil, ids{1, 2})
			c.nodes[1].store.flaky.Store(0)
		}
	}
	require.Eventually(t, func() bool {
		_, err := c.nodes[1].Node().Partition(orders)
		_, err2 := c.nodes[2].Node().Partition(orders)
		return err != nil && err2 != nil
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, c.nodes[1].Node().Err())
}

// A watch that ended missed the deletion of a topic. Nothing is deleted that is still in the store.
func TestWhatAWatchMissedIsLookedUp(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.create("orders", nil, ids{1, 2})
	c.create("gone", nil, ids{1, 2})
	c.produce("a")
	n := c.nodes[2]
	gone := log.TopicPartition{Topic: "gone"}
	require.Eventually(t, func() bool { _, err := n.Node().Partition(gone); return err == nil }, 10*time.Second, time.Millisecond)
	n.store.down.Store(true)
	n.store.cut()
	c.ask(func(ctx context.Context, ctrl *controller.Controller) error {
		if c.look(gone).Deleted {
			return nil
		}
		return ctrl.DeleteTopic(ctx, "gone")
	})
	require.Eventually(t, func() bool { return c.look(gone).Deleted }, 10*time.Second, time.Millisecond)
	n.store.down.Store(false)
	require.Eventually(t, func() bool { _, err := n.Node().Partition(gone); return err != nil }, 10*time.Second, time.Millisecond)
	c.holds(2, "a")
	c.inSync(2)
}

func TestASettingOfATopicReachesItsReplicas(t *testing.T) {
	c := newCluster(t, 1, 2)
	c.create("orders", map[string]string{"min.insync.replicas": "2"}, ids{1, 2})
	c.produce("a")
	under := func() bool {
		h, err := c.nodes[1].Node().Partition(orders)
		require.NoError(t, err)
		return h.Status().UnderMin
	}
	c.inSync(2)
	c.kill(2)
	c.until("alone", func(p controller.Partition) bool { return len(p.ISR) == 1 })
	require.Eventually(t, under, 10*time.Second, time.Millisecond)
	for n, want := range map[string]bool{"1": false, "2": true} {
		c.ask(func(ctx context.Context, ctrl *controller.Controller) error {
			return ctrl.SetConfig(ctx, "orders", map[string]string{"min.insync.replicas": n})
		})
		require.Eventually(t, func() bool { return under() == want }, 10*time.Second, time.Millisecond, n)
	}
	c.ask(func(ctx context.Context, ctrl *controller.Controller) error {
		return ctrl.SetConfig(ctx, "orders", nil)
	})
	require.Eventually(t, func() bool { return !under() }, 10*time.Second, time.Millisecond)
}

// Watches that end, calls that fail or whose fate is unknown, a slow store, lost sessions of members and of the ruler: what is
// committed stays, and when it is over all is well.
func TestMembersOutliveATroubledStore(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.create("orders", map[string]string{"min.insync.replicas": "2"}, ids{1, 2, 3})
	var want []string
	for round := range 12 {
		n := c.nodes[replica.NodeID(round%3+1)]
		switch round % 4 {
		case 0:
			n.store.flaky.Store(30)
			n.store.cut()
		case 1:
			n.store.slow.Store(int64(rand.N(20 * time.Millisecond)))
			n.store.expire()
		case 2:
			n.store.down.Store(true)
			n.store.expire()
			n.store.cut()
		case 3:
			c.store.Expire(nil) // of nobody
			n.store.expire()
			n.store.expire()
		}
		for i := range 3 {
			v := fmt.Sprintf("%d-%d", round, i)
			c.produce(v)
			want = append(want, v)
		}
		n.store.flaky.Store(0)
		n.store.slow.Store(0)
		n.store.down.Store(false)
	}
	for id := range c.nodes {
		c.inService(id)
	}
	p := c.inSync(3)
	c.produce("end")
	for id := range c.nodes {
		c.holds(id, append(want, "end")...)
	}
	h, err := c.nodes[p.Leader].Node().Partition(orders)
	require.NoError(t, err)
	require.Len(t, h.Status().ISR, 3)
}

// The ruler's sessions are over and it does not know: two controllers believe to rule. The first write of the old one is
// refused, and nothing it decides counts.
func TestOfTwoRulersTheLaterCounts(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.create("orders", map[string]string{"min.insync.replicas": "2"}, ids{1, 2, 3})
	c.produce("a")
	c.inSync(3)
	var old *node
	require.Eventually(t, func() bool {
		for _, n := range c.nodes {
			if n.Status().Rules {
				old = n
			}
		}
		return old != nil
	}, 10*time.Second, time.Millisecond)
	was, err := c.store.Get(t.Context(), controller.ClaimKey)
	require.NoError(t, err)
	old.store.deaf.Store(true)
	// It looks for the end of its session anew at each event.
	_, err = old.Controller().Describe(c.ctx())
	require.NoError(t, err)
	old.store.expire()
	require.Eventually(t, func() bool {
		v, err := c.store.Get(t.Context(), controller.ClaimKey)
		return err == nil && v.Value != nil && v.Created > was.Created
	}, 10*time.Second, time.Millisecond, "another rules")
	_, err = old.Controller().CreateTopic(c.ctx(), controller.CreateTopic{Topic: "late", Assignment: [][]replica.NodeID{{1}}})
	require.True(t, errors.Is(err, replica.NotController) || errors.Is(err, replica.RequestTimedOut), err)
	require.True(t, c.look(log.TopicPartition{Topic: "late"}).Deleted, "nothing was written")
	require.NoError(t, old.Await(c.ctx(), func(s Status) bool { return !s.Rules }))
	old.store.deaf.Store(false)
	c.produce("b")
	id := old.conf.Self
	c.stop(id)
	c.produce("c")
	c.start(id, nil)
	c.inSync(3)
	for id := range c.nodes {
		c.holds(id, "a", "b", "c")
	}
}

func TestMembersFindEachOtherOverTCP(t *testing.T) {
	before := runtime.NumGoroutine()
	store := replica.NewMemStore()
	type one struct {
		*Member
		dir  *log.Dir
		wire *replica.TCP
	}
	var all []one
	var troubles atomic.Int64
	for id := replica.NodeID(1); id <= 2; id++ {
		dir, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem(), Defaults: log.Config{Durability: log.Buffered}})
		require.NoError(t, err)
		wire, err := replica.ListenTCP("127.0.0.1:0", replica.TCPConfig{Self: id})
		require.NoError(t, err)
		m, err := Start(Config{
			NodeConfig: replica.NodeConfig{Config: replica.Config{Self: id, Backoff: 20 * time.Millisecond}, Dir: dir, Transport: wire},
			Store:      store, Controller: &controller.Options{}, Retry: 20 * time.Millisecond, Trouble: func(error) { troubles.Add(1) },
		})
		require.NoError(t, err)
		all = append(all, one{m, dir, wire})
	}
	c := &cluster{t: t, store: store, nodes: map[replica.NodeID]*node{1: {Member: all[0].Member}, 2: {Member: all[1].Member}}}
	for id := range c.nodes {
		c.inService(id)
	}
	c.create("orders", nil, ids{2, 1})
	c.produce("a")
	c.inSync(2)
	c.holds(1, "a")
	f, err := all[0].Node().Remote(2, orders).Fetch(t.Context(), 0, replica.FetchOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 1, f.NextOffset)
	for _, o := range []one{all[1], all[0]} {
		require.NoError(t, o.Shutdown(c.ctx()))
		require.NoError(t, o.wire.Close())
		require.NoError(t, o.dir.Close())
	}
	require.Zero(t, troubles.Load())
	for range 2000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("goroutines are left")
}

func TestAMemberThatCannotBeIsRefused(t *testing.T) {
	dir, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem(), Manual: true})
	require.NoError(t, err)
	defer dir.Close()
	wire := replica.NewNetwork().Transport(1)
	good := Config{NodeConfig: replica.NodeConfig{Config: replica.Config{Self: 1}, Dir: dir, Transport: wire}, Store: replica.NewMemStore()}
	everywhere := good
	everywhere.Transport = nowhere{wire}
	for _, none := range []*replica.TCP{nil, {}} { // that nobody has made
		c := good
		c.Transport = none
		_, err := Start(c)
		require.ErrorIs(t, err, replica.ErrNodeConfig)
	}
	for field, c := range map[string]Config{
		"Store":     {NodeConfig: good.NodeConfig},
		"Dir":       {NodeConfig: replica.NodeConfig{Transport: wire}, Store: good.Store},
		"Transport": {NodeConfig: replica.NodeConfig{Dir: dir}, Store: good.Store},
		"Host":      everywhere,
	} {
		_, err := Start(c)
		bad := (*replica.NodeConfigError)(nil)
		require.ErrorAs(t, err, &bad, field)
		require.Equal(t, field, bad.Field)
	}
	everywhere.Host = "node-1"
	m, err := Start(everywhere)
	require.NoError(t, err)
	require.Nil(t, m.Controller())
	require.NoError(t, m.Await(t.Context(), func(s Status) bool { return s.BrokerEpoch > 0 }))
	for p, err := range controller.FollowNodes(t.Context(), good.Store) {
		require.NoError(t, err)
		require.Equal(t, controller.Present{Node: 1, BrokerEpoch: 2, Host: "node-1", Port: 9092, Fenced: true}, p)
		break
	}
	require.NoError(t, m.Close())
}

type nowhere struct{ replica.Transport }

func (nowhere) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4zero, Port: 9092} }

func TestAMemberThatIsNotInServiceSaysWhatItWaitsFor(t *testing.T) {
	dir, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem(), Manual: true})
	require.NoError(t, err)
	defer dir.Close()
	network, store := replica.NewNetwork(), newTroubled(replica.NewMemStore())
	store.down.Store(true)
	m, err := Start(Config{NodeConfig: replica.NodeConfig{Config: replica.Config{Self: 1}, Dir: dir, Transport: network.Transport(1)}, Store: store, Retry: time.Millisecond})
	require.NoError(t, err)
	defer m.Close()
	waits := func(want string) {
		t.Helper()
		var err error
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			err = m.InService(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return strings.Contains(err.Error(), want)
		}, 5*time.Second, time.Millisecond, "%v", err)
	}
	waits("member: node 1 is not in service, it is not registered with the store: context deadline exceeded\n" + errDown.Error())
	store.down.Store(false)
	waits("no controller rules (a member without Config.Controller does not stand for election)")
	_, err = replica.Put(t.Context(), store, controller.ClaimKey, []byte(`{"version":1,"brokerid":7,"timestamp":"0"}`), 0)
	require.NoError(t, err)
	waits("the controller of node 7 has not noticed its registration")
}

func TestAMemberWhoseTransportIsServedByAnotherSaysSo(t *testing.T) {
	dir, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem(), Manual: true})
	require.NoError(t, err)
	defer dir.Close()
	m, err := Start(Config{NodeConfig: replica.NodeConfig{Config: replica.Config{Self: 1}, Dir: dir, Transport: busy{replica.NewNetwork().Transport(1)}}, Store: replica.NewMemStore()})
	require.NoError(t, err)
	defer m.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, m.Await(ctx, func(s Status) bool { return errors.Is(s.LastError, replica.ErrTransportBusy) }))
}

type busy struct{ replica.Transport }

func (busy) Serve(context.Context, func(replica.Envelope)) error { return replica.ErrTransportBusy }

func TestANilOrZeroMemberIsClosed(t *testing.T) {
	for _, m := range []*Member{nil, {}} {
		require.Nil(t, m.Node())
		require.Nil(t, m.Controller())
		require.ErrorIs(t, m.Status().LastError, replica.ErrNodeClosed)
		require.ErrorIs(t, m.Await(t.Context(), nil), replica.ErrNodeClosed)
		require.ErrorIs(t, m.InService(t.Context()), replica.ErrNodeClosed)
		require.ErrorIs(t, m.AwaitConfig(t.Context(), "orders"), replica.ErrNodeClosed)
		require.ErrorIs(t, m.Shutdown(t.Context()), replica.ErrNodeClosed)
		require.ErrorIs(t, m.Close(), replica.ErrNodeClosed)
	}
}
