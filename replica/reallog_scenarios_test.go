package replica

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// bytesOf is the whole log, as it is stored.
func (n *realNode) bytesOf() []byte {
	n.t.Helper()
	f, err := n.log.Fetch(n.t.Context(), n.log.Offsets().LogStart, log.FetchOptions{Isolation: log.LogEnd, MaxBytes: 1 << 20, WholeBatches: true})
	require.NoError(n.t, err)
	defer f.Close()
	raw, err := io.ReadAll(io.NewSectionReader(f, 0, f.Len()))
	require.NoError(n.t, err)
	return raw
}

// fill appends batches of one record each, in the epochs given, as if they had been copied.
func (n *realNode) fill(epochs ...int32) {
	n.t.Helper()
	for _, e := range epochs {
		raw := batchOf(n.t, fmt.Sprintf("%d of epoch %d at %d", n.log.Offsets().LogEnd, e, n.id))
		b, err := record.View(raw)
		require.NoError(n.t, err)
		b.SetBaseOffset(n.log.Offsets().LogEnd)
		b.SetLeaderEpoch(e)
		_, err = n.log.AppendBatches(n.t.Context(), raw, log.AppendOptions{As: log.Follower, LeaderEpoch: &e})
		require.NoError(n.t, err)
	}
}

// renew gives the node a replica that knows the log as it is now.
func (n *realNode) renew() {
	n.p = New(n.log.TopicPartition(), Config{Self: n.id}, realState(n.log), false)
}

func (c *realCluster) rounds(n int) {
	for range n {
		c.now = c.now.Add(time.Second) // past any back-off
		for _, n := range c.nodes {
			c.step(n, Tick{})
		}
		c.round()
	}
}

// One replica has epochs 0, 2 and 4, the other 1, 3 and 5, a record each: in a few rounds they are one log.
//
// Scenario: F006.
func TestReplicasWithForeignEpochsBecomeOneLog(t *testing.T) {
	c := newRealCluster(t, 1, 2)
	leader, follower := c.nodes[1], c.nodes[2]
	follower.fill(0, 2, 4)
	leader.fill(1, 3, 5)
	leader.renew()
	follower.renew()
	both := []NodeID{1, 2}
	c.assign(Assign{Leader: 1, LeaderEpoch: 5, Replicas: both, ISR: both})
	c.rounds(6)
	require.Equal(t, leader.bytesOf(), follower.bytesOf())
	require.Equal(t, leader.log.Epochs(), follower.log.Epochs())
	require.Equal(t, [3]int64{0, 3, 3}, [3]int64{follower.log.Offsets().LogStart, follower.log.Offsets().HighWatermark, follower.log.Offsets().LogEnd})
	require.Equal(t, int64(3), leader.log.Offsets().HighWatermark)
}

// The follower has heard of the new epoch, the leader has not: the follower waits and changes nothing, and goes on when it has.
//
// Scenario: F005.
func TestAFollowerAheadOfItsLeaderWaits(t *testing.T) {
	c := newRealCluster(t, 1, 2)
	leader, follower := c.nodes[1], c.nodes[2]
	both := []NodeID{1, 2}
	c.assign(Assign{Leader: 1, LeaderEpoch: 4, Replicas: both, ISR: both})
	c.step(leader, Produce{Tag: 1, Raw: batchOf(t, "a", "b"), Acks: 1})
	next := Assign{Leader: 1, LeaderEpoch: 5, PartitionEpoch: 1, Replicas: both, ISR: both}
	c.fetches = nil
	c.step(follower, next)
	c.rounds(5)
	require.Zero(t, follower.log.Offsets().LogEnd)
	require.Equal(t, UnknownLeaderEpoch, follower.p.Status().LastError)
	require.Equal(t, int64(-1), leader.p.Status().Followers[0].LogEnd)
	c.step(leader, next)
	c.rounds(3)
	require.Equal(t, []string{"a", "b"}, follower.values())
	require.Equal(t, int64(2), leader.log.Offsets().HighWatermark)
}

// Leader 1, leader 2, leader 1 again: replica 3 hears of the first and the third, and has a record that 2's epoch replaced.
//
// Report: B106.
func TestAFollowerThatMissedAnEpochIsCutAllTheSame(t *testing.T) {
	c := newRealCluster(t, 1, 2, 3)
	one, two, three := c.nodes[1], c.nodes[2], c.nodes[3]
	all := []NodeID{1, 2, 3}
	c.assign(Assign{Leader: 1, LeaderEpoch: 1, Replicas: all, ISR: all})
	c.step(one, Produce{Tag: 1, Raw: batchOf(t, "a", "b"), Acks: -1})
	c.rounds(3)
	delete(c.nodes, 2)
	c.step(one, Produce{Tag: 2, Raw: batchOf(t, "lost"), Acks: 1})
	c.rounds(2)
	require.Equal(t, []string{"a", "b", "lost"}, three.values())

	delete(c.nodes, 3)
	c.nodes[2] = two
	c.assign(Assign{Leader: 2, LeaderEpoch: 2, PartitionEpoch: 1, Replicas: all, ISR: []NodeID{1, 2}})
	c.step(two, Produce{Tag: 3, Raw: batchOf(t, "kept"), Acks: -1})
	c.rounds(4)
	require.Equal(t, None, c.replies[3].Err)
	require.Equal(t, []string{"a", "b", "kept"}, one.values())

	c.nodes[3] = three
	c.assign(Assign{Leader: 1, LeaderEpoch: 3, PartitionEpoch: 2, Replicas: all, ISR: []NodeID{1, 2}})
	c.step(one, Produce{Tag: 4, Raw: batchOf(t, "more"), Acks: 1})
	c.rounds(5)
	require.Equal(t, one.bytesOf(), three.bytesOf())
	require.Equal(t, one.log.Epochs(), three.log.Epochs())
	require.Equal(t, int64(1), three.p.Status().Counts.Truncations)
}

// A leader's epoch stands in what it appends, and its followers learn of it; a restart is a new epoch. Of each it says where
// it ended, of one it never had that it does not know.
//
// Scenario: F026.
func TestEpochsAreStampedAskedForAndGrow(t *testing.T) {
	c := newRealCluster(t, 1, 2)
	leader, follower := c.nodes[1], c.nodes[2]
	both := []NodeID{1, 2}
	query := func(epoch int32) log.EpochEnd {
		c.step(leader, EpochRequest{From: NoNode, Tag: 99, LeaderEpoch: -1, Epoch: epoch})
		return c.replies[99].EpochEnd
	}
	for epoch := range int32(3) {
		c.assign(Assign{Leader: 1, LeaderEpoch: epoch, PartitionEpoch: epoch, Replicas: both, ISR: both})
		c.step(leader, Produce{Tag: uint64(epoch), Raw: batchOf(t, "a", "b"), Acks: -1})
		c.rounds(3)
		require.Equal(t, None, c.replies[uint64(epoch)].Err)
		leader.renew() // it stopped, and started
	}
	c.assign(Assign{Leader: 1, LeaderEpoch: 2, PartitionEpoch: 9, Replicas: both, ISR: both})
	for _, n := range []*realNode{leader, follower} {
		raw := n.bytesOf()
		for at := int32(0); len(raw) > 0; at++ {
			b, rest, err := record.Next(raw)
			require.NoError(t, err)
			require.Equal(t, at, b.LeaderEpoch())
			raw = rest
		}
		require.Equal(t, []log.EpochEntry{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 2}, {Epoch: 2, Start: 4}}, n.log.Epochs())
	}
	require.Equal(t, log.EpochEnd{Epoch: 0, End: 2}, query(0))
	require.Equal(t, log.EpochEnd{Epoch: 1, End: 4}, query(1))
	require.Equal(t, log.EpochEnd{Epoch: 2, End: 6}, query(2))
	require.Equal(t, log.EpochEnd{Epoch: -1, End: -1}, query(3))
	require.Equal(t, log.EpochEnd{Epoch: -1, End: -1}, query(-1))
}

// The leader's records begin at 5, inside the batch 0 to 9: a new follower stores the batch whole and begins at 5.
//
// Report: B120.
func TestANewFollowerBeginsInsideABatch(t *testing.T) {
	c := newRealCluster(t, 1, 2)
	leader, follower := c.nodes[1], c.nodes[2]
	c.assign(Assign{Leader: 1, Replicas: []NodeID{1}, ISR: []NodeID{1}})
	c.step(leader, Produce{Tag: 1, Raw: batchOf(t, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"), Acks: -1})
	require.NoError(t, leader.log.DeleteRecords(t.Context(), 5))
	c.step(leader, LogChanged{State: realState(leader.log)})
	c.assign(Assign{Leader: 1, PartitionEpoch: 1, Replicas: []NodeID{1, 2}, ISR: []NodeID{1}})
	c.rounds(5)
	o := follower.log.Offsets()
	require.Equal(t, [3]int64{5, 10, 10}, [3]int64{o.LogStart, o.HighWatermark, o.LogEnd})
	require.Equal(t, leader.bytesOf(), follower.bytesOf())
	require.Equal(t, int64(0), follower.log.SegmentInfos()[0].Base)
	require.Nil(t, follower.p.Status().LastError)
	require.Equal(t, []NodeID{1, 2}, leader.p.Status().ISR)
}

// A leader that was away has written 4 to 5 and 6 of its own; the next one has 4 to 7 in one batch and deleted everything below
// 6, so that this is also where it says that histories part. The log is cut there, though its 4 and 5 are of the other history,
// and then the leader's batch begins below its end.
func TestAReplicaIsCutWhereTheLeadersLogStartsInsideABatch(t *testing.T) {
	c := newRealCluster(t, 1, 2)
	one, two := c.nodes[1], c.nodes[2]
	both := []NodeID{1, 2}
	c.assign(Assign{Leader: 1, Replicas: both, ISR: both})
	c.step(one, Produce{Tag: 1, Raw: batchOf(t, "0", "1", "2", "3"), Acks: -1})
	c.rounds(3)
	require.Equal(t, None, c.replies[1].Err)
	c.step(one, Produce{Tag: 2, Raw: batchOf(t, "lost", "lost"), Acks: 1})
	c.step(one, Produce{Tag: 3, Raw: batchOf(t, "lost"), Acks: 1})

	c.fetches = nil
	next := Assign{Leader: 2, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: both, ISR: []NodeID{2}}
	c.step(two, next)
	c.step(two, Produce{Tag: 4, Raw: batchOf(t, "4", "5", "6", "7"), Acks: -1})
	require.NoError(t, two.log.DeleteRecords(t.Context(), 6))
	c.step(two, LogChanged{State: realState(two.log)})
	require.Equal(t, []log.EpochEntry{{Epoch: 1, Start: 6}}, two.log.Epochs())
	c.step(one, next)
	c.rounds(6)
	o := one.log.Offsets()
	require.Equal(t, [3]int64{6, 8, 8}, [3]int64{o.LogStart, o.HighWatermark, o.LogEnd})
	require.Equal(t, two.bytesOf(), one.bytesOf())
	require.Equal(t, two.log.Epochs(), one.log.Epochs())
	require.Nil(t, one.p.Status().LastError)
	require.Equal(t, []NodeID{2, 1}, two.p.Status().ISR)
}

// A leader that was away has a record of its own at 4; the next one has another there, and deleted it, so that both logs meet at
// 5 and nothing at the leader says that they parted before. The replica begins anew: had it kept its record, it might lead one
// day, and show it.
func TestAReplicaWithAnotherHistoryRightUpToTheLeadersLogStartBeginsAnew(t *testing.T) {
	c := newRealCluster(t, 1, 2)
	one, two := c.nodes[1], c.nodes[2]
	both := []NodeID{1, 2}
	c.assign(Assign{Leader: 1, Replicas: both, ISR: both})
	c.step(one, Produce{Tag: 1, Raw: batchOf(t, "0", "1", "2", "3"), Acks: -1})
	c.rounds(3)
	c.step(one, Produce{Tag: 2, Raw: batchOf(t, "lost"), Acks: 1})

	c.fetches = nil
	next := Assign{Leader: 2, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: both, ISR: []NodeID{2}}
	c.step(two, next)
	c.step(two, Produce{Tag: 4, Raw: batchOf(t, "kept"), Acks: -1})
	require.NoError(t, two.log.DeleteRecords(t.Context(), 5))
	c.step(two, LogChanged{State: realState(two.log)})
	c.step(one, next)
	c.round()
	require.Equal(t, []NodeID{2}, two.p.Status().ISR)
	require.Equal(t, [2]int64{5, 5}, [2]int64{one.log.Offsets().LogStart, one.log.Offsets().LogEnd})
	c.step(two, Produce{Tag: 5, Raw: batchOf(t, "more"), Acks: -1})
	c.rounds(3)
	require.Equal(t, []NodeID{2, 1}, two.p.Status().ISR)
	require.Equal(t, []string{"more"}, one.values())
}

// A byte of an answer is not what it was at the leader: nothing of it gets into the log, and the next fetch brings it whole.
//
// Scenario: F014.
func TestAnAnswerThatWasDamagedIsFetchedAgain(t *testing.T) {
	c := newRealCluster(t, 1, 2)
	leader, follower := c.nodes[1], c.nodes[2]
	both := []NodeID{1, 2}
	c.step(leader, Assign{Leader: 1, Replicas: both, ISR: both})
	c.step(leader, Produce{Tag: 1, Raw: batchOf(t, "a", "b"), Acks: 1})
	c.step(follower, Assign{Leader: 1, Replicas: both, ISR: both})
	fetch := c.fetches[0]
	c.fetches = nil
	delete(c.nodes, 2) // its answer is to be had
	c.step(leader, fetch.Fetch)
	answer := c.replies[fetch.Tag]
	answer.Raw = bytes.Clone(answer.Raw)
	answer.Raw[len(answer.Raw)-1] ^= 1
	c.nodes[2] = follower
	c.step(follower, FetchResponse{From: 1, Tag: fetch.Tag, Result: answer})
	require.Zero(t, follower.log.Offsets().LogEnd)
	require.ErrorIs(t, follower.p.Status().LastError, record.ErrCorrupt)
	require.Empty(t, c.fetches, "not at once")
	c.rounds(2)
	require.Equal(t, leader.bytesOf(), follower.bytesOf())
	require.NoError(t, follower.p.Status().LastError)
}

// The leader dies when its follower has the record and before the producer has the answer. Asked again, the next leader has it
// twice; if the producer numbers what it sends, once.
func TestALeaderThatDiesBeforeItsAnswerLeavesADuplicate(t *testing.T) {
	for producer, want := range map[*record.Producer][]string{nil: {"v", "v"}, {ID: 7}: {"v"}} {
		c := newRealCluster(t, 1, 2)
		both := []NodeID{1, 2}
		c.assign(Assign{Leader: 1, Replicas: both, ISR: both})
		b := record.NewBuilder(record.BuilderOptions{Producer: producer})
		require.NoError(t, b.Add(record.Record{Timestamp: 1, Value: []byte("v")}))
		batch, err := b.Finish()
		require.NoError(t, err)
		c.step(c.nodes[1], Produce{Tag: 1, Raw: bytes.Clone(batch.Bytes()), Acks: -1})
		c.round()
		two := c.nodes[2]
		require.Equal(t, []string{"v"}, two.values())
		require.NotContains(t, c.replies, uint64(1))

		delete(c.nodes, 1)
		c.step(two, Assign{Leader: 2, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: both, ISR: []NodeID{2}})
		c.step(two, Produce{Tag: 2, Raw: bytes.Clone(batch.Bytes()), Acks: -1})
		require.Equal(t, None, c.replies[2].Err)
		require.Equal(t, producer != nil, c.replies[2].Duplicate)
		require.Equal(t, int64(len(want)-1), c.replies[2].Base)
		require.Equal(t, want, two.values())
	}
}

// latest is the answer for the latest offset, by who asks.
func (n *realNode) latest(from NodeID, i log.Isolation) int64 {
	v := n.p.View(from, -1, i, n.log.Offsets().LastStable)
	require.Equal(n.t, None, v.Err)
	return v.End
}

// An open transaction is not seen by who reads committed records only, and nothing is by anyone above the high watermark.
//
// Scenario: N013.
func TestLatestOffsetByIsolation(t *testing.T) {
	c := newRealCluster(t, 1, 2)
	n := c.nodes[1]
	c.assign(Assign{Leader: 1, Replicas: []NodeID{1, 2}, ISR: []NodeID{1, 2}})
	b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: 7, Transactional: true}})
	for range 3 {
		require.NoError(t, b.Add(record.Record{Timestamp: 1, Value: []byte("v")}))
	}
	batch, err := b.Finish()
	require.NoError(t, err)
	c.step(n, Produce{Tag: 1, Raw: bytes.Clone(batch.Bytes()), Acks: 1})
	look := func() [3]int64 {
		require.Zero(t, n.log.Offsets().LogStart, "the earliest is the same for all")
		return [3]int64{n.latest(2, log.LogEnd), n.latest(NoNode, log.ReadUncommitted), n.latest(NoNode, log.ReadCommitted)}
	}
	require.Equal(t, [3]int64{3, 0, 0}, look())
	c.step(n, FetchRequest{From: 2, Tag: 50, Offset: 1, LeaderEpoch: -1, LastFetchedEpoch: -1, BrokerEpoch: -1, MaxBytes: 1})
	require.Equal(t, [3]int64{3, 1, 0}, look())

	// It ends, and what follows is plain: all is seen as soon as it is committed, though the log says nothing meanwhile.
	_, err = n.log.EndTxn(t.Context(), record.Producer{ID: 7, Epoch: 1}, true, log.EndTxnOptions{TransactionVersion: 2})
	require.NoError(t, err)
	c.step(n, LogChanged{State: realState(n.log)})
	c.step(n, Produce{Tag: 2, Raw: batchOf(t, "w"), Acks: 1})
	require.Equal(t, [3]int64{5, 1, 0}, look())
	c.step(n, FetchRequest{From: 2, Tag: 51, Offset: 5, LeaderEpoch: -1, LastFetchedEpoch: -1, BrokerEpoch: -1, MaxBytes: 1})
	require.Equal(t, [3]int64{5, 5, 5}, look())
}

// A leader that lost the leadership and has it again, with its high watermark below the start of the epoch: what a consumer
// may be told about offsets, and what a replica is.
//
// Scenario: N011.
func TestOffsetsBelowTheEpochStart(t *testing.T) {
	c := newRealCluster(t, 1, 2)
	n := c.nodes[1]
	both := []NodeID{1, 2}
	c.assign(Assign{Leader: 1, LeaderEpoch: 1, Replicas: both, ISR: both})
	for at := range int64(5) {
		b := record.NewBuilder(record.BuilderOptions{})
		require.NoError(t, b.Add(record.Record{Timestamp: 10 + at, Value: []byte("v")}))
		batch, err := b.Finish()
		require.NoError(t, err)
		c.step(n, Produce{Tag: uint64(at), Raw: bytes.Clone(batch.Bytes()), Acks: 1})
	}
	c.step(n, FetchRequest{From: 2, Tag: 50, Offset: 2, LeaderEpoch: 1, LastFetchedEpoch: -1, BrokerEpoch: -1, MaxBytes: 1})
	require.Equal(t, int64(2), n.log.Offsets().HighWatermark)
	c.fetches = nil
	c.step(n, Assign{Leader: 2, LeaderEpoch: 2, PartitionEpoch: 1, Replicas: both, ISR: both})
	c.step(n, Assign{Leader: 1, LeaderEpoch: 3, PartitionEpoch: 2, Replicas: both, ISR: both})

	// byTime is the first offset at or after a time, as the answer to a consumer would be; ok is false for none.
	byTime := func(ms int64) (offset int64, ok bool, code ErrorCode) {
		v := n.p.View(NoNode, -1, log.ReadUncommitted, 0)
		found, err := n.log.OffsetForTime(t.Context(), time.UnixMilli(ms))
		if err == nil && found.Offset >= 0 && found.Offset < v.End {
			return found.Offset, true, None
		}
		return -1, false, v.Err
	}
	require.Equal(t, OffsetNotAvailable, n.p.View(NoNode, -1, log.ReadUncommitted, 0).Err)
	require.Equal(t, int64(5), n.latest(2, log.LogEnd))
	require.Zero(t, n.log.Offsets().LogStart, "the earliest is known always")
	offset, ok, _ := byTime(11)
	require.Equal(t, []any{int64(1), true}, []any{offset, ok})
	_, ok, code := byTime(100)
	require.Equal(t, []any{false, OffsetNotAvailable}, []any{ok, code}, "there may be one that is not known to be committed")

	c.step(n, FetchRequest{From: 2, Tag: 51, Offset: 5, LeaderEpoch: 3, LastFetchedEpoch: -1, BrokerEpoch: -1, MaxBytes: 1})
	require.Equal(t, int64(5), n.latest(NoNode, log.ReadUncommitted))
	_, ok, code = byTime(100)
	require.Equal(t, []any{false, None}, []any{ok, code})
}

// Transactions are verified at the leader, whatever travels with the request to its log.
//
// Scenario: N041.
func TestALeaderVerifiesTransactions(t *testing.T) {
	c := newRealCluster(t, 1)
	n := c.nodes[1]
	c.assign(Assign{Leader: 1, Replicas: []NodeID{1}, ISR: []NodeID{1}})
	var tag uint64
	produce := func(id int64, seq int32, txn bool, guard log.TxnGuard) Result {
		b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: id, BaseSequence: seq, Transactional: txn}})
		require.NoError(t, b.Add(record.Record{Timestamp: 1, Value: []byte("v")}))
		batch, err := b.Finish()
		require.NoError(t, err)
		tag++
		c.step(n, Produce{Tag: tag, Raw: bytes.Clone(batch.Bytes()), Acks: -1, Extra: log.AppendOptions{Verify: true, Guard: guard}})
		return c.replies[tag]
	}
	none := log.TxnGuard{}
	require.Equal(t, None, produce(1, 0, false, none).Err, "an idempotent producer needs none")
	require.Equal(t, InvalidTxnState, produce(2, 0, true, none).Err)
	foreign := n.log.VerifyTransaction(3, 0, 0, false)
	require.NotEqual(t, none, foreign)
	require.Equal(t, InvalidTxnState, produce(2, 0, true, foreign).Err)
	own := n.log.VerifyTransaction(2, 0, 0, false)
	require.NotEqual(t, none, own)
	require.Equal(t, own, n.log.VerifyTransaction(2, 0, 0, false), "asked for again it is the same")
	require.Equal(t, InvalidTxnState, produce(2, 0, true, foreign).Err)
	first := produce(2, 0, true, own)
	require.Equal(t, None, first.Err)
	require.Equal(t, none, n.log.VerifyTransaction(2, 0, 1, false), "the transaction is under way")
	again := produce(2, 0, true, own)
	require.Equal(t, None, again.Err)
	require.True(t, again.Duplicate)
	require.Equal(t, first.Base, again.Base)
}
