package log

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// AbortedTxn is a transaction that was aborted: the batches of the producer from FirstOffset up to LastOffset, its ABORT
// marker, are not to be shown. A broker's fetch answer lists the first two fields.
type AbortedTxn = segment.AbortedTxn

// aborts is what a read-committed reader must not show. It is collected as the reader goes on: each entry of the indexes is
// read once, and forgotten when the reader is past it. All below the last stable offset is in the indexes, because they are
// written before it moves.
type aborts struct {
	v    *view
	list []segment.AbortedTxn // by producer and first offset; nothing of [from, upTo) is missing
	from int64
	upTo int64
	cuts uint64 // truncations; any makes it begin anew

	seg    *segment.Segment // whose index is read next, behind the first read entries; nil: not begun
	read   int64
	recent int64 // marker of the last one taken from view.recent; -1: none was
}

// hides says whether a batch is not for read-committed readers: a marker, or data of an aborted transaction. own are the
// segments that the reader is in.
func (a *aborts) hides(b record.Batch, own segments) (bool, error) {
	if b.Control() || !b.Transactional() {
		return b.Control(), nil
	}
	o, cuts := a.v.loadCuts()
	if base := b.BaseOffset(); base < a.from || b.NextOffset() > a.upTo || cuts != a.cuts {
		segs := *a.v.list.Load()
		upTo := o.LastStable
		if i := segs.floor(base) + 1; i < len(segs) {
			upTo = min(upTo, segs[i].Base())
		}
		if cuts != a.cuts {
			a.seg = nil
		}
		a.cuts = cuts
		if err := a.collect(own, base, max(upTo, b.NextOffset())); err != nil {
			a.seg = nil
			return false, err
		}
	}
	return hidden(a.list, b), nil
}

// hidden says whether the batch is of one of the transactions, which are sorted by producer and first offset.
func hidden(list []segment.AbortedTxn, b record.Batch) bool {
	id, _, _ := b.Producer()
	base := b.BaseOffset()
	i, _ := slices.BinarySearchFunc(list, segment.AbortedTxn{ProducerID: id, FirstOffset: base, LastOffset: math.MaxInt64}, byProducer)
	i-- // the last one that begins at or below
	return i >= 0 && list[i].ProducerID == id && base <= list[i].LastOffset
}

func byProducer(a, b segment.AbortedTxn) int {
	return cmp.Or(cmp.Compare(a.ProducerID, b.ProducerID), cmp.Compare(a.FirstOffset, b.FirstOffset), cmp.Compare(a.LastOffset, b.LastOffset))
}

// collect makes the list whole for [from, upTo). The segments may change meanwhile: then it is done again with those that
// are there now. own are the segments that the caller reads, which retention may have taken out of the log since.
func (a *aborts) collect(own segments, from, upTo int64) error {
	if from < a.from {
		a.seg = nil
	}
	for {
		list := a.v.list.Load()
		segs := list.behind(own, from)
		if a.seg != nil && !slices.Contains(segs, a.seg) {
			a.seg = nil // deleted, rewritten, or opened anew
		}
		if a.seg == nil {
			a.list, a.read, a.recent = a.list[:0], 0, -1
		}
		var recent []segment.AbortedTxn
		if a.v.recent != nil {
			recent = a.v.recent() // before the indexes: what is not in it any more is in one of them
		}
		a.list = slices.DeleteFunc(a.list, func(t segment.AbortedTxn) bool { return t.LastOffset < from })
		err := a.advance(segs, from, upTo)
		switch {
		case err == nil:
			a.lately(recent, from, upTo)
			slices.SortFunc(a.list, byProducer)
			a.list = slices.CompactFunc(a.list, func(x, y segment.AbortedTxn) bool { return byProducer(x, y) == 0 })
			a.from, a.upTo = from, upTo
			return nil
		case a.v.closed.Load():
			return ErrClosed
		case !passing(err) || a.v.list.Load() == list:
			return err
		}
		a.seg = nil
	}
}

// advance reads on in the indexes until no transaction that begins below upTo can be missing.
func (a *aborts) advance(segs segments, from, upTo int64) error {
	i := max(0, segs.floor(from))
	if a.seg != nil {
		i = slices.Index(segs, a.seg)
	}
	take := func(t segment.AbortedTxn) {
		if t.LastOffset >= from {
			a.list = append(a.list, t)
		}
	}
	for ; i < len(segs); i++ {
		if segs[i] != a.seg {
			below, err := segs[i].AbortedBelow(from)
			if err != nil {
				return err
			}
			a.seg, a.read = segs[i], below
		}
		n, complete, err := segs[i].AbortedFrom(a.read, upTo, take)
		a.read += n
		gone := err == nil && a.v.intact != nil && !a.v.intact(segs[i], a.read, complete)
		if gone || errors.Is(err, segment.ErrCorrupt) { // what looked right in it need not be
			a.list = slices.DeleteFunc(a.list, func(t segment.AbortedTxn) bool { return t.LastOffset >= segs[i].Base() })
			complete, err = a.v.instead(segs[:i+1], upTo, take)
		}
		if gone && err != nil && passing(err) { // its batches cannot be read any more either
			o := a.v.load()
			return &OffsetRangeError{Offset: from, LogStart: o.LogStart, LogEnd: o.LogEnd}
		}
		if err != nil || complete {
			return err
		}
	}
	return nil
}

// lately adds what the indexes may not have yet, in the order of the markers, and goes on where it stopped.
func (a *aborts) lately(all []segment.AbortedTxn, from, upTo int64) {
	for _, t := range all[firstBehind(all, max(a.recent+1, from)):] {
		a.list = append(a.list, t)
		if a.recent = t.LastOffset; t.Covers(upTo) {
			return
		}
	}
}

// firstBehind is the place of the first transaction whose marker is at or above offset.
func firstBehind(all []segment.AbortedTxn, offset int64) int {
	i, _ := slices.BinarySearchFunc(all, offset, func(t segment.AbortedTxn, offset int64) int { return cmp.Compare(t.LastOffset, offset) })
	return i
}

// aborted collects the transactions that have something in [from, upTo), by producer and first offset, for a reader of own.
func (v *view) aborted(own segments, from, upTo int64) ([]segment.AbortedTxn, error) {
	a := aborts{v: v}
	if err := a.collect(own, from, upTo); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(a.list, func(t segment.AbortedTxn) bool { return t.FirstOffset >= upTo }), nil
}

// spoiled takes the place of an index of aborted transactions that cannot be right, for as long as nobody has made it anew:
// what the batches say.
type spoiled struct {
	seg  *segment.Segment
	scan abortScan
}

// spoils are those of a partition that were found last.
type spoils struct {
	mu  sync.Mutex // a leaf, held for a look only
	all []spoiled
}

const (
	mostSpoiled = 4       // that are remembered
	mostAborted = 1 << 20 // entries of one: about 32 MiB
)

// instead is AbortedFrom for the last of the segments, from the first entry on, where its index is damaged.
func (v *view) instead(segs segments, upTo int64, take func(segment.AbortedTxn)) (complete bool, err error) {
	s := v.takeSpoiled(segs)
	err = s.scan.run(v, segs)
	for _, t := range s.scan.list {
		if take(t); t.Covers(upTo) {
			complete = true
		}
	}
	if err != nil {
		return false, err
	}
	v.spoiled.mu.Lock()
	defer v.spoiled.mu.Unlock()
	if v.spoiled.all = append(v.spoiled.all, s); len(v.spoiled.all) > mostSpoiled {
		v.spoiled.all = slices.Delete(v.spoiled.all, 0, 1)
	}
	return complete, nil
}

// takeSpoiled is what was found at the last time, or nothing yet. It is the caller's until it is put back.
func (v *view) takeSpoiled(segs segments) spoiled {
	_, cuts := v.loadCuts()
	v.spoiled.mu.Lock()
	defer v.spoiled.mu.Unlock()
	i := slices.IndexFunc(v.spoiled.all, func(s spoiled) bool { return s.seg == segs.active() && s.scan.cuts == cuts })
	if i < 0 {
		return spoiled{seg: segs.active(), scan: abortScan{cuts: cuts}}
	}
	s := v.spoiled.all[i]
	v.spoiled.all = slices.Delete(v.spoiled.all, i, i+1)
	return s
}

var errManyAborted = fmt.Errorf("%w: more than %d aborted transactions in a segment whose index of them is damaged", segment.ErrCorrupt, mostAborted)
