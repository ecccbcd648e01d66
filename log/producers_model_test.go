package log

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
)

// put is one batch, with all that matters of it to producers and readers.
type put struct {
	base, last  int64
	leader      int32 // epoch
	id          int64 // -1 none
	epoch       int16
	first, ends int32 // sequences of the first and last record
	txn         bool
	marker      bool
	commit      bool
	coordinator int32
	time        int64
	value       string // of its first record
}

// putsOf reads every batch that the files of a log hold, deleted ones too.
func putsOf(l *Log) (all []put, err error) {
	dec := decoders.Get().(*record.Decoder)
	defer decoders.Put(dec)
	for _, seg := range *l.list.Load() {
		for b, err := range seg.Batches(0) {
			if err != nil {
				return nil, err
			}
			p := put{base: b.BaseOffset(), last: b.LastOffset(), leader: b.LeaderEpoch(), txn: b.Transactional(), marker: b.Control(), coordinator: -1, time: b.MaxTimestamp()}
			if p.id, p.epoch, p.first = b.Producer(); p.id >= 0 {
				p.ends = p.first
				if !p.marker {
					p.ends = after(p.first, b.Count()-1)
				}
			}
			for r, err := range b.Records(dec) {
				if err != nil {
					return nil, err
				}
				if p.value = string(r.Value); p.marker {
					m, err := record.ParseMarker(r)
					if err != nil {
						return nil, err
					}
					p.commit, p.coordinator = m.Type == record.Commit, m.CoordinatorEpoch
				}
				break
			}
			all = append(all, p)
		}
	}
	return all, nil
}

// after is the sequence n further on: behind the largest int32 comes 0.
func after(sequence int32, n int) int32 { return int32((int64(sequence) + int64(n)) & math.MaxInt32) }

// scanned is what a reading of batches finds out about one producer.
type scanned struct {
	id          int64
	epoch       int16
	coordinator int32
	time        int64
	txn         int64 // -1 none open
	batches     []put // of this epoch, all of them
}

func (p *scanned) entry() producerstate.Entry {
	e := producerstate.Entry{ProducerID: p.id, Epoch: p.epoch, LastSequence: -1, LastOffset: -1, Timestamp: p.time, CoordinatorEpoch: p.coordinator, TxnFirstOffset: p.txn}
	if n := len(p.batches); n > 0 {
		b := p.batches[n-1]
		e.LastSequence, e.LastOffset, e.OffsetDelta = b.ends, b.last, int32(b.last-b.base)
	}
	return e
}

// scan is what a reading of batches from an offset on finds out. Nothing in it knows of snapshots, indexes or the code
// under test.
type scan struct {
	producers map[int64]*scanned
	ended     []AbortedTxn // committed ones too
	aborted   []AbortedTxn
}

// scanFrom reads the batches that reach from or lie behind it.
func scanFrom(from int64, puts []put) *scan {
	s := &scan{producers: map[int64]*scanned{}}
	for _, b := range puts {
		if b.id < 0 || b.last < from {
			continue
		}
		p := s.producers[b.id]
		if p == nil {
			p = &scanned{id: b.id, coordinator: -1, txn: -1, epoch: b.epoch}
			s.producers[b.id] = p
		}
		if p.epoch != b.epoch {
			p.epoch, p.batches = b.epoch, nil
		}
		p.time = b.time
		if !b.marker {
			p.batches = append(p.batches, b)
			if b.txn && p.txn < 0 {
				p.txn = b.base
			}
			continue
		}
		p.coordinator = b.coordinator
		if p.txn < 0 {
			continue
		}
		t := AbortedTxn{ProducerID: b.id, FirstOffset: p.txn, LastOffset: b.base, LastStable: b.base + 1}
		p.txn = -1
		if oldest := s.oldest(); oldest != math.MaxInt64 {
			t.LastStable = oldest
		}
		s.ended = append(s.ended, t)
		if !b.commit {
			s.aborted = append(s.aborted, t)
		}
	}
	return s
}

// oldest is the first offset of the oldest open transaction; math.MaxInt64 if none is open.
func (s *scan) oldest() int64 {
	first := int64(math.MaxInt64)
	for _, p := range s.producers {
		if p.txn >= 0 {
			first = min(first, p.txn)
		}
	}
	return first
}

func (s *scan) entries() []producerstate.Entry {
	all := make([]producerstate.Entry, 0, len(s.producers))
	for _, p := range s.producers {
		all = append(all, p.entry())
	}
	slices.SortFunc(all, func(a, b producerstate.Entry) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
	return all
}

// replication is what is known of how far the log was replicated.
type replication struct {
	highest  int64 // of all high watermarks: what ended below it is stable for good
	reloaded int64 // the state was loaded up to here: of transactions that ended below, it need not know that they were not replicated
}

// stable says whether a last stable offset may come out of this scan. After a reload, transactions that had ended before may
// count as replicated from some offset down: snapshots do not say which were, in Kafka neither.
func (s *scan) stable(got int64, o Offsets, r replication) bool {
	clamp := func(first int64) int64 { return min(max(first, o.LogStart), o.HighWatermark) }
	first := s.oldest()
	for _, t := range s.ended {
		if t.LastOffset >= max(r.reloaded, r.highest) {
			first = min(first, t.FirstOffset)
		}
	}
	if got == clamp(first) {
		return true
	}
	for _, t := range slices.Backward(s.ended) {
		if t.LastOffset < r.reloaded && t.LastOffset >= o.HighWatermark {
			if first = min(first, t.FirstOffset); got == clamp(first) {
				return true
			}
		}
	}
	return false
}

// hidden says whether read-committed readers must not see a batch: a marker, or data of an aborted transaction.
func (s *scan) hidden(b put) bool {
	return b.marker || b.txn && slices.ContainsFunc(s.aborted, func(t AbortedTxn) bool {
		return t.ProducerID == b.id && b.base >= t.FirstOffset && b.base < t.LastOffset
	})
}

// committed are the records that read-committed readers must see, by offset.
func committed(puts []put, start, stable int64) (want []int64) {
	s := scanFrom(0, puts)
	for _, b := range puts {
		if b.last >= stable || s.hidden(b) {
			continue
		}
		for offset := max(b.base, start); offset <= b.last; offset++ {
			want = append(want, offset)
		}
	}
	return want
}

// scansOf are the scans that a log's state may come out of: one from its first batch or, where records were deleted, from any
// further on up to the log start, since an open may begin there, as Kafka's does.
func scansOf(puts []put, logStart int64) (all []*scan) {
	all = append(all, scanFrom(0, puts))
	for i, b := range puts {
		if i > 0 && b.base < logStart {
			all = append(all, scanFrom(b.base, puts))
		}
	}
	if len(puts) > 0 && logStart > puts[0].base {
		all = append(all, scanFrom(logStart, puts))
	}
	return all
}

// compareProducers compares producers, open transactions, aborted transactions and the last stable offset of a log with
// what a reading of its batches says. It gives back the scan that the state comes out of.
func compareProducers(l *Log, puts []put, r replication) (*scan, error) {
	o := l.Offsets()
	scans := scansOf(puts, o.LogStart)
	state := l.producers.state.Producers()
	var same []*scan
	for _, s := range scans {
		if slices.Equal(state, s.entries()) {
			same = append(same, s)
		}
	}
	if len(same) == 0 {
		return nil, fmt.Errorf("producers\n%+v, a scan finds\n%+v", state, scans[0].entries())
	}
	i := slices.IndexFunc(same, func(s *scan) bool { return s.stable(o.LastStable, o, r) })
	if i < 0 {
		return nil, fmt.Errorf("the last stable offset is %d, a scan finds %+v open and %+v ended: %+v, %+v", o.LastStable, same[0].entries(), same[0].ended, o, r)
	}
	if err := compareOpen(l, same[i]); err != nil {
		return nil, err
	}
	return same[i], compareAborted(l, scans, o.LogStart)
}

func compareOpen(l *Log, s *scan) error {
	open := l.OpenTransactions()
	if !slices.IsSortedFunc(open, func(a, b OpenTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) }) {
		return fmt.Errorf("open transactions out of order: %+v", open)
	}
	for _, t := range open {
		p := s.producers[t.ProducerID]
		if p == nil || p.txn != t.FirstOffset || p.epoch != t.Epoch || p.entry().LastOffset != t.LastOffset {
			return fmt.Errorf("the transaction %+v is open, a scan finds %+v", t, p)
		}
	}
	for _, p := range s.producers {
		if p.txn >= 0 && !slices.ContainsFunc(open, func(t OpenTransaction) bool { return t.ProducerID == p.id }) {
			return fmt.Errorf("a scan finds %+v open, the log says %+v", p, open)
		}
	}
	return nil
}

// compareAborted: each marker at or above the log start has the entry that one of the scans gives it. What ended below
// nobody needs.
func compareAborted(l *Log, scans []*scan, logStart int64) error {
	got, err := l.AbortedTxns()
	if err != nil {
		return err
	}
	at := func(list []AbortedTxn, marker int64) (t AbortedTxn, ok bool) {
		i := slices.IndexFunc(list, func(t AbortedTxn) bool { return t.LastOffset == marker })
		if i < 0 {
			return t, false
		}
		return list[i], true
	}
	asScanned := func(marker int64) bool {
		t, ok := at(got, marker)
		return slices.ContainsFunc(scans, func(s *scan) bool {
			want, known := at(s.aborted, marker)
			return known == ok && want == t
		})
	}
	for _, list := range [][]AbortedTxn{scans[0].aborted, got} {
		for i, t := range list {
			if t.LastOffset >= logStart && !asScanned(t.LastOffset) {
				return fmt.Errorf("aborted transactions\n%+v, a scan finds\n%+v: see the marker at %d", got, scans[0].aborted, t.LastOffset)
			}
			if i > 0 && list[i-1].LastOffset >= t.LastOffset {
				return fmt.Errorf("aborted transactions out of order: %+v", got)
			}
		}
	}
	return nil
}

// compareSnapshots reads the snapshots that an open would use: each says what a scan up to its offset says. Those
// that were spoiled and never written anew are passed over.
func compareSnapshots(l *Log, puts []put, spoiled map[int64]bool) error {
	o := l.Offsets()
	offsets, err := producerstate.List(l.fs, l.name)
	if err != nil {
		return err
	}
	for _, offset := range offsets {
		if offset <= o.LogStart {
			continue
		}
		got, err := producerstate.ReadSnapshot(l.fs, l.path(producerstate.FileName(offset)))
		if err != nil && spoiled[offset] {
			continue
		}
		if err != nil {
			return err
		}
		n := slices.IndexFunc(puts, func(b put) bool { return b.last >= offset })
		below := puts
		if n >= 0 {
			below = puts[:n]
		}
		if !slices.ContainsFunc(scansOf(below, o.LogStart), func(s *scan) bool { return slices.Equal(got, s.entries()) }) {
			return fmt.Errorf("snapshot %d holds\n%+v, a scan finds\n%+v", offset, got, scanFrom(0, below).entries())
		}
	}
	return nil
}
