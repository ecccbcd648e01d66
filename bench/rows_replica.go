package main

import (
	"context"
	"errors"
	"os"
	"runtime"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
)

const (
	replicas       = 3
	committedBatch = 83 // records, 10 KB
)

func replicaRows() []row {
	return []row{
		{name: "commit 10 KB on three replicas", floor: "append it to three logs", atMost: 1.5, make: func(f *fixtures) (pair, error) { return commits(f, 1, timed) }},
		{name: "the same on one core", floor: "append it to three logs", atMost: 1.5, make: func(f *fixtures) (pair, error) {
			return commits(f, 1, func(do func(n int) error) func(n int) (time.Duration, error) { return onOneCore(timed(do)) })
		}},
		{name: "16 producers commit 10 KB on three", floor: "append it to three logs", atMost: 1.5, make: func(f *fixtures) (pair, error) { return commits(f, writers, timed) }},
		{name: "append to committed, p50", floor: "append it to three logs, p50", within: 150 * time.Microsecond, make: func(f *fixtures) (pair, error) {
			return commits(f, 1, func(do func(n int) error) func(n int) (time.Duration, error) {
				return median50(func(int) error { return do(1) })
			})
		}},
	}
}

// ordersZero is the partition that is replicated.
var ordersZero = log.TopicPartition{Topic: "orders"}

// group is the replicas of a partition on as many nodes of this process, all in sync, beside as many logs that know nothing of
// each other. Neither waits for a device.
type group struct {
	f     *fixtures
	roots []string
	dirs  []*log.Dir // of nodes, then of the logs
	nodes []*replica.Node
	logs  []*log.Log
	lead  *replica.Handle
}

func newGroup(f *fixtures) (*group, error) {
	g := &group{f: f}
	if err := g.open(); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (g *group) open() error {
	network := replica.NewNetwork()
	news := replica.Assign{TopicID: [16]byte{1}, Leader: 1, BrokerEpoch: 1}
	for i := range 2 * replicas {
		root := g.f.fresh()
		d, err := log.OpenDir(root, log.DirConfig{Defaults: log.Config{Durability: log.Buffered}})
		if err != nil {
			return err
		}
		g.roots, g.dirs = append(g.roots, root), append(g.dirs, d)
		if i >= replicas {
			l, err := d.Open(background, ordersZero, log.Config{})
			if err != nil {
				return err
			}
			g.logs = append(g.logs, l)
			continue
		}
		self := replica.NodeID(i + 1)
		n, err := replica.NewNode(replica.NodeConfig{Config: replica.Config{Self: self, BrokerEpoch: 1}, Dir: d, Transport: network.Transport(self)})
		if err != nil {
			return err
		}
		g.nodes = append(g.nodes, n)
		news.Replicas, news.ISR = append(news.Replicas, self), append(news.ISR, self)
	}
	for _, n := range g.nodes {
		if err := n.Assign(ordersZero, news); err != nil {
			return err
		}
	}
	var err error
	if g.lead, err = g.nodes[0].Partition(ordersZero); err != nil {
		return err
	}
	raw, err := encode(hundred()[:1], 1, record.None)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	for { // until it leads
		_, err := g.lead.Append(within, raw, -1)
		if err == nil || within.Err() != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func (g *group) close() (err error) {
	for _, n := range g.nodes {
		err = errors.Join(err, n.Close())
	}
	for _, d := range g.dirs {
		err = errors.Join(err, d.Close())
	}
	for _, root := range g.roots {
		err = errors.Join(err, os.RemoveAll(root))
	}
	*g = group{f: g.f}
	return err
}

// between begins anew when the logs have grown enough.
func (g *group) between() error {
	if g.lead.Log().Stats().Bytes < freshBytes/replicas {
		return nil
	}
	if err := g.close(); err != nil {
		return err
	}
	return g.open()
}

// commits pairs appends that wait until all replicas have them, of some producers at a time, with appends to as many logs.
func commits(f *fixtures, producers int, side func(func(n int) error) func(int) (time.Duration, error)) (pair, error) {
	g, err := newGroup(f)
	if err != nil {
		return pair{}, err
	}
	raws := make([][]byte, producers)
	for i := range raws {
		if raws[i], err = encode(hundred()[:committedBatch], 1, record.None); err != nil {
			return pair{}, errors.Join(err, g.close())
		}
	}
	again := func(raw []byte) { // as a producer would send the next
		clear(raw[:8]) // base offset
	}
	commit := func(raw []byte) error {
		defer again(raw)
		_, err := g.lead.Append(background, raw, -1)
		return err
	}
	ours, end := func(n int) (err error) {
		for ; n > 0 && err == nil; n-- {
			err = commit(raws[0])
		}
		return err
	}, g.close
	if producers > 1 {
		c := newCrew(raws, commit)
		ours, end = c.work, func() error { c.close(); return g.close() }
	}
	return pair{
		floor: side(func(n int) error {
			for range n {
				for _, l := range g.logs {
					_, err := l.AppendBatches(background, raws[0], log.AppendOptions{})
					again(raws[0])
					if err != nil {
						return err
					}
				}
			}
			return nil
		}),
		ours:    side(ours),
		between: g.between,
		close:   end,
	}, nil
}

// onOneCore is a side that has a single processor: what it takes is the work alone, with no core to be woken for a part of it.
func onOneCore(side func(n int) (time.Duration, error)) func(n int) (time.Duration, error) {
	return func(n int) (time.Duration, error) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		return side(n)
	}
}

// crew is producers that live as long as the row does: each does its share of n things at a time.
type crew struct {
	shares []chan int
	done   chan error
}

func newCrew(raws [][]byte, do func(raw []byte) error) *crew {
	c := &crew{done: make(chan error, len(raws))}
	for _, raw := range raws {
		share := make(chan int)
		c.shares = append(c.shares, share)
		go func() {
			for n := range share {
				var err error
				for ; n > 0 && err == nil; n-- {
					err = do(raw)
				}
				c.done <- err
			}
		}()
	}
	return c
}

func (c *crew) work(n int) (err error) {
	for i, share := range c.shares {
		share <- n/len(c.shares) + min(1, max(0, n%len(c.shares)-i))
	}
	for range c.shares {
		err = errors.Join(err, <-c.done)
	}
	return err
}

func (c *crew) close() {
	for _, share := range c.shares {
		close(share)
	}
}
