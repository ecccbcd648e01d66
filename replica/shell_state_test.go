package replica

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// What a leader says of epochs must not come from before the log start was raised: those below are of records that are gone.
func TestTheCoreLearnsOfEpochsThatWentWithTheLogStart(t *testing.T) {
	d, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem(), Manual: true})
	require.NoError(t, err)
	defer d.Close()
	l, err := d.Open(t.Context(), ordersZero, log.Config{Visibility: log.External, Durability: log.Buffered})
	require.NoError(t, err)
	for epoch := range int32(2) {
		require.NoError(t, l.AssignEpoch(epoch))
		_, err = l.AppendBatches(t.Context(), rawBatch(t, "a", "b", "c"), log.AppendOptions{LeaderEpoch: &epoch})
		require.NoError(t, err)
	}
	_, err = l.SetHighWatermark(6)
	require.NoError(t, err)
	r := &runner{}
	r.core = New(ordersZero, Config{Self: 1}, r.state(l), false)
	require.Equal(t, entries(0, 0, 1, 3), r.state(l).Epochs)
	require.NoError(t, l.DeleteRecords(t.Context(), 4))
	require.Equal(t, entries(1, 4), r.state(l).Epochs)
}

// Nobody writes and nobody asks, and retention raises the log start of a leader: its followers begin there, too.
func TestFollowersHearOfALogStartThatRoseByItself(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
	for _, v := range []string{"a", "b", "c"} {
		g.produce(v)
	}
	g.caughtUp(1, 2)
	require.NoError(t, g.handle(1).Log().DeleteRecords(t.Context(), 2))
	require.Eventually(t, func() bool { return g.handle(2).Log().Offsets().LogStart == 2 }, 5*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return g.handle(1).Status().LowWatermark == 2 }, 5*time.Second, time.Millisecond)
}

// A replica that knows no leader yet, and so not how far the slowest of them is, keeps all tombstones.
func TestNoTombstoneGoesBeforeAnybodyHasSaidWhoMayMissIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conf := log.Config{Visibility: log.External, Durability: log.Buffered, Cleanup: log.Compact, RetentionTime: log.Forever}
		conf.Compaction.DeleteRetention = time.Millisecond
		d, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem(), Manual: true, Defaults: conf})
		require.NoError(t, err)
		l, err := d.Open(t.Context(), ordersZero, conf)
		require.NoError(t, err)
		put := func(key, value string) {
			b := record.NewBuilder(record.BuilderOptions{})
			rec := record.Record{Timestamp: time.Now().UnixMilli(), Key: []byte(key), Value: []byte(value)}
			if value == "" {
				rec.Value = nil
			}
			require.NoError(t, b.Add(rec))
			batch, err := b.Finish()
			require.NoError(t, err)
			_, err = l.AppendBatches(t.Context(), slices.Clone(batch.Bytes()), log.AppendOptions{})
			require.NoError(t, err)
			_, err = l.SetHighWatermark(l.Offsets().LogEnd)
			require.NoError(t, err)
			require.NoError(t, l.Roll(t.Context()))
		}
		clean := func() (tombstones int64) {
			for range 3 {
				time.Sleep(time.Hour)
				put("m", "v")
				require.NoError(t, l.Sync(t.Context()))
				res, err := l.Compact(t.Context(), log.CompactOptions{Force: true})
				require.NoError(t, err)
				tombstones += res.Tombstones
			}
			return tombstones
		}
		put("k", "v")
		put("k", "")
		put("m", "v")
		c := quick
		c.Self = 1
		n, err := NewNode(NodeConfig{Config: c, Dir: d, Transport: NewNetwork().Transport(1)})
		require.NoError(t, err)
		a := Assign{TopicID: [16]byte{1}, Leader: NoNode, LeaderEpoch: 0, PartitionEpoch: 1, Replicas: []NodeID{1, 2}, ISR: []NodeID{}}
		require.NoError(t, n.Assign(ordersZero, a))
		synctest.Wait()
		require.Zero(t, clean())

		a.Leader, a.LeaderEpoch, a.PartitionEpoch, a.Replicas, a.ISR = 1, 1, 2, []NodeID{1}, []NodeID{1}
		require.NoError(t, n.Assign(ordersZero, a))
		time.Sleep(time.Minute) // it is on the device, and nobody else must see it
		require.NoError(t, l.Sync(t.Context()))
		require.EqualValues(t, 1, clean())
		require.NoError(t, n.Close())
		require.NoError(t, d.Close())
	})
}

// A log start was on its way to the log when the replica failed, and is not done. The replica that is made in its place is told
// again, of the same one or a smaller one.
func TestAReplicaMadeAnewForgetsTheLogStartItWasAt(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
	for _, v := range []string{"a", "b", "c"} {
		g.produce(v)
	}
	g.caughtUp(1, 2)
	r := g.handle(2).r
	r.post(mail{settled: func() Event {
		r.startAsked = 100
		r.coreMu.Lock()
		r.core.fail(errors.New("the disk is gone"))
		r.core.out = nil
		r.coreMu.Unlock()
		return nil
	}})
	require.Eventually(t, func() bool { return g.handle(2).Status().Role == Failed }, 5*time.Second, time.Millisecond)
	g.mu.Lock()
	g.state.PartitionEpoch++
	a := g.state
	g.mu.Unlock()
	g.assign(a)
	g.caughtUp(1, 2)
	require.NoError(t, g.handle(1).Log().DeleteRecords(t.Context(), 2))
	require.Eventually(t, func() bool { return g.handle(2).Log().Offsets().LogStart == 2 }, 5*time.Second, time.Millisecond)
}

// Settings are being asked for, or are to be, when the replica is made anew or goes. Who waits for them is answered.
func TestWhoWaitsForSettingsOfAReplicaThatGoesIsAnswered(t *testing.T) {
	asked, gate := make(chan struct{}), make(chan struct{})
	var blocks atomic.Bool
	g := newTunedGroup(t, log.Config{Durability: log.Buffered}, func(nc *NodeConfig) {
		conf := nc.Config
		nc.Partitions = func(log.TopicPartition) (log.Config, Config) {
			if conf.Self == 2 && blocks.CompareAndSwap(true, false) {
				close(asked)
				<-gate
			}
			return log.Config{}, conf
		}
	}, 1, 2)
	g.produce("a")
	g.caughtUp(1, 2)
	h := g.handle(2)
	answered := make(chan error, 1)
	answer := func() error {
		select {
		case err := <-answered:
			return err
		case <-time.After(10 * time.Second):
			t.Fatal("nobody says so")
			return nil
		}
	}

	blocks.Store(true)
	go func() { answered <- h.Reconfigure(t.Context()) }()
	<-asked
	h.r.post(mail{settled: func() Event {
		h.r.coreMu.Lock()
		h.r.core.fail(errors.New("the disk is gone"))
		h.r.core.out = nil
		h.r.coreMu.Unlock()
		return nil
	}})
	g.eventually("it failed", func() bool { return h.Status().Role == Failed })
	g.mu.Lock()
	g.state.PartitionEpoch++
	again := g.state
	g.mu.Unlock()
	g.assign(again)
	require.ErrorIs(t, answer(), KafkaStorageError)
	close(gate)
	g.caughtUp(1, 2)
	require.NoError(t, h.Reconfigure(t.Context()))

	h.r.post(mail{settled: func() Event {
		h.r.remove()
		h.r.reconfigure(answered) // which has its turn when there is no log any more
		return nil
	}})
	require.ErrorIs(t, answer(), ErrNoReplica)
}

// A fetch was withdrawn while its bytes were read. They do not answer the one that came in its place.
func TestBytesOfAWithdrawnFetchAnswerNoOther(t *testing.T) {
	l := newLab(t, Config{}, filled(6, entries(0, 0)...))
	l.lead(1, 1)
	l.hold[DoRead] = true
	fetch := func(tag uint64, offset int64) {
		noReply(t, l.step(FetchRequest{From: NoNode, Tag: tag, Offset: offset, LeaderEpoch: -1, LastFetchedEpoch: -1, BrokerEpoch: -1, MaxBytes: 20}))
	}
	fetch(1, 0)
	l.step(Withdraw{Tag: 1})
	fetch(2, 5)
	first, second := l.held[0], l.held[1]
	require.NotEqual(t, first.Tag, second.Tag)
	noReply(t, l.step(l.log.perform(first)))
	require.Len(t, reply(t, l.step(l.log.perform(second)), 2).Raw, 20)
}

// Only consumers' fetches are withdrawn, whatever the tag.
func TestAFollowersFetchIsNotWithdrawn(t *testing.T) {
	l := newLab(t, Config{}, filled(1, entries(0, 0)...))
	l.lead(1, 1, 2)
	noReply(t, l.step(FetchRequest{From: 2, Tag: 7, Offset: 1, LeaderEpoch: 1, LastFetchedEpoch: -1, BrokerEpoch: -1, MaxBytes: 100, MinBytes: 1, MaxWait: time.Minute}))
	l.step(Withdraw{Tag: 7})
	require.Equal(t, None, reply(t, l.produce(8, 1, 1), 7).Err)
}
