package controller_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// A partition of three replicas loses its leader.
func ExamplePartition_Change() {
	p := controller.Partition{
		Leader: 1, LeaderEpoch: 4, PartitionEpoch: 9,
		Replicas: []replica.NodeID{1, 2, 3},
		ISR:      []replica.NodeID{1, 3},
	}
	rules := controller.Rules{
		Acceptable: func(id replica.NodeID) bool { return id != 1 },
		MinISR:     2,
		ELR:        true,
	}
	p, changed := p.Change(rules, controller.Target{ISR: []replica.NodeID{3}})
	fmt.Println(changed, "leader", p.Leader, "epoch", p.LeaderEpoch, "in sync", p.ISR, "eligible", p.ELR)
	// Output:
	// true leader 3 epoch 5 in sync [3] eligible [1]
}

// A controller in this process, one node, one topic.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store := replica.NewMemStore()
	ruling := make(chan int32, 1)
	changed := make(chan controller.News, 10)
	ctrl := controller.NewController(store, controller.Options{
		Node:    1,
		Rule:    func(epoch int32, rules bool, why error) { ruling <- epoch },
		Changed: func(n controller.News) { changed <- n },
	})

	session, err := store.Session(ctx, 10*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := controller.Register(ctx, store, session, controller.Registration{Node: 1, PreviousEpoch: -1}); err != nil {
		fmt.Println(err)
		return
	}

	done := make(chan error)
	go func() { done <- ctrl.Run(ctx) }()
	<-ruling
	if _, err := ctrl.CreateTopic(ctx, controller.CreateTopic{Topic: "orders", Partitions: 1}); err != nil {
		fmt.Println(err)
		return
	}
	n := <-changed
	fmt.Println(n.Partition, "leader", n.State.Leader, "epoch", n.State.LeaderEpoch)

	if err := ctrl.AlterConfig(ctx, controller.AlterConfig{Topic: "orders", Set: map[string]string{"retention.ms": "3600000"}}); err != nil {
		fmt.Println(err)
	}
	err = ctrl.AlterConfig(ctx, controller.AlterConfig{Topic: "orders", Set: map[string]string{"retention.ms": "never"}})
	fmt.Println(errors.Is(err, replica.InvalidConfig)) // and nothing was stored
	settings, err := ctrl.DescribeConfig(ctx, "orders")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range settings[0].Settings {
		if s.Own {
			fmt.Println(s.Key, s.Value)
		}
	}

	session.Close() // the node is gone
	n = <-changed
	fmt.Println(n.Partition, "leader", n.State.Leader, "epoch", n.State.LeaderEpoch, "eligible", n.State.ELR)
	cancel()
	fmt.Println(<-done)
	// Output:
	// orders-0 leader 1 epoch 0
	// true
	// retention.ms 3600000
	// orders-0 leader -1 epoch 1 eligible [1]
	// context canceled
}
