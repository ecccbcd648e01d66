package replica

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// realNode is a replica over a log.Log in memory, whose answers come at once.
type realNode struct {
	t   *testing.T
	id  NodeID
	p   *Partition
	log *log.Log
}

func realState(l *log.Log) LogState { return LogState{Offsets: l.Offsets(), Epochs: l.Epochs()} }

// do carries out an action of the log.
func (n *realNode) do(a Action) Event {
	ctx := n.t.Context()
	switch a.Kind {
	case DoAppend:
		o, _ := a.Extra.(log.AppendOptions)
		o.As, o.LeaderEpoch = a.Role, &a.LeaderEpoch
		got, err := n.log.AppendBatches(ctx, a.Raw, o)
		return Appended{Tag: a.Tag, Base: got.Base, Last: got.Last, AppendTime: got.AppendTime, Duplicate: got.Duplicate, Err: err, State: realState(n.log)}
	case DoRead:
		raw, next, err := n.read(ctx, a)
		return Read{Tag: a.Tag, Raw: raw, Bytes: int64(len(raw)), Next: next, Err: err, State: realState(n.log)}
	case DoTruncate:
		_, err := n.log.Truncate(ctx, a.Offset)
		return Truncated{Tag: a.Tag, Err: err, State: realState(n.log)}
	case DoReset:
		return Truncated{Tag: a.Tag, Err: n.log.ResetTo(ctx, a.Offset), State: realState(n.log)}
	case DoSkip:
		return Truncated{Tag: a.Tag, Err: skip(ctx, n.log, a.LeaderEpoch, a.Offset), State: realState(n.log)}
	case DoEpoch:
		return Assigned{Tag: a.Tag, Err: n.log.AssignEpoch(a.LeaderEpoch), State: realState(n.log)}
	case SetHighWatermark:
		got, err := n.log.SetHighWatermark(a.Offset)
		require.NoError(n.t, err)
		require.Equal(n.t, a.Offset, got)
	case SetLogStart:
		require.NoError(n.t, n.log.DeleteRecords(ctx, a.Offset))
		return LogChanged{State: realState(n.log)}
	}
	return nil
}

func (n *realNode) read(ctx context.Context, a Action) (raw []byte, next int64, err error) {
	f, err := n.log.Fetch(ctx, a.Offset, log.FetchOptions{Isolation: a.Isolation, MaxBytes: a.MaxBytes, WholeBatches: true})
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	if raw, err = io.ReadAll(io.NewSectionReader(f, 0, f.Len())); err != nil {
		return nil, 0, err
	}
	next, err = f.NextOffset()
	return raw, next, err
}

// realCluster delivers at once what is sent between its nodes; fetches that find nothing are answered at once, and the next
// ones come when asked for.
type realCluster struct {
	t       *testing.T
	now     time.Time
	nodes   map[NodeID]*realNode
	fetches []Action // that were not sent yet
	replies map[uint64]Result
}

func newRealCluster(t *testing.T, nodes ...NodeID) *realCluster {
	c := &realCluster{t: t, now: epochOfTests, nodes: map[NodeID]*realNode{}, replies: map[uint64]Result{}}
	for _, id := range nodes {
		d, err := log.OpenDir("r", log.DirConfig{FS: vfs.Mem()})
		require.NoError(t, err)
		t.Cleanup(func() { _ = d.Close() })
		l, err := d.Open(t.Context(), log.TopicPartition{Topic: "t"}, log.Config{Visibility: log.External, Durability: log.Buffered, SegmentBytes: 1 << 20})
		require.NoError(t, err)
		c.nodes[id] = &realNode{t: t, id: id, log: l, p: New(l.TopicPartition(), Config{Self: id}, realState(l), false)}
	}
	return c
}

func (c *realCluster) step(n *realNode, e Event) {
	for _, a := range n.p.Step(c.now, e, nil) {
		switch a.Kind {
		case SendFetch:
			c.fetches = append(c.fetches, a)
		case Reply:
			if to := c.nodes[a.To]; to != nil && a.To > 0 {
				c.step(to, FetchResponse{From: n.id, Tag: a.Tag, Result: a.Result})
			} else {
				c.replies[a.Tag] = a.Result
			}
		case ProposeISR:
			c.step(n, accepted(a))
		default:
			if answer := n.do(a); answer != nil {
				c.step(n, answer)
			}
		}
	}
}

// round sends the fetches that are waiting.
func (c *realCluster) round() {
	fetches := c.fetches
	c.fetches = nil
	for _, a := range fetches {
		a.Fetch.MaxWait = 0
		if n := c.nodes[a.To]; n != nil {
			c.step(n, a.Fetch)
		} else {
			c.step(c.nodes[a.Fetch.From], FetchResponse{From: a.To, Tag: a.Tag, Result: Result{Err: NetworkException}})
		}
	}
}

func (c *realCluster) assign(a Assign) {
	for _, n := range c.nodes {
		c.step(n, a)
	}
}

func batchOf(t *testing.T, values ...string) []byte {
	b := record.NewBuilder(record.BuilderOptions{})
	for _, v := range values {
		require.NoError(t, b.Add(record.Record{Timestamp: 1, Value: []byte(v)}))
	}
	batch, err := b.Finish()
	require.NoError(t, err)
	return bytes.Clone(batch.Bytes())
}

func (n *realNode) values() (list []string) {
	for r, err := range n.log.Records(n.t.Context(), n.log.Offsets().LogStart, log.WithIsolation(log.LogEnd)) {
		require.NoError(n.t, err)
		list = append(list, string(r.Value))
	}
	return list
}

// A leader with records that nobody copied comes back as follower and is cut where histories part; then another replica is
// so far behind that the leader's log starts above its end, in the middle of a batch. F006, over real logs.
func TestDivergedReplicaOverRealLogs(t *testing.T) {
	c := newRealCluster(t, 1, 2, 3)
	all := []NodeID{1, 2, 3}
	c.assign(Assign{Leader: 1, LeaderEpoch: 0, PartitionEpoch: 0, Replicas: all, ISR: all})
	one, two, three := c.nodes[1], c.nodes[2], c.nodes[3]
	c.step(one, Produce{Tag: 1, Raw: batchOf(t, "a", "b"), Acks: -1})
	for range 3 {
		c.round()
	}
	require.Equal(t, None, c.replies[1].Err)
	require.Equal(t, int64(2), two.log.Offsets().HighWatermark)

	c.step(one, Produce{Tag: 2, Raw: batchOf(t, "lost"), Acks: 1})
	require.Equal(t, int64(2), c.replies[2].Base)
	c.fetches = nil
	delete(c.nodes, 1)
	c.assign(Assign{Leader: 2, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: all, ISR: []NodeID{2, 3}})
	c.step(two, Produce{Tag: 3, Raw: batchOf(t, "c", "d", "e"), Acks: -1})
	for range 3 {
		c.round()
	}
	require.Equal(t, None, c.replies[3].Err)
	c.nodes[1] = one
	c.step(one, Assign{Leader: 2, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: all, ISR: []NodeID{2, 3}})
	for range 5 {
		c.round()
	}
	require.Equal(t, []string{"a", "b", "c", "d", "e"}, one.values())
	require.Equal(t, two.log.Epochs(), one.log.Epochs())
	require.Equal(t, int64(1), one.p.Status().Counts.Truncations)
	require.Len(t, two.p.Status().ISR, 3)

	// Node 3 is away while records are deleted.
	delete(c.nodes, 3)
	c.fetches = nil
	c.step(two, Assign{Leader: 2, LeaderEpoch: 2, PartitionEpoch: 5, Replicas: all, ISR: []NodeID{2, 1}})
	c.step(one, Assign{Leader: 2, LeaderEpoch: 2, PartitionEpoch: 5, Replicas: all, ISR: []NodeID{2, 1}})
	c.step(two, Produce{Tag: 4, Raw: batchOf(t, "f", "g", "h"), Acks: -1})
	for range 3 {
		c.round()
	}
	require.NoError(t, two.log.DeleteRecords(t.Context(), 7))
	c.step(two, LogChanged{State: realState(two.log)})
	c.nodes[3] = three
	c.step(three, Assign{Leader: 2, LeaderEpoch: 2, PartitionEpoch: 5, Replicas: all, ISR: []NodeID{2, 1}})
	for range 6 {
		c.round()
	}
	require.Equal(t, []string{"h"}, one.values()[len(one.values())-1:])
	require.Equal(t, []string{"h"}, three.values())
	require.Equal(t, two.log.Offsets().LogStart, three.log.Offsets().LogStart)
	require.Equal(t, int64(8), three.log.Offsets().HighWatermark)
	require.Equal(t, two.log.Epochs(), three.log.Epochs())
	require.Equal(t, int64(5), three.log.SegmentInfos()[0].Base, "the segment is named after the batch")
}
