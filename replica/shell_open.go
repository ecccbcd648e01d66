package replica

import (
	"fmt"
	"slices"
	"time"

	"github.com/partlog/partlog/log"
)

// opened is the end of opening a log.
type opened struct {
	log  *log.Log
	conf Config
	err  error
}

// before is for mail that comes while there is no log. Only an Assign has it opened; the rest waits for that, or is
// refused when it was tried in vain.
func (r *runner) before(m mail) {
	switch e := m.event.(type) {
	case Assign:
		if w := r.mend.wanted; !r.opening && (w == nil || !e.olderThan(w)) {
			r.open(e, nil)
		}
	case ISRAnswer:
		if r.yields != nil && !givenUp(e.Err) {
			r.yieldAt = time.Now().Add(r.node.conf.Config.withDefaults().Backoff)
		}
	case Tick:
		if !r.yieldAt.IsZero() && !time.Now().Before(r.yieldAt) {
			r.yieldAt = time.Time{}
			r.yield()
		}
	}
	stop, stopped := m.event.(Stop)
	switch {
	case r.opening && m.remote && !r.heldFar[m.sort()].take(m.size()): // lost
	case r.opening:
		m.heard = true
		r.held = append(r.held, m)
	case m.call != nil || m.question != nil || m.remote || m.heeded != nil:
		res := refusal(KafkaStorageError)
		res.Cause = r.err
		r.refuse(m, res)
	case stopped && stop.Delete:
		r.remove()
	}
}

// open has the log opened in the background; old is one that has to be closed first.
func (r *runner) open(a Assign, old *log.Log) {
	r.opening = true
	r.topicID = a.TopicID
	r.node.slow.submit(taskFunc(func() {
		o := &opened{}
		o.log, o.conf, o.err = r.openLog(a.TopicID, old)
		r.post(mail{opened: o})
	}))
}

func (r *runner) openLog(topicID [16]byte, old *log.Log) (*log.Log, Config, error) {
	n := r.node
	if old != nil {
		_ = old.Close() // it has failed; what it says of that is known
	}
	logConf, conf := r.settings()
	l, err := n.conf.Dir.Open(n.ctx, r.tp, logConf)
	if err == nil && topicID != [16]byte{} {
		if id := l.TopicID(); id != topicID && id != [16]byte{} {
			if _, err = n.conf.Dir.SetStray(n.ctx, r.tp); err == nil { // of a topic that had the name before
				l, err = n.conf.Dir.Open(n.ctx, r.tp, logConf)
			}
		}
		if err == nil {
			err = l.SetTopicID(topicID)
		}
	}
	if err == nil && l.Config().Visibility != log.External {
		err = fmt.Errorf("%s was opened before: %w", r.tp, log.ErrVisibility)
	}
	if err != nil {
		return nil, conf, fmt.Errorf("open %s for replication: %w", r.tp, err)
	}
	return l, conf.fitted(l), nil
}

// start begins with a log that is open, or gives up.
func (r *runner) start(o *opened) {
	r.opening = false
	held := r.held
	r.held, r.heldFar = nil, [sorts]load{}
	had := r.log.Load() != nil
	if o.err == nil {
		r.log.Store(o.log)
		o.err = r.reclaim(o.log)
	}
	if o.err != nil {
		r.coreMu.Lock()
		r.err = o.err
		r.coreMu.Unlock()
		r.failed(o.err)
		r.yields, r.yieldAt = nil, time.Time{}
		for _, m := range held {
			if a, ok := m.event.(Assign); !ok || r.going.leaving { // of a next life, in which it may open
				r.take(m)
			} else if r.yields == nil || a.PartitionEpoch >= r.yields.PartitionEpoch {
				r.yields = &a
			}
		}
		if r.going.leaving {
			r.yields = nil
		}
		r.yield()
		return
	}
	r.yields, r.yieldAt = nil, time.Time{}
	r.mend.made = time.Now()
	r.mendAt(time.Time{})
	n := r.node
	again := r.err != nil || had
	state := r.state(o.log)
	r.conf = o.conf
	n.mu.RLock()
	r.conf.BrokerEpoch = n.epoch
	peers := make([]Peer, 0, len(n.peers))
	for _, p := range n.peers {
		peers = append(peers, p)
	}
	n.mu.RUnlock()

	r.logStart, r.warm, r.warmNext, r.warmFill = state.LogStart, state.LogEnd, state.LogEnd, 0
	if r.unpin == nil {
		r.unpin = o.log.PinRemoval("replicas of "+r.tp.String(), 0)
	}
	r.coreMu.Lock()
	r.core, r.err = New(r.tp, r.conf, state, again || n.unclean && !r.fresh(state, held)), nil
	r.core.lastTag += uint64(r.life) << 24 // nor do answers to an earlier core of this life
	r.coreMu.Unlock()
	for _, p := range peers {
		r.step(p)
	}
	for _, m := range held {
		r.take(m)
	}
}

// yield asks for another leader where this node should lead and has no log: what abdicate is to a core.
func (r *runner) yield() {
	a := r.yields
	if a == nil || a.Leader != r.node.conf.Self {
		return
	}
	if isr := withoutSelf(a.ISR, a.Leader); len(isr) > 0 {
		r.propose(0, Proposal{ISR: isr, BrokerEpochs: slices.Repeat([]int64{-1}, len(isr)), LeaderEpoch: a.LeaderEpoch, PartitionEpoch: a.PartitionEpoch})
	}
}

// fresh says that there is nothing a log can have lost: it has never had anything, and neither has the partition.
func (r *runner) fresh(s LogState, held []mail) bool {
	if s.LogEnd > 0 || len(s.Epochs) > 0 {
		return false
	}
	for _, m := range held {
		if a, ok := m.event.(Assign); ok {
			return a.PartitionEpoch == 0
		}
	}
	return false
}

// remake makes a replica anew that has failed, when the controller says something newer than what it failed under. What it
// had on disk is not trusted.
func (r *runner) remake(a Assign) bool {
	if r.core.role != Failed || a.PartitionEpoch <= r.core.partitionEpoch && a.LeaderEpoch <= r.core.leaderEpoch {
		return false
	}
	if a.Leader == r.node.conf.Self && a.LeaderEpoch <= r.leads {
		return false // the core sees to it that another leads
	}
	r.spent = r.leads
	r.unmake()
	r.held = append(r.held, mail{event: a})
	r.open(a, r.log.Load())
	return true
}
