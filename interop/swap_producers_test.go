package interop

import (
	"cmp"
	"math"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/record"
)

// nobodys is the producer of plain batches.
var nobodys = record.Producer{ID: -1, Epoch: -1, BaseSequence: -1}

// learnProducers asks an owner what it knows, which the model must allow, and takes it over.
func (s *swap) learnProducers(w owner) {
	all, err := w.producers()
	require.NoError(s.t, err)
	require.NoError(s.t, s.m.allows(all), "%s after %s, start %d", w.name(), s.last, s.m.start)
	s.known = map[int64]golden.ProducerFacts{}
	for _, f := range all {
		if f.ProducerID >= firstOwn {
			s.known[f.ProducerID] = f
		}
	}
}

// took follows the model's last turn, if the last batch was one.
func (s *swap) took() {
	if n := len(s.m.turns); n > 0 && s.m.turns[n-1].last == s.m.end-1 {
		t := s.m.turns[n-1]
		s.known[t.p.ID] = after(s.knows(t.p.ID), t)
	}
}

func (s *swap) knows(id int64) golden.ProducerFacts {
	if f, ok := s.known[id]; ok {
		return f
	}
	return nobody(id)
}

// sameProducers compares what an owner knows at the end of its turn with what it must.
func (s *swap) sameProducers(w owner) {
	all, err := w.producers()
	require.NoError(s.t, err)
	all = slices.DeleteFunc(all, func(f golden.ProducerFacts) bool { return f.ProducerID < firstOwn })
	require.Len(s.t, all, len(s.known))
	for _, f := range all {
		require.True(s.t, same(s.knows(f.ProducerID), f), "%s knows %+v, should know %+v", w.name(), f, s.knows(f.ProducerID))
	}
}

// newest is the largest epoch that a producer had: below it nobody goes on, or Kafka remembers batches across a replay.
func (s *swap) newest(id int64) (epoch int16) {
	for _, t := range s.m.turns {
		if t.p.ID == id {
			epoch = max(epoch, t.p.Epoch)
		}
	}
	return epoch
}

// someProducer is who writes the next batch, with the sequence that is due.
func (s *swap) someProducer() record.Producer {
	f := s.knows(firstOwn + s.r.Int64N(5))
	p := record.Producer{ID: f.ProducerID, Epoch: f.Epoch, BaseSequence: record.IncrementSequence(f.LastSequence, 1), Transactional: f.TxnFirstOffset >= 0}
	if f.TxnFirstOffset < 0 {
		p.Transactional = s.r.IntN(3) > 0
	}
	switch {
	case f.Epoch < 0:
		p.Epoch, p.BaseSequence = s.newest(p.ID), []int32{0, 0, math.MaxInt32 - 3}[s.r.IntN(3)]
	case s.r.IntN(8) == 0 && f.TxnFirstOffset < 0:
		p.Epoch, p.BaseSequence = p.Epoch+1, 0
	}
	return p
}

// someEnd is the end of an open transaction, and at times of none.
func (s *swap) someEnd() (m turn, version int) {
	f := s.knows(firstOwn + s.r.Int64N(5))
	for _, id := range []int64{0, 1, 2, 3, 4} {
		if known := s.knows(firstOwn + id); known.TxnFirstOffset >= 0 && s.r.IntN(2) == 0 {
			f = known
		}
	}
	m = turn{p: record.Producer{ID: f.ProducerID, Epoch: max(f.Epoch, s.newest(f.ProducerID))}, marker: true, commit: s.r.IntN(2) == 0, coordinator: max(0, f.CoordinatorEpoch)}
	if s.r.IntN(6) == 0 {
		m.coordinator++
	}
	if version = s.r.IntN(3); version == 2 {
		m.p.Epoch++
	}
	return m, version
}

// repeat sends the last batch of a producer once more: every owner must know it, also from a snapshot of another one.
func (s *swap) repeat(w owner) {
	for _, t := range slices.Backward(s.m.turns) {
		f := s.knows(t.p.ID)
		if t.marker || f.Epoch != t.p.Epoch || f.LastSequence < 0 || f.LastSequence != record.IncrementSequence(t.p.BaseSequence, int32(t.last-t.base)) {
			continue
		}
		b := record.NewBuilder(record.BuilderOptions{Producer: &t.p})
		for range t.last - t.base + 1 {
			require.NoError(s.t, b.Add(record.Record{Timestamp: max(1, t.timestamp), Key: []byte("again"), Value: []byte("again")}))
		}
		batch, err := b.Finish()
		require.NoError(s.t, err)
		if o, ok := w.(*ours); ok {
			o.handles = false
			defer func() { o.handles = true }()
		}
		base, err := w.produce(batch, s.epoch)
		s.note("repeat %+v of %d to %d: %d", t.p, t.base, t.last, base)
		require.NoError(s.t, err)
		require.Equal(s.t, t.base, base, "a repeated batch has the offset of the first")
		return
	}
}

// learnTimes notes the timestamps of markers.
func (s *swap) learnTimes(b record.Batch) {
	if i, ok := slices.BinarySearchFunc(s.m.turns, b.BaseOffset(), func(t turn, offset int64) int { return cmp.Compare(t.base, offset) }); ok && b.Control() {
		s.m.turns[i].timestamp = b.MaxTimestamp()
	}
}
