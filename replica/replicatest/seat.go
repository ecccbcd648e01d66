package replicatest

import (
	"slices"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// seat is a node's slot.
type seat struct {
	n      *node
	index  int
	rep    *rep            // nil: there is no log
	shut   bool            // there is one that could not be opened
	newest int64           // of the news that were heard
	next   func()          // what was heard while a replica of another life of the topic was on its way out
	before replica.Assign  // the last one heard
	asks   map[uint64]bool // proposals on their way
}

// part is what has the slot now.
func (at *seat) part() *part { return at.n.s.parts[at.index] }

// load opens the log that a process finds when it starts, but gives it no role yet. Its topic id says what it is of.
func (at *seat) load(saved int64) {
	l, ok := at.open(at.part())
	if !ok {
		at.shut = true
		return
	}
	at.begin(l, at.life(l.TopicID()), saved)
}

// life is the partition whose topic has an id; a log without one is of the present life.
func (at *seat) life(id [16]byte) (of *part) {
	at.n.s.lives(at.index, func(p *part) {
		if p.id == id || id == [16]byte{} && p == at.part() {
			of = p
		}
	})
	if of == nil {
		at.part().fail("node %d has a log with topic id %v", at.n.id, id)
		of = at.part()
	}
	return of
}

func (at *seat) open(p *part) (*log.Log, bool) {
	n := at.n
	l, err := n.dir.Open(n.s.ctx, p.tp, n.sized(n.s.logConfig(p)))
	if err != nil && !n.shaky() {
		p.fail("node %d cannot open its log: %v", n.id, err)
	}
	return l, err == nil
}

func (at *seat) begin(l *log.Log, p *part, saved int64) {
	at.rep = &rep{n: at.n, part: p, log: l, leads: -1, stash: map[uint64]stash{}}
	at.rep.pin(0)
	p.model.opened(at.rep, saved)
}

// create makes a log, or takes the one that is there: another topic's is set aside.
func (at *seat) create(p *part) bool {
	l, ok := at.open(p)
	if !ok {
		return false
	}
	if of := at.life(l.TopicID()); of != p && l.TopicID() != [16]byte{} {
		at.begin(l, of, -1)
		at.setStray()
		if at.rep != nil {
			return false
		}
		if l, ok = at.open(p); !ok {
			return false
		}
	}
	at.begin(l, p, -1)
	return at.name()
}

// name gives the log the id of its topic, before anything else is done to it.
func (at *seat) name() bool {
	r := at.rep
	if err := r.log.SetTopicID(r.part.id); err != nil {
		if !at.n.shaky() {
			r.part.fail("node %d cannot give its log the id of its topic: %v", at.n.id, err)
		} else {
			r.failed(err)
		}
		return false
	}
	return true
}

// stray says that the log is not of a partition that the store gives to the node.
func (at *seat) stray() bool {
	r := at.rep
	return r != nil && (r.part.gone || r.part != at.part() || !slices.Contains(r.part.state.Replicas, at.n.id))
}

// setStray sets the log aside.
func (at *seat) setStray() {
	r := at.rep
	at.n.s.counts.add("strays", 1)
	r.part.note("node %d sets its log aside", at.n.id)
	at.remove(func() error {
		_, err := at.n.dir.SetStray(at.n.s.ctx, r.part.tp)
		return err
	})
}

// remove takes a log away, and goes on with what came meanwhile.
func (at *seat) remove(how func() error) {
	r, n := at.rep, at.n
	m := &r.part.model
	m.closed(r)
	m.begin(r, &replica.Action{Kind: replica.Delete})
	err := how()
	switch {
	case n.dying != nil:
		return
	case err != nil:
		r.failed(err)
		return
	}
	at.rep = nil
	m.deleted(n.id)
	m.finished(n.id)
	if next := at.next; next != nil {
		at.next = nil
		n.later(0, next)
	}
}

// dismiss has a replica of what was deleted removed.
func (at *seat) dismiss() {
	at.next = nil
	switch r := at.rep; {
	case r == nil:
	case r.p == nil:
		at.setStray()
	default:
		r.part.note("node %d is to delete its replica", at.n.id)
		r.step(replica.Stop{Delete: true, LeaderEpoch: -1, TopicID: r.part.id})
	}
}

// goneIn ends a replica as of a version in which the partition has none here.
func goneIn(p *part, a replica.Assign) replica.Stop {
	return replica.Stop{Delete: true, LeaderEpoch: a.LeaderEpoch, TopicID: p.id, PartitionEpoch: a.PartitionEpoch}
}

// assign is what a process does with news of a partition: it makes a replica, moves it, or removes it. What still waits is older.
func (at *seat) assign(p *part, a replica.Assign) {
	n, s := at.n, at.n.s
	at.next = nil
	mine := slices.Contains(a.Replicas, n.id)
	a.BrokerEpoch = n.broker
	if s.mutant.anyLife {
		a.BrokerEpoch = 0
	}
	again := func() {
		if n.ready {
			at.assign(p, a)
		}
	}
	if r := at.rep; r != nil && (r.part != p || r.leaving) {
		if s.mutant.keepOld && mine {
			r.part = p
		} else {
			if !r.leaving {
				at.dismiss()
			}
			if at.rep != nil {
				at.next = again
				return
			}
		}
	}
	switch {
	case at.rep == nil && !mine:
		return
	case at.rep == nil:
		if !at.create(p) {
			if at.rep == nil {
				at.next = again
				n.later(20*time.Millisecond, func() {
					if next := at.next; at.rep == nil && next != nil {
						at.next = nil
						next()
					}
				})
			}
			return
		}
		at.rep.begin(!n.clean && n.life > 1)
	case mine && at.rep.log.TopicID() == [16]byte{} && !at.name():
		return
	case s.mutant.keepLeading && at.rep.role == replica.Leader && a.Leader != n.id:
		return
	case !mine && at.rep.p != nil:
		p.note("node %d is to delete its replica", n.id)
		at.rep.step(goneIn(p, a))
		return
	}
	if s.mutant.smallISR && a.Leader == n.id && len(a.ISR) > 1 {
		a.ISR = a.ISR[:0:0]
		for _, id := range p.state.ISR {
			if id == n.id || len(a.ISR) == 0 {
				a.ISR = append(a.ISR, id)
			}
		}
	}
	if s.mutant.oldNews && a.LeaderEpoch == at.before.LeaderEpoch {
		a.ISR, at.before.ISR = at.before.ISR, a.ISR
	} else {
		at.before = a
	}
	if s.mutant.countOutsider && a.Leader == n.id {
		a.ISR = slices.Clone(a.Replicas)
	}
	at.rep.step(a)
}

// fetch takes a follower's request.
func (s *sim) fetch(at *seat, f replica.FetchRequest) {
	r, m := at.rep, s.mutant
	if r == nil {
		return
	}
	if m.noFence {
		f.LeaderEpoch, f.LastFetchedEpoch = -1, -1
	}
	if m.anyLife {
		f.BrokerEpoch = max(f.BrokerEpoch, s.truth.registered[f.From])
	}
	if m.early && r.role == replica.Leader {
		g := f
		g.Tag, g.Offset, g.LastFetchedEpoch, g.MaxWait, g.MinBytes = clientTags|phantom, r.log.Offsets().LogEnd, -1, 0, 0
		r.step(g)
	}
	r.step(f)
}

// fetched takes a leader's answer.
func (s *sim) fetched(at *seat, of *part, e replica.FetchResponse) {
	m := s.mutant
	if m.mixed {
		at = at.n.seats[(at.index+1)%len(at.n.seats)]
	}
	r := at.rep
	if r == nil {
		return
	}
	if m.mixed || m.lateAnswers || m.mixLives && r.part != of {
		e.Tag, e.From = r.asks, r.asksOf
	}
	if m.noDiverge {
		e.Result.Diverged = false
	}
	if m.gapWhereEmpty {
		r.gapWhereEmpty(&e.Result)
	}
	if m.markAtEnd && e.Result.Err == replica.None && e.Result.HighWatermark >= 0 {
		e.Result.HighWatermark = max(e.Result.LogEnd, e.Result.HighWatermark)
	}
	r.step(e)
}
