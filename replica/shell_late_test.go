package replica

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// late is a node over a disk that can refuse what its test wants it to.
type late struct {
	*Node
	t    *testing.T
	dir  *log.Dir
	disk *vfstest.Fault
	once sync.Once
}

func newLate(t *testing.T) *late { return lateOn(t, vfstest.NewFault(vfs.Mem())) }

func lateOn(t *testing.T, disk *vfstest.Fault) *late {
	d, err := log.OpenDir("mem", log.DirConfig{FS: disk, Defaults: log.Config{Durability: log.Buffered}})
	require.NoError(t, err)
	conf := quick
	conf.Self = 1
	n, err := NewNode(NodeConfig{Config: conf, Dir: d, Transport: NewNetwork().Transport(1)})
	require.NoError(t, err)
	l := &late{Node: n, t: t, dir: d, disk: disk}
	t.Cleanup(l.end)
	return l
}

// end closes the node and its root, once.
func (l *late) end() {
	l.once.Do(func() { require.NoError(l.t, errors.Join(l.Close(), l.dir.Close())) })
}

// aloneIn is a version of the partition that node 1 leads with nobody else in sync.
func aloneIn(partitionEpoch int32) Assign {
	return Assign{TopicID: [16]byte{1}, Leader: 1, LeaderEpoch: 3, PartitionEpoch: partitionEpoch, Replicas: []NodeID{1}, ISR: []NodeID{1}}
}

// another is of a topic that has the name now.
func another(partitionEpoch int32) Assign {
	a := aloneIn(partitionEpoch)
	a.TopicID = [16]byte{2}
	return a
}

// goneIn ends the replica as of a version in which it is elsewhere; 0: the topic was deleted.
func goneIn(partitionEpoch int32) Stop {
	return Stop{Delete: true, LeaderEpoch: -1, TopicID: [16]byte{1}, PartitionEpoch: partitionEpoch}
}

func (l *late) leads(partitionEpoch int32) {
	l.t.Helper()
	require.Eventually(l.t, func() bool {
		h, err := l.Partition(ordersZero)
		return err == nil && h.Status().Active && h.Status().PartitionEpoch == partitionEpoch
	}, 10*time.Second, time.Millisecond)
}

// staysGone says that no replica is there, nor comes.
func (l *late) staysGone() {
	l.t.Helper()
	require.Eventually(l.t, func() bool { return l.Stats().Replicas == 0 }, 10*time.Second, time.Millisecond)
	require.Never(l.t, func() bool { return l.Stats().Replicas > 0 }, 30*time.Millisecond, time.Millisecond)
	all, _, err := l.dir.Folders()
	require.NoError(l.t, err)
	require.Empty(l.t, all)
}

// stuck has removals fail until mend is called.
func (l *late) stuck() (mend func()) {
	_, mend = l.disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRename}, Name: "orders-0*", Times: vfstest.Always, Err: errors.New("broken")})
	return mend
}

func (l *late) deletesInVain() {
	l.t.Helper()
	require.Eventually(l.t, func() bool { return l.Stats().DeleteFailures > 0 }, 10*time.Second, time.Millisecond)
}

// A replica that was deleted and comes to life again by older news would lead its old epoch for ever, by an in-sync set that is long
// over: where that was itself alone it would confirm even acks=all, and nobody else would ever have it.
func TestOlderNewsMakeNoDeletedReplicaAnew(t *testing.T) {
	for name, c := range map[string]struct {
		stop  Stop
		late  Assign
		comes bool
	}{
		"the version it was in":                     {goneIn(8), aloneIn(5), false},
		"one that it was never told":                {goneIn(8), aloneIn(7), false},
		"a later one":                               {goneIn(8), aloneIn(9), true},
		"of a deleted topic":                        {goneIn(0), aloneIn(5), false},
		"of a topic that a restored store has back": {goneIn(0), aloneIn(6), true},
		"of another topic of the name":              {goneIn(0), another(0), true},
		"and nobody said when":                      {Stop{Delete: true, LeaderEpoch: -1}, aloneIn(5), true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLate(t)
			require.NoError(t, l.Assign(ordersZero, aloneIn(5)))
			l.leads(5)
			require.NoError(t, l.Stop(ordersZero, c.stop))
			require.Eventually(t, func() bool { return l.Stats().Replicas == 0 }, 10*time.Second, time.Millisecond)
			require.NoError(t, l.Assign(ordersZero, c.late))
			if c.comes {
				l.leads(c.late.PartitionEpoch)
				return
			}
			for end := time.Now().Add(30 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if h, err := l.Partition(ordersZero); err == nil {
					_, err = h.Append(t.Context(), rawBatch(t, "lost"), -1)
					require.Error(t, err, "confirmed by who has no say")
				}
			}
			l.staysGone()
		})
	}
}

// A disk may take its time to remove a log, and the partition may come back and go once more meanwhile.
func TestWhatIsSaidWhileAReplicaGoesCountsInTheOrderOfItsVersions(t *testing.T) {
	for name, c := range map[string]struct {
		said []any
		want int32 // version of the replica that comes; 0: none
	}{
		"back, and gone again":          {[]any{aloneIn(9), goneIn(10)}, 0},
		"back, and the topic deleted":   {[]any{aloneIn(9), goneIn(0)}, 0},
		"back, and gone, nobody knows":  {[]any{aloneIn(9), Stop{Delete: true, LeaderEpoch: -1}}, 0},
		"back, gone, and back":          {[]any{aloneIn(9), goneIn(10), aloneIn(11)}, 11},
		"back, and gone is late":        {[]any{goneIn(10), aloneIn(9)}, 0},
		"back, and older news":          {[]any{aloneIn(11), aloneIn(9)}, 11},
		"gone before it was back":       {[]any{aloneIn(11), goneIn(10)}, 11},
		"older news":                    {[]any{aloneIn(7)}, 0},
		"another topic, and older news": {[]any{another(11), aloneIn(7)}, 11},
		"another topic, and it stays":   {[]any{another(11), goneIn(0)}, 11},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLate(t)
			require.NoError(t, l.Assign(ordersZero, aloneIn(5)))
			l.leads(5)
			mend := l.stuck()
			require.NoError(t, l.Stop(ordersZero, goneIn(8)))
			l.deletesInVain()
			for _, e := range c.said {
				switch e := e.(type) {
				case Assign:
					require.NoError(t, l.Assign(ordersZero, e))
				case Stop:
					require.NoError(t, l.Node.Stop(ordersZero, e))
				}
			}
			mend()
			if c.want > 0 {
				l.leads(c.want)
				return
			}
			l.staysGone()
			require.NoError(t, l.Assign(ordersZero, aloneIn(10)))
			if name == "back, and gone again" || name == "back, and gone is late" {
				l.staysGone()
			}
		})
	}
}

// The end of a removal and the next word come in any order.
func TestAReplicaThatComesBackWhileItGoesCanGoAtOnce(t *testing.T) {
	l := newLate(t)
	for version := int32(1); version < 400; version += 4 {
		require.NoError(t, l.Assign(ordersZero, aloneIn(version)))
		require.NoError(t, l.Node.Stop(ordersZero, goneIn(version+1)))
		for range version % 16 {
			_ = l.Stats()
		}
		require.NoError(t, l.Assign(ordersZero, aloneIn(version+2)))
		if err := l.Node.Stop(ordersZero, goneIn(version+3)); err != nil {
			require.ErrorIs(t, err, ErrNoReplica)
			require.Failf(t, "it is there", "version %d", version+2)
		}
	}
	l.staysGone()
}

// The word that a partition is elsewhere may overtake the one that it is here.
func TestAStopThatComesFirstCounts(t *testing.T) {
	l := newLate(t)
	require.ErrorIs(t, l.Node.Stop(ordersZero, goneIn(8)), ErrNoReplica)
	require.ErrorIs(t, l.Node.Stop(ordersZero, goneIn(6)), ErrNoReplica)
	require.NoError(t, l.Assign(ordersZero, aloneIn(7)))
	l.staysGone()
	require.NoError(t, l.Assign(ordersZero, aloneIn(9)))
	l.leads(9)
}

// A replica that came back is not stopped by what is said of the time before.
func TestALateStopEndsNoNewerReplica(t *testing.T) {
	l := newLate(t)
	require.NoError(t, l.Assign(ordersZero, aloneIn(9)))
	l.leads(9)
	require.NoError(t, l.Node.Stop(ordersZero, goneIn(8)))
	other := goneIn(0)
	other.TopicID = [16]byte{7}
	require.NoError(t, l.Node.Stop(ordersZero, other))
	require.NoError(t, l.Assign(ordersZero, aloneIn(10)))
	l.leads(10)
	require.Equal(t, int64(2), l.Stats().Counts.StaleEventsIgnored)
	require.NoError(t, l.Node.Stop(ordersZero, Stop{LeaderEpoch: -1, TopicID: [16]byte{1}, PartitionEpoch: 12}))
	require.NoError(t, l.Assign(ordersZero, aloneIn(11)))
	require.Eventually(t, func() bool { return l.Stats().Counts.StaleEventsIgnored == 3 }, 10*time.Second, time.Millisecond)
	require.NoError(t, l.Assign(ordersZero, aloneIn(13)))
	l.leads(13)
}

// News for an earlier life of the node make no log.
func TestNewsForAnEarlierLifeMakeNoReplica(t *testing.T) {
	l := newLate(t)
	l.Registered(7)
	a := aloneIn(5)
	a.BrokerEpoch = 6
	require.NoError(t, l.Assign(ordersZero, a))
	l.staysGone()
	a.BrokerEpoch = 7
	require.NoError(t, l.Assign(ordersZero, a))
	l.leads(5)
}

// A log that cannot be opened is not tried again under older news, nor is what comes after its end forgotten.
func TestAReplicaWithoutALogHeedsTheNewestWord(t *testing.T) {
	l := newLate(t)
	var opens atomic.Int64
	broken := errors.New("broken")
	_, mend := l.disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpMkdir}, Name: "orders-0*", Times: vfstest.Always, Hook: func(vfstest.Op) error {
		opens.Add(1)
		return broken
	}})
	require.NoError(t, l.Assign(ordersZero, aloneIn(9)))
	require.Eventually(t, func() bool { return l.Stats().Failed == 1 }, 10*time.Second, time.Millisecond)
	require.NoError(t, l.Assign(ordersZero, aloneIn(5)))
	require.NoError(t, l.Node.Stop(ordersZero, goneIn(8)))
	mend()
	l.leads(9)
	require.Positive(t, opens.Load())
}

// A removal that begins while a log is being opened, which then fails, takes what there is, and is followed by what was said after it.
func TestAStopOutlivesALogThatCannotBeOpened(t *testing.T) {
	disk := vfstest.NewFault(vfs.Mem())
	before := lateOn(t, disk)
	require.NoError(t, before.Assign(ordersZero, aloneIn(3)))
	before.leads(3)
	h, err := before.Partition(ordersZero)
	require.NoError(t, err)
	_, err = h.Append(t.Context(), rawBatch(t, "a"), 1)
	require.NoError(t, err)
	before.end()

	l := lateOn(t, disk)
	hold, broken := make(chan struct{}), errors.New("broken")
	disk.Add(vfstest.Rule{Name: "orders-0*", Hook: func(vfstest.Op) error {
		<-hold
		return broken
	}})
	mend := l.stuck()
	require.NoError(t, l.Assign(ordersZero, aloneIn(5)))
	require.NoError(t, l.Node.Stop(ordersZero, goneIn(6)))
	require.NoError(t, l.Assign(ordersZero, aloneIn(7)))
	close(hold)
	l.deletesInVain()
	require.Never(t, func() bool { return l.Stats().Leaders > 0 }, 100*time.Millisecond, time.Millisecond, "on a log that is to go")
	mend()
	l.leads(7)
	h, err = l.Partition(ordersZero)
	require.NoError(t, err)
	require.Zero(t, h.Log().Offsets().LogEnd)
}

// What is said while the last of a removal is done is heard before the replica leaves the node.
func TestAReplicaLeavesWhenAllWasHeard(t *testing.T) {
	l := newLate(t)
	l.mu.Lock()
	r := l.begin(ordersZero)
	l.mu.Unlock()
	r.awake = true // it runs, so to speak
	next := aloneIn(9)
	r.going.leaving, r.going.over, r.going.reborn = true, true, &next
	require.NoError(t, l.Node.Stop(ordersZero, goneIn(10)))
	r.leave()
	require.False(t, r.closed)
	require.False(t, r.run(nil))
	require.True(t, r.closed)
	l.staysGone()
	require.NoError(t, l.Assign(ordersZero, aloneIn(10)))
	l.staysGone()
}

// What is remembered of replicas that are gone is bounded.
func TestGravesAreNotKeptForEver(t *testing.T) {
	var g graves
	for i := range int32(graveLimit + 10) {
		g.bury(log.TopicPartition{Topic: "t", Partition: i}, grave{version: 1})
		g.bury(log.TopicPartition{Topic: "t", Partition: i}, grave{version: 2})
	}
	require.Len(t, g.of, graveLimit)
	require.LessOrEqual(t, len(g.order), 2*graveLimit)
	require.False(t, g.bars(log.TopicPartition{Topic: "t", Partition: 3}, &Assign{PartitionEpoch: 1}))
	for i := int32(10); i < graveLimit+10; i++ {
		require.True(t, g.bars(log.TopicPartition{Topic: "t", Partition: i}, &Assign{PartitionEpoch: 2}))
		require.False(t, g.bars(log.TopicPartition{Topic: "t", Partition: i}, &Assign{PartitionEpoch: 3}))
	}
}
