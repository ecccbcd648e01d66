package producerstate

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// written is a batch that the model's log holds, with all that matters of it.
type written struct {
	id          int64 // -1 plain
	epoch       int16
	first, last int32 // sequences
	base, end   int64 // offsets, end exclusive
	txn         bool
	marker      bool
	commit      bool
	coordinator int32
	time        int64
}

// scanned is what a scan of all batches finds out about one producer.
type scanned struct {
	epoch       int16
	coordinator int32
	time        int64
	txn         int64
	batches     []written // of the present epoch, all of them
}

// machine drives a State and a plain list of batches side by side. Whatever is asked of the list is found by reading it
// from the start.
type machine struct {
	s     *State
	fsys  vfs.FS
	list  []written
	from  int64 // offset the state is complete from
	taken map[int64]int64
	start int64 // log start
	hw    int64
	// loaded is the snapshot the state comes from: it does not say which transactions ended below it without being
	// replicated, in Kafka neither. The coordinator's decision stands whoever leads next, so nothing is lost by it.
	loaded int64
	clock  int64
}

func (m *machine) end() int64 {
	if n := len(m.list); n > 0 {
		return max(m.list[n-1].end, m.start)
	}
	return m.start
}

// scan reads the list up to upTo.
func (m *machine) scan(upTo int64) (producers map[int64]*scanned, completed []Completed) {
	producers = map[int64]*scanned{}
	for _, w := range m.list {
		if w.end <= m.from || w.end > upTo || w.id < 0 {
			continue
		}
		p := producers[w.id]
		if p == nil {
			p = &scanned{epoch: -1, coordinator: -1, txn: -1}
			producers[w.id] = p
		}
		if p.epoch != w.epoch {
			p.epoch, p.batches = w.epoch, nil
		}
		p.time = w.time
		if !w.marker {
			p.batches = append(p.batches, w)
			if w.txn && p.txn < 0 {
				p.txn = w.base
			}
			continue
		}
		p.coordinator = w.coordinator
		if p.txn < 0 {
			continue
		}
		c := Completed{ProducerID: w.id, FirstOffset: p.txn, LastOffset: w.base, LastStable: w.end, Aborted: !w.commit}
		p.txn = -1
		if oldest := oldest(producers); oldest >= 0 {
			c.LastStable = oldest
		}
		completed = append(completed, c)
	}
	return producers, completed
}

func oldest(producers map[int64]*scanned) int64 {
	first := int64(-1)
	for _, p := range producers {
		if p.txn >= 0 && (first < 0 || p.txn < first) {
			first = p.txn
		}
	}
	return first
}

// judge says what a leader must answer, from a scan alone: nil, a sentinel, or that it is a duplicate of dup.
func (m *machine) judge(w written, origin record.Origin, version int) (dup *written, refused error) {
	producers, _ := m.scan(math.MaxInt64)
	p := producers[w.id]
	if p == nil {
		return nil, nil
	}
	if w.marker {
		switch {
		case w.epoch < p.epoch, version == 2 && w.epoch == p.epoch && p.txn >= 0, w.coordinator < p.coordinator:
			return nil, ErrFenced
		}
		return nil, nil
	}
	if origin == record.Client {
		known := p.batches[len(p.batches)-m.s.Batches(w.id):] // how many are remembered depends on reloads
		for _, b := range known {
			if p.epoch == w.epoch && b.first == w.first && b.last == w.last {
				return &b, nil
			}
		}
	}
	if w.epoch < p.epoch {
		return nil, ErrFenced
	}
	if origin == record.Client {
		want := int32(0)
		if n := len(p.batches); n > 0 && w.epoch == p.epoch {
			want = int32((int64(p.batches[n-1].last) + 1) % (1 << 31))
		}
		if w.first != want {
			return nil, ErrOutOfOrder
		}
	}
	if p.txn >= 0 && !w.txn {
		return nil, ErrTxnState
	}
	return nil, nil
}

func (w written) raw(t require.TestingT) []byte {
	if w.marker {
		return end{id: w.id, epoch: w.epoch, coordinator: w.coordinator, at: w.base, commit: w.commit, time: w.time}.bytes()
	}
	return spec{id: w.id, epoch: w.epoch, seq: w.first, at: w.base, n: int(w.end - w.base), txn: w.txn, time: w.time}.bytes(t)
}

// draw invents a batch: near what the producer would do next, seldom wild.
func (m *machine) draw(t *rapid.T, at int64) written {
	m.clock += int64(rapid.IntRange(0, 3).Draw(t, "tick"))
	producers, _ := m.scan(math.MaxInt64)
	w := written{id: int64(rapid.IntRange(-1, 3).Draw(t, "producer")), base: at, time: m.clock}
	n := int64(rapid.IntRange(1, 3).Draw(t, "records"))
	p := producers[w.id]
	if p == nil {
		p = &scanned{epoch: -1, coordinator: -1, txn: -1}
	}
	if w.id >= 0 && rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
		w.marker, w.txn, n = true, true, 1
		w.commit = rapid.Bool().Draw(t, "commit")
		w.coordinator = max(0, p.coordinator+int32(rapid.SampledFrom([]int{0, 0, 0, 1, -1}).Draw(t, "coordinator")))
	}
	w.end = at + n
	if w.id < 0 {
		return w
	}
	w.epoch = max(0, p.epoch+int16(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, -1}).Draw(t, "epoch")))
	if w.marker {
		return w
	}
	w.txn = p.txn >= 0 != (rapid.IntRange(0, 5).Draw(t, "transactional") == 0)
	next := int32(0)
	if b := p.batches; len(b) > 0 && p.epoch == w.epoch {
		next = record.IncrementSequence(b[len(b)-1].last, 1)
		if rapid.IntRange(0, 3).Draw(t, "retry") == 0 {
			old := rapid.SampledFrom(b[max(0, len(b)-7):]).Draw(t, "of")
			next, w.end = old.first, at+(old.end-old.base)
		}
	} else if p.epoch < 0 && rapid.Bool().Draw(t, "high") {
		next = math.MaxInt32 - 2
	}
	if rapid.IntRange(0, 9).Draw(t, "skip") == 0 {
		next = record.IncrementSequence(next, int32(rapid.IntRange(1, 2).Draw(t, "gap")))
	}
	w.first = next
	w.last = record.IncrementSequence(next, int32(w.end-w.base-1))
	return w
}

// appendOne is a leader's append.
func (m *machine) appendOne(t *rapid.T) {
	w := m.draw(t, m.s.End())
	o := Options{Origin: record.Client, TransactionVersion: rapid.IntRange(0, 2).Draw(t, "version")}
	if w.marker || rapid.IntRange(0, 4).Draw(t, "coordinator's") == 0 {
		o.Origin = record.Coordinator
	}
	dup, refused := m.judge(w, o.Origin, o.TransactionVersion)
	p, err := m.s.Check(w.raw(t), o)
	if refused != nil {
		require.ErrorIs(t, err, refused)
		return
	}
	require.NoError(t, err)
	got, repeats := p.Duplicate()
	require.Equal(t, dup != nil, repeats)
	if dup != nil {
		if dup.end <= m.loaded { // a snapshot has one time for a producer, perhaps that of a marker
			got.Timestamp = dup.time
		}
		require.Equal(t, Duplicate{dup.base, dup.end - 1, dup.time}, got)
		m.s.Commit(p)
		return
	}
	if rapid.IntRange(0, 9).Draw(t, "the write fails") == 0 {
		return
	}
	m.commit(t, p, w)
}

func (m *machine) commit(t *rapid.T, p *Pending, all ...written) {
	_, before := m.scan(math.MaxInt64)
	m.list = append(m.list, all...)
	_, after := m.scan(math.MaxInt64)
	require.Equal(t, append([]Completed{}, after[len(before):]...), append([]Completed{}, p.Completed()...))
	m.s.Commit(p)
}

// appendMany is a follower's append of several batches, which refuses nothing.
func (m *machine) appendMany(t *rapid.T) {
	var raw []byte
	var all []written
	at := m.s.End()
	for range rapid.IntRange(1, 12).Draw(t, "batches") {
		w := m.draw(t, at+int64(rapid.IntRange(0, 1).Draw(t, "hole")))
		raw = append(raw, w.raw(t)...)
		all = append(all, w)
		at = w.end
	}
	p, err := m.s.Check(raw, Options{Origin: record.Replication})
	require.NoError(t, err)
	m.commit(t, p, all...)
}

func (m *machine) snapshot(t *rapid.T) {
	written, err := m.s.Take(m.fsys, "t-0")
	require.NoError(t, err)
	if written {
		m.taken[m.s.End()] = m.from
	}
}

// spoil loses or damages a snapshot.
func (m *machine) spoil(t *rapid.T) {
	all := snapshots(t, m.fsys)
	if len(all) == 0 {
		return
	}
	victim := rapid.SampledFrom(all).Draw(t, "victim")
	if rapid.Bool().Draw(t, "lost") {
		require.NoError(t, Remove(m.fsys, "t-0", []int64{victim}))
		return
	}
	f, err := m.fsys.OpenFile("t-0/"+FileName(victim), 2, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{0xde}, int64(rapid.IntRange(0, 9).Draw(t, "at")))
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// truncate cuts at a batch boundary and reloads in place.
func (m *machine) truncate(t *rapid.T) {
	if len(m.list) == 0 {
		return
	}
	keep := rapid.IntRange(max(0, len(m.list)-15), len(m.list)).Draw(t, "keep")
	to := m.list[0].base
	if keep > 0 {
		to = m.list[keep-1].end
	}
	m.list = m.list[:keep]
	m.start = min(m.start, to)
	m.hw = min(m.hw, to)
	m.reload(t, to)
}

// reopen begins with a State that knows nothing.
func (m *machine) reopen(t *rapid.T) {
	to := max(m.s.End(), m.end())
	m.s, m.from, m.loaded = New(Config{ExpireAfter: -1}, m.start), m.start, -1
	m.reload(t, to)
}

func (m *machine) reload(t *rapid.T, to int64) {
	res, err := m.s.Reload(Reload{FS: m.fsys, Folder: "t-0", LogStart: m.start, End: to, Now: m.clock})
	require.NoError(t, err)
	switch {
	case res.Kept:
		return
	case res.Snapshot >= 0:
		from, known := m.taken[res.Snapshot]
		require.True(t, known)
		m.from = from
	default:
		m.from = m.start
	}
	m.loaded = res.Snapshot
	for offset := range m.taken {
		if offset > to || offset < m.start {
			delete(m.taken, offset)
		}
	}
	for _, w := range m.list {
		if w.end > res.From {
			m.s.Replay(view(t, w.raw(t)))
		}
	}
	m.s.SetEnd(to)
}

func (m *machine) highWatermark(t *rapid.T) {
	m.hw = rapid.Int64Range(m.hw, max(m.hw, m.s.End())).Draw(t, "high watermark")
	m.s.OnHighWatermark(m.hw)
}

func (m *machine) deleteRecords(t *rapid.T) {
	m.start = rapid.Int64Range(m.start, max(m.start, m.hw)).Draw(t, "start")
	m.s.OnLogStart(m.start)
}

// check compares everything that can be seen with a scan.
func (m *machine) check(t *rapid.T) {
	require.Equal(t, max(m.end(), m.s.End()), m.s.End())
	producers, completed := m.scan(math.MaxInt64)
	require.Equal(t, len(producers), m.s.Len())
	for id, want := range producers {
		e, ok := m.s.Producer(id)
		require.True(t, ok)
		n := m.s.Batches(id)
		expect := Entry{ProducerID: id, Epoch: want.epoch, LastSequence: -1, LastOffset: -1, Timestamp: want.time, CoordinatorEpoch: want.coordinator, TxnFirstOffset: want.txn}
		if all := len(want.batches); all > 0 {
			last := want.batches[all-1]
			expect.LastSequence, expect.LastOffset, expect.OffsetDelta = last.last, last.end-1, int32(last.end-last.base-1)
			require.True(t, n >= 1 && n <= min(5, all), "%d batches of %d", n, all)
			for i, b := range m.s.producers[id].batches[:n] {
				w := want.batches[all-n+i]
				require.Equal(t, [2]int64{int64(w.last), w.end - 1}, [2]int64{int64(b.sequence), b.last})
			}
		} else {
			require.Zero(t, n)
		}
		require.Equal(t, expect, e)
	}
	first := oldest(producers)
	for _, c := range completed {
		if c.LastOffset >= max(m.hw, m.start, m.loaded) && (first < 0 || c.FirstOffset < first) {
			first = c.FirstOffset
		}
	}
	stable := m.hw
	if first >= 0 {
		stable = min(max(first, m.start), m.hw)
	}
	require.Equal(t, stable, m.s.Unstable().LastStable(m.hw, m.start), "first unstable %d, high watermark %d", first, m.hw)
	require.LessOrEqual(t, m.s.open.oldest(), int64(math.MaxInt64))
	require.Len(t, m.s.Open(), m.s.open.len())
}

// After any operation the state is what a reader of the whole log would find out.
func TestTheStateIsThatOfAFullScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fsys := vfs.Mem()
		require.NoError(t, fsys.MkdirAll("t-0", 0o755))
		m := &machine{s: New(Config{ExpireAfter: -1}, 0), fsys: fsys, taken: map[int64]int64{}, clock: 1000}
		one, many := m.appendOne, m.appendMany
		actions := map[string]func(*rapid.T){
			"append 1": one, "append 2": one, "append 3": one, "append 4": one, "append 5": one, "append 6": one,
			"follow 1": many, "follow 2": many,
			"snapshot 1": m.snapshot, "snapshot 2": m.snapshot, "spoil": m.spoil,
			"truncate": m.truncate, "reopen": m.reopen,
			"high watermark 1": m.highWatermark, "high watermark 2": m.highWatermark, "delete": m.deleteRecords,
			"": m.check,
		}
		t.Repeat(actions)
	})
}

// A set in one append, and each batch of it alone, lead to the same state.
func TestASetIsWorthItsBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{s: New(Config{}, 0), clock: 1000}
		single := New(Config{}, 0)
		for range rapid.IntRange(1, 5).Draw(t, "sets") {
			before := len(m.list)
			m.appendMany(t)
			for _, w := range m.list[before:] {
				single.Replay(view(t, w.raw(t)))
			}
			require.Equal(t, fmt.Sprint(single.Producers()), fmt.Sprint(m.s.Producers()))
			require.Equal(t, single.Open(), m.s.Open())
			for id := range int64(4) {
				require.Equal(t, single.Batches(id), m.s.Batches(id))
			}
			require.Equal(t, single.unstable.ended.items, m.s.unstable.ended.items)
		}
	})
}
