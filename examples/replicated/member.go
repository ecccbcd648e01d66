package main

import (
	"context"
	"errors"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/replica/member"
)

// node is a member of the cluster with its logs.
type node struct {
	*member.Member
	dir *log.Dir
}

// join opens the logs in root, becomes a member, and waits until it is in service.
func join(ctx context.Context, id replica.NodeID, root string, store replica.Store, wire replica.Transport) (node, error) {
	dir, err := log.OpenDir(root, log.DirConfig{Defaults: log.Config{Durability: log.Buffered}}) // as Kafka does: replicas, not syncs
	if err != nil {
		return node{}, err
	}
	m, err := member.Start(member.Config{
		NodeConfig: replica.NodeConfig{
			Config: replica.Config{Self: id, LagTimeMax: 2 * time.Second, FetchLimit: time.Second, Backoff: 50 * time.Millisecond},
			Dir:    dir, Transport: wire,
		},
		Store: store, SessionTTL: sessionTTL, Retry: 50 * time.Millisecond,
		Controller: &controller.Options{}, // each stands for election
	})
	if err != nil {
		return node{}, errors.Join(err, dir.Close())
	}
	n := node{m, dir}
	if err := m.InService(ctx); err != nil {
		return node{}, errors.Join(err, m.Close(), dir.Close())
	}
	return n, nil
}

// leave is an orderly stop: others lead before, and the logs are marked as clean.
func (n node) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := n.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // the last of them: nobody is left who could lead, or judge
	}
	return errors.Join(err, n.dir.Close())
}
