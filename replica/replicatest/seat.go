package replicatest

import (
	"slices"
	"time"

	"github.com/partlog/partlog/replica"
)

// seat is a node's place for a partition.
type seat struct {
	n      *node
	p      *part
	rep    *rep            // nil: there is no log
	newest int64           // of the news that were heard
	before replica.Assign  // the last one heard
	asks   map[uint64]bool // proposals on their way
}

// open opens the log, but gives it no role yet.
func (at *seat) open(saved int64) {
	n, p := at.n, at.p
	l, err := n.dir.Open(n.s.ctx, p.tp, n.s.logConfig())
	if err != nil {
		if !n.shaky() {
			p.fail("node %d cannot open its log: %v", n.id, err)
		}
		return
	}
	at.rep = &rep{n: n, part: p, log: l, leads: -1, stash: map[uint64]stash{}}
	at.rep.pin(0)
	p.model.opened(at.rep, saved)
}

// assign is what a process does with news of a partition: it makes a replica, moves it, or removes it.
func (at *seat) assign(a replica.Assign) {
	n, p, s := at.n, at.p, at.n.s
	mine := slices.Contains(a.Replicas, n.id)
	a.BrokerEpoch = n.broker
	if s.mutant.anyLife {
		a.BrokerEpoch = 0
	}
	switch {
	case at.rep == nil && !mine:
		return
	case at.rep == nil:
		at.open(-1)
		if at.rep == nil {
			n.later(20*time.Millisecond, func() {
				if at.rep == nil && n.ready {
					at.assign(p.assign)
				}
			})
			return
		}
		at.rep.begin(!n.clean && n.life > 1)
	case s.mutant.keepLeading && at.rep.role == replica.Leader && a.Leader != n.id:
		return
	case !mine && at.rep.p != nil:
		p.note("node %d is to delete its replica", n.id)
		at.rep.step(replica.Stop{Delete: true, LeaderEpoch: a.LeaderEpoch})
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
func (s *sim) fetched(at *seat, e replica.FetchResponse) {
	m := s.mutant
	if m.mixed {
		at = at.n.seats[(at.p.index+1)%len(at.n.seats)]
	}
	r := at.rep
	if r == nil {
		return
	}
	if m.mixed || m.lateAnswers {
		e.Tag, e.From = r.asks, r.asksOf
	}
	if m.noDiverge {
		e.Result.Diverged = false
	}
	if m.markAtEnd && e.Result.Err == replica.None && e.Result.HighWatermark >= 0 {
		e.Result.HighWatermark = max(e.Result.LogEnd, e.Result.HighWatermark)
	}
	r.step(e)
}
