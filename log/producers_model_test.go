package log

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
)

// scanCommitted is what a read-committed reader must see, by a scan of the batches alone.
func scanCommitted(t *testing.T, b *bed, stable int64) (want []int64) {
	o := b.Offsets()
	type span struct{ id, first, marker int64 }
	var aborted []span
	var batches []record.Batch
	open := map[int64]int64{}
	dec := record.NewDecoder(record.Limits{})
	for _, seg := range *b.list.Load() {
		for batch, err := range seg.Batches(0) {
			require.NoError(t, err)
			id, _, _ := batch.Producer()
			first, isOpen := open[id]
			switch {
			case !batch.Transactional():
			case !batch.Control() && !isOpen:
				open[id] = batch.BaseOffset()
			case batch.Control() && isOpen:
				delete(open, id)
				for r, err := range batch.Records(dec) {
					require.NoError(t, err)
					if m, err := record.ParseMarker(r); err == nil && m.Type == record.Abort {
						aborted = append(aborted, span{id, first, r.Offset})
					}
				}
			}
			copied, err := record.View(bytes.Clone(batch.Bytes()))
			require.NoError(t, err)
			batches = append(batches, copied)
		}
	}
	for _, batch := range batches {
		id, _, _ := batch.Producer()
		gone := batch.Control()
		for _, a := range aborted {
			gone = gone || batch.Transactional() && id == a.id && batch.BaseOffset() >= a.first && batch.BaseOffset() < a.marker
		}
		for offset := batch.BaseOffset(); !gone && offset <= batch.LastOffset() && batch.LastOffset() < stable; offset++ {
			if offset >= o.LogStart {
				want = append(want, offset)
			}
		}
	}
	return want
}

// TestRandomProducersAgreeWithAScanOfTheLog does random things to a log and compares state, indexes and what read-committed
// readers see with a scan of its batches, after each.
func TestRandomProducersAgreeWithAScanOfTheLog(t *testing.T) {
	steps := 150
	if testing.Short() {
		steps = 60
	}
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			b := newBed(t, Config{SegmentBytes: 900, Durability: Buffered})
			next := func(id int64) record.Producer {
				p := record.Producer{ID: id}
				if e, ok := b.producers.state.Producer(id); ok {
					p.Epoch, p.BaseSequence = e.Epoch, record.IncrementSequence(e.LastSequence, 1)
				}
				return p
			}
			inOpen := func(id int64) bool {
				e, ok := b.producers.state.Producer(id)
				return ok && e.TxnFirstOffset >= 0
			}
			for step := range steps {
				id := 1 + r.Int64N(4)
				what := r.IntN(20)
				switch {
				case what < 7:
					p := next(id)
					p.Transactional = inOpen(id) || r.IntN(2) == 0
					if r.IntN(8) == 0 && !inOpen(id) {
						p.Epoch, p.BaseSequence = p.Epoch+1, 0
					}
					res := b.mustSend(p, 1+r.IntN(3))
					if again, err := b.send(p, int(res.Last-res.Base)+1); r.IntN(2) == 0 {
						require.NoError(t, err)
						require.True(t, again.Duplicate)
					}
				case what < 12:
					b.mustEnd(next(id), r.IntN(2) == 0, int32(step))
				case what == 12:
					b.add("plain")
				case what == 13:
					require.NoError(t, b.Roll(ctx))
				case what == 14:
					o := b.Offsets()
					b.truncate(o.LogEnd - min(o.LogEnd-o.LogStart, r.Int64N(12)))
				case what == 15 && r.IntN(3) == 0:
					o := b.Offsets()
					require.NoError(t, b.DeleteRecords(ctx, o.LogStart+r.Int64N(1+min(5, o.HighWatermark-o.LogStart))))
				case what == 16:
					require.NoError(t, b.Sync(ctx))
				case what >= 17:
					require.NoError(t, b.dir.Close())
					if r.IntN(3) == 0 {
						require.NoError(t, producerstate.Remove(b.fs, b.name, b.snapshots()))
					}
					if r.IntN(3) == 0 {
						require.NoError(t, b.fs.Remove(".kafka_cleanshutdown"))
					}
					if r.IntN(6) == 0 {
						_ = b.fs.Remove("recovery-point-offset-checkpoint")
					}
					b.open()
				}
				require.NoError(t, checkProducers(b.Log), "step %d: %d", step, what)
				want := scanCommitted(t, b, b.Offsets().LastStable)
				require.Equal(t, want, b.readAll(b.Offsets().LogStart, WithIsolation(ReadCommitted)), "step %d: %d", step, what)
				reader, err := OpenReader("t-0", ReaderOptions{FS: b.fs})
				require.NoError(t, err)
				if stable := reader.Offsets().LastStable; b.Offsets().LogStart > b.bases()[0] {
					want = scanCommitted(t, b, stable)
				} else {
					require.Equal(t, b.Offsets().LastStable, stable)
				}
				got, err := offsetsOf(reader.Records(ctx, reader.Offsets().LogStart, WithIsolation(ReadCommitted)))
				require.NoError(t, err)
				require.Equal(t, want, got, "reader, step %d: %d", step, what)
				require.NoError(t, reader.Close())
			}
		})
	}
}
