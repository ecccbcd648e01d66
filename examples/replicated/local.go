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
	"github.com/partlog/partlog/replica/controller"
)

// localBroker is a member of this process.
type localBroker struct {
	*member
	store *replica.MemStore
	root  string
}

// kill is as near to the end of a process as one gets inside it: nothing is said to anybody, the session expires, and the
// logs look as after a crash.
func (b localBroker) kill() error {
	b.cancel()
	b.all.Wait()
	err := errors.Join(b.node.Close(), b.dir.Close(), os.Remove(filepath.Join(b.root, ".kafka_cleanshutdown")))
	b.store.Expire(b.session)
	return err
}

// runLocal tells the story with three replicas in this process, in folders below dir.
func runLocal(ctx context.Context, dir string, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	store, network := replica.NewMemStore(), replica.NewNetwork()
	ctrl := controller.NewController(store, controller.Options{})
	ruled := make(chan error, 1)
	ruling, depose := context.WithCancel(ctx)
	go func() { ruled <- ctrl.Run(ruling) }()

	c := &cluster{ctrl: ctrl, brokers: map[replica.NodeID]broker{}}
	c.start = func(ctx context.Context, id replica.NodeID) (broker, error) {
		root := filepath.Join(dir, "node-"+strconv.Itoa(int(id)))
		m, err := join(ctx, id, root, store, ctrl, network.Transport(id), nil, time.Second)
		return localBroker{m, store, root}, err
	}
	defer func() {
		for _, b := range c.brokers {
			if b, ok := b.(localBroker); ok && b.member != nil {
				err = errors.Join(err, b.leave())
			}
		}
		depose()
		<-ruled
	}()
	return c.tell(ctx, out)
}
