package interop

import (
	"fmt"
	"sort"

	"github.com/partlog/partlog/record"
)

// model is what a partition must hold.
type model struct {
	records      []Record // data records from durableStart on, by offset, without gaps
	bases        []int64  // first offsets of batches, as far as known
	start        int64    // log start offset
	durableStart int64    // a kill of Kafka may take the start back to here: its checkpoint is written once a minute
	onDisk       int64    // the start as the checkpoint has it
	end          int64
	maybe        []Record // an append nobody acknowledged: none of it, a prefix or all of it may be there
	maybeOf      record.Producer
	turns        []turn // what producers did, since the log was emptied; a cut takes the last ones away

	cleaning bool  // there may have been cleanings since the records were last compared
	clean    int64 // below, records and markers are missing that were there
	sealed   int64 // the end when the log was cleaned: nobody cuts below, for what was cleaned was replicated, as was what decided on it
}

// append adds a batch of the given producer; one of ID -1, or one whose id only its client knows, is none.
func (m *model) append(p record.Producer, rs []Record) {
	if p.ID >= 0 {
		t := turn{p: p, base: m.end, last: m.end + int64(len(rs)) - 1, timestamp: -1}
		for _, r := range rs {
			t.timestamp = max(t.timestamp, r.Timestamp)
		}
		m.turns = append(m.turns, t)
	}
	m.bases = append(m.bases, m.end)
	m.records = append(m.records, rs...)
	m.end += int64(len(rs))
}

// mark adds a marker.
func (m *model) mark(t turn) {
	t.base, t.last, t.marker = m.end, m.end, true
	m.turns = append(m.turns, t)
	m.bases = append(m.bases, m.end)
	m.end++
}

// endAfter is the end after a truncation to offset: whole batches stay.
func (m *model) endAfter(offset int64) int64 {
	if offset >= m.end {
		return m.end
	}
	i := sort.Search(len(m.bases), func(i int) bool { return m.bases[i] > offset })
	if i == 0 {
		return offset
	}
	return m.bases[i-1]
}

// truncate cuts the log; durable says that the checkpoint of the start follows at once.
func (m *model) truncate(end int64, durable bool) {
	for len(m.records) > 0 && m.records[len(m.records)-1].Offset >= end {
		m.records = m.records[:len(m.records)-1]
	}
	for len(m.bases) > 0 && m.bases[len(m.bases)-1] >= end {
		m.bases = m.bases[:len(m.bases)-1]
	}
	for len(m.turns) > 0 && m.turns[len(m.turns)-1].base >= end {
		m.turns = m.turns[:len(m.turns)-1]
	}
	m.end = min(m.end, end)
	m.start = min(m.start, m.end)
	m.durableStart = min(m.durableStart, m.end)
	if durable {
		m.onDisk = min(m.onDisk, m.end)
	}
}

// raise moves the start; durable says that a kill cannot undo it.
func (m *model) raise(start int64, durable bool) {
	m.start = max(m.start, start)
	if durable {
		m.settleStart(m.start)
	}
}

func (m *model) settleStart(start int64) {
	m.start, m.durableStart, m.onDisk = start, start, start
	for len(m.records) > 0 && m.records[0].Offset < start {
		m.records = m.records[1:]
	}
}

// settle takes in what an owner found: the end if an append was under way, the start if it may have been lost.
func (m *model) settle(start, end int64) error {
	if m.onDisk > m.end && start == m.onDisk && end == start {
		// Kafka cut below the start and was killed before the checkpoint followed: all that is left goes, by its rules.
		*m = model{start: start, durableStart: start, onDisk: start, end: end, cleaning: m.cleaning}
		return nil
	}
	if end != m.end {
		if end < m.end || end > m.end+int64(len(m.maybe)) {
			return fmt.Errorf("the log ends at %d, the model at %d with up to %d more", end, m.end, len(m.maybe))
		}
		if m.maybeOf.ID >= 0 && end < m.end+int64(len(m.maybe)) {
			return fmt.Errorf("the log ends at %d, inside a batch that begins at %d", end, m.end)
		}
		m.append(m.maybeOf, m.maybe[:end-m.end])
	}
	m.maybe = nil
	if start == m.onDisk && start > m.start {
		m.settleStart(start) // the same, but the log has grown past that start again
		return nil
	}
	if start < m.durableStart || start > m.start {
		return fmt.Errorf("the log starts at %d, the model at %d (durable %d)", start, m.start, m.durableStart)
	}
	m.start = start
	return nil
}

// from are the records at or above offset.
func (m *model) from(offset int64) []Record {
	i := sort.Search(len(m.records), func(i int) bool { return m.records[i].Offset >= offset })
	return m.records[i:]
}
