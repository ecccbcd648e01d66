package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// cluster is three brokers and the store they share.
type cluster struct {
	store   replica.Store
	brokers map[replica.NodeID]broker
	start   func(ctx context.Context, id replica.NodeID) (broker, error)
	send    func(ctx context.Context, value string) error // to the leader, until it is committed
}

// partition is how the controller sees the one partition of the story.
func (c *cluster) partition(ctx context.Context) (controller.Partition, error) {
	n, err := controller.Lookup(ctx, c.store, orders)
	if err == nil && n.Deleted {
		err = errors.New("there is no topic yet")
	}
	return n.State, err
}

// create asks one after the other: the controller of one of them rules.
func (c *cluster) create(ctx context.Context) error {
	for {
		var errs []error
		for _, b := range c.brokers {
			try, cancel := context.WithTimeout(ctx, 2*time.Second)
			err := b.create(try)
			cancel()
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(append(errs, ctx.Err())...)
		}
	}
}

// until waits for the partition to be as it should.
func (c *cluster) until(ctx context.Context, what string, is func(controller.Partition) bool) (controller.Partition, error) {
	for {
		p, err := c.partition(ctx)
		if err == nil && is(p) {
			return p, nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return p, fmt.Errorf("%s: %w (leader %d, in sync %d, %w)", what, ctx.Err(), p.Leader, p.ISR, err)
		}
	}
}

// tell runs the story and says what happens.
func (c *cluster) tell(ctx context.Context, out io.Writer) error {
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	var err error
	for id := replica.NodeID(1); id <= 3; id++ {
		if c.brokers[id], err = c.start(ctx, id); err != nil {
			return fmt.Errorf("start node %d: %w", id, err)
		}
	}
	say("three nodes are up")
	if err := c.create(ctx); err != nil {
		return err
	}
	p, err := c.until(ctx, "all in sync", func(p controller.Partition) bool { return len(p.ISR) == 3 })
	if err != nil {
		return err
	}
	say("topic %q: replicas %d, leader %d of epoch %d, in sync %d", orders.Topic, p.Replicas, p.Leader, p.LeaderEpoch, p.ISR)
	say("a record is committed when all in sync have it, and they are two at least; 100 are sent")

	var committed []string
	send := func(from, to int) error {
		for i := from; i < to; i++ {
			value := fmt.Sprint("order ", i)
			if err := c.send(ctx, value); err != nil {
				return err
			}
			committed = append(committed, value)
		}
		return nil
	}
	if err := send(0, 100); err != nil {
		return err
	}
	c.show(ctx, say)

	old := p.Leader
	say("\nkill the leader, node %d, and send 100 more", old)
	begun := time.Now()
	if err := c.brokers[old].kill(); err != nil {
		return err
	}
	delete(c.brokers, old)
	p, err = c.until(ctx, "another leader", func(p controller.Partition) bool { return p.Leader != old && p.Leader != replica.NoNode })
	if err != nil {
		return err
	}
	say("node %d leads epoch %d after %v; in sync %d", p.Leader, p.LeaderEpoch, time.Since(begun).Round(time.Millisecond), p.ISR)
	if err := send(100, 200); err != nil {
		return err
	}
	if err := c.check(ctx, p.Leader, committed); err != nil {
		return err
	}
	say("all %d committed records are there, in order", len(committed))
	c.show(ctx, say)

	say("\nnode %d comes back, and 10 more are sent", old)
	if c.brokers[old], err = c.start(ctx, old); err != nil {
		return err
	}
	if p, err = c.until(ctx, "node in sync again", func(p controller.Partition) bool { return len(p.ISR) == 3 }); err != nil {
		return err
	}
	if err := send(200, 210); err != nil {
		return err
	}
	for id := range c.brokers {
		if err := c.check(ctx, id, committed); err != nil {
			return err
		}
	}
	say("it follows node %d; all three hold the same %d records", p.Leader, len(committed))
	c.show(ctx, say)
	return nil
}

// check reads a broker until it shows all that is committed: a follower learns of it a moment later. A value whose first
// attempt was not answered may be there twice, as with any producer that is not idempotent: the one of toLeader is not.
func (c *cluster) check(ctx context.Context, id replica.NodeID, committed []string) error {
	for {
		got, err := c.brokers[id].values(ctx)
		if got = slices.Compact(got); err == nil && slices.Equal(got, committed) {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("node %d shows %d records of %d: %w", id, len(got), len(committed), errors.Join(ctx.Err(), err))
		}
	}
}

// show is a table of the nodes. What a follower lacks is as the leader sees it; that the high watermark has moved a follower learns
// with its next fetch.
func (c *cluster) show(ctx context.Context, say func(string, ...any)) {
	var rows [3]status
	var errs [3]error
	var lag map[replica.NodeID]int64
	var isr []replica.NodeID
	for i := range rows {
		b := c.brokers[replica.NodeID(i+1)]
		if b == nil {
			rows[i].Role = "down"
			continue
		}
		if rows[i], errs[i] = b.status(ctx); len(rows[i].ISR) > 0 {
			lag, isr = rows[i].Lag, rows[i].ISR
		}
	}
	say("  node  role      epoch  log end  high watermark  in sync  lag")
	for i, s := range rows {
		id := replica.NodeID(i + 1)
		in, behind := "no", "-"
		if slices.Contains(isr, id) {
			in = "yes"
		}
		if n, ok := lag[id]; ok && n >= 0 && s.Role != "down" {
			behind = fmt.Sprint(n)
		}
		switch {
		case errs[i] != nil:
			say("  %-4d  %v", id, errs[i])
		case s.Role == "down":
			say("  %-4d  %-8s  %5s  %7s  %14s  %7s  %3s", id, s.Role, "-", "-", "-", in, behind)
		default:
			say("  %-4d  %-8s  %5d  %7d  %14d  %7s  %3s", id, s.Role, s.LeaderEpoch, s.LogEnd, s.HighWatermark, in, behind)
		}
	}
}
