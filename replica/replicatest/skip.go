package replicatest

import (
	"math/rand/v2"

	"github.com/partlog/partlog/replica"
)

// thrift is what leaves followers without records though there are some, or with nothing to copy though the leader's log goes on. It
// has dice of its own: what else happens to a seed does not hang on it.
type thrift struct {
	dice   *rand.Rand
	stingy float64 // chance of a read for a follower to find the bytes of the answer used up by other partitions
	gaps   float64 // chance of a new leader's log to end behind a gap, if it is compacted
}

func thriftOf(seed uint64) thrift {
	t := thrift{dice: rand.New(rand.NewPCG(seed, 0xbf58476d1ce4e5b9))}
	if t.dice.IntN(3) == 0 {
		t.stingy = 0.05
	}
	if t.dice.IntN(2) == 0 {
		t.gaps = 0.5
	}
	return t
}

func (t *thrift) chance(p float64) bool { return p > 0 && t.dice.Float64() < p }

// stint takes all records from what was read for a follower, now and then. Whoever asks again gets them.
func (r *rep) stint(a *replica.Action, e *replica.Read) {
	s := r.n.s
	if a.To >= 0 && e.Err == nil && s.thrift.chance(s.thrift.stingy) {
		s.counts.add("reads cut to nothing", 1)
		e.Raw, e.Bytes, e.Next = nil, 0, a.Offset
	}
}

// maxGap bounds the gaps that leaders begin with.
const maxGap = 3

// hollow puts a gap at the end of a new leader's log, in its epoch: as if what it wrote there had been compacted away, and its newest
// segment were empty.
func (r *rep) hollow() error {
	s, o := r.n.s, r.log.Offsets()
	if !r.part.compacted || !s.thrift.chance(s.thrift.gaps) {
		return nil
	}
	s.counts.add("gaps at the end of a leader's log", 1)
	return r.raise(o.LogEnd + 1 + s.thrift.dice.Int64N(maxGap))
}

// raise raises the end of a log over a gap.
func (r *rep) raise(to int64) error {
	m, id := &r.part.model, r.n.id
	before := r.log.Offsets().LogEnd
	err := r.log.FollowEnd(r.n.s.ctx, to)
	if end := r.log.Offsets().LogEnd; end > before {
		r.part.note("node %d skips from %d to %d", id, before, end)
		m.place(id, end-1, entry{})
		m.passed(r, before)
	}
	return err
}

// skip carries out a DoSkip.
func (r *rep) skip(a *replica.Action) replica.Truncated {
	err := error(nil)
	if a.LeaderEpoch >= 0 {
		err = r.log.AssignEpoch(a.LeaderEpoch)
	}
	if err == nil {
		if err = r.raise(a.Offset); err == nil {
			r.n.s.counts.add("gaps skipped", 1)
		}
	}
	r.epochs = nil
	return replica.Truncated{Tag: a.Tag, Err: err, State: r.state()}
}

// gapWhereEmpty changes an answer: one that is empty, of a leader whose log goes on, is a gap.
func (r *rep) gapWhereEmpty(a *replica.Result) {
	if a.Err == replica.None && !a.Diverged && len(a.Raw) == 0 && a.LogEnd > r.log.Offsets().LogEnd {
		a.Gap, a.EpochEnd.Epoch, a.EpochEnd.End = true, a.LeaderEpoch, a.LogEnd
	}
}
