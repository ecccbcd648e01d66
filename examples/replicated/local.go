package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/partlog/partlog/replica"
)

// localBroker is a member of this process.
type localBroker struct {
	node
	root string
}

// kill is as near to the end of a process as one gets inside it: nobody is asked to lead before, and the logs look as after a
// crash. The session ends at once, rather than when it expires.
func (b localBroker) kill() error {
	return errors.Join(b.Close(), b.dir.Close(), os.Remove(filepath.Join(b.root, ".kafka_cleanshutdown")))
}

// runLocal tells the story with three replicas in this process, in folders below dir.
func runLocal(ctx context.Context, dir string, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	store, network := replica.NewMemStore(), replica.NewNetwork()
	c := &cluster{store: store, brokers: map[replica.NodeID]broker{}}
	c.start = func(ctx context.Context, id replica.NodeID) (broker, error) {
		root := filepath.Join(dir, "node-"+strconv.Itoa(int(id)))
		n, err := join(ctx, id, root, store, network.Transport(id))
		return localBroker{n, root}, err
	}
	c.send = c.toLeader
	defer func() {
		for _, b := range c.brokers {
			if b, ok := b.(localBroker); ok && b.Member != nil {
				err = errors.Join(err, b.leave())
			}
		}
	}()
	return c.tell(ctx, out)
}

// toLeader sends a value to whoever leads until it is committed.
func (c *cluster) toLeader(ctx context.Context, value string) error {
	for {
		p, err := c.partition(ctx)
		if err == nil {
			if b, ok := c.brokers[p.Leader].(localBroker); ok {
				try, cancel := context.WithTimeout(ctx, 2*time.Second)
				err = b.append(try, value)
				cancel()
				if err == nil {
					return nil
				}
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}
