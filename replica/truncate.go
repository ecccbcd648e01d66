package replica

import (
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// diverged cuts the log where the leader says that histories part. The answer names the leader's largest epoch at or
// below the follower's, and its end:
//
//	follower   0@0  2@1  4@2         end 3      asks with epoch 4
//	leader     0@0  2@1       5@2    end 3      answers 2, 2: cut to 2, go on from there with epoch 2
//
// A follower that has no record of that epoch cuts to the end of the next smaller one and asks again.
func (p *Partition) diverged(leader log.EpochEnd) {
	to := p.cutFor(leader)
	if to >= p.state.LogEnd && !p.idleEpoch() {
		p.backOff(OffsetOutOfRange) // the answer changes nothing; asking at once would only repeat it
		return
	}
	p.truncate(to)
}

func (p *Partition) cutFor(leader log.EpochEnd) int64 {
	end := p.state.LogEnd
	if leader.End < 0 {
		return p.hw
	}
	if leader.Epoch < 0 {
		return min(leader.End, end)
	}
	own := endOfEpoch(p.state.Epochs, leader.Epoch, end)
	switch own.Epoch {
	case -1:
		return min(leader.End, end)
	case leader.Epoch:
		return min(own.End, leader.End, end)
	default:
		return min(own.End, end)
	}
}

// idleEpoch says whether the newest epoch has no record: a truncation to the end drops it.
func (p *Partition) idleEpoch() bool {
	n := len(p.state.Epochs)
	return n > 0 && p.state.Epochs[n-1].Start >= p.state.LogEnd
}

// outOfRange brings a log to where the leader's is: a longer one is cut to the leader's end, even though it may have
// diverged below; one that ends at or below the leader's start begins anew there.
func (p *Partition) outOfRange(r Result) {
	switch {
	case r.LogEnd < 0 || r.LogStart < 0:
		p.backOff(OffsetOutOfRange)
	case r.LogEnd < p.state.LogEnd:
		p.truncate(r.LogEnd)
	case r.LogStart > p.state.LogEnd, r.LogStart == p.state.LogEnd && p.state.LogStart < r.LogStart:
		p.reset(r.LogStart, work{})
	default:
		p.backOff(OffsetOutOfRange) // it fits now: the log moved meanwhile
	}
}

// rescue empties a log that ends where the leader's log starts, inside a batch: what comes begins below it. Whatever the log
// still has is deleted at the leader, and may be of another history. False if that is not it.
func (p *Partition) rescue(w work) bool {
	if max(p.state.LogStart, w.marks.LogStart) < p.state.LogEnd {
		return false
	}
	first, last, ok := span(w.raw)
	if !ok || first >= p.state.LogEnd || last < p.state.LogEnd {
		return false
	}
	w.rescue = true
	p.reset(first, w)
	return true
}

// span is the first and the last offset of encoded batches.
func span(raw []byte) (first, last int64, ok bool) {
	first = -1
	for len(raw) > 0 {
		b, rest, err := record.Next(raw)
		if err != nil {
			break // a torn one at the end
		}
		if first < 0 {
			first = b.BaseOffset()
		}
		last, raw = b.LastOffset(), rest
	}
	return first, last, first >= 0
}

func (p *Partition) truncate(to int64) {
	if to < p.state.LogEnd {
		p.counts.Truncations++
	}
	p.lowerHighWatermark(to)
	p.begin(work{}, Action{Kind: DoTruncate, Offset: to})
}

func (p *Partition) reset(to int64, then work) {
	p.counts.Truncations++
	p.lowerHighWatermark(to)
	p.begin(then, Action{Kind: DoReset, Offset: to})
}

// skip goes on where a leader's log has records again, or ends: that it has none in between it must say, because an answer may be
// empty for many reasons. Compaction has removed them. Else this replica would be in sync only once something new was written, which
// min.insync.replicas may not allow without it.
//
// A gap that lies in several epochs comes in as many answers, so that the epochs here come to be those of the leader:
//
//	leader     0@0  [ gap, 4@14 ]    end 16, no record behind 12
//	follower   0@0                   end 13, then 14, then 4@14 and 16
func (p *Partition) skip(r Result) {
	gap := r.EpochEnd
	if gap.End <= p.state.LogEnd || gap.End > r.LogEnd || gap.Epoch > p.leaderEpoch {
		p.backOff(InvalidRecord) // no leader says that
		return
	}
	if gap.Epoch <= latestEpoch(p.state.Epochs) {
		gap.Epoch = -1
	}
	p.begin(work{marks: r}, Action{Kind: DoSkip, Offset: gap.End, LeaderEpoch: gap.Epoch})
}

// skipped goes on after that.
func (p *Partition) skipped(w work, e Truncated) {
	current := p.role == Follower && w.epoch == p.leaderEpoch
	switch {
	case e.Err == nil && current:
		p.adopt(w.marks)
	case e.Err == nil:
	case isAny(e.Err, log.ErrNoSpace, log.ErrOffsetOutOfRange, log.ErrFenced):
		if current {
			p.backOff(e.Err)
		}
	default:
		p.fail(e.Err)
	}
}

// truncated goes on after a cut.
func (p *Partition) truncated(e Truncated) {
	w, ok := p.end(e.Tag, DoTruncate, DoReset, DoSkip)
	if !ok {
		return
	}
	defer p.settle()
	if p.role == Failed || p.role == Deleted {
		return
	}
	if w.kind == DoSkip {
		p.take(e.State)
		p.skipped(w, e)
		return
	}
	if e.Err != nil {
		p.fail(e.Err)
		return
	}
	p.take(e.State)
	if p.hw < p.persisted {
		p.persist()
	}
	if p.state.HighWatermark != p.hw {
		p.do(Action{Kind: SetHighWatermark, Offset: p.hw})
	}
	p.wake(true)
	if w.rescue && p.role == Follower && w.epoch == p.leaderEpoch {
		p.begin(w, Action{Kind: DoAppend, Role: log.Follower, Raw: w.raw, LeaderEpoch: p.leaderEpoch})
	}
}
