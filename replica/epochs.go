package replica

import "github.com/partlog/partlog/log"

// latestEpoch is the newest leader epoch of a log, -1 if it knows none.
func latestEpoch(entries []log.EpochEntry) int32 {
	if len(entries) == 0 {
		return -1
	}
	return entries[len(entries)-1].Epoch
}

// endOfEpoch says where an epoch ended in a log that ends at end: the largest epoch at or below it, and the offset behind
// its last record; -1, -1 if it is newer than all, or none is known; for one older than all itself and the first start.
//
//	entries 0@10 2@13 4@17, end 20:    1 → 0,13    2 → 2,17    3 → 2,17    4 → 4,20    5 → -1,-1
func endOfEpoch(entries []log.EpochEntry, epoch int32, end int64) log.EpochEnd {
	n := len(entries)
	if epoch < 0 || n == 0 || epoch > entries[n-1].Epoch {
		return log.EpochEnd{Epoch: -1, End: -1}
	}
	if epoch == entries[n-1].Epoch {
		return log.EpochEnd{Epoch: epoch, End: end}
	}
	above := n - 1
	for above > 0 && entries[above-1].Epoch > epoch {
		above--
	}
	if above == 0 {
		return log.EpochEnd{Epoch: epoch, End: entries[0].Start}
	}
	return log.EpochEnd{Epoch: entries[above-1].Epoch, End: entries[above].Start}
}

// epochAt is the epoch of an offset, and where it ends or end is, whichever comes first; -1 in front of all that are known.
//
//	entries 0@10 2@13, end 20:    5 → -1,10    10 → 0,13    13 → 2,20
func epochAt(entries []log.EpochEntry, offset, end int64) log.EpochEnd {
	at := log.EpochEnd{Epoch: -1, End: end}
	for _, e := range entries {
		if e.Start > offset {
			at.End = min(e.Start, end)
			break
		}
		at.Epoch = e.Epoch
	}
	return at
}

// epochRequest answers where an epoch ended here: a leader to all, any replica to a debugger.
func (p *Partition) epochRequest(e EpochRequest) {
	r := p.result(p.check(e.LeaderEpoch, e.From != Debugger))
	r.EpochEnd = log.EpochEnd{Epoch: -1, End: -1}
	if r.Err == None && p.role == Leader && !p.lead.active {
		r.Err = LeaderNotAvailable
	}
	if r.Err == None {
		r.EpochEnd = endOfEpoch(p.state.Epochs, e.Epoch, p.state.LogEnd)
	}
	p.do(Action{Kind: Reply, Tag: e.Tag, To: e.From, Result: r})
}

// check is what the role and the leader epoch of a request allow.
func (p *Partition) check(epoch int32, leaderOnly bool) ErrorCode {
	switch {
	case p.role == Failed:
		return KafkaStorageError
	case p.role == Deleted:
		return UnknownTopicOrPartition
	case p.role == Idle, p.role == Leader && p.halted:
		return NotLeaderOrFollower
	case epoch >= 0 && epoch < p.leaderEpoch:
		return FencedLeaderEpoch
	case epoch > p.leaderEpoch:
		return UnknownLeaderEpoch
	case leaderOnly && p.role != Leader:
		return NotLeaderOrFollower
	}
	return None
}

// result is an answer in which nothing is known but the leader.
func (p *Partition) result(code ErrorCode) Result {
	return Result{
		Err: code, Base: -1, Last: -1, AppendTime: -1,
		HighWatermark: -1, LastStable: -1, LogStart: -1, LogEnd: -1, Removal: -1,
		EpochEnd: log.EpochEnd{Epoch: -1, End: -1},
		Leader:   p.leader, LeaderEpoch: p.leaderEpoch,
	}
}
