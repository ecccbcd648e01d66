package replica

import (
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// following is what only a follower has.
type following struct {
	start   bool      // the log must be looked at before the first fetch of an epoch
	tag     uint64    // of the fetch under way; 0: none
	offset  int64     // it asked for
	limit   time.Time // when it counts as lost
	retryAt time.Time // back-off; zero: none
}

// fetchNext sends the next fetch, if nothing is in the way. The log is free.
func (p *Partition) fetchNext() {
	f := &p.follow
	if p.leader == NoNode || p.leader == p.conf.Self || p.halted || f.tag != 0 {
		return
	}
	if f.start {
		f.start = false
		// Without an epoch there is nothing to compare by: only what is committed for sure may stay.
		if p.hw < p.state.LogEnd && (p.conf.Truncation == ByHighWatermark || latestEpoch(p.state.Epochs) < 0) {
			p.truncate(p.hw)
			return
		}
	}
	if p.now.Before(f.retryAt) {
		p.arm(f.retryAt)
		return
	}
	if p.counted() < p.state.LogEnd {
		p.sync() // the fetch tells the leader what is here
		return
	}
	f.retryAt = time.Time{}
	f.tag, f.offset, f.limit = p.tag(), p.state.LogEnd, p.now.Add(p.conf.FetchLimit)
	p.arm(f.limit)
	last := latestEpoch(p.state.Epochs)
	if p.conf.Truncation == ByHighWatermark {
		last = -1
	}
	p.counts.Fetches++
	p.do(Action{Kind: SendFetch, Tag: f.tag, To: p.leader, Fetch: FetchRequest{
		From: p.conf.Self, Tag: f.tag, Offset: f.offset, LogStart: p.state.LogStart,
		LeaderEpoch: p.leaderEpoch, LastFetchedEpoch: last, BrokerEpoch: p.conf.BrokerEpoch, TopicID: p.topicID, Unsynced: p.unsynced(), UncleanStop: p.unclean,
		Isolation: log.LogEnd, MaxBytes: p.conf.FetchBytes, MinBytes: p.conf.FetchMin, MaxWait: p.conf.FetchWait,
	}})
}

// backOff waits before the next fetch.
func (p *Partition) backOff(err error) {
	p.counts.FetchErrors++
	p.trouble = err
	p.follow.retryAt = p.now.Add(p.conf.Backoff)
	p.arm(p.follow.retryAt)
}

func (p *Partition) expireFollow() {
	f := &p.follow
	if f.tag != 0 {
		if p.now.Before(f.limit) {
			p.arm(f.limit)
			return
		}
		f.tag = 0
		p.counts.FetchErrors++
		p.trouble = RequestTimedOut
	}
	p.settle()
}

// awaits says that e answers the fetch under way.
func (p *Partition) awaits(e *FetchResponse) bool {
	return p.role == Follower && e.Tag != 0 && e.Tag == p.follow.tag && e.From == p.leader
}

// fetched takes the leader's answer to the fetch under way; any other is too late.
func (p *Partition) fetched(e FetchResponse) {
	f := &p.follow
	if !p.awaits(&e) {
		p.counts.StaleEventsIgnored++
		return
	}
	f.tag = 0
	r := e.Result
	switch {
	case r.Err == OffsetOutOfRange:
		p.outOfRange(r)
	case r.Err == FencedLeaderEpoch && (r.LeaderEpoch < 0 || r.LeaderEpoch > p.leaderEpoch):
		p.halted, p.trouble = true, r.Err // there is a newer leader; the controller will say who
	case r.Err != None:
		p.backOff(r.Err)
	case r.Diverged:
		p.diverged(r.EpochEnd)
	case len(r.Raw) > 0:
		p.begin(work{raw: r.Raw, marks: r},
			Action{Kind: DoAppend, Role: log.Follower, Raw: r.Raw, LeaderEpoch: p.leaderEpoch})
		p.work.marks.Raw = nil
	case r.Gap:
		p.skip(r)
	default:
		p.adopt(r)
	}
	p.settle()
}

// copied goes on after a follower's append.
func (p *Partition) copied(w work, e Appended) {
	current := p.role == Follower && w.epoch == p.leaderEpoch
	switch {
	case e.Err == nil && current:
		if e.Last < e.Base {
			p.backOff(InvalidRecord) // nothing of it was for this epoch
		}
		p.adopt(w.marks)
	case e.Err == nil:
	case isAny(e.Err, log.ErrUnexpectedOffset) && current && !w.rescue && p.rescue(w):
	case isAny(e.Err, record.ErrCorrupt, log.ErrInvalidRecord, log.ErrInvalidTimestamp, log.ErrTooLarge, log.ErrOffsetsOutOfOrder,
		log.ErrUnexpectedOffset, log.ErrNoSpace, log.ErrFull):
		if current {
			p.backOff(e.Err)
		}
	case isAny(e.Err, log.ErrFenced):
		if current {
			p.halted, p.trouble = true, e.Err
		}
	default:
		p.fail(e.Err)
	}
}

// adopt takes over the leader's marks: first the high watermark, then the log start, which cannot be above it.
func (p *Partition) adopt(r Result) {
	p.trouble = nil
	if hw := max(min(r.HighWatermark, p.state.LogEnd), p.state.LogStart); r.HighWatermark >= 0 && hw != p.hw {
		p.setHighWatermark(hw)
		p.wake(true)
	} else {
		p.wake(false)
	}
	if start := min(r.LogStart, p.hw); start > p.state.LogStart {
		p.state.LogStart = start
		p.do(Action{Kind: SetLogStart, Offset: start})
	}
	if r.Removal >= 0 && r.Removal != p.removal {
		p.setRemoval(r.Removal)
	}
	p.catchingUp(r)
}

// catchingUp ends the suspicion that something is lacking: all that the leader had when its first answer of the epoch came,
// and so all that was committed before, is here. What is committed later is committed with this replica in mind.
func (p *Partition) catchingUp(r Result) {
	if !p.unclean {
		return
	}
	if p.catchUp < 0 {
		p.catchUp = max(r.LogEnd, r.HighWatermark)
	}
	if p.catchUp >= 0 && p.counted() >= p.catchUp {
		p.unclean = false
	}
}
