package replicatest

import (
	"github.com/partlog/partlog/replica"
)

// skip raises the end of a log over a gap.
func (r *rep) skip(a *replica.Action) replica.Truncated {
	m, id := &r.part.model, r.n.id
	before := r.log.Offsets().LogEnd
	err := r.log.FollowEnd(r.n.s.ctx, a.Offset)
	if end := r.log.Offsets().LogEnd; end > before {
		r.n.s.counts.add("gaps at the end of a log", 1)
		r.part.note("node %d skips from %d to %d", id, before, end)
		m.place(id, end-1, entry{})
		m.passed(r, before)
	}
	if err == nil {
		err = r.log.AssignEpoch(a.LeaderEpoch)
	}
	r.epochs = nil
	return replica.Truncated{Tag: a.Tag, Err: err, State: r.state()}
}
