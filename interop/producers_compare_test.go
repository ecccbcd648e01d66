package interop

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// refusal is the name of Kafka's exception for an error of ours.
func refusal(err error) string {
	var coordinator *producerstate.CoordinatorError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &coordinator):
		return "TransactionCoordinatorFencedException"
	case errors.Is(err, log.ErrFenced):
		return "InvalidProducerEpochException"
	case errors.Is(err, log.ErrOutOfOrder):
		return "OutOfOrderSequenceException"
	case errors.Is(err, log.ErrTxnState):
		return "InvalidTxnStateException"
	case errors.Is(err, log.ErrInvalidRecord):
		return "InvalidRecordException"
	}
	return err.Error()
}

// compareLoosely compares after an unclean start of a log whose records were deleted: ours reads more of them.
func (p *pair) compareLoosely() {
	t, o := p.t, p.ours.Offsets()
	require.Equal(t, [3]int64{p.seen.LogStartOffset, p.seen.LogEndOffset, p.seen.HighWatermark}, [3]int64{o.LogStart, o.LogEnd, o.HighWatermark})
	require.LessOrEqual(t, o.LastStable, max(p.seen.LastStableOffset, o.LogStart))
	ours := map[int64]log.ProducerInfo{}
	for _, f := range p.ours.Producers() {
		ours[f.ID] = f
		p.newest[f.ID] = max(p.newest[f.ID], f.Epoch)
	}
	for _, f := range p.seen.Producers {
		known, ok := ours[f.ProducerID]
		require.True(t, ok, "producer %d", f.ProducerID)
		require.Equal(t, [2]int64{int64(f.Epoch), f.LastTimestamp}, [2]int64{int64(known.Epoch), known.LastTimestamp}, "producer %d", f.ProducerID)
		require.GreaterOrEqual(t, known.LastOffset, f.LastOffset)
		require.GreaterOrEqual(t, known.CoordinatorEpoch, f.CoordinatorEpoch)
		require.Equal(t, f.TxnFirstOffset >= 0, known.TxnStart >= 0, "producer %d", f.ProducerID)
		require.LessOrEqual(t, known.TxnStart, f.TxnFirstOffset)
	}
}

// compare compares all that both know.
func (p *pair) compare() {
	t := p.t
	t.Helper()
	var err error
	p.seen, err = p.theirs.BriefState()
	require.NoError(t, err)
	o := p.ours.Offsets()
	if p.loose && p.deletes {
		p.compareLoosely()
		return
	}
	// Where the start lies inside the first batch of a transaction, Kafka's last stable offset may be that batch's first.
	p.seen.LastStableOffset = max(p.seen.LastStableOffset, p.seen.LogStartOffset)
	// Where it lies in a gap, Kafka's is the first of the batch behind.
	if o.LastStable == o.LogStart && p.seen.LastStableOffset > o.LastStable {
		for b, err := range p.ours.Batches(context.Background(), o.LogStart, log.WithIsolation(log.LogEnd)) {
			require.NoError(t, err)
			if b.BaseOffset() > o.LogStart && b.BaseOffset() == p.seen.LastStableOffset {
				p.seen.LastStableOffset = o.LastStable
			}
			break
		}
	}
	require.Equal(t, [4]int64{p.seen.LogStartOffset, p.seen.LogEndOffset, p.seen.HighWatermark, p.seen.LastStableOffset},
		[4]int64{o.LogStart, o.LogEnd, o.HighWatermark, o.LastStable}, "log start, log end, high watermark, last stable offset")
	known := []golden.ProducerFacts{}
	for i, f := range p.ours.Producers() {
		if p.loose && i < len(p.seen.Producers) {
			require.GreaterOrEqual(t, f.Batches, p.seen.Producers[i].CachedBatches)
			f.Batches = p.seen.Producers[i].CachedBatches
		}
		known = append(known, golden.ProducerFacts{ProducerID: f.ID, Epoch: f.Epoch, LastSequence: f.LastSequence, LastOffset: f.LastOffset,
			LastTimestamp: f.LastTimestamp, CoordinatorEpoch: f.CoordinatorEpoch, TxnFirstOffset: f.TxnStart, CachedBatches: f.Batches})
	}
	require.Equal(t, p.seen.Producers, known, "producers")
	for _, f := range known {
		p.newest[f.ProducerID] = max(p.newest[f.ProducerID], f.Epoch)
	}
	aborted := []golden.AbortedTransaction{}
	all, err := p.ours.AbortedTxns()
	require.NoError(t, err)
	for _, a := range all {
		aborted = append(aborted, golden.AbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset, LastOffset: a.LastOffset, LastStableOffset: a.LastStable})
	}
	// Of those that end below the start nobody asks, and after a kill ours may have forgotten them.
	below := func(a golden.AbortedTransaction) bool { return a.LastOffset < p.seen.LogStartOffset }
	require.Equal(t, slices.DeleteFunc(p.seen.AbortedTransactions, below), slices.DeleteFunc(aborted, below), "aborted transactions")
}

// compareCommitted compares what read-committed readers see.
func (p *pair) compareCommitted() {
	t, ctx := p.t, context.Background()
	var ours []int64
	for r, err := range p.ours.Records(ctx, p.seen.LogStartOffset, log.WithIsolation(log.ReadCommitted)) {
		require.NoError(t, err)
		ours = append(ours, r.Offset)
	}
	require.Equal(t, consume(t, p.theirs, p.seen, 64+p.r.IntN(5000)), ours, "read-committed records")
}

// consume reads Kafka's log as a consumer does: a transaction that was aborted begins where the answer says, and ends at its
// marker.
func consume(t *testing.T, l *UnifiedLog, seen State, maxBytes int) (offsets []int64) {
	t.Helper()
	for next := seen.LogStartOffset; next < seen.LastStableOffset; {
		got, err := l.ReadCommitted(next, maxBytes)
		require.NoError(t, err)
		before, from := next, next
		slices.SortFunc(got.Aborted, func(a, b AbortedFetch) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
		gone := map[int64]bool{}
		for raw := got.Raw; len(raw) > 0; {
			b, rest, err := record.Next(raw)
			if errors.Is(err, record.ErrIncomplete) {
				break
			}
			require.NoError(t, err)
			raw = rest
			if b.LastOffset() < from {
				continue
			}
			next = b.NextOffset()
			id, _, _ := b.Producer()
			for id >= 0 && len(got.Aborted) > 0 && got.Aborted[0].FirstOffset <= b.LastOffset() {
				gone[got.Aborted[0].ProducerID] = true
				got.Aborted = got.Aborted[1:]
			}
			if b.Control() {
				if endsAborted(t, b) {
					delete(gone, id)
				}
				continue
			}
			if b.Transactional() && gone[id] {
				continue
			}
			for r, err := range b.Records(nil) {
				require.NoError(t, err)
				if r.Offset >= from {
					offsets = append(offsets, r.Offset)
				}
			}
		}
		if next == before {
			break
		}
	}
	return offsets
}

func endsAborted(t *testing.T, marker record.Batch) bool {
	for r, err := range marker.Records(nil) {
		require.NoError(t, err)
		if kind, err := record.ParseControl(r.Key); err == nil && kind != record.Abort && kind != record.Commit {
			return false
		}
		m, err := record.ParseMarker(r)
		require.NoError(t, err)
		return m.Type == record.Abort
	}
	return false
}

// bases are where batches begin; a gap belongs to the batch behind it. Where the start was moved, the first batch behind it is
// none: there may be a gap that reaches below the start, and a log of ours that is cut there ends with the batch before.
func (p *pair) bases() (all []int64) {
	next := p.seen.LogStartOffset
	known := !p.deletes
	for b, err := range p.ours.Batches(context.Background(), p.seen.LogStartOffset, log.WithIsolation(log.LogEnd)) {
		require.NoError(p.t, err)
		if known && b.BaseOffset() >= p.seen.LogStartOffset {
			all = append(all, next)
		}
		next, known = b.NextOffset(), true
	}
	return all
}
