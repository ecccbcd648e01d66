package replica

import "github.com/partlog/partlog/log"

// View is how far an asker may see, for the answer to a request for offsets (ListOffsets).
type View struct {
	Err ErrorCode
	// End is the offset behind the last record the asker may see: the answer for the latest offset. A record found by its time
	// at or above it counts as not found.
	End         int64
	LeaderEpoch int32 // of the leader, which stands beside the latest offset
	// Settled is false while a leader's high watermark is below the start of its epoch: what was committed before is not all
	// known to be. A consumer then gets OffsetNotAvailable for the latest offset (Err has it), and wherever else nothing was
	// found below End.
	Settled bool
}

// View answers without any event. from is NoNode for a consumer, for whom i counts; a replica or Debugger sees all.
// leaderEpoch -1 is unchecked. lastStable is log.Offsets.LastStable as it is now, for ReadCommitted: it moves with the high
// watermark without a word of the log.
func (p *Partition) View(from NodeID, leaderEpoch int32, i log.Isolation, lastStable int64) View {
	v := View{Err: p.check(leaderEpoch, from != Debugger), End: -1, LeaderEpoch: p.leaderEpoch, Settled: true}
	if v.Err != None {
		return v
	}
	v.End = p.state.LogEnd
	if from != NoNode {
		return v
	}
	v.End = p.hw
	if i == log.ReadCommitted {
		v.End = min(p.hw, lastStable)
	}
	if v.Settled = p.lead.active && p.hw >= p.lead.epochStart; !v.Settled {
		v.Err = OffsetNotAvailable
	}
	return v
}
