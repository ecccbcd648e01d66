package replica

import (
	"errors"
	"fmt"
	"time"

	"github.com/partlog/partlog/log"
)

// longestRemoval is the longest pause between two attempts to remove a log.
const longestRemoval = time.Minute

// removal is how far the removal of a replica's log is. Of the running goroutine, but for what coreMu guards.
type removal struct {
	stuck  bool      // it failed, and nobody is at it
	again  time.Time // when it is tried again
	reborn *Assign   // what was said meanwhile: the partition is made anew afterwards

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
	r.slowly(func() Event {
		err := r.node.conf.Dir.Delete(r.node.ctx, r.tp)
		if err == nil || errors.Is(err, log.ErrNoPartition) {
			r.node.forget(r)
			r.post(mail{last: true})
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

// goingAway takes what is said to a partition on its way out: an Assign is for its next life, and makes haste.
func (r *runner) goingAway(m mail) (taken bool) {
	g := &r.going
	switch e := m.event.(type) {
	case Assign:
		if !g.leaving && (r.core == nil || r.core.role != Deleted) {
			return false
		}
		if g.reborn = &e; g.stuck {
			r.remove()
		}
		return true
	case Tick:
		if g.stuck && !time.Now().Before(g.again) {
			r.remove()
		}
	}
	return false
}
