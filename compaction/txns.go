package compaction

import (
	"cmp"
	"slices"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// tracker follows the transactions of a walk through the batches, which must be in order, and says what of them has no use
// any more.
//
//	data of an aborted transaction     none, ever
//	ABORT                              while data of its transaction is there, if only as an empty batch
//	COMMIT                             likewise
type tracker struct {
	waiting []segment.AbortedTxn // by FirstOffset, of those the walk has not reached
	aborted map[int64]*abortedTxn
	open    map[int64]struct{} // producers of whose transaction data was seen that is not aborted
	// kept takes the aborted transactions of which both data and marker are still there, in the order of their markers.
	kept func(segment.AbortedTxn)
}

type abortedTxn struct {
	segment.AbortedTxn
	seen bool // data of it
}

func newTracker(kept func(segment.AbortedTxn)) *tracker {
	return &tracker{aborted: map[int64]*abortedTxn{}, open: map[int64]struct{}{}, kept: kept}
}

// add tells of aborted transactions that the walk is about to reach.
func (t *tracker) add(txns []segment.AbortedTxn) {
	if len(txns) == 0 {
		return
	}
	t.waiting = append(t.waiting, txns...)
	slices.SortStableFunc(t.waiting, func(a, b segment.AbortedTxn) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
}

func (t *tracker) reach(last int64) {
	n := 0
	for ; n < len(t.waiting) && t.waiting[n].FirstOffset <= last; n++ {
		txn := t.waiting[n]
		if t.aborted[txn.ProducerID] == nil {
			t.aborted[txn.ProducerID] = &abortedTxn{AbortedTxn: txn}
		}
	}
	t.waiting = t.waiting[n:]
}

// take says whether the batch can be dropped as far as its transaction is concerned. d reads the record of a marker. The
// error is that of a control record that does not parse.
func (t *tracker) take(b record.Batch, d *record.Decoder) (discardable bool, err error) {
	if len(t.waiting) > 0 {
		t.reach(b.LastOffset())
	}
	if b.Control() {
		return t.marker(b, d)
	}
	if !b.Transactional() {
		return false, nil
	}
	id, _, _ := b.Producer()
	if txn := t.aborted[id]; txn != nil {
		txn.seen = true
		return true, nil
	}
	t.open[id] = struct{}{}
	return false, nil
}

func (t *tracker) marker(b record.Batch, d *record.Decoder) (discardable bool, err error) {
	var s record.Steps
	if err = s.Begin(b, d, 0); err != nil {
		return false, err
	}
	if !s.Next() {
		return s.Err() == nil, s.Err()
	}
	kind, err := record.ParseControl(s.Record().Key)
	if err != nil {
		return false, err
	}
	id, _, _ := b.Producer()
	switch kind {
	case record.Abort:
		txn := t.aborted[id]
		delete(t.aborted, id)
		if txn == nil || !txn.seen {
			return true, nil
		}
		t.kept(txn.AbortedTxn)
	case record.Commit:
		_, open := t.open[id]
		delete(t.open, id)
		return !open, nil
	}
	return false, nil
}

// fates finds the aborted transactions of ranges of a log in its segments' transaction indexes: that of a transaction is in
// the segment of its marker, which may come later than all of its data.
type fates struct {
	segs []*segment.Segment
	none []bool // the segment's index has no entry
}

func newFates(segs []*segment.Segment) *fates {
	return &fates{segs: segs, none: make([]bool, len(segs))}
}

// of are the aborted transactions with offsets in [from, upTo); segment i is the first that can tell.
func (f *fates) of(i int, from, upTo int64) (all []segment.AbortedTxn, err error) {
	for ; i < len(f.segs); i++ {
		if f.none[i] {
			continue
		}
		found, complete, err := f.segs[i].Aborted(from, upTo)
		if err != nil {
			return nil, err
		}
		if all = append(all, found...); complete {
			break
		}
		f.none[i] = len(found) == 0 && f.empty(i)
	}
	return all, nil
}

// beginning is of, without those that began below from: a walk that has come from there knows them.
func (f *fates) beginning(i int, from, upTo int64) ([]segment.AbortedTxn, error) {
	all, err := f.of(i, from, upTo)
	return slices.DeleteFunc(all, func(t segment.AbortedTxn) bool { return t.FirstOffset < from }), err
}

// empty says whether a segment that is not written any more has no aborted transaction at all.
func (f *fates) empty(i int) bool {
	if i+1 == len(f.segs) {
		return false
	}
	all, _, err := f.segs[i].Aborted(0, 1<<63-1)
	return err == nil && len(all) == 0
}
