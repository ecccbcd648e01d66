package log

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// next is the epoch and sequence with which a producer goes on.
func (w *world) next(id int64) record.Producer {
	p := record.Producer{ID: id}
	if e, ok := w.log.producers.state.Producer(id); ok {
		p.Epoch, p.BaseSequence = e.Epoch, record.IncrementSequence(e.LastSequence, 1)
	}
	return p
}

// produce appends one batch of a producer, and the same again, which must change nothing.
func (w *world) produce(id int64, transactional bool, d Durability) error {
	recs := w.records(1)
	call := fmt.Sprintf("append of producer %d, transactional %v, %v", id, transactional, d)
	w.note(call)
	p := w.next(id)
	p.Transactional = transactional
	raw := produced(p, recs...)
	first, err := w.log.AppendBatches(context.Background(), bytes.Clone(raw), AppendOptions{Durability: d})
	if err != nil {
		return err
	}
	again, err := w.log.AppendBatches(context.Background(), raw, AppendOptions{Durability: d})
	if err != nil || !again.Duplicate || again.Base != first.Base || again.Last != first.Last {
		return fmt.Errorf("%s: the repetition answered %+v, %v; the first time %+v", call, again, err, first)
	}
	return w.settle(call)
}

func produced(p record.Producer, recs ...record.Record) []byte {
	b := record.NewBuilder(record.BuilderOptions{Producer: &p})
	for _, r := range recs {
		if err := b.Add(r); err != nil {
			panic(err)
		}
	}
	batch, err := b.Finish()
	if err != nil {
		panic(err)
	}
	return bytes.Clone(batch.Bytes())
}

// end writes the marker of a transaction.
func (w *world) end(id int64, commit bool) error {
	value := string([]byte{0, 0, 0, 0, 0, 3})
	w.e.line = append(w.e.line, wrote{base: w.e.end(), last: w.e.end(), epoch: w.epoch, time: crashTime, value: value})
	call := fmt.Sprintf("end of the transaction of producer %d, commit %v", id, commit)
	w.note(call)
	if _, err := w.log.EndTxn(context.Background(), w.next(id), commit, 3, 0); err != nil {
		return err
	}
	return w.settle(call)
}

// checkProducers compares the producer state, the last stable offset and the indexes of aborted transactions of an open log
// with a scan of all its batches.
func checkProducers(l *Log) error {
	o := l.Offsets()
	segs := *l.list.Load()
	scan := producerstate.New(producerstate.Config{ExpireAfter: -1}, segs.first().Base())
	above := producerstate.New(producerstate.Config{ExpireAfter: -1}, o.LogStart)
	deleted := o.LogStart > segs.first().Base() // an open may forget what all of lies below the start, as Kafka does
	var want []segment.AbortedTxn
	for _, seg := range segs {
		for b, err := range seg.Batches(0) {
			if err != nil {
				return err
			}
			want = appendAborted(want, scan.Replay(b), 0)
			above.Replay(b)
		}
	}
	scan.SetEnd(o.LogEnd)
	other := above.Unstable().LastStable(o.HighWatermark, o.LogStart)
	if stable := scan.Unstable().LastStable(o.HighWatermark, o.LogStart); stable != o.LastStable && (!deleted || o.LastStable != other) {
		return fmt.Errorf("the last stable offset is %d, a scan says %d (%+v; open %+v, in the log %+v)", o.LastStable, stable, o, scan.Open(), l.producers.state.Open())
	}
	var got []segment.AbortedTxn
	for _, seg := range segs {
		found, _, err := seg.Aborted(0, math.MaxInt64)
		if err != nil {
			return err
		}
		got = append(got, found...)
	}
	if err := sameAborted(got, want, o.LogStart, deleted); err != nil {
		return err
	}
	return sameProducers(l.producers.state, scan, o.LogStart, segs.first().Base())
}

// sameAborted: what ends below the log start nobody needs, and of what begins there an open may have forgotten the beginning.
func sameAborted(got, want []segment.AbortedTxn, logStart int64, deleted bool) error {
	below := func(a segment.AbortedTxn) bool { return a.LastOffset < logStart }
	got, want = slices.DeleteFunc(got, below), slices.DeleteFunc(want, below)
	byMarker := map[int64]segment.AbortedTxn{}
	for _, a := range got {
		byMarker[a.LastOffset] = a
	}
	for i, w := range want {
		g, ok := byMarker[w.LastOffset]
		if deleted && w.FirstOffset < logStart && (!ok || g.FirstOffset >= w.FirstOffset) {
			delete(byMarker, w.LastOffset)
			continue
		}
		if deleted {
			g.LastStable = w.LastStable
		}
		if !ok || g != w {
			return fmt.Errorf("aborted transactions %+v, a scan finds %+v; see the one at %d", got, want, i)
		}
		delete(byMarker, w.LastOffset)
	}
	if len(byMarker) > 0 {
		return fmt.Errorf("aborted transactions %+v, a scan finds %+v", got, want)
	}
	return nil
}

// sameProducers: those with records at or above the log start must be known as the scan knows them. What is known of
// deleted records may be more, or less.
func sameProducers(state, scan *producerstate.State, logStart, base int64) error {
	if logStart <= base && !slices.Equal(state.Producers(), scan.Producers()) {
		return fmt.Errorf("producers %+v, a scan finds %+v", state.Producers(), scan.Producers())
	}
	for _, want := range scan.Producers() {
		got, ok := state.Producer(want.ProducerID)
		if want.LastOffset < logStart && want.TxnFirstOffset < logStart && (!ok || got.LastOffset < logStart) {
			continue
		}
		if want.TxnFirstOffset < logStart {
			got.TxnFirstOffset = want.TxnFirstOffset
		}
		if got.CoordinatorEpoch != want.CoordinatorEpoch && logStart > base {
			got.CoordinatorEpoch = want.CoordinatorEpoch
		}
		if got != want {
			return fmt.Errorf("producer %+v, a scan finds %+v", got, want)
		}
	}
	return nil
}
