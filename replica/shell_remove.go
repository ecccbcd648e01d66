package replica

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/partlog/partlog/log"
)

// longestRemoval is the longest pause between two attempts to remove a log.
const longestRemoval = time.Minute

// removal is how far the removal of a replica's log is. Of the running goroutine, but for what coreMu guards.
//
//	Stop ──▶ the core is at its end ──▶ the log is removed ──▶ the replica leaves the node, and its grave stays
//	             Assign, Stop meanwhile: whether there is a next life, and which         or the next life begins
type removal struct {
	stuck  bool      // it failed, and nobody is at it
	again  time.Time // when it is tried again
	reborn *Assign   // what was said meanwhile: the partition is made anew afterwards
	grave  *grave    // what the Stop said; nil: it did not say of what
	over   bool      // the log is gone

	leaving  bool  // it is being removed, or will be; written under coreMu
	failures int64 // guarded by coreMu
	err      error // why the last attempt failed; guarded by coreMu
}

// remove deletes the log, and with it the replica. What fails is tried again, with a growing pause, and at once when the
// partition is given to this node again.
func (r *runner) remove() {
	r.coreMu.Lock()
	r.going.leaving = true
	r.coreMu.Unlock()
	r.going.stuck = false
	r.mend.wanted, r.mend.claim = nil, nil // nothing is opened again
	r.mendAt(time.Time{})
	r.slowly(func() Event {
		err := r.node.conf.Dir.Delete(r.node.ctx, r.tp)
		if err == nil || errors.Is(err, log.ErrNoPartition) {
			r.post(mail{removed: true})
		} else {
			r.post(mail{settled: func() Event { r.notRemoved(err); return nil }})
		}
		return nil
	})
}

func (r *runner) notRemoved(err error) {
	g := &r.going
	r.coreMu.Lock()
	g.failures++
	g.err = fmt.Errorf("remove %s: %w", r.tp, err)
	r.coreMu.Unlock()
	g.stuck, g.again = true, time.Now().Add(r.node.pauseBehind(int(min(g.failures-1, 16)), longestRemoval))
	r.node.trouble(r.tp, g.err)
}

// goingAway takes what is said to a partition on its way out: an Assign is for its next life, and makes haste. What is older than
// what was said before does not count.
func (r *runner) goingAway(m mail) (taken bool) {
	g := &r.going
	goes := g.leaving || r.core != nil && r.core.role == Deleted
	switch e := m.event.(type) {
	case Assign:
		if !goes {
			return false
		}
		if g.grave != nil && g.grave.bars(&e) || g.reborn != nil && e.olderThan(g.reborn) {
			return true
		}
		if g.reborn = &e; g.stuck {
			r.remove()
		}
		return true
	case Stop:
		return r.heedStop(e, goes, m.heard)
	case Tick:
		if g.stuck && !time.Now().Before(g.again) {
			r.remove()
		}
	}
	return false
}

// heedStop notes what a Stop says of the time after the replica. One that comes late counts for nothing; what was heard before, and
// had to wait for the log, was not late then.
func (r *runner) heedStop(e Stop, goes, heard bool) (taken bool) {
	g, id, version := &r.going, r.topicID, int32(-1)
	switch a, p := g.reborn, r.core; {
	case a != nil:
		if e.late(a.TopicID, a.LeaderEpoch, a.PartitionEpoch) {
			return true
		}
		g.reborn, id, version = nil, a.TopicID, a.PartitionEpoch
	case p != nil:
		if e.late(p.topicID, p.leaderEpoch, p.partitionEpoch) {
			return goes // if not, the core counts it
		}
		id, version = p.topicID, p.partitionEpoch
	case r.mend.wanted != nil && !heard:
		a := r.mend.wanted
		if e.late(a.TopicID, a.LeaderEpoch, a.PartitionEpoch) {
			return true
		}
		id, version = a.TopicID, a.PartitionEpoch
	}
	if !e.Delete || !e.says() {
		return goes
	}
	if e.TopicID != [16]byte{} {
		id = e.TopicID
	}
	said := grave{id, max(version, e.PartitionEpoch)}
	if g.grave != nil {
		said.version = said.newest(g.grave)
	}
	g.grave = &said
	return goes
}

// leave is the end of the replica. Whoever speaks to the partition from now on, in whatever order, speaks to its next life, or to
// nobody; so what was said before must have been heard.
func (r *runner) leave() {
	n, g := r.node, &r.going
	n.mu.Lock()
	r.mailMu.Lock()
	if slices.ContainsFunc(r.box, mail.decides) { // nobody adds any while mu is held
		r.mailMu.Unlock()
		n.mu.Unlock()
		return
	}
	r.closed = true
	r.mailMu.Unlock()
	if g.grave != nil {
		n.graves.bury(r.tp, *g.grave)
	}
	delete(n.replicas, r.tp)
	if g.reborn != nil && !n.closed && n.takes(r.tp, g.reborn) {
		n.begin(r.tp).post(mail{event: *g.reborn})
	}
	n.mu.Unlock()
	r.shut()
}

// decides says whether there is a replica may depend on it.
func (m mail) decides() bool {
	switch m.event.(type) {
	case Assign, Stop:
		return true
	}
	return false
}
