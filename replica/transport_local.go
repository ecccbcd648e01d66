package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/partlog/partlog/log"
)

// ErrTransportBusy: somebody serves this node's end of the transport already.
var ErrTransportBusy = errors.New("replica: the transport is served already")

// ErrTransportClosed: the transport was closed.
var ErrTransportClosed = errors.New("replica: transport closed")

// Faults of the way from one node to another; the zero value is a good one.
type Faults struct {
	Cut       bool          // nothing comes through
	Loss      float64       // share of messages that are lost, 0 to 1
	Duplicate float64       // share that comes twice
	Delay     time.Duration // each message takes up to this long, so that they overtake each other
}

// Network connects nodes of one process. Messages are handed over without a copy, on the goroutine of who sends. Its faults
// can be changed at any time. It is safe for concurrent use. The zero value is one without faults.
type Network struct {
	mu     sync.RWMutex // guards the maps and all Faults; not held while a message is delivered
	ends   map[NodeID]*end
	faults map[[2]NodeID]Faults
}

// end is where one node's messages go.
type end struct {
	deliver func(Envelope)
	near    bool                // to a node, and nobody else sees what comes
	late    *timeline[Envelope] // what takes its time
	busy    sync.RWMutex        // read-locked by deliveries, so that none goes on when Serve has returned
	over    bool                // guarded by busy
}

// NewNetwork makes one without faults.
func NewNetwork() *Network { return new(Network) }

// Fault sets the faults of the way from one node to another; the way back is another one.
func (n *Network) Fault(from, to NodeID, f Faults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f == (Faults{}) {
		delete(n.faults, [2]NodeID{from, to})
		return
	}
	put(&n.faults, [2]NodeID{from, to}, f)
}

// Isolate cuts a node off from all of others, both ways, or mends that.
func (n *Network) Isolate(node NodeID, cut bool, others ...NodeID) {
	for _, o := range others {
		if o != node {
			n.Fault(node, o, Faults{Cut: cut})
			n.Fault(o, node, Faults{Cut: cut})
		}
	}
}

// Transport is a node's end of the network.
func (n *Network) Transport(self NodeID) Transport { return localTransport{n, self} }

type localTransport struct {
	network *Network
	self    NodeID
}

// Self is whose end it is.
func (t localTransport) Self() NodeID { return t.self }

func (t localTransport) Send(to NodeID, tp log.TopicPartition, m Message) {
	t.send(to, tp, m, passing{})
}

func (t localTransport) send(to NodeID, tp log.TopicPartition, m Message, on passing) {
	n := t.network
	n.mu.RLock()
	f := n.faults[[2]NodeID{t.self, to}]
	e := n.ends[to]
	n.mu.RUnlock()
	if e == nil || f.Cut || f.Loss > 0 && rand.Float64() < f.Loss {
		return
	}
	env := Envelope{From: t.self, Partition: tp, Message: m}
	times := 1
	if f.Duplicate > 0 && rand.Float64() < f.Duplicate {
		times = 2
	}
	for range times {
		if f.Delay > 0 {
			e.late.add(time.Now().Add(rand.N(f.Delay)), env)
		} else {
			if e.near && times == 1 {
				env.on = on
			}
			e.take(env)
		}
	}
}

func (e *end) take(env Envelope) {
	e.busy.RLock()
	defer e.busy.RUnlock()
	if !e.over {
		e.deliver(env)
	}
}

func (t localTransport) Serve(ctx context.Context, deliver func(Envelope)) error {
	return t.enter(deliver, false)(ctx)
}

// begin is the part of a node's Serve that takes no time.
func (t localTransport) begin(deliver func(Envelope)) (serve func(context.Context) error) {
	return t.enter(deliver, true)
}

// enter is the beginning of Serve. What others sent while nobody served is lost, and they are told so.
func (t localTransport) enter(deliver func(Envelope), near bool) (serve func(context.Context) error) {
	n, e := t.network, &end{deliver: deliver, near: near, late: newTimeline[Envelope]()}
	n.mu.Lock()
	if n.ends[t.self] != nil {
		n.mu.Unlock()
		return func(context.Context) error { return ErrTransportBusy }
	}
	put(&n.ends, t.self, e)
	others := make([]*end, 0, len(n.ends))
	for node, o := range n.ends {
		if node != t.self && !n.faults[[2]NodeID{t.self, node}].Cut {
			others = append(others, o)
		}
	}
	n.mu.Unlock()
	for _, o := range others {
		o.take(Envelope{From: t.self, Message: Lost{}})
	}
	return func(ctx context.Context) error {
		e.late.run(ctx, func(_ time.Time, env Envelope) { e.take(env) })
		n.mu.Lock()
		delete(n.ends, t.self)
		n.mu.Unlock()
		e.busy.Lock()
		defer e.busy.Unlock()
		e.over = true
		return ctx.Err()
	}
}
