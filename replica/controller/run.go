package controller

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/internal/patience"
)

// Options of a Controller; zero values are as the fields say.
type Options struct {
	Config
	Node       replica.NodeID // who claims the rule
	SessionTTL time.Duration  // zookeeper.session.timeout.ms, 18 s: how long the others wait when this one is gone, and it for the store
	Retry      time.Duration  // pause after a failure before the rule is claimed again, 1 s

	// What happens, if somebody wants to know. They are called by Run, which waits for them.
	Rule    func(epoch int32, rules bool, why error)
	Changed func(News)
	Damage  func(Damaged)
}

// Controller runs a Core over a Store: it claims the rule whenever it is vacant, and serves requests while it holds it.
// Any number may run over one store; one rules. The methods that take a context may be called concurrently and block until the
// answer is there; before Run is called they wait for it. One that does not rule, or whose Run has returned, refuses them with
// replica.NotController: FollowRuler says which node's to ask; so does one that is nil, or that NewController has not made over a
// store. Errors are *Error, or that of ctx, after which it is unknown what was done.
//
// A refusal is checked with the store, too, so that none is of a controller that was deposed and has not noticed: it waits
// for the store, at most for SessionTTL, and a store that does not answer ends the rule as it does for a write. Only what
// Describe, DescribeConfig and ListReassignments show is not checked, and may be of the time before another controller was
// elected, until this one notices, at the latest when it is asked for anything else.
type Controller struct {
	store    replica.Store
	options  Options
	requests chan request

	mu   sync.Mutex    // guards over
	over chan struct{} // closed while Run has returned and not been called again
}

type request struct {
	event  func(tag uint64) Event
	answer chan Reply // of capacity 1
}

// NewController makes one that does nothing until Run.
func NewController(s replica.Store, o Options) *Controller {
	if o.SessionTTL <= 0 {
		o.SessionTTL = 18 * time.Second
	}
	if o.Retry <= 0 {
		o.Retry = time.Second
	}
	if s == nil {
		return &Controller{options: o}
	}
	return &Controller{store: patience.Store(s, o.SessionTTL), options: o, requests: make(chan request), over: make(chan struct{})}
}

// none says that no NewController has made it over a store.
func (c *Controller) none() bool { return c == nil || c.store == nil }

// term is one attempt to rule, from waiting for the vacancy to the loss of the session.
type term struct {
	cancel  context.CancelFunc
	session replica.Session // nil until elected
}

// messages from the goroutines of a term to the loop of Run.
type (
	elected struct {
		term    *term
		session replica.Session
		event   Elected
	}
	told struct {
		term  *term
		event Event
	}
	ended struct {
		term *term
		err  error
	}
)

// Run claims, rules and serves until ctx ends, and returns its error. It ends its session before it returns, so that
// another can rule at once. It must not run twice at the same time. A Controller that is nil has replica.NotController.
func (c *Controller) Run(ctx context.Context) error {
	if c.none() {
		return refuse(replica.NotController, "there is no controller, or it has no store")
	}
	over := c.ended(true)
	defer close(over)
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	r := runner{Controller: c, ctx: ctx, all: &all, core: New(c.options.Config), messages: make(chan any), asked: make(map[uint64]chan Reply)}
	r.begin(0)
	tick := time.NewTimer(time.Second)
	defer tick.Stop()
	for {
		var lost <-chan struct{}
		if r.term.session != nil {
			lost = r.term.session.Done()
		}
		select {
		case <-ctx.Done():
			r.step(Deposed{})
			r.end()
			return ctx.Err()
		case <-lost:
			r.step(Deposed{})
			r.again(replica.ErrSessionLost)
		case q := <-c.requests:
			r.tag++
			r.asked[r.tag] = q.answer
			r.step(q.event(r.tag))
		case m := <-r.messages:
			r.take(m)
		case <-tick.C:
			r.step(Tick{})
			tick.Reset(time.Second)
		}
	}
}

// runner is the state of one Run; only its loop touches it.
type runner struct {
	*Controller
	ctx      context.Context
	all      *sync.WaitGroup
	core     *Core
	term     *term
	messages chan any
	tag      uint64
	asked    map[uint64]chan Reply
	actions  []Action
}

func (r *runner) tell(ctx context.Context, m any) {
	select {
	case r.messages <- m:
	case <-ctx.Done():
	}
}

// begin starts a term after a pause.
func (r *runner) begin(pause time.Duration) {
	ctx, cancel := context.WithCancel(r.ctx)
	t := &term{cancel: cancel}
	r.term = t
	r.all.Go(func() {
		if pause > 0 {
			timer := time.NewTimer(pause)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		}
		r.tell(ctx, ended{t, r.campaign(ctx, t)})
	})
}

// campaign claims the rule when it is vacant, reads all there is, and then tells who comes and goes.
func (r *runner) campaign(ctx context.Context, t *term) error {
	if err := vacancy(ctx, r.store); err != nil {
		return err
	}
	session, err := r.store.Session(ctx, r.options.SessionTTL)
	if err != nil {
		return err
	}
	epoch, version, ok, err := Claim(ctx, r.store, session, r.options.Node, time.Now())
	if err != nil || !ok {
		return errors.Join(err, session.Close())
	}
	event := Elected{Epoch: epoch, Version: version}
	handed := false
	defer func() {
		if !handed {
			session.Close() // its keys go when it expires, if not now
		}
	}()
	if event.Keys, err = holdings(ctx, r.store); err != nil {
		return err
	}
	for v, err := range r.store.Watch(ctx, IDsPrefix) {
		switch {
		case err != nil:
			return err
		case v.Key == "" && !handed:
			select {
			case r.messages <- elected{t, session, event}:
				handed = true
			case <-ctx.Done():
				return ctx.Err()
			}
		case v.Key == "":
		case !handed:
			event.Keys = append(event.Keys, v)
		default:
			r.tell(ctx, told{t, Seen{v}})
		}
	}
	return errors.New("the store's watch ended")
}

// end gives the rule up.
func (r *runner) end() {
	r.term.cancel()
	if s := r.term.session; s != nil {
		r.all.Go(func() { s.Close() }) // its keys go when it expires, if not now
	}
}

// again gives the rule up and claims it anew.
func (r *runner) again(why error) {
	ruled := r.term.session != nil
	r.end()
	r.begin(r.options.Retry)
	if ruled && r.options.Rule != nil {
		r.options.Rule(0, false, why)
	}
}

func (r *runner) take(m any) {
	switch m := m.(type) {
	case elected:
		if m.term != r.term {
			r.all.Go(func() { m.session.Close() })
			return
		}
		r.term.session = m.session
		if r.options.Rule != nil {
			r.options.Rule(m.event.Epoch, true, nil)
		}
		r.step(m.event)
	case told:
		if m.term == r.term {
			r.step(m.event)
		}
	case ended:
		if m.term == r.term {
			r.step(Deposed{})
			r.again(m.err)
		}
	}
}

func (r *runner) step(in Event) {
	acts := r.core.Step(time.Now(), in, r.actions[:0])
	for _, a := range acts {
		switch a := a.(type) {
		case Commit:
			t := r.term
			r.all.Go(func() {
				versions, err := t.session.Commit(r.ctx, a.Transaction)
				r.tell(r.ctx, told{t, Committed{Tag: a.Tag, Versions: versions, Err: err}})
			})
		case Reply:
			if answer := r.asked[a.Tag]; answer != nil {
				delete(r.asked, a.Tag)
				answer <- a
			}
		case Changed:
			if r.options.Changed != nil {
				r.options.Changed(a.News)
			}
		case Damaged:
			if r.options.Damage != nil {
				r.options.Damage(a)
			}
		case Resign:
			r.again(a.Err)
		}
	}
	r.actions = acts
}

// ended is closed when Run returns; again: it was called once more.
func (c *Controller) ended(again bool) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if again {
		select {
		case <-c.over:
			c.over = make(chan struct{})
		default:
		}
	}
	return c.over
}

// ask hands a request to Run and waits for its answer.
func (c *Controller) ask(ctx context.Context, event func(tag uint64) Event) (Reply, error) {
	if c.none() {
		return Reply{}, refuse(replica.NotController, "there is no controller, or it has no store")
	}
	q := request{event, make(chan Reply, 1)}
	select {
	case c.requests <- q: // whose loop answers it, at the latest when it ends
	case <-c.ended(false):
		return Reply{}, refuse(replica.NotController, "the controller of node %d does not run any more", c.options.Node)
	case <-ctx.Done():
		return Reply{}, ctx.Err()
	}
	select {
	case reply := <-q.answer:
		return reply, reply.Err
	case <-ctx.Done():
		return Reply{}, ctx.Err()
	}
}

// CreateTopic makes a topic. An ID and a Seed that are zero are drawn at random.
func (c *Controller) CreateTopic(ctx context.Context, r CreateTopic) (Topic, error) {
	for r.ID == ([16]byte{}) {
		for i := range r.ID {
			r.ID[i] = byte(rand.Uint32())
		}
	}
	if r.Seed == 0 {
		r.Seed = rand.Uint64()
	}
	reply, err := c.ask(ctx, func(tag uint64) Event { r.Tag = tag; return r })
	if err != nil {
		return Topic{}, err
	}
	return reply.Topics[0], nil
}

// AddPartitions makes a topic larger.
func (c *Controller) AddPartitions(ctx context.Context, r AddPartitions) (Topic, error) {
	if r.Seed == 0 {
		r.Seed = rand.Uint64()
	}
	reply, err := c.ask(ctx, func(tag uint64) Event { r.Tag = tag; return r })
	if err != nil {
		return Topic{}, err
	}
	return reply.Topics[0], nil
}

// DeleteTopic removes a topic.
func (c *Controller) DeleteTopic(ctx context.Context, topic string) error {
	_, err := c.ask(ctx, func(tag uint64) Event { return DeleteTopic{tag, topic} })
	return err
}

// SetConfig replaces a topic's own settings.
func (c *Controller) SetConfig(ctx context.Context, topic string, config map[string]string) error {
	_, err := c.ask(ctx, func(tag uint64) Event { return SetConfig{tag, topic, config} })
	return err
}

// AlterConfig changes some of a topic's own settings.
func (c *Controller) AlterConfig(ctx context.Context, r AlterConfig) error {
	_, err := c.ask(ctx, func(tag uint64) Event { r.Tag = tag; return r })
	return err
}

// DescribeConfig shows the settings of the topics named, or of all, defaults included, as this controller knows them.
func (c *Controller) DescribeConfig(ctx context.Context, topics ...string) ([]TopicSettings, error) {
	reply, err := c.ask(ctx, func(tag uint64) Event { return DescribeConfig{tag, topics} })
	return reply.Settings, err
}

// Describe shows the topics named, or all, as this controller knows them.
func (c *Controller) Describe(ctx context.Context, topics ...string) ([]Topic, error) {
	reply, err := c.ask(ctx, func(tag uint64) Event { return Describe{tag, topics} })
	return reply.Topics, err
}

// AlterPartition judges a leader's proposal; the answer is the partition as it then is.
func (c *Controller) AlterPartition(ctx context.Context, r AlterPartition) (Partition, error) {
	reply, err := c.ask(ctx, func(tag uint64) Event { r.Tag = tag; return r })
	return reply.Partition, err
}

// ControlledShutdown takes a node out of service before it stops. With no error it may stop.
func (c *Controller) ControlledShutdown(ctx context.Context, node replica.NodeID, brokerEpoch int64) error {
	_, err := c.ask(ctx, func(tag uint64) Event { return ControlledShutdown{tag, node, brokerEpoch} })
	return err
}

// Elect holds elections by hand.
func (c *Controller) Elect(ctx context.Context, r Elect) ([]ElectionResult, error) {
	reply, err := c.ask(ctx, func(tag uint64) Event { r.Tag = tag; return r })
	return reply.Elections, err
}

// Reassign begins a move, or with an empty To cancels the one under way.
func (c *Controller) Reassign(ctx context.Context, r Reassign) error {
	_, err := c.ask(ctx, func(tag uint64) Event { r.Tag = tag; return r })
	return err
}

// ListReassignments are all moves under way, as this controller knows them.
func (c *Controller) ListReassignments(ctx context.Context) ([]Reassignment, error) {
	reply, err := c.ask(ctx, func(tag uint64) Event { return ListReassignments{tag} })
	return reply.Moves, err
}
