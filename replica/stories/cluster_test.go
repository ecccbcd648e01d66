package stories

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/vfs"
)

// The settings of the clusters that the stories are of.
const (
	lagTimeMax     = 1500 * time.Millisecond // unless the story says otherwise, as the session's
	sessionTimeout = 6 * time.Second
	fetchWait      = 300 * time.Millisecond
	background     = 100 * time.Millisecond
	command        = 250 * time.Millisecond // how long an administrator's command takes
	checkpoint     = time.Second
	checkpointed   = checkpoint + 2*background // what is so for that long stands in the checkpoints, too
)

// message is something on its way to a node, or to the controller.
type message struct {
	at time.Time
	f  func()
}

// cluster is four nodes and a controller in one thread. What is sent arrives in order, at once unless latency says otherwise;
// time passes only when nothing is due, and then up to the next moment at which something happens.
type cluster struct {
	t     *testing.T
	story *story
	now   time.Time
	wall  time.Time // what the nodes' clocks show, if it is not now
	nodes map[replica.NodeID]*node
	queue []message // on their way, the next one first

	latency func() time.Duration // of a message; nil: none

	store   *replica.MemStore
	core    *controller.Core
	rule    replica.Session
	replies map[uint64]controller.Reply
	tag     uint64
	history []controller.Partition // the partition after each change
	minISR  int                    // of the last change
	ours    int32                  // versions that Kafka has none of
	passed  []view                 // and as the cluster describes it then, since the story was last compared
}

func newCluster(t *testing.T, s *story, latency func() time.Duration) *cluster {
	c := &cluster{t: t, story: s, latency: latency, now: time.UnixMilli(1_700_000_100_000), nodes: map[replica.NodeID]*node{},
		store: replica.NewMemStore(), replies: map[uint64]controller.Reply{}}
	ctx := t.Context()
	var err error
	c.rule, err = c.store.Session(ctx, time.Second)
	require.NoError(t, err)
	epoch, version, ok, err := controller.Claim(ctx, c.store, c.rule, 100, c.now)
	require.NoError(t, err)
	require.True(t, ok)
	keys, err := c.store.List(ctx, "/")
	require.NoError(t, err)
	c.core = controller.New(controller.Config{NoBalance: true})
	c.control(controller.Elected{Epoch: epoch, Version: version, Keys: keys})
	for id := replica.NodeID(1); id <= 4; id++ {
		c.nodes[id] = &node{t: t, id: id, disk: vfs.Mem()}
		c.start(id)
	}
	return c
}

// control steps the controller, and sends the nodes what they can read in the store afterwards.
func (c *cluster) control(in controller.Event) {
	todo := []controller.Event{in}
	_, changed := in.(controller.Seen)
	for len(todo) > 0 {
		acts := c.core.Step(c.now, todo[0], nil)
		todo = todo[1:]
		for _, a := range acts {
			switch a := a.(type) {
			case controller.Commit:
				changed = true
				versions, err := c.rule.Commit(context.Background(), a.Transaction)
				todo = append(todo, controller.Committed{Tag: a.Tag, Versions: versions, Err: err})
			case controller.Reply:
				c.replies[a.Tag] = a
			case controller.Changed:
				if a.Deleted || a.Partition != c.story.tp() {
					continue
				}
				c.record(a.State)
			default:
				c.t.Fatalf("the controller: %#v", a)
			}
		}
	}
	for _, id := range c.ids() {
		if changed {
			c.tell(c.nodes[id])
		}
	}
}

// record notes a change. A version that brings nothing but another min.insync.replicas is ours alone, and counted out.
func (c *cluster) record(p controller.Partition) {
	if n := len(c.history); n > 0 && p.MinISR != c.minISR {
		last := c.history[n-1]
		last.PartitionEpoch = p.PartitionEpoch
		if line(last) == line(p) {
			c.ours++
		}
	}
	c.minISR = p.MinISR
	p.PartitionEpoch -= c.ours
	if n := len(c.history); n == 0 || p.PartitionEpoch > c.history[n-1].PartitionEpoch {
		c.history, c.passed = append(c.history, p), append(c.passed, c.viewOf(p))
	}
}

func (c *cluster) ids() []replica.NodeID { return slices.Sorted(maps.Keys(c.nodes)) }

// ask is a request to the controller and its answer.
func (c *cluster) ask(with func(tag uint64) controller.Event) controller.Reply {
	c.t.Helper()
	c.tag++
	c.control(with(c.tag))
	r, ok := c.replies[c.tag]
	require.True(c.t, ok, "no answer of the controller")
	return r
}

func code(err error) replica.ErrorCode {
	var code replica.ErrorCode
	switch {
	case err == nil:
		return replica.None
	case errors.As(err, &code):
		return code
	}
	return replica.Unknown
}

// tell sends a node what is new for it in the store.
func (c *cluster) tell(n *node) {
	if !n.up {
		return
	}
	here := n.p != nil
	for news, err := range controller.Follow(c.t.Context(), c.store) {
		require.NoError(c.t, err)
		if news.Current {
			break
		}
		if news.Partition.Topic != "" && news.Partition != c.story.tp() {
			continue
		}
		here = here && news.Partition.Topic == ""
		key, text := news.Partition.Topic, fmt.Sprintf("%+v", news)
		if key == "" {
			key = strconv.Itoa(int(news.Peer.Node))
		}
		if n.told[key] != text {
			n.told[key] = text
			c.deliver(n, func() { c.take(n, news) })
		}
	}
	if here && n.told[c.story.Topic] != "" { // it is gone
		delete(n.told, c.story.Topic)
		c.deliver(n, func() {
			if n.p != nil {
				n.step(c.now, replica.Stop{Delete: true, LeaderEpoch: -1})
			}
		})
	}
}

// take acts upon news.
func (c *cluster) take(n *node, news controller.News) {
	switch {
	case news.Partition.Topic == "":
		if n.p != nil {
			n.step(c.now, news.Peer)
		}
	case slices.Contains(news.State.Replicas, n.id):
		if n.p == nil {
			n.open(c.story)
			clear(n.told) // what it was told of the others came too early
			n.told[news.Partition.Topic] = fmt.Sprintf("%+v", news)
			c.tell(n)
		}
		n.step(c.now, news.State.Assign(news.TopicID))
	case n.p != nil:
		n.step(c.now, replica.Stop{Delete: true, LeaderEpoch: news.State.LeaderEpoch})
	}
}

// send has something happen when a message would have arrived, but not before the one that was sent there earlier.
func (c *cluster) send(after time.Time, f func()) time.Time {
	at := c.now
	if c.latency != nil {
		at = at.Add(c.latency())
	}
	if at.Before(after) {
		at = after
	}
	i := len(c.queue)
	for i > 0 && c.queue[i-1].at.After(at) {
		i--
	}
	c.queue = slices.Insert(c.queue, i, message{at, f})
	return at
}

// deliver has something happen at a node: soon, when it goes on, or never.
func (c *cluster) deliver(n *node, f func()) {
	process := n.dir
	n.due = c.send(n.due, func() {
		switch {
		case !n.up || n.dir != process:
		case n.paused:
			n.inbox = append(n.inbox, f)
		default:
			f()
		}
	})
}

// route carries what a partition sends.
func (c *cluster) route(n *node, a replica.Action) {
	switch a.Kind {
	case replica.SendFetch:
		to := c.nodes[a.To]
		if to == nil || !to.up {
			c.refused(n, a.To, a.Tag)
			return
		}
		key := asking{n.id, a.Tag}
		to.asked[key] = false
		c.deliver(to, func() {
			to.asked[key] = true
			if to.p != nil {
				to.step(c.now, a.Fetch)
			} else {
				c.answer(to, replica.Action{To: n.id, Tag: a.Tag, Result: replica.Result{Err: replica.UnknownTopicOrPartition}})
			}
		})
	case replica.Reply:
		c.answer(n, a)
	case replica.ProposeISR:
		if c.core == nil {
			c.deliver(n, func() {
				n.step(c.now, replica.ISRAnswer{Tag: a.Tag, ISR: a.Proposal.ISR, LeaderEpoch: a.Proposal.LeaderEpoch, PartitionEpoch: a.Proposal.PartitionEpoch + 1})
			})
			return
		}
		n.ruled = c.send(n.ruled, func() {
			r := c.ask(func(tag uint64) controller.Event {
				return controller.AlterPartition{Tag: tag, Node: n.id, BrokerEpoch: n.epoch, TopicID: c.story.topicID(c.t), Partition: c.story.tp(), Proposal: a.Proposal}
			})
			c.deliver(n, func() {
				if n.p == nil {
					return // it was taken away meanwhile
				}
				n.step(c.now, replica.ISRAnswer{Tag: a.Tag, Err: code(r.Err), ISR: r.Partition.ISR, LeaderEpoch: r.Partition.LeaderEpoch, PartitionEpoch: r.Partition.PartitionEpoch})
			})
		})
	}
}

func (c *cluster) answer(n *node, a replica.Action) {
	if a.To < 1 { // producers have no node
		n.answers[a.Tag] = a.Result
		return
	}
	delete(n.asked, asking{a.To, a.Tag})
	to := c.nodes[a.To]
	c.deliver(to, func() {
		if to.p != nil {
			to.step(c.now, replica.FetchResponse{From: n.id, Tag: a.Tag, Result: a.Result})
		}
	})
}

// refused is what a fetch gets where nobody listens any more.
func (c *cluster) refused(n *node, from replica.NodeID, tag uint64) {
	c.deliver(n, func() {
		if n.p != nil {
			n.step(c.now, replica.FetchResponse{From: from, Tag: tag, Result: replica.Result{Err: replica.NetworkException}})
		}
	})
}

// gone breaks the connections to a process that has ended.
func (c *cluster) gone(n *node) {
	for _, id := range c.ids() {
		for key := range n.asked {
			if key.node == id {
				c.refused(c.nodes[id], n.id, key.tag)
			}
		}
	}
}

// start begins a node's process, and registers it.
func (c *cluster) start(id replica.NodeID) {
	n := c.nodes[id]
	c.clear(n)
	n.boot(func() time.Time {
		if !c.wall.IsZero() {
			return c.wall
		}
		return c.now
	}, c.story)
	n.send = func(a replica.Action) { c.route(n, a) }
	previous, clean := n.dir.CleanShutdown()
	if !clean {
		previous = -1
	}
	c.register(n, previous)
}

// register begins a session, in two steps: who is known is not in service yet. previous is the broker epoch of the life in
// which the node lost nothing.
func (c *cluster) register(n *node, previous int64) {
	ctx := c.t.Context()
	var err error
	n.session, err = c.store.Session(ctx, c.story.sessionTimeout())
	require.NoError(c.t, err)
	r, err := controller.Register(ctx, c.store, n.session, controller.Registration{Node: n.id, PreviousEpoch: previous, Fenced: true})
	require.NoError(c.t, err)
	c.seen(n.id)
	require.NoError(c.t, r.Ready(ctx)) // as a broker that has read what there is
	n.epoch, n.heard = r.Epoch(), c.now
	minISR, err := strconv.Atoi(c.story.TopicConfig["min.insync.replicas"])
	require.NoError(c.t, err)
	n.conf = replica.Config{Self: n.id, BrokerEpoch: n.epoch, MinISR: minISR, LagTimeMax: c.story.lagTimeMax(), FetchWait: fetchWait, Checkpoint: checkpoint}
	if n.p != nil {
		n.step(c.now, replica.Reconfigure{Config: n.conf})
	}
	c.seen(n.id)
}

func (c *cluster) seen(id replica.NodeID) {
	if len(c.history) > 0 {
		c.passed = append(c.passed, c.view()) // it is there, or gone, before anything follows from that
	}
	v, err := c.store.Get(c.t.Context(), controller.IDsPrefix+strconv.Itoa(int(id)))
	require.NoError(c.t, err)
	c.control(controller.Seen{Versioned: v})
}

func (c *cluster) kill(id replica.NodeID) {
	n := c.nodes[id]
	n.heard = c.now
	n.kill(c.story)
	c.gone(n)
}

// pause stops a node that has a fetch waiting at the leader, if it follows one.
func (c *cluster) pause(id replica.NodeID) {
	n, leader := c.nodes[id], c.nodes[c.partition().Leader]
	follows := n.p != nil && leader != nil && leader != n && leader.up && !leader.paused
	require.True(c.t, !follows || c.run(time.Second, func() bool {
		for key, arrived := range leader.asked {
			if key.node == id && arrived {
				return true
			}
		}
		return false
	}))
	n.paused, n.heard = true, c.now
}

func (c *cluster) resume(id replica.NodeID) {
	n := c.nodes[id]
	n.paused = false
	for _, f := range n.inbox {
		c.deliver(n, f)
	}
	n.inbox = nil
	if n.session == nil { // it lost its session, but nothing of what it had
		c.register(n, n.epoch)
	}
}

// stop stops a node cleanly: it hands over first. Here it is quicker than the news of that; with Kafka it depends.
func (c *cluster) stop(id replica.NodeID) {
	n := c.nodes[id]
	r := c.ask(func(tag uint64) controller.Event {
		return controller.ControlledShutdown{Tag: tag, Node: id, BrokerEpoch: n.epoch}
	})
	require.NoError(c.t, r.Err)
	n.halt(c.now, c.story)
	c.gone(n)
	require.NoError(c.t, n.session.Close())
	n.session = nil
	c.seen(id)
}

func (c *cluster) drain() {
	for i := 0; len(c.queue) > 0 && !c.queue[0].at.After(c.now); i++ {
		require.Less(c.t, i, 100_000, "messages without end")
		f := c.queue[0].f
		c.queue = c.queue[1:]
		f()
	}
}

// run lets time pass until something is so, at most for long.
func (c *cluster) run(long time.Duration, until func() bool) bool {
	end := c.now.Add(long)
	for {
		c.drain()
		if until() {
			return true
		}
		next := c.next()
		if next.After(end) {
			c.now = end
			return false
		}
		c.now = next
		c.tick()
	}
}

// next is when something happens by itself: a tenth of a second at the latest, for what the nodes do in the background.
func (c *cluster) next() time.Time {
	next := c.now.Add(background).Truncate(background)
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	if len(c.queue) > 0 {
		earlier(c.queue[0].at)
	}
	for _, n := range c.nodes {
		if n.up && !n.paused && n.p != nil {
			earlier(n.p.NextTick())
		}
		if n.session != nil && (!n.up || n.paused) {
			earlier(n.heard.Add(c.story.sessionTimeout()))
		}
	}
	if next.Before(c.now) {
		return c.now
	}
	return next
}

func (c *cluster) tick() {
	for _, id := range c.ids() {
		n := c.nodes[id]
		if n.up && !n.paused {
			require.NoError(c.t, n.dir.RunOnce(c.t.Context(), c.now))
			if n.p != nil {
				n.step(c.now, replica.Tick{})
			}
		}
		if n.session != nil && (!n.up || n.paused) && !c.now.Before(n.heard.Add(c.story.sessionTimeout())) {
			c.store.Expire(n.session)
			n.session = nil
			c.seen(id)
		}
	}
	if c.core != nil {
		c.control(controller.Tick{})
	}
}

// partition is what the controller says of it.
func (c *cluster) partition() controller.Partition {
	r := c.ask(func(tag uint64) controller.Event {
		return controller.Describe{Tag: tag, Topics: []string{c.story.Topic}}
	})
	require.NoError(c.t, r.Err)
	return r.Topics[0].Partitions[0]
}

func (c *cluster) view() view { return c.viewOf(c.partition()) }

func (c *cluster) viewOf(p controller.Partition) view {
	v := view{Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, Replicas: p.Replicas, ISR: p.ISR, ELR: p.ELR, LastKnownELR: p.LastKnownELR}
	for _, id := range p.Replicas {
		if c.nodes[id].session == nil {
			v.Offline = append(v.Offline, id)
		}
	}
	return v.sorted()
}

func (c *cluster) state() state {
	s := state{view: c.view(), Nodes: map[replica.NodeID]nodeState{}}
	if p := c.partition(); p.Reassigning() {
		s.Reassignment = &moving{slices.Sorted(slices.Values(p.Adding)), slices.Sorted(slices.Values(p.Removing))}
	}
	for _, id := range s.Replicas {
		st := c.nodes[id].state(c.story)
		if c.latency != nil {
			st.Segments = nil
		}
		s.Nodes[id] = st
	}
	return s
}
