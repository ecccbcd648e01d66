package replicatest

import (
	"encoding/binary"
	"hash/crc32"
	"slices"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// aborted are the aborted transactions, as a full scan of what is committed finds them.
func (m *model) aborted() (list []log.AbortedTxn) {
	open := map[int64]int64{}
	for o, e := range m.committed {
		switch e.kind {
		case data:
			if r := m.s.book[e.id]; r.txn != nil {
				if _, ok := open[r.producer]; !ok {
					open[r.producer] = int64(o)
				}
			}
		case abortMarker, commitMarker:
			if first, ok := open[int64(e.id)]; ok && e.kind == abortMarker {
				list = append(list, log.AbortedTxn{ProducerID: int64(e.id), FirstOffset: first, LastOffset: int64(o)})
			}
			delete(open, int64(e.id))
		}
	}
	return list
}

// known is of a producer what every replica must know alike.
type known struct {
	id               int64
	epoch            int16
	sequence         int32
	last, txn        int64
	coordinatorEpoch int32
}

// compareTxns checks that all replicas know the same transactions as aborted, and the same of every producer. What a log that
// begins later, or was cleaned, knows of those before depends on its history.
func (p *part) compareTxns() {
	m, s := &p.model, p.s
	if p.compacted {
		return
	}
	start := int64(0)
	for _, id := range p.state.Replicas {
		start = max(start, p.rep(id).log.Offsets().LogStart)
	}
	begun := map[int64]bool{} // ends of those that began below
	want := slices.DeleteFunc(m.aborted(), func(t log.AbortedTxn) bool {
		begun[t.LastOffset] = t.FirstOffset < start
		return t.FirstOffset < start
	})
	s.counts.add("aborted transactions compared", int64(len(want)))
	var of []known
	for _, id := range p.state.Replicas {
		r := p.rep(id)
		list, err := r.log.AbortedTxns()
		if err != nil {
			p.fail("node %d cannot list its aborted transactions: %v", id, err)
			return
		}
		list = slices.DeleteFunc(slices.Clone(list), func(t log.AbortedTxn) bool { return t.FirstOffset < start || begun[t.LastOffset] })
		for i := range list {
			list[i].LastStable = 0
		}
		if m.stamp == 0 && !slices.Equal(list, want) {
			p.fail("node %d has %v as aborted, committed is %v", id, list, want)
			return
		}
		if start > 0 {
			continue
		}
		var all []known
		for _, i := range r.log.Producers() {
			all = append(all, known{i.ID, i.Epoch, i.LastSequence, i.LastOffset, i.TxnStart, i.CoordinatorEpoch})
		}
		slices.SortFunc(all, func(a, b known) int { return int(a.id - b.id) })
		if of == nil {
			of = all
			s.counts.add("producers compared", int64(len(all)))
		} else if !slices.Equal(of, all) {
			p.fail("node %d knows of producers %v, node %d %v", id, all, p.state.Replicas[0], of)
			return
		}
	}
}

// withoutProducers takes the producers out of batches, for a mutant.
func withoutProducers(raw []byte) {
	for len(raw) > 0 {
		b, rest, err := record.Next(raw)
		if err != nil {
			return
		}
		batch := raw[:len(raw)-len(rest)]
		if raw = rest; b.Control() || b.Transactional() {
			continue
		}
		for i := 43; i < 57; i++ {
			batch[i] = 0xff
		}
		binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)))
	}
}
