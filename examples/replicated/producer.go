package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// producer is a program that is no member: it reaches the nodes over TCP, finds the leader, and the next one when that is killed. It is
// idempotent, so that what it must send again is there once all the same.
type producer struct {
	store replica.Store
	c     *replica.Client // nil: nothing was sent yet
	next  int32           // sequence number
}

// locate reads where a node is, which may be elsewhere after it was started again.
func (p *producer) locate(ctx context.Context, id replica.NodeID) (string, error) {
	n, err := controller.LookupNode(ctx, p.store, id)
	if err == nil && n.BrokerEpoch == 0 {
		err = fmt.Errorf("node %d is not there", id)
	}
	return net.JoinHostPort(n.Host, strconv.Itoa(n.Port)), err
}

func (p *producer) connect(ctx context.Context) (err error) {
	nodes := map[replica.NodeID]string{}
	for id := replica.NodeID(1); id <= 3; id++ {
		if nodes[id], err = p.locate(ctx, id); err != nil {
			return err
		}
	}
	p.c, err = replica.NewClient(replica.ClientConfig{Nodes: nodes, Locate: p.locate, Timeout: time.Second, Backoff: 20 * time.Millisecond})
	return err
}

// send returns when the value is committed.
func (p *producer) send(ctx context.Context, value string) error {
	if p.c == nil {
		if err := p.connect(ctx); err != nil {
			return err
		}
	}
	raw, err := encode(value, &record.Producer{ID: 1, BaseSequence: p.next})
	if err != nil {
		return err
	}
	_, err = p.c.Append(ctx, orders, raw, -1)
	p.next++
	return err
}

func (p *producer) close() error {
	if p.c == nil {
		return nil
	}
	return p.c.Close()
}
