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

// produce sends a value to whoever leads until it is committed.
func (c *cluster) produce(ctx context.Context, value string) (offset int64, retries int, err error) {
	for {
		p, err := c.partition(ctx)
		if err == nil {
			if b := c.brokers[p.Leader]; b != nil {
				try, cancel := context.WithTimeout(ctx, 2*time.Second)
				offset, err = b.append(try, value)
				cancel()
				if err == nil {
					return offset, retries, nil
				}
			}
		}
		retries++
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return -1, retries, errors.Join(ctx.Err(), err)
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
	say("topic %q: replicas %d, leader %d of epoch %d, in sync %d; a record is committed when two have it", orders.Topic, p.Replicas, p.Leader, p.LeaderEpoch, p.ISR)

	var committed []string
	send := func(from, to int) error {
		for i := from; i < to; i++ {
			value := fmt.Sprint("order ", i)
			if _, _, err := c.produce(ctx, value); err != nil {
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
	say("\nkill the leader, node %d", old)
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

	say("\nnode %d comes back", old)
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
// attempt was not answered may be there twice, as with any producer that is not idempotent.
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

func (c *cluster) show(ctx context.Context, say func(string, ...any)) {
	for id := replica.NodeID(1); id <= 3; id++ {
		b := c.brokers[id]
		if b == nil {
			say("  node %d  down", id)
			continue
		}
		s, err := b.status(ctx)
		if err != nil {
			say("  node %d  %v", id, err)
			continue
		}
		line := fmt.Sprintf("  node %d  %-8s epoch %d  high watermark %d  log end %d", id, s.Role, s.LeaderEpoch, s.HighWatermark, s.LogEnd)
		if len(s.ISR) > 0 {
			line += fmt.Sprintf("  in sync %d  lag %v", s.ISR, s.Lag)
		}
		say("%s", line)
	}
}
