package replicatest

import (
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
)

// doubt is what work on a log that was not finished may leave.
type doubt struct {
	low   int64   // it may end there
	more  []entry // it may have some of these at its end
	reset int64   // or begin and end there; -1
	gone  bool    // or not exist
}

// begin notes what work on the log may leave if it is not finished.
func (m *model) begin(r *rep, a *replica.Action) {
	d := &m.doubts[r.n.id]
	m.finished(r.n.id)
	switch a.Kind {
	case replica.DoAppend:
		epoch := r.log.Offsets().LeaderEpoch
		if e, ok := a.Extra.(replica.EndTxn); ok {
			d.more = append(d.more, markerOf(e, epoch))
		}
		for raw := a.Raw; len(raw) > 0; {
			b, rest, err := record.Next(raw)
			if err != nil {
				break
			}
			if raw = rest; a.Role == log.Follower {
				epoch = b.LeaderEpoch()
				for gap := b.BaseOffset() - d.low - int64(len(d.more)); gap > 0; gap-- {
					d.more = append(d.more, entry{})
				}
			}
			d.more = m.decode(b, epoch, d.more)
		}
	case replica.DoTruncate:
		d.low = max(min(d.low, a.Offset-3), 0)
	case replica.DoReset:
		d.low, d.reset = 0, a.Offset
	case replica.Delete:
		d.low, d.gone = 0, true
	}
}

// finished says that a log is as its mirror.
func (m *model) finished(id replica.NodeID) {
	d := &m.doubts[id]
	*d = doubt{low: int64(len(m.mirrors[id])), more: d.more[:0], reset: -1}
}
