package log

import (
	"errors"
	"path"
	"slices"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/segment"
)

// orphans are the producers of open transactions that began below everything the log holds: retention or a raised start took their
// beginning away, and all snapshots from before. Only a later snapshot tells of them. As long as there is one, read-committed
// readers see nothing: the last stable offset is the log start. Behind a stop that was not clean an open goes by the batches, and so
// do readers: there are none then.
type orphans map[int64]bool

// findOrphans looks into the newest snapshot that can be read, and for what was ended behind it. The caller holds mu.
func (r *Reader) findOrphans(segs segments) error {
	offsets, err := producerstate.List(r.fs, r.name)
	if err != nil {
		return err
	}
	for _, at := range slices.Backward(offsets) {
		if at > r.known.offset || at <= segs[0].Base() {
			continue
		}
		entries, err := producerstate.ReadSnapshot(r.fs, path.Join(r.name, producerstate.FileName(at)))
		if err != nil {
			continue // an older one may do
		}
		r.orphans = orphans{}
		for _, e := range entries {
			if e.TxnFirstOffset >= 0 && e.TxnFirstOffset < segs[0].Base() {
				r.orphans[e.ProducerID] = true
			}
		}
		return r.endOrphans(segs, at)
	}
	return nil
}

// endOrphans takes those out that a marker at or above an offset ends.
func (r *Reader) endOrphans(segs segments, from int64) error {
	for i := max(0, segs.floor(from)); i < len(segs) && len(r.orphans) > 0; i++ {
		batches := segs[i].Batches(0)
		if from > segs[i].Base() {
			batches = segs[i].BatchesFrom(from)
		}
		for b, err := range batches {
			if errors.Is(err, segment.ErrNotFound) || err != nil && passing(err) {
				break
			}
			if err != nil {
				return segs.explain(err)
			}
			if b.Control() {
				id, _, _ := b.Producer()
				delete(r.orphans, id)
			}
		}
	}
	return nil
}
