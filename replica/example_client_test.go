package replica_test

import (
	"context"
	"fmt"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/vfs"
)

// oneNode is a cluster of one node, with one partition; done closes its logs.
func oneNode(wire replica.Transport) (node *replica.Node, done func() error, err error) {
	dir, err := log.OpenDir("data", log.DirConfig{FS: vfs.Mem(), Defaults: log.Config{Durability: log.Buffered}})
	if err != nil {
		return nil, nil, err
	}
	node, err = replica.NewNode(replica.NodeConfig{Config: replica.Config{Self: 1}, Dir: dir, Transport: wire})
	if err != nil {
		return nil, nil, err
	}
	one := []replica.NodeID{1}
	return node, dir.Close, node.Assign(jobs, replica.Assign{TopicID: [16]byte{1}, Leader: 1, Replicas: one, ISR: one})
}

// A program that is no member of the cluster appends and reads over TCP. The cluster is one node here.
func ExampleClient() {
	wire, err := replica.ListenTCP("127.0.0.1:0", replica.TCPConfig{Self: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer wire.Close()
	node, done, err := oneNode(wire)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	defer node.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := replica.NewClient(replica.ClientConfig{Nodes: map[replica.NodeID]string{1: wire.Addr().String()}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	b := record.NewBuilder(record.BuilderOptions{})
	for _, v := range []string{"one", "two"} {
		if err := b.Add(record.Record{Value: []byte(v)}); err != nil {
			fmt.Println(err)
			return
		}
	}
	batch, err := b.Finish()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.Append(ctx, jobs, batch.Bytes(), -1))
	for r, err := range client.Records(ctx, jobs, 0, replica.FetchOptions{Isolation: log.ReadCommitted}) {
		fmt.Println(r.Offset, string(r.Value), err)
		if r.Offset == 1 || err != nil {
			break
		}
	}
	// Output:
	// {0 1 -1 0 false} <nil>
	// 0 one <nil>
	// 1 two <nil>
}

// A transaction of a program that is no member: it is seen whole, once its end is committed.
func ExampleClient_EndTxn() {
	wire, err := replica.ListenTCP("127.0.0.1:0", replica.TCPConfig{Self: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer wire.Close()
	node, done, err := oneNode(wire)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	defer node.Close()
	client, err := replica.NewClient(replica.ClientConfig{Nodes: map[replica.NodeID]string{1: wire.Addr().String()}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p := record.Producer{ID: 7, Transactional: true} // Epoch is one more each time the program starts
	for _, commit := range []bool{true, false} {
		b := record.NewBuilder(record.BuilderOptions{Producer: &p})
		if err := b.Add(record.Record{Value: fmt.Appendf(nil, "to commit: %t", commit)}); err != nil {
			fmt.Println(err)
			return
		}
		batch, err := b.Finish()
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := client.Append(ctx, jobs, batch.Bytes(), -1); err != nil { // tried again until it is there, and once only
			fmt.Println(err)
			return
		}
		p.BaseSequence += int32(batch.Count())
		if _, err := client.EndTxn(ctx, jobs, p, commit, log.EndTxnOptions{}); err != nil {
			fmt.Println(err)
			return
		}
	}
	f, err := client.Fetch(ctx, jobs, 0, replica.FetchOptions{Isolation: log.ReadCommitted})
	if err != nil {
		fmt.Println(err)
		return
	}
	for r := range f.Records() {
		fmt.Println(r.Offset, string(r.Value))
	}
	s, err := client.Status(ctx, jobs)
	fmt.Println("last stable offset", s.Offsets.LastStable, "of", s.Offsets.LogEnd, err)
	// Output:
	// 0 to commit: true
	// last stable offset 4 of 4 <nil>
}
