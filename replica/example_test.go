package replica_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/vfs"
)

// node is a replica and its log. What it sends is delivered by hand.
type node struct {
	replica.Config
	dir  *log.Dir
	log  *log.Log
	core *replica.Partition
	sent []replica.Action
}

func (n *node) state() replica.LogState {
	return replica.LogState{Offsets: n.log.Offsets(), Epochs: n.log.Epochs()}
}

// start begins a life of the node: all it knows is what is on its disk.
func (n *node) start() {
	n.core = replica.New(n.log.TopicPartition(), n.Config, n.state(), false)
	n.sent = nil
}

// step drives the core: an event goes in, what the log is asked for is done, and its answer is the next event.
func (n *node) step(e replica.Event) {
	for _, a := range n.core.Step(time.Unix(0, 0), e, nil) {
		if answer := n.do(context.Background(), a); answer != nil {
			n.step(answer)
		}
	}
}

func (n *node) do(ctx context.Context, a replica.Action) replica.Event {
	switch a.Kind {
	case replica.DoAppend:
		got, err := n.log.AppendBatches(ctx, a.Raw, log.AppendOptions{As: a.Role, LeaderEpoch: &a.LeaderEpoch})
		return replica.Appended{Tag: a.Tag, Base: got.Base, Last: got.Last, Err: err, State: n.state()}
	case replica.DoRead:
		f, err := n.log.Fetch(ctx, a.Offset, log.FetchOptions{Isolation: a.Isolation, MaxBytes: a.MaxBytes, WholeBatches: true})
		if err != nil {
			return replica.Read{Tag: a.Tag, Err: err, State: n.state()}
		}
		defer f.Close()
		raw, err := io.ReadAll(io.NewSectionReader(f, 0, f.Len()))
		next, _ := f.NextOffset()
		return replica.Read{Tag: a.Tag, Raw: raw, Bytes: f.Len(), Next: next, Err: err, State: n.state()}
	case replica.DoTruncate:
		_, err := n.log.Truncate(ctx, a.Offset)
		return replica.Truncated{Tag: a.Tag, Err: err, State: n.state()}
	case replica.DoEpoch:
		return replica.Assigned{Tag: a.Tag, Err: n.log.AssignEpoch(a.LeaderEpoch), State: n.state()}
	case replica.SetHighWatermark:
		_, _ = n.log.SetHighWatermark(a.Offset)
	case replica.SendFetch, replica.Reply:
		n.sent = append(n.sent, a)
	}
	return nil
}

// take is what the node sent last.
func (n *node) take() (a replica.Action) {
	a, n.sent = n.sent[len(n.sent)-1], n.sent[:len(n.sent)-1]
	return a
}

// story is the first of the two failures that KIP-101 describes: a follower restarts before it has heard that its record is
// committed, and leads before it has copied it again. It returns what the new leader has.
func story(rule replica.Truncation) (values []string) {
	ctx := context.Background()
	open := func(id replica.NodeID) *node {
		dir, err := log.OpenDir("memory", log.DirConfig{FS: vfs.Mem()})
		if err != nil {
			panic(err)
		}
		l, err := dir.Open(ctx, log.TopicPartition{Topic: "orders"}, log.Config{Visibility: log.External, Durability: log.Buffered})
		if err != nil {
			panic(err)
		}
		n := &node{Config: replica.Config{Self: id, Truncation: rule}, dir: dir, log: l}
		n.start()
		return n
	}
	one, two := open(1), open(2)
	defer one.dir.Close()
	defer two.dir.Close()
	news := replica.Assign{Leader: 1, Replicas: []replica.NodeID{1, 2}, ISR: []replica.NodeID{1, 2}}
	one.step(news)
	two.step(news)
	one.step(two.take().Fetch) // it waits there for records

	b := record.NewBuilder(record.BuilderOptions{})
	_ = b.Add(record.Record{Value: []byte("order 1")})
	batch, _ := b.Finish()
	one.step(replica.Produce{Tag: 1, Raw: bytes.Clone(batch.Bytes()), Acks: -1})
	answer := one.take()
	two.step(replica.FetchResponse{From: 1, Tag: answer.Tag, Result: answer.Result})
	one.step(two.take().Fetch) // node 2 has it, and with that it is committed
	fmt.Printf("confirmed at offset %d; high watermark %d at the leader, %d at its follower\n",
		one.take().Result.Base, one.core.Status().HighWatermark, two.core.Status().HighWatermark)

	two.start()
	two.step(news)
	// Node 1 dies before it answers. Node 2 is in sync, so it leads.
	two.step(replica.Assign{Leader: 2, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: news.Replicas, ISR: []replica.NodeID{2}})
	for r, err := range two.log.Records(ctx, 0, log.WithIsolation(log.LogEnd)) {
		if err != nil {
			panic(err)
		}
		values = append(values, string(r.Value))
	}
	return values
}

// The classic description of Kafka has a follower cut its log to its high watermark, which loses a committed record here. With
// leader epochs it keeps what it has until the leader says where their histories part.
func ExamplePartition() {
	fmt.Printf("cut to the high watermark: the new leader has %q\n", story(replica.ByHighWatermark))
	fmt.Printf("by leader epochs: the new leader has %q\n", story(replica.ByEpoch))
	// Output:
	// confirmed at offset 0; high watermark 1 at the leader, 0 at its follower
	// cut to the high watermark: the new leader has []
	// confirmed at offset 0; high watermark 1 at the leader, 0 at its follower
	// by leader epochs: the new leader has ["order 1"]
}
