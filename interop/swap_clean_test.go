package interop

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// retain lets old segments go by size: which, is settled by the rule, as far as no open transaction loses its beginning.
func (s *swap) retain(w owner) {
	t := s.t
	all, err := w.segments()
	require.NoError(t, err)
	total := int64(0)
	for _, seg := range all {
		total += seg.size
	}
	start := s.m.start
	for i, seg := range all {
		if i+1 == len(all) || all[i+1].base > start && total-seg.size < retained {
			break
		}
		total -= seg.size
		start = max(start, all[i+1].base)
	}
	if start > s.m.lastStable() {
		return
	}
	require.NoError(t, w.retain())
	s.note("retain: start %d", start)
	if start > s.m.start {
		s.raised++
		s.m.raise(start, true)
	}
}

// endAll ends most open transactions, which would keep all behind them from being cleaned.
func (s *swap) endAll(w owner) {
	for id := int64(firstOwn); id < firstOwn+5; id++ {
		f := s.knows(id)
		if f.TxnFirstOffset < 0 || s.r.IntN(12) == 0 {
			continue
		}
		m := turn{p: record.Producer{ID: id, Epoch: f.Epoch}, marker: true, commit: s.r.IntN(3) > 0, coordinator: max(0, f.CoordinatorEpoch)}
		s.note("%+v at %d", m, s.m.end)
		require.NoError(s.t, w.end(m, 0, s.epoch))
		s.m.mark(m)
		s.took()
	}
}

// absorb takes in what cleanings removed since the model was last compared with the folder. Gone may be what a later record
// of the key, not aborted, supersedes; what was aborted; and a tombstone with all that it deletes.
func (m *model) absorb(seen []Record) error {
	left := map[int64]bool{}
	for _, r := range seen {
		left[r.Offset] = true
	}
	aborted := m.abortedOffsets()
	newest, oldest := map[string]Record{}, map[string]int64{}
	for _, r := range m.records {
		if !aborted[r.Offset] {
			newest[string(r.Key)] = r
		}
		if _, ok := oldest[string(r.Key)]; !ok && left[r.Offset] {
			oldest[string(r.Key)] = r.Offset
		}
	}
	for _, r := range m.from(m.start) {
		last, ok := newest[string(r.Key)]
		switch {
		case left[r.Offset] || aborted[r.Offset] || ok && last.Offset > r.Offset:
		case r.Value != nil:
			return fmt.Errorf("record %d, the last of %q, is gone", r.Offset, r.Key)
		default:
			if first, ok := oldest[string(r.Key)]; ok && first < r.Offset {
				return fmt.Errorf("tombstone %d of %q is gone, record %d is not", r.Offset, r.Key, first)
			}
		}
	}
	m.records = slices.DeleteFunc(slices.Clone(m.records), func(r Record) bool { return r.Offset >= m.start && !left[r.Offset] })
	return nil
}

func (m *model) abortedOffsets() map[int64]bool {
	gone := map[int64]bool{}
	all := m.aborted()
	for _, t := range m.turns {
		if !t.p.Transactional || t.marker {
			continue
		}
		for _, a := range all {
			if a.ProducerID == t.p.ID && a.FirstOffset <= t.base && t.last < a.LastOffset {
				for offset := t.base; offset <= t.last; offset++ {
					gone[offset] = true
				}
			}
		}
	}
	return gone
}

// learnClean notes how far there may be gaps now: a cleaning that was killed says nothing in its checkpoint.
func (s *swap) learnClean() {
	all := sorted(s.t, filepath.Join(s.root, s.topic+"-0", "*.log"))
	active, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(all[len(all)-1]), ".log"), 10, 64)
	require.NoError(s.t, err)
	s.m.clean = max(s.m.clean, min(active, s.m.lastStable()))
	s.m.sealed = s.m.end
}
