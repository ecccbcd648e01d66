package compaction

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// item is a record as it was appended, and what is known of it.
type item struct {
	rec
	batch   int
	txn     *txnModel // nil = in none
	gone    bool
	nothing bool // no key
}

func (it *item) aborted() bool { return it.txn != nil && it.txn.abort }
func (it *item) key() string   { k, _ := it.split(); return k }
func (it *item) split() (string, bool) {
	for i := range it.kv {
		if it.kv[i] == '=' {
			return it.kv[:i], true
		}
	}
	return it.kv, false
}
func (it *item) tombstone() bool { _, value := it.split(); return !value }

type txnModel struct {
	first, marker int64 // marker < 0 = open
	abort         bool
}

type batchModel struct {
	base, last int64
	horizon    int64 // -1 none
}

// modelLog is a log as a list of records, and the naive rules of compaction over it.
type modelLog struct {
	t       *rapid.T
	w       *world
	next    int64
	items   []*item
	batches []*batchModel
	open    map[int64]*txnModel
	seqs    map[int64]int32
	current [][]byte // of the segment that is being made
	base    int64
	txns    []pendingAbort
	all     []*txnModel
}

type pendingAbort struct {
	segment.AbortedTxn
}

func (m *modelLog) lastStable() int64 {
	stable := m.next
	for _, t := range m.open {
		stable = min(stable, t.first)
	}
	return stable
}

func (m *modelLog) append(raw []byte, last int64) {
	m.current = append(m.current, raw)
	m.next = last + 1
}

func (m *modelLog) data() {
	t := m.t
	id := rapid.SampledFrom([]int64{-1, -1, -1, 1, 2, 11, 12, 13}).Draw(t, "producer")
	o := record.BuilderOptions{Codec: rapid.SampledFrom([]record.Codec{0, 0, 0, record.Gzip, record.LZ4, record.Snappy, record.Zstd}).Draw(t, "codec")}
	if id >= 0 {
		o.Producer = &record.Producer{ID: id, BaseSequence: m.seqs[id], Transactional: id > 10}
	}
	b := &batchModel{base: m.next, horizon: -1}
	m.batches = append(m.batches, b)
	var kvs []string
	for range rapid.IntRange(1, 4).Draw(t, "records") {
		key := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g"}).Draw(t, "key")
		switch rapid.IntRange(0, 9).Draw(t, "value") {
		case 0:
			kvs = append(kvs, "=unkeyed")
		case 1, 2:
			kvs = append(kvs, key)
		default:
			kvs = append(kvs, fmt.Sprintf("%s=%d", key, m.next+int64(len(kvs))))
		}
	}
	txn := m.open[id]
	if id > 10 && txn == nil {
		txn = &txnModel{first: m.next, marker: -1}
		m.open[id] = txn
		m.all = append(m.all, txn)
	}
	for i, kv := range kvs {
		off := m.next + int64(i)
		m.items = append(m.items, &item{rec: rec{off, kv, at0.UnixMilli() + off}, batch: len(m.batches) - 1, txn: txn, nothing: kv[0] == '='})
	}
	b.last = m.next + int64(len(kvs)) - 1
	raw := batchOf(m.next, o, kvs...)
	if id >= 0 {
		m.seqs[id] += int32(len(kvs))
		m.w.producers[id] = LastBatch{Offset: b.last}
	}
	m.append(raw, b.last)
}

func (m *modelLog) marker() {
	ids := []int64{}
	for id := range m.open {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	id := rapid.SampledFrom(ids).Draw(m.t, "who")
	commit := rapid.Bool().Draw(m.t, "commit")
	txn := m.open[id]
	delete(m.open, id)
	at := m.next
	m.append(end(commit, id, at), at)
	txn.marker, txn.abort = at, !commit
	if !commit {
		m.txns = append(m.txns, pendingAbort{segment.AbortedTxn{ProducerID: id, FirstOffset: txn.first, LastOffset: at, LastStable: m.lastStable()}})
	}
}

// roll writes what was gathered as a segment.
func (m *modelLog) roll() {
	if len(m.current) == 0 {
		return
	}
	s := m.w.addAt(m.base, m.current...)
	for _, t := range m.txns {
		require.NoError(m.w.t, s.AppendAborted(t.AbortedTxn))
	}
	m.current, m.txns, m.base = nil, nil, m.next
}

func (m *modelLog) grow() {
	for range rapid.IntRange(1, 25).Draw(m.t, "steps") {
		switch rapid.IntRange(0, 11).Draw(m.t, "step") {
		case 0, 1:
			m.roll()
		case 2:
			m.next += rapid.Int64Range(1, 5).Draw(m.t, "gap")
		case 3, 4, 5:
			m.marker()
		default:
			m.data()
		}
	}
	m.data()
	m.roll()
}

// clean predicts what stays, cleans, and compares.
func (m *modelLog) clean(c Config, ceilings bool) {
	t, w := m.t, m.w
	w.c = c
	s := State{Checkpoint: &w.dirty, LogEnd: m.next, LastStable: m.lastStable(), Segments: must(c.Measure(w.segs, true))}
	if ceilings && rapid.Bool().Draw(t, "ceiling") {
		s.Removal = new(rapid.Int64Range(0, m.next).Draw(t, "removal"))
	}
	p := c.Plan(s, GroupLimits{}, w.now)
	bases := w.bases()
	dirty := w.dirty
	out, err := w.clean(func(in *Input) { in.Bounds = p.Bounds })
	if err != nil {
		t.Fatal(err)
	}
	if p.FirstDirty < p.Uncleanable && out.FirstDirty <= dirty || !out.MapFull && out.FirstDirty != max(p.Uncleanable, dirty) {
		t.Fatalf("no progress: %+v of %+v", out, p.Bounds)
	}
	if out.FirstDirty > dirty {
		m.predict(dirty, out.FirstDirty, p, bases)
	}
	m.compare(p)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (m *modelLog) predict(dirty, upTo int64, p Plan, bases []int64) {
	processed := int64(math.MaxInt64) // segments below the end of the map are rewritten whole
	for _, base := range bases {
		if base >= upTo {
			processed = min(processed, base)
		}
	}
	removal, now := int64(math.MaxInt64), m.w.now.UnixMilli()
	if p.Removal != nil {
		removal = *p.Removal
	}
	latest := map[string]int64{}
	for _, it := range m.items {
		if !it.gone && !it.nothing && !it.aborted() && it.offset >= dirty && it.offset < upTo {
			latest[it.key()] = it.offset
		}
	}
	retention := m.w.c.withDefaults().DeleteRetention
	stamp := map[int]bool{}
	for _, it := range m.items {
		if it.gone || it.offset >= processed {
			continue
		}
		b := m.batches[it.batch]
		last, known := latest[it.key()]
		switch {
		case it.aborted():
			it.gone = true
		case it.offset >= upTo:
		case it.nothing:
			it.gone = true
		case known && it.offset < last:
			it.gone = true
		case it.tombstone() && b.horizon >= 0 && now >= b.horizon && it.offset < removal:
			it.gone = true
		}
		if !it.gone && it.tombstone() && b.horizon < 0 {
			stamp[it.batch] = true
		}
	}
	for i := range stamp {
		m.batches[i].horizon = now + retention.Milliseconds()
	}
}

// compare holds the folder against the model.
func (m *modelLog) compare(p Plan) {
	t, w := m.t, m.w
	var want []rec
	for _, it := range m.items {
		if !it.gone {
			want = append(want, it.rec)
		}
	}
	got := w.view()
	if !slices.Equal(want, got.records) {
		t.Fatalf("records\n%v\nwant\n%v\nbounds %+v", got.records, want, p.Bounds)
	}
	at := map[int64]bool{} // last offsets of batches
	markers := map[int64]bool{}
	for _, s := range w.segs {
		for b, err := range s.Batches(0) {
			if err != nil {
				t.Fatal(err)
			}
			at[b.LastOffset()] = true
			if b.Control() && b.Count() > 0 {
				markers[b.LastOffset()] = true
			}
		}
		scan, err := s.Scan(context.Background(), segment.ScanOptions{})
		if err != nil || scan.Verdict != segment.Clean {
			t.Fatal(scan, err)
		}
		if err := s.CheckAborted(); err != nil {
			t.Fatal(err)
		}
	}
	for id, last := range w.producers {
		if !at[last.Offset] {
			t.Fatalf("the last batch of producer %d, ending at %d, is gone: %v", id, last.Offset, got.batches)
		}
	}
	indexed := map[int64]int64{}
	for i := range w.segs {
		for _, a := range w.indexed(i) {
			indexed[a.LastOffset] = a.FirstOffset
		}
	}
	for _, it := range m.items {
		if it.gone || it.txn == nil || it.txn.marker < 0 {
			continue
		}
		if !markers[it.txn.marker] {
			t.Fatalf("record %d is there and the marker %d of its transaction is not: %v", it.offset, it.txn.marker, got.batches)
		}
		if first, ok := indexed[it.txn.marker]; it.txn.abort && (!ok || first > it.offset) {
			t.Fatalf("the aborted record %d is in no index", it.offset)
		}
	}
	for _, txn := range m.all {
		if p.Removal != nil && txn.marker >= *p.Removal && !markers[txn.marker] && txn.marker >= m.w.dirty {
			t.Fatalf("marker %d is gone, ceiling %d", txn.marker, *p.Removal)
		}
	}
	m.state(got)
}

// state is what a consumer from the start makes of the log: the last value of each key, before and after.
func (m *modelLog) state(got view) {
	want, have := map[string]string{}, map[string]string{}
	fate := map[int64]bool{}
	apply := func(to map[string]string, it *item) {
		if it.nothing || it.aborted() || it.txn != nil && it.txn.marker < 0 {
			return
		}
		if it.tombstone() {
			delete(to, it.key())
		} else {
			to[it.key()] = it.kv
		}
	}
	for _, r := range got.records {
		fate[r.offset] = true
	}
	for _, it := range m.items {
		apply(want, it)
		if fate[it.offset] {
			apply(have, it)
		}
	}
	if fmt.Sprint(want) != fmt.Sprint(have) {
		m.t.Fatalf("a consumer gets %v, want %v", have, want)
	}
}

// Logs of plain, idempotent and transactional batches with all codecs grow and are cleaned again and again with full and
// partial maps, moving clocks and ceilings; each time exactly those records are left that the rules leave.
func TestCompactionAgainstANaiveModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, vfs.Mem())
		defer w.close()
		w.producers = map[int64]LastBatch{}
		m := &modelLog{t: rt, w: w, open: map[int64]*txnModel{}, seqs: map[int64]int32{}}
		m.grow()
		for range rapid.IntRange(1, 6).Draw(rt, "rounds") {
			c := Config{DeleteRetention: rapid.SampledFrom([]time.Duration{Immediately, time.Hour, 24 * time.Hour}).Draw(rt, "retention"), MapLoad: 1,
				ExactKeys: rapid.Bool().Draw(rt, "exact")}
			c.MapBytes = rapid.SampledFrom([]int64{24, 48, 96, 1 << 20, 1 << 20}).Draw(rt, "map")
			if c.ExactKeys {
				c.MapBytes = max(1<<13, c.MapBytes)
			}
			w.o.MaxBytes = rapid.SampledFrom([]int64{200, 500, 1 << 20}).Draw(rt, "segment.bytes")
			w.o.IndexIntervalBytes = rapid.SampledFrom([]int64{-1, 100, 0}).Draw(rt, "index.interval.bytes")
			m.clean(c, true)
			if rapid.Bool().Draw(rt, "grow") {
				m.grow()
			}
			w.now = w.now.Add(rapid.SampledFrom([]time.Duration{0, time.Minute, 2 * time.Hour, 48 * time.Hour}).Draw(rt, "later"))
		}
		m.twice()
	})
}

// twice: cleaning what is clean changes no record, and after markers have had their two rounds not a byte.
func (m *modelLog) twice() {
	w := m.w
	c := Config{DeleteRetention: 1000 * time.Hour}
	w.o.MaxBytes = 1 << 20
	w.now = w.now.Add(time.Hour)
	w.dirty = 0 // what was cut short by full maps is made up for
	m.clean(c, false)
	records := w.view().records
	for round := range 5 {
		if round == 4 {
			before := w.view()
			w.dirty = 0
			out := w.mustClean(func(in *Input) { in.Bounds.Uncleanable = m.bound() })
			if out.Written != (Count{}) || out.Groups > 0 || !slices.Equal(before.batches, w.lines()) {
				m.t.Fatalf("cleaned again: %+v\n%v\n%v", out, before.batches, w.lines())
			}
			return
		}
		w.dirty = 0
		w.mustClean(func(in *Input) { in.Bounds.Uncleanable = m.bound() })
		if got := w.view().records; !slices.Equal(records, got) {
			m.t.Fatalf("cleaned twice\n%v\nonce\n%v", got, records)
		}
	}
}

func (m *modelLog) bound() int64 {
	s := State{LogEnd: m.next, LastStable: m.lastStable(), Segments: must(Config{}.Measure(m.w.segs, false))}
	return Config{}.Plan(s, GroupLimits{}, m.w.now).Uncleanable
}
