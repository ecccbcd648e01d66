package member_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/replica/member"
	"github.com/partlog/partlog/vfs"
)

// Two members of one process keep a topic: one record on both.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store, network := replica.NewMemStore(), replica.NewNetwork()
	var members []*member.Member
	for id := replica.NodeID(1); id <= 2; id++ {
		dir, err := log.OpenDir("data", log.DirConfig{FS: vfs.Mem(), Defaults: log.Config{Durability: log.Buffered}})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer dir.Close()
		m, err := member.Start(member.Config{
			NodeConfig: replica.NodeConfig{Config: replica.Config{Self: id}, Dir: dir, Transport: network.Transport(id)},
			Store:      store,
			Controller: &controller.Options{},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer m.Shutdown(ctx)
		members = append(members, m)
	}
	for _, m := range members {
		if err := m.InService(ctx); err != nil {
			fmt.Println(err)
			return
		}
	}
	create := controller.CreateTopic{Topic: "orders", Assignment: [][]replica.NodeID{{1, 2}}, Config: map[string]string{"min.insync.replicas": "2"}}
	for _, m := range members { // one of them rules
		if _, err := m.Controller().CreateTopic(ctx, create); err != nil && !errors.Is(err, replica.NotController) {
			fmt.Println(err)
			return
		}
	}

	orders := log.TopicPartition{Topic: "orders"}
	b := record.NewBuilder(record.BuilderOptions{})
	if err := b.Add(record.Record{Value: []byte("one")}); err != nil {
		fmt.Println(err)
		return
	}
	batch, err := b.Finish()
	if err != nil {
		fmt.Println(err)
		return
	}
	for { // until the leader knows that it leads
		if h, err := members[0].Node().Partition(orders); err == nil {
			if _, err = h.Append(ctx, batch.Bytes(), -1); err == nil {
				break
			}
		}
		time.Sleep(time.Millisecond)
	}
	far := members[1].Node().Remote(1, orders)
	end, err := far.ListOffsets(ctx, replica.OffsetQuery{At: replica.Latest})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("end", end.Offset)
	got, err := far.Fetch(ctx, 0, replica.FetchOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for r, err := range got.Records() {
		fmt.Println(r.Offset, string(r.Value), err)
	}
	// Output:
	// end 1
	// 0 one <nil>
}
