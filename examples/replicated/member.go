package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// judge is what a member asks of the controller: whether its partition's in-sync set may change.
type judge interface {
	AlterPartition(ctx context.Context, r controller.AlterPartition) (controller.Partition, error)
}

// member is one broker of the cluster, without the clients' side: its logs, its replicas, and its registration.
type member struct {
	id      replica.NodeID
	dir     *log.Dir
	node    *replica.Node
	session replica.Session
	cancel  context.CancelFunc
	all     sync.WaitGroup
}

// join opens the logs in root, registers the node and follows what the controller decides.
func join(ctx context.Context, id replica.NodeID, root string, store replica.Store, ctrl judge, wire replica.Transport, at net.Addr, ttl time.Duration) (*member, error) {
	dir, err := log.OpenDir(root, log.DirConfig{Defaults: log.Config{Durability: log.Buffered}}) // as Kafka does: replicas, not syncs
	if err != nil {
		return nil, err
	}
	m := &member{id: id, dir: dir}
	fail := func(err error) (*member, error) {
		if m.session != nil {
			err = errors.Join(err, m.session.Close())
		}
		return nil, errors.Join(err, dir.Close())
	}
	if m.session, err = store.Session(ctx, ttl); err != nil {
		return fail(err)
	}
	me := controller.Registration{Node: id, PreviousEpoch: -1, Fenced: true} // not in service until it knows its part
	if epoch, clean := dir.CleanShutdown(); clean {
		me.PreviousEpoch = epoch
	}
	if at != nil {
		host, port, _ := net.SplitHostPort(at.String())
		me.Host = host
		me.Port, _ = strconv.Atoi(port)
	}
	registered, err := register(ctx, store, m.session, me)
	if err != nil {
		return fail(err)
	}
	conf := replica.Config{Self: id, BrokerEpoch: registered.Epoch(), MinISR: 2, LagTimeMax: 2 * time.Second, FetchLimit: time.Second, Backoff: 50 * time.Millisecond}
	m.node, err = replica.NewNode(replica.NodeConfig{
		Config: conf, Dir: dir, Transport: wire,
		Propose: func(ctx context.Context, tp log.TopicPartition, topicID [16]byte, p replica.Proposal) replica.ISRAnswer {
			return propose(ctx, ctrl, controller.AlterPartition{Node: id, BrokerEpoch: registered.Epoch(), TopicID: topicID, Partition: tp, Proposal: p})
		},
	})
	if err != nil {
		return fail(err)
	}
	ctx, m.cancel = context.WithCancel(ctx)
	m.all.Go(func() { m.follow(ctx, store, registered) })
	if tcp, ok := wire.(*replica.TCP); ok {
		m.all.Go(func() { findPeers(ctx, store, id, tcp) })
	}
	return m, nil
}

// register waits for the session of an earlier life of the node to end.
func register(ctx context.Context, store replica.Store, session replica.Session, me controller.Registration) (*controller.Registered, error) {
	for {
		registered, err := controller.Register(ctx, store, session, me)
		if !errors.Is(err, controller.ErrNodeInUse) {
			return registered, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func propose(ctx context.Context, ctrl judge, r controller.AlterPartition) replica.ISRAnswer {
	p, err := ctrl.AlterPartition(ctx, r)
	if code := replica.ErrorCode(0); errors.As(err, &code) {
		return replica.ISRAnswer{Err: code}
	}
	if err != nil {
		return replica.ISRAnswer{Err: replica.RequestTimedOut}
	}
	return replica.ISRAnswer{ISR: p.ISR, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
}

// follow hands the controller's decisions to the node. Those of an earlier life of this node must not count: what it led
// then it may have lost since. So nothing is handed on until the controller has noticed this life and taken every
// leadership of the earlier one away.
func (m *member) follow(ctx context.Context, store replica.Store, registered *controller.Registered) {
	known := map[log.TopicPartition]controller.News{}
	noticed, current, ready := false, false, false
	for news, err := range controller.Follow(ctx, store) {
		if err != nil {
			continue // ends by itself if the store does
		}
		switch {
		case news.Current:
			current = true
		case news.Partition.Topic != "":
			known[news.Partition] = news
		default:
			m.node.Peer(news.Peer)
			noticed = noticed || news.Peer.Node == m.id && news.Peer.BrokerEpoch == registered.Epoch()
		}
		if ready {
			m.give(news, registered.Epoch())
			continue
		}
		leads := false
		for _, n := range known {
			leads = leads || n.State.Leader == m.id
		}
		if current && noticed && !leads && registered.Ready(ctx) == nil {
			ready = true
			for _, n := range known {
				m.give(n, registered.Epoch())
			}
		}
	}
}

func (m *member) give(news controller.News, brokerEpoch int64) {
	switch {
	case news.Partition.Topic == "":
	case news.Deleted || !slices.Contains(news.State.Replicas, m.id):
		_ = m.node.Stop(news.Partition, replica.Stop{Delete: true, LeaderEpoch: -1}) // there may be none
	default:
		a := news.State.Assign(news.TopicID)
		a.BrokerEpoch = brokerEpoch
		_ = m.node.Assign(news.Partition, a) // fails only when the node is closed
	}
}

// findPeers tells the transport where the other nodes are: what they registered.
func findPeers(ctx context.Context, store replica.Store, self replica.NodeID, tcp *replica.TCP) {
	for v, err := range store.Watch(ctx, controller.IDsPrefix) {
		var at struct {
			Host string
			Port int
		}
		if err != nil || v.Value == nil || json.Unmarshal(v.Value, &at) != nil {
			continue
		}
		n, err := strconv.Atoi(strings.TrimPrefix(v.Key, controller.IDsPrefix))
		if id := replica.NodeID(n); err == nil && id != self {
			tcp.SetPeer(id, net.JoinHostPort(at.Host, strconv.Itoa(at.Port)))
		}
	}
}

// leave stops the member; an orderly stop ends the session and marks the logs as clean.
func (m *member) leave() error {
	m.cancel()
	m.all.Wait()
	return errors.Join(m.node.Close(), m.dir.Close(), m.session.Close())
}
