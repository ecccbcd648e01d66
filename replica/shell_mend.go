package replica

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/partlog/partlog/log"
)

// longestMend is the longest pause before a log that failed is opened again. One that has not failed for so long counts as mended.
const longestMend = time.Minute

// LostTailError: the log of a leader that was alone in sync failed, and opened again it has not all it had. It must not lead the
// same leader epoch once more: its next records would get offsets under which others may have fetched the lost ones. The replica
// stays failed until the controller says something newer: a new leader epoch, which a node that registers anew gets, or another
// leader. errors.Is(err, log.ErrFailed).
type LostTailError struct {
	Partition   log.TopicPartition
	LeaderEpoch int32 // it led
	Had, Has    int64 // log end offsets, when it failed and now
}

// Error is one sentence.
func (e *LostTailError) Error() string {
	if e.Has < e.Had {
		return fmt.Sprintf("%s failed, and has lost offsets %d to %d of leader epoch %d, which it cannot lead again", e.Partition, e.Has, e.Had-1, e.LeaderEpoch)
	}
	return fmt.Sprintf("%s failed, and has not the leader epochs it had: it cannot lead epoch %d again", e.Partition, e.LeaderEpoch)
}

// Is makes it a log.ErrFailed.
func (e *LostTailError) Is(target error) bool { return target == log.ErrFailed }

// mending is how a replica whose log failed, or could not be opened, comes back by itself: the log is closed, and opened again
// after a pause, which doubles. Opening reads what is on the device, not what the page cache says: after a sync that failed the
// two may differ (package log). Of the running goroutine, but for what coreMu guards.
//
//	follower    made anew, and out of sync until it has caught up
//	leader      one that is alone in sync leads on if nothing of the log is missing, in the same epoch; others wait for the
//	            controller, which they have asked for another leader
type mending struct {
	wanted *Assign   // the controller's newest word; nil: there is none, or the replica was stopped
	made   time.Time // when the present core was; zero: it has failed, or there is none
	inRow  int       // failures, each soon after the one before
	claim  *claim    // what must be there for the log to lead again

	at       time.Time // when the log is opened again; zero: only at newer news. Written under coreMu
	failures int64     // guarded by coreMu
}

// claim is what a leader's log had.
type claim struct {
	end, hw int64
	epochs  []log.EpochEntry
}

func (c *claim) holds(l *log.Log) bool {
	return l.Offsets().LogEnd >= c.end && slices.Equal(l.Epochs(), c.epochs)
}

// heed remembers what the controller wants.
func (r *runner) heed(e Event) {
	g := &r.mend
	switch e := e.(type) {
	case Assign:
		w := g.wanted
		if w == nil || e.LeaderEpoch > w.LeaderEpoch || e.LeaderEpoch == w.LeaderEpoch && e.PartitionEpoch >= w.PartitionEpoch {
			g.wanted = &e
		}
	case Stop:
		if w := g.wanted; w != nil && !e.late(w.TopicID, w.LeaderEpoch, w.PartitionEpoch) {
			g.wanted, g.claim = nil, nil
			r.mendAt(time.Time{})
		}
	case Tick:
		if !g.at.IsZero() && !time.Now().Before(g.at) && !r.opening {
			r.mendNow()
		}
	}
}

// failed counts a failure, tells of it, and says when the log is opened again. What is damaged does not mend by itself.
func (r *runner) failed(err error) {
	g := &r.mend
	now := time.Now()
	if !g.made.IsZero() && now.Sub(g.made) > longestMend {
		g.inRow = 0
	}
	g.made = time.Time{}
	at := now.Add(r.node.pauseBehind(g.inRow, longestMend))
	g.inRow++
	if errors.Is(err, log.ErrCorrupt) || errors.As(err, new(*LostTailError)) {
		at = time.Time{}
	}
	r.coreMu.Lock()
	g.failures++
	r.coreMu.Unlock()
	r.mendAt(at)
	r.node.trouble(r.tp, fmt.Errorf("the replica of %s has failed: %w", r.tp, err))
}

// pauseBehind is Config.Backoff, doubled for each failure before the last one, up to the longest.
func (n *Node) pauseBehind(before int, longest time.Duration) time.Duration {
	pause := min(n.conf.Config.withDefaults().Backoff, longest) // or doubling it could overflow
	return min(pause<<min(before, 16), longest)
}

func (r *runner) mendAt(at time.Time) {
	r.coreMu.Lock()
	r.mend.at = at
	r.coreMu.Unlock()
}

// mendNow opens the log again, if the replica may come back yet.
func (r *runner) mendNow() {
	g := &r.mend
	a := r.mayMend()
	if a == nil {
		r.mendAt(time.Now().Add(r.node.conf.Config.withDefaults().Backoff))
		return
	}
	if r.core != nil {
		r.unmake()
	}
	if g.claim == nil {
		r.spent = r.leads
	}
	r.held = append(r.held, mail{event: *a})
	r.open(*a, r.log.Load())
}

// mayMend is the word under which a replica that failed begins anew; nil: not yet.
func (r *runner) mayMend() *Assign {
	g, p := &r.mend, r.core
	if g.wanted == nil || p != nil && p.role != Failed {
		return nil
	}
	a := *g.wanted
	if a.Leader != r.node.conf.Self || a.LeaderEpoch > r.leads || g.claim != nil { // the last: it was opened in vain
		return &a
	}
	if p == nil || !p.lead.failed || p.leaderEpoch != a.LeaderEpoch || p.lead.proposal != 0 || p.lead.pending != noChange ||
		len(withoutSelf(p.lead.isr, p.conf.Self)) > 0 {
		return nil
	}
	l := r.log.Load()
	a.ISR, a.PartitionEpoch = slices.Clone(p.lead.isr), max(a.PartitionEpoch, p.partitionEpoch)
	g.wanted = &a
	g.claim = &claim{end: max(p.state.LogEnd, l.Offsets().LogEnd), hw: p.hw, epochs: l.Epochs()}
	return &a
}

// reclaim looks whether a leader's log that was opened again has all it had; the error is a *LostTailError. High watermarks are
// in the checkpoint now and then only: what was committed before stays so.
func (r *runner) reclaim(l *log.Log) error {
	g := &r.mend
	c := g.claim
	g.claim = nil
	if c == nil {
		return nil
	}
	again := g.wanted != nil && g.wanted.Leader == r.node.conf.Self && g.wanted.LeaderEpoch <= r.leads
	switch {
	case again && c.holds(l):
		_, err := l.SetHighWatermark(max(c.hw, l.Offsets().HighWatermark))
		if err != nil {
			g.claim = c // the next log that is opened must have it
		}
		return err
	case again:
		r.spent = r.leads
		return &LostTailError{r.tp, g.wanted.LeaderEpoch, c.end, l.Offsets().LogEnd}
	}
	r.spent = r.leads
	return nil
}

// unmake takes the core of a replica that failed away.
func (r *runner) unmake() {
	r.coreMu.Lock()
	r.core = nil
	r.coreMu.Unlock()
	r.life++
	r.slowJobs, r.startAsked = nil, 0
	r.refuseHeeders(refused(r.tp, settingsOf, refusal(KafkaStorageError)))
	if r.unpin != nil {
		r.unpin()
		r.unpin = nil
	}
}
