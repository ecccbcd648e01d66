package log

import (
	"errors"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/segment"
)

// abortScan finds the aborted transactions of a segment in its batches, and goes on when there are more.
type abortScan struct {
	cuts  uint64
	state *producerstate.State // nil: not begun
	next  int64                // offset to go on from
	list  []segment.AbortedTxn
}

// run reads the last of the segments, from where it stopped. The first time it begins at the newest producer snapshot below.
// Batches that cannot be read say nothing here: reading them will.
func (a *abortScan) run(v *view, segs segments) error {
	seg := segs.active()
	if a.state == nil {
		a.state = producerstate.New(producerstate.Config{ExpireAfter: -1}, 0)
		res, err := a.state.Reload(producerstate.Reload{FS: v.fs, Folder: v.name, LogStart: segs[0].Base(), End: seg.Base(), ReadOnly: true})
		if err != nil {
			return err
		}
		a.next = res.From
	}
	for i := max(0, segs.floor(a.next)); i < len(segs); i++ {
		if err := a.segment(segs[i], seg.Base()); err != nil && (segs[i] == seg || !passing(err)) {
			return segs.explain(err)
		}
		if i+1 < len(segs) {
			a.next = max(a.next, segs[i+1].Base())
		}
	}
	return nil
}

func (a *abortScan) segment(seg *segment.Segment, from int64) error {
	batches := seg.Batches(0)
	if a.next > seg.Base() {
		batches = seg.BatchesFrom(a.next)
	}
	for b, err := range batches {
		if errors.Is(err, segment.ErrNotFound) || errors.Is(err, segment.ErrChanged) || errors.Is(err, segment.ErrCorrupt) {
			return nil
		}
		if err != nil {
			return err
		}
		a.list = appendAborted(a.list, a.state.Replay(b), from)
		a.next = b.NextOffset()
		a.state.OnHighWatermark(a.next)
		if len(a.list) > mostAborted {
			return errManyAborted
		}
	}
	return nil
}
