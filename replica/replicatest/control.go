package replicatest

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// truth is what stands in the store beside the partitions.
type truth struct {
	revision   int64
	registered [10]int64 // broker epoch that the controller knows of a node
	peers      [10]replica.Peer
}

// glimpse is a store that shows one key: what a node sees of it.
type glimpse struct {
	replica.Store
	v replica.Versioned
}

func (g glimpse) Watch(context.Context, string) iter.Seq2[replica.Versioned, error] {
	return func(yield func(replica.Versioned, error) bool) { yield(g.v, nil) }
}

// published tells everybody of a key that changed.
func (s *sim) published(key string) {
	s.truth.revision++
	if strings.HasPrefix(key, controller.IDsPrefix) {
		for _, r := range s.rulers {
			if r.deaf > 0 {
				s.counts.add("news lost", 1)
				continue
			}
			s.after(s.between(100*time.Microsecond, 3*time.Millisecond), func() { r.see(key) })
		}
		return
	}
	v, err := s.truly.Get(s.ctx, key)
	if err != nil {
		s.fail("%v", err)
		return
	}
	v.Key = key // also of what is not there
	if name, ok := strings.CutPrefix(key, controller.ConfigPrefix); ok {
		s.topic(name).set(v)
		return
	}
	for news, err := range controller.Follow(s.ctx, glimpse{v: v}) {
		if err != nil {
			s.fail("what the store holds of %s: %v", key, err)
			return
		}
		switch {
		case news.Partition.Topic != "":
			s.topic(news.Partition.Topic).hear(news)
		case news.Peer.Node > 0:
			s.truth.registered[news.Peer.Node], s.truth.peers[news.Peer.Node] = news.Peer.BrokerEpoch, news.Peer
			s.tell(nil, news.Peer)
		}
	}
}

// tell brings news to all nodes: of a partition if p is not nil, else of a node or of a topic's settings.
func (s *sim) tell(p *part, e any) {
	revision := s.truth.revision
	for _, n := range s.nodes {
		d := s.between(100*time.Microsecond, 2*time.Millisecond)
		if !s.calm && s.chance(0.02) {
			d += s.between(0, 50*time.Millisecond)
		}
		if n.deaf > 0 {
			s.counts.add("news lost", 1)
			continue
		}
		s.schedule(s.now+d, n, anyLife, func() { n.hear(revision, p, e) })
		if s.chance(s.net.newsTwice) {
			s.counts.add("news repeated", 1)
			s.schedule(s.now+d+s.between(0, 100*time.Millisecond), n, anyLife, func() { n.hear(revision, p, e) })
		}
	}
}

// ruler is a controller, which may rule or believe so.
type ruler struct {
	s       *sim
	id      int
	at      place
	core    *controller.Core
	session replica.Session
	rules   bool
	rule    int // its rules so far: what belongs to an earlier one does not count
	heard   time.Duration
	asked   map[uint64]func(controller.Reply)
	stalled time.Duration // what it writes takes longer to arrive
	deaf    int           // its watch tells nothing
}

func (r *ruler) cutOff() bool {
	b := &r.s.net.blocked
	return b[r.at][atStore] > 0 || b[atStore][r.at] > 0
}

// tick keeps the session, claims the rule if nobody has it, and passes time.
func (r *ruler) tick() {
	s := r.s
	s.after(15*time.Millisecond, r.tick)
	if r.core == nil {
		r.core = controller.New(controller.Config{MinISR: s.MinISR, NoELR: s.NoELR, UncleanElection: s.unclean, UncleanInterval: 100 * time.Millisecond, ImbalanceInterval: 300 * time.Millisecond})
	}
	if r.cutOff() {
		if r.session != nil && s.now-r.heard > sessionTime && !over(r.session) {
			s.store.Expire(r.session)
			s.note("the session of controller %d is over", r.id)
		}
	} else {
		r.heard = s.now
	}
	switch {
	case r.rules && !r.cutOff() && over(r.session) && s.chance(0.2):
		r.step(controller.Deposed{})
		r.end()
	case r.rules:
		if !s.mutant.noTicks {
			r.step(controller.Tick{})
		}
	case !r.cutOff():
		if v, err := s.store.Get(s.ctx, controller.ClaimKey); err == nil && v.Value == nil {
			r.claim()
		}
	}
}

func (r *ruler) claim() {
	s := r.s
	session, err := s.store.Session(s.ctx, sessionTime)
	if err != nil {
		return
	}
	epoch, version, ok, err := controller.Claim(s.ctx, s.store, session, replica.NodeID(100+r.id), began.Add(s.now))
	if err != nil && !errors.Is(err, errNoAnswer) {
		s.fail("%v", err)
	}
	if !ok || err != nil {
		s.store.drop(session, func() {})
		return
	}
	s.note("controller %d rules in epoch %d", r.id, epoch)
	s.counts.add("controllers elected", 1)
	r.session, r.rules, r.asked = session, true, map[uint64]func(controller.Reply){}
	r.rule++
	rule := r.rule
	s.after(s.between(100*time.Microsecond, 4*time.Millisecond), func() {
		if r.rule != rule || !r.rules {
			return
		}
		keys, err := s.store.List(s.ctx, "/")
		if err != nil {
			r.end()
			return
		}
		r.step(controller.Elected{Epoch: epoch, Version: version, Keys: keys})
	})
}

func (r *ruler) end() {
	r.rules = false
	r.rule++
	if session := r.session; session != nil {
		r.session = nil
		r.s.store.drop(session, func() {})
	}
}

// lookAgain is a watch that is begun anew: all there is, and what has vanished, is told.
func (r *ruler) lookAgain() {
	for _, n := range r.s.nodes {
		r.see(controller.IDsPrefix + itoa(int(n.id)))
	}
}

// ask is a request to the controller; its answer comes at most once.
func (r *ruler) ask(e controller.Event, answer func(controller.Reply)) {
	tag := r.s.tag()
	switch q := e.(type) {
	case controller.CreateTopic:
		q.Tag = tag
		e = q
	case controller.DeleteTopic:
		q.Tag = tag
		e = q
	case controller.AddPartitions:
		q.Tag = tag
		e = q
	case controller.SetConfig:
		q.Tag = tag
		e = q
	case controller.AlterPartition:
		q.Tag = tag
		e = q
	case controller.Reassign:
		q.Tag = tag
		e = q
	case controller.Elect:
		q.Tag = tag
		e = q
	case controller.ControlledShutdown:
		q.Tag = tag
		e = q
	}
	if r.asked == nil {
		r.asked = map[uint64]func(controller.Reply){}
	}
	r.asked[tag] = answer
	r.step(e)
}

// see is news of a node.
func (r *ruler) see(key string) {
	s := r.s
	if !r.rules {
		return
	}
	if r.cutOff() {
		s.after(10*time.Millisecond, func() { r.see(key) })
		return
	}
	v, err := s.truly.Get(s.ctx, key)
	if err != nil {
		s.fail("%v", err)
		return
	}
	v.Key = key
	r.step(controller.Seen{Versioned: v})
}

func (r *ruler) step(e controller.Event) {
	s := r.s
	for _, a := range r.core.Step(began.Add(s.now), e, nil) {
		switch a := a.(type) {
		case controller.Commit:
			r.commit(a)
		case controller.Reply:
			if answer := r.asked[a.Tag]; answer != nil {
				delete(r.asked, a.Tag)
				answer(a)
			}
		case controller.Resign:
			s.note("controller %d resigns: %v", r.id, a.Err)
			s.counts.add("controllers resigned", 1)
			r.end()
		case controller.Damaged:
			s.fail("controller %d cannot read %s: %v", r.id, a.Key, a.Err)
		}
	}
}

// commit brings a transaction to the store, and its fate back, or not.
func (r *ruler) commit(c controller.Commit) {
	s, rule := r.s, r.rule
	back := func(versions []int64, err error) {
		if r.rule == rule && r.rules {
			r.step(controller.Committed{Tag: c.Tag, Versions: versions, Err: err})
		}
	}
	if s.mutant.outOfMemory && len(c.Transaction.Writes) == 0 {
		s.after(0, func() { back(nil, nil) })
		return
	}
	unknown := errNoAnswer
	if s.mutant.unanswered {
		back = r.believing(c, back)
	}
	s.after(r.stalled+s.store.slow+s.between(100*time.Microsecond, 2*time.Millisecond), func() {
		if s.net.blocked[r.at][atStore] > 0 {
			s.after(sessionTime, func() { back(nil, unknown) })
			return
		}
		tx := c.Transaction
		if s.mutant.noGuard {
			tx.Guards = nil
			for i := range tx.Writes {
				tx.Writes[i].IfVersion = replica.AnyVersion
			}
		}
		if s.mutant.electOutside {
			s.electOutside(tx.Writes)
		}
		if s.mutant.adding {
			s.joinWhenAssigned(tx.Writes)
		}
		if s.store.refuses() {
			s.after(s.between(100*time.Microsecond, sessionTime), func() { back(nil, unknown) })
			return
		}
		versions, err := s.truly.Commit(s.ctx, tx)
		if err != nil {
			s.counts.add("controller writes refused", 1)
		} else {
			s.counts.add("controller writes", 1)
			for _, w := range tx.Writes {
				s.published(w.Key)
			}
		}
		if s.net.blocked[atStore][r.at] > 0 || s.store.forgets() {
			versions, err = nil, unknown
		}
		s.after(s.between(100*time.Microsecond, time.Millisecond), func() { back(versions, err) })
	})
}

// believing is for a mutant.
func (r *ruler) believing(c controller.Commit, back func([]int64, error)) func([]int64, error) {
	return func(versions []int64, err error) {
		if err == errNoAnswer {
			versions, err = nil, nil
			for _, w := range c.Transaction.Writes {
				versions = append(versions, w.IfVersion+1)
			}
		}
		back(versions, err)
	}
}

// ruling is the controller to ask, mostly.
func (s *sim) ruling() *ruler {
	if s.calm || s.chance(0.9) {
		var best *ruler
		for _, r := range s.rulers {
			if r.rules && !over(r.session) {
				best = r
			}
		}
		if best != nil {
			return best
		}
	}
	return s.rulers[s.rng.IntN(len(s.rulers))]
}
