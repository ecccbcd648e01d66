package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/partlog/partlog/replica"
)

// sessionTTL is how long a killed node counts as alive.
const sessionTTL = time.Second

// Desk is where the clients of a node in another process are served.
type Desk struct {
	ctx context.Context
	n   node
}

// AnswerDesk is its answer; exported for gob.
type AnswerDesk struct {
	Values []string
	Status status
	Reason string
}

func (d *Desk) Create(_ int, _ *AnswerDesk) error {
	ctx, cancel := context.WithTimeout(d.ctx, 2*time.Second)
	defer cancel()
	return d.n.create(ctx)
}

func (d *Desk) Values(_ int, a *AnswerDesk) (err error) {
	a.Values, err = d.n.values(d.ctx)
	return err
}

func (d *Desk) Status(_ int, a *AnswerDesk) (err error) {
	a.Status, err = d.n.status(d.ctx)
	return err
}

// serveNode is a node's process. It says on out where its desk is, and ends when ctx does.
func serveNode(ctx context.Context, out io.Writer, id replica.NodeID, dir, hub string) error {
	c, err := rpc.Dial("tcp", hub)
	if err != nil {
		return err
	}
	defer c.Close()
	wire, err := replica.ListenTCP("127.0.0.1:0", replica.TCPConfig{Self: id})
	if err != nil {
		return err
	}
	defer wire.Close()
	n, err := join(ctx, id, dir, hubClient{c}, wire)
	if err != nil {
		return err
	}
	addr, err := serveRPC(ctx, &Desk{ctx, n})
	if err != nil {
		return errors.Join(err, n.leave())
	}
	fmt.Fprintln(out, addr)
	<-ctx.Done()
	return n.leave()
}

// remoteBroker is a node in a process of its own.
type remoteBroker struct {
	process *exec.Cmd
	c       *rpc.Client
}

func (b remoteBroker) create(ctx context.Context) error {
	return call(ctx, b.c, "Desk.Create", 0, &AnswerDesk{})
}

func (b remoteBroker) values(ctx context.Context) ([]string, error) {
	var a AnswerDesk
	err := call(ctx, b.c, "Desk.Values", 0, &a)
	return a.Values, err
}

func (b remoteBroker) status(ctx context.Context) (status, error) {
	var a AnswerDesk
	err := call(ctx, b.c, "Desk.Status", 0, &a)
	return a.Status, err
}

// kill is SIGKILL.
func (b remoteBroker) kill() error {
	if err := b.process.Process.Kill(); err != nil {
		return err
	}
	_ = b.process.Wait() // says that it was killed
	return b.c.Close()
}

func (b remoteBroker) leave() error {
	if b.process.Process.Signal(os.Interrupt) != nil {
		return b.kill()
	}
	return errors.Join(b.process.Wait(), b.c.Close())
}

// spawn starts this program again as a node.
func spawn(ctx context.Context, id replica.NodeID, dir, hub string) (broker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := exec.CommandContext(ctx, self, "-node", strconv.Itoa(int(id)), "-dir", filepath.Join(dir, "node-"+strconv.Itoa(int(id))), "-hub", hub)
	p.Stderr = os.Stderr
	stdout, err := p.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("node %d: %w", id, err), p.Process.Kill(), p.Wait())
	}
	c, err := rpc.Dial("tcp", strings.TrimSpace(line))
	if err != nil {
		return nil, errors.Join(err, p.Process.Kill(), p.Wait())
	}
	return remoteBroker{p, c}, nil
}

// runProcesses tells the story with three processes. The store is in this one.
func runProcesses(ctx context.Context, dir string, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	store := replica.NewMemStore()
	hub, err := serveHub(ctx, store)
	c := &cluster{store: store, brokers: map[replica.NodeID]broker{}}
	c.start = func(ctx context.Context, id replica.NodeID) (broker, error) { return spawn(ctx, id, dir, hub) }
	p := &producer{store: store}
	c.send = p.send
	defer func() {
		err = errors.Join(err, p.close())
		for _, b := range c.brokers {
			if b, ok := b.(remoteBroker); ok {
				err = errors.Join(err, b.leave())
			}
		}
	}()
	if err != nil {
		return err
	}
	return c.tell(ctx, out)
}
