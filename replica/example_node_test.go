package replica_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/vfs"
)

// decider is a controller of one's own, of one partition: what it says counts, and each of its words has a new number.
type decider struct {
	mu    sync.Mutex
	nodes map[replica.NodeID]*replica.Node
	now   replica.Assign
}

// decide changes what is so and tells all nodes.
func (d *decider) decide(change func(*replica.Assign)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.now)
	d.now.PartitionEpoch++
	for _, id := range d.now.Replicas {
		if err := d.nodes[id].Assign(jobs, d.now); err != nil {
			fmt.Println(id, err)
		}
	}
}

// propose judges what a leader wants its in-sync set to be: NodeConfig.Propose.
func (d *decider) propose(_ context.Context, _ log.TopicPartition, _ [16]byte, p replica.Proposal) replica.ISRAnswer {
	d.mu.Lock()
	stale := p.LeaderEpoch != d.now.LeaderEpoch || p.PartitionEpoch != d.now.PartitionEpoch
	d.mu.Unlock()
	if stale {
		return replica.ISRAnswer{Err: replica.InvalidUpdateVersion}
	}
	d.decide(func(a *replica.Assign) { a.ISR = slices.Clone(p.ISR) })
	return replica.ISRAnswer{ISR: p.ISR, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch + 1}
}

var jobs = log.TopicPartition{Topic: "jobs"}

// Two nodes of one process under a controller of one's own. The leadership goes from one to the other: who appends finds out
// from the refusal, and nothing that was acknowledged is lost.
func ExampleNode() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	network := replica.NewNetwork() // replica.ListenTCP between processes
	d := &decider{nodes: map[replica.NodeID]*replica.Node{}}
	for id := replica.NodeID(1); id <= 2; id++ {
		dir, err := log.OpenDir("data", log.DirConfig{FS: vfs.Mem(), Defaults: log.Config{Durability: log.Buffered}})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer dir.Close()
		n, err := replica.NewNode(replica.NodeConfig{
			Config: replica.Config{Self: id, MinISR: 2},
			Dir:    dir, Transport: network.Transport(id), Propose: d.propose,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer n.Close()
		d.nodes[id] = n
	}
	d.decide(func(a *replica.Assign) {
		both := []replica.NodeID{1, 2}
		*a = replica.Assign{TopicID: [16]byte{1}, Leader: 1, Replicas: both, ISR: both, PartitionEpoch: -1} // the first word has 0
	})

	add := func(at replica.NodeID, value string) error {
		b := record.NewBuilder(record.BuilderOptions{})
		if err := b.Add(record.Record{Value: []byte(value)}); err != nil {
			return err
		}
		batch, err := b.Finish()
		if err != nil {
			return err
		}
		h, err := d.nodes[at].Partition(jobs)
		if err != nil {
			return err
		}
		_, err = h.Append(ctx, batch.Bytes(), -1) // waits for the log to be open, and for both to have it
		return err
	}
	fmt.Println(add(1, "one"))
	d.decide(func(a *replica.Assign) { a.Leader, a.LeaderEpoch = 2, a.LeaderEpoch+1 })
	fmt.Println(add(1, "two"))
	fmt.Println(add(2, "two"))

	f, err := d.nodes[1].Remote(2, jobs).Fetch(ctx, 0, replica.FetchOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for r, err := range f.Records() {
		fmt.Println(r.Offset, string(r.Value), err)
	}
	// Output:
	// <nil>
	// append to jobs-0 refused by node 1: NOT_LEADER_OR_FOLLOWER (node 2 leads epoch 1)
	// <nil>
	// 0 one <nil>
	// 1 two <nil>
}
