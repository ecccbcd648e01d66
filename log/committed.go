package log

import (
	"cmp"
	"slices"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// AbortedTxn is a transaction that was aborted: the batches of the producer from FirstOffset up to LastOffset, its ABORT
// marker, are not to be shown. A broker's fetch answer lists the first two fields.
type AbortedTxn = segment.AbortedTxn

// aborts is what a read-committed reader must not show, sorted by producer and first offset. It is collected for one
// range of offsets at a time; all below the last stable offset is in the indexes, because they are written before it moves.
type aborts struct {
	v    *view
	from int64
	upTo int64
	cuts uint64
	list []segment.AbortedTxn
}

// hides says whether a batch is not for read-committed readers: a marker, or data of an aborted transaction.
func (a *aborts) hides(b record.Batch) (bool, error) {
	if b.Control() || !b.Transactional() {
		return b.Control(), nil
	}
	o, cuts := a.v.loadCuts()
	if base := b.BaseOffset(); base < a.from || base >= a.upTo || cuts != a.cuts {
		segs := *a.v.list.Load()
		upTo := o.LastStable
		if i := segs.floor(base) + 1; i < len(segs) {
			upTo = min(upTo, segs[i].Base())
		}
		upTo = max(upTo, b.NextOffset())
		list, err := a.v.aborted(base, upTo)
		if err != nil {
			return false, err
		}
		a.list, a.from, a.upTo, a.cuts = list, base, upTo, cuts
	}
	return hidden(a.list, b), nil
}

// hidden says whether the batch is of one of the transactions, which are sorted by producer and first offset.
func hidden(list []segment.AbortedTxn, b record.Batch) bool {
	id, _, _ := b.Producer()
	base := b.BaseOffset()
	i, found := slices.BinarySearchFunc(list, segment.AbortedTxn{ProducerID: id, FirstOffset: base}, byProducer)
	if !found {
		i--
	}
	return i >= 0 && list[i].ProducerID == id && base <= list[i].LastOffset
}

func byProducer(a, b segment.AbortedTxn) int {
	return cmp.Or(cmp.Compare(a.ProducerID, b.ProducerID), cmp.Compare(a.FirstOffset, b.FirstOffset))
}

// aborted collects the transactions that a reader of [from, upTo) must not show. The segments may change meanwhile: then
// it is done again with those that are there now.
func (v *view) aborted(from, upTo int64) ([]segment.AbortedTxn, error) {
	for {
		list := v.list.Load()
		found, err := (*list).aborted(from, upTo)
		if err != nil && passing(err) && v.list.Load() != list {
			continue
		}
		if err != nil {
			if v.closed.Load() {
				return nil, ErrClosed
			}
			return nil, err
		}
		if v.recent != nil {
			for _, t := range v.recent() {
				if t.LastOffset >= from && t.FirstOffset < upTo {
					found = append(found, t)
				}
			}
		}
		slices.SortFunc(found, byProducer)
		return found, nil
	}
}

func (s segments) aborted(from, upTo int64) (all []segment.AbortedTxn, err error) {
	for _, seg := range s[max(0, s.floor(from)):] {
		found, complete, err := seg.Aborted(from, upTo)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
		if complete {
			break
		}
	}
	return all, nil
}
