package interop

import (
	"fmt"
	"math"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/record"
)

// turn is a batch as far as it says something of its producer.
type turn struct {
	p           record.Producer
	base, last  int64
	timestamp   int64 // largest; of a marker once the folder told, before it is 0: its writer's clock
	marker      bool
	commit      bool
	coordinator int32
}

// factsOfTurns replays the turns of one producer. CachedBatches is not counted.
func factsOfTurns(id int64, turns []turn) golden.ProducerFacts {
	f := nobody(id)
	for _, t := range turns {
		f = after(f, t)
	}
	return f
}

func nobody(id int64) golden.ProducerFacts {
	return golden.ProducerFacts{ProducerID: id, Epoch: -1, LastSequence: -1, LastOffset: -1, LastTimestamp: -1, CoordinatorEpoch: -1, TxnFirstOffset: -1, CachedBatches: -1}
}

// after is what is known of a producer after one more turn of it.
func after(f golden.ProducerFacts, t turn) golden.ProducerFacts {
	f.CachedBatches = -1
	if f.Epoch != t.p.Epoch {
		f.Epoch, f.LastSequence, f.LastOffset = t.p.Epoch, -1, -1
	}
	f.LastTimestamp = t.timestamp
	if t.marker {
		f.CoordinatorEpoch, f.TxnFirstOffset = t.coordinator, -1
		return f
	}
	f.LastSequence = record.IncrementSequence(t.p.BaseSequence, int32(t.last-t.base))
	f.LastOffset = t.last
	if t.p.Transactional && f.TxnFirstOffset < 0 {
		f.TxnFirstOffset = t.base
	}
	return f
}

// ended is a transaction that was ended, and how.
type ended struct {
	golden.AbortedTransaction
	commit bool
}

// transactions lists the ended transactions in order of their markers, and the first offset of the oldest open one.
func (m *model) transactions() (open int64, all []ended) {
	first := map[int64]int64{}
	oldest := func() int64 {
		all := int64(math.MaxInt64)
		for _, offset := range first {
			all = min(all, offset)
		}
		return all
	}
	for _, t := range m.turns {
		begun, ok := first[t.p.ID]
		switch {
		case !t.marker && t.p.Transactional && !ok:
			first[t.p.ID] = t.base
		case t.marker && ok:
			delete(first, t.p.ID)
			all = append(all, ended{commit: t.commit, AbortedTransaction: golden.AbortedTransaction{ProducerID: t.p.ID,
				FirstOffset: begun, LastOffset: t.last, LastStableOffset: min(oldest(), t.last+1)}})
		}
	}
	return oldest(), all
}

// aborted are the aborted transactions in order of their markers.
func (m *model) aborted() (out []golden.AbortedTransaction) {
	_, all := m.transactions()
	for _, x := range all {
		if !x.commit {
			out = append(out, x.AbortedTransaction)
		}
	}
	return out
}

// lastStable is the last stable offset of the log when all of it is replicated.
func (m *model) lastStable() int64 {
	open, _ := m.transactions()
	return max(m.start, min(open, m.end))
}

// committed are the records that read-committed readers see.
func (m *model) committed() (out []Record) {
	gone := m.abortedOffsets()
	end := m.lastStable()
	for _, r := range m.from(m.start) {
		if r.Offset < end && !gone[r.Offset] {
			out = append(out, r)
		}
	}
	return out
}

// reopens is an offset from which on the log can be cut without opening a transaction again that began below the start: Kafka
// forgets such a one, or does not, by where it reads from.
func (m *model) reopens() (lowest int64) {
	_, all := m.transactions()
	for _, x := range all {
		if x.FirstOffset < m.start {
			lowest = max(lowest, x.LastOffset+1)
		}
	}
	return lowest
}

// firstOwn is the first producer id of this test; a broker's own producers have lower ones.
const firstOwn = 1 << 40

// allows says whether an owner may know that of producers. All who have a batch at or above the start must be known, and of each
// all that its batches from the start on say. Batches below the start count or do not: a log that is opened after a kill, or
// cut, is read from somewhere.
func (m *model) allows(known []golden.ProducerFacts) error {
	of := map[int64][]turn{}
	for _, t := range m.turns {
		of[t.p.ID] = append(of[t.p.ID], t)
	}
	for _, f := range known {
		if f.ProducerID < firstOwn {
			continue
		}
		turns := of[f.ProducerID]
		delete(of, f.ProducerID)
		ok := false
		for i := 0; i < len(turns) && !ok && (i == 0 || turns[i-1].last < m.start); i++ {
			ok = same(factsOfTurns(f.ProducerID, turns[i:]), f)
		}
		if !ok {
			return fmt.Errorf("it knows %+v, should know %+v", f, factsOfTurns(f.ProducerID, turns))
		}
	}
	for id, turns := range of {
		if turns[len(turns)-1].last >= m.start {
			return fmt.Errorf("it does not know %+v", factsOfTurns(id, turns))
		}
	}
	return nil
}

// same compares but for what one of both does not say: offsets and counts of -1, timestamps of 0.
func same(want, got golden.ProducerFacts) bool {
	want.CachedBatches = got.CachedBatches
	if got.LastOffset < 0 {
		want.LastOffset = got.LastOffset
	}
	if want.LastTimestamp == 0 {
		want.LastTimestamp = got.LastTimestamp
	}
	return want == got
}
