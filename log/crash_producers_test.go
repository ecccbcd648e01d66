package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
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

// end writes the marker of a transaction. The index entry of an abort must be written while nobody can see the marker yet.
func (w *world) end(id int64, commit bool) error {
	value := string([]byte{0, 0, 0, 0, 0, 3})
	w.e.line = append(w.e.line, wrote{base: w.e.end(), last: w.e.end(), epoch: w.epoch, time: crashTime, value: value})
	call := fmt.Sprintf("end of the transaction of producer %d, commit %v", id, commit)
	w.note(call)
	var early error
	_, remove := w.fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpWrite}, Name: "*.txnindex", Times: vfstest.Always, Hook: func(vfstest.Op) error {
		if o := w.log.Offsets(); o.LogEnd == w.e.end() || o.LastStable == w.e.end() {
			early = fmt.Errorf("%s: the marks moved before the index was written: %+v", call, o)
		}
		return nil
	}})
	defer remove()
	if _, err := w.log.EndTxn(context.Background(), w.next(id), commit, EndTxnOptions{CoordinatorEpoch: 3}); err != nil {
		return err
	}
	return errors.Join(early, w.settle(call))
}

// checkProducers compares what an open log knows of producers and transactions, and what it shows to read-committed readers,
// with a scan of all its batches.
func checkProducers(l *Log) error {
	puts, err := putsOf(l)
	if err != nil {
		return err
	}
	o := l.Offsets()
	if _, err := compareProducers(l, puts, replication{highest: o.HighWatermark}); err != nil {
		return err
	}
	got, err := offsetsOf(l.Records(context.Background(), o.LogStart, WithIsolation(ReadCommitted)))
	if err != nil {
		return err
	}
	if want := committed(puts, o.LogStart, o.LastStable); !slices.Equal(want, got) {
		return fmt.Errorf("read-committed readers see %v, a scan says %v", got, want)
	}
	return nil
}

// checkSnapshots looks at a disk before it is opened: no snapshot is damaged, and where the recovery point has passed a
// roll the snapshot of that roll is there, so that a recovery need not read what lies below. Records must have been
// appended to the log by nobody who knows no snapshots.
func checkSnapshots(disk vfs.FS) error {
	points, err := checkpoint.ReadOffsets(disk, checkpoint.RecoveryPoints)
	if err != nil {
		return nil // the open will say so, or read it all
	}
	bases, err := segment.List(disk, crashTP.String())
	if err != nil || len(bases) == 0 {
		return nil
	}
	starts, err := checkpoint.ReadOffsets(disk, checkpoint.LogStarts)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	tp := checkpoint.Partition(crashTP)
	rp := points[tp]
	for i := len(bases) - 1; i > 0; i-- {
		if bases[i] > rp {
			continue
		}
		if bases[i] <= starts[tp] {
			break // an open removes those
		}
		_, err := producerstate.ReadSnapshot(disk, crashTP.String()+"/"+producerstate.FileName(bases[i]))
		if err != nil {
			return fmt.Errorf("the recovery point is %d, and the snapshot below it: %w", rp, err)
		}
		break
	}
	return nil
}
