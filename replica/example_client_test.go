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

// A program that is no member of the cluster appends and reads over TCP. The cluster is one node here.
func ExampleClient() {
	wire, err := replica.ListenTCP("127.0.0.1:0", replica.TCPConfig{Self: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer wire.Close()
	dir, err := log.OpenDir("data", log.DirConfig{FS: vfs.Mem(), Defaults: log.Config{Durability: log.Buffered}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dir.Close()
	node, err := replica.NewNode(replica.NodeConfig{Config: replica.Config{Self: 1}, Dir: dir, Transport: wire})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close()
	one := []replica.NodeID{1}
	if err := node.Assign(jobs, replica.Assign{TopicID: [16]byte{1}, Leader: 1, Replicas: one, ISR: one}); err != nil {
		fmt.Println(err)
		return
	}

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
