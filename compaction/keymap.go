package compaction

import (
	"hash/maphash"
	"math"
	"math/bits"
)

// keyMap holds, for each key, the offset of the last record that has it, in bounded memory. It lives for one run and is
// never written down, so the hash is our own affair: Kafka takes MD5, here it is 128 bits of the runtime's hash (AES
// instructions where there are any), twice under seeds drawn anew for each map. Keys are not compared. With n keys the
// chance that any two collide is about n²/2^129: for the 5 million that 128 MiB hold, less than 10^-25 a run; and since
// the seeds are secret nobody can send keys that do.
//
//	slot   | hash 8 | hash 8 | offset + 1, 0 = empty 8 |        24 bytes, as in Kafka: the same memory holds as many keys
//
// The slots are open addressing with linear steps. They are 16 tables (one, if there are few), chosen by the first bits of
// the hash, that grow each by itself: what a map takes follows what is in it, and growing needs little memory at once.
type keyMap struct {
	seeds  [2]maphash.Seed
	tables []table
	shift  int   // of the hash, to the number of its table
	limit  int   // most keys
	n      int   // keys
	latest int64 // offset of the last put, or as told
	exact  *arena

	touched int64 // so that warming is not optimised away
}

type slot struct {
	a, b uint64 // hash; with exact keys b is where the key is
	next int64  // offset + 1
}

const (
	slotBytes  = 24
	manyTables = 16
	firstSlots = 64
)

type table struct {
	slots []slot
	n     int
	most  int // slots
}

// newKeyMap makes an empty map; c has its defaults.
func newKeyMap(c Config) *keyMap {
	slots := int(min(c.MapBytes/slotBytes, math.MaxInt32))
	m := &keyMap{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, shift: 64,
		limit: int(float64(slots) * c.MapLoad), latest: -1}
	if c.ExactKeys {
		m.exact = &arena{most: c.MapBytes}
	}
	if slots < manyTables*4096 {
		m.tables = []table{{most: max(slots, 1)}}
		return m
	}
	m.shift = 60
	m.tables = make([]table, manyTables)
	for i := range m.tables { // keys do not spread quite evenly; what the load factor leaves free is far more than that
		m.tables[i].most = slots / manyTables
	}
	return m
}

func (m *keyMap) hash(key []byte) (a, b uint64) {
	return maphash.Bytes(m.seeds[0], key), maphash.Bytes(m.seeds[1], key)
}

// table of a hash; a shift by 64 is 0.
func (m *keyMap) table(a uint64) *table { return &m.tables[a>>m.shift] }

// home is where looking for a hash begins: by the bits that did not choose the table.
func (t *table) home(a uint64, shift int) int {
	hi, _ := bits.Mul64(a<<(64-shift), uint64(len(t.slots)))
	return int(hi)
}

// get is the offset of the key, -1 if it is not in the map.
func (m *keyMap) get(key []byte) int64 {
	a, b := m.hash(key)
	t := m.table(a)
	if s := m.find(t, a, b, key); s != nil {
		return s.next - 1
	}
	return -1
}

// find is the slot of the key, or the empty one that it may take: nil if there is neither.
func (m *keyMap) find(t *table, a, b uint64, key []byte) *slot {
	i := t.home(a, m.shift)
	for range len(t.slots) {
		s := &t.slots[i]
		if s.next == 0 {
			return s
		}
		if s.a == a && m.same(s, b, key) {
			return s
		}
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	return nil
}

func (m *keyMap) same(s *slot, b uint64, key []byte) bool {
	if m.exact != nil {
		return m.exact.is(s.b, key)
	}
	return s.b == b
}

// put sets the offset of the key and makes it the latest one; false, and nothing is changed, if the map is full. As with
// Kafka a full map takes no later offset for a key it has either.
func (m *keyMap) put(key []byte, offset int64) bool {
	if m.n >= m.limit {
		return false
	}
	a, b := m.hash(key)
	return m.set(a, b, key, offset)
}

// enter is put for a key that was looked for, not with exact keys.
func (m *keyMap) enter(p *probe) bool { return m.n < m.limit && m.set(p.a, p.b, nil, p.offset) }

func (m *keyMap) set(a, b uint64, key []byte, offset int64) bool {
	t := m.table(a)
	s := m.find(t, a, b, key)
	if s == nil || s.next == 0 {
		if t.n >= len(t.slots)/4*3 && len(t.slots) < t.most {
			if !m.grow(t) {
				return false
			}
			s = m.find(t, a, b, key)
		}
		if s == nil {
			return false
		}
		if m.exact != nil {
			at, ok := m.exact.keep(key)
			if !ok {
				return false
			}
			b = at
		}
		s.a, s.b = a, b
		t.n++
		m.n++
	}
	s.next = offset + 1
	m.latest = offset
	return true
}

// grow doubles the slots of a table; false if exact keys have taken the memory for it.
func (m *keyMap) grow(t *table) bool {
	n := min(max(2*len(t.slots), firstSlots), t.most)
	if m.exact != nil && !m.exact.take(slotBytes*int64(n-len(t.slots))) {
		return false
	}
	old := t.slots
	t.slots = make([]slot, n)
	touch(t.slots)
	for _, s := range old {
		if s.next == 0 {
			continue
		}
		i := t.home(s.a, m.shift)
		for t.slots[i].next != 0 {
			if i++; i == n {
				i = 0
			}
		}
		t.slots[i] = s
	}
	return true
}

// touch writes to every page of slots that are empty. Fresh memory that is read before it is written to is first mapped to a
// page of zeros; to replace that page the system interrupts every core that the program runs on, so that whoever appends
// meanwhile feels each.
func touch(slots []slot) {
	for i := 0; i < len(slots); i += pageBytes / slotBytes {
		slots[i].next = 0
	}
}

// pageBytes is at most a page of the system's memory.
const pageBytes = 4096

// window is how many keys are looked for together: the memory of a large map answers slowly, but to many questions at once.
// So a walk over records first gathers a window of them (look), then asks for all (warm), then takes the answers (found,
// enter), which by then are near.
const window = 128

// probe is a key on its way through the map.
type probe struct {
	a, b   uint64
	at     int64 // with exact keys: the answer
	offset int64 // of the record
	place  int   // of the record in its batch
	kind   probeKind
	empty  bool // the record has no value
}

type probeKind uint8

const (
	asks probeKind = iota
	unasked
	unkeyed
)

// look makes the question. Exact keys must be compared, and so are asked for at once.
func (m *keyMap) look(key []byte, p *probe) {
	if m.exact != nil {
		p.at = m.get(key)
		return
	}
	p.a, p.b = m.hash(key)
}

// warm reads where the answers should be, and waits for none of them.
func (m *keyMap) warm(probes []probe) {
	if m.exact != nil {
		return
	}
	touched := int64(0)
	for i := range probes {
		if p := &probes[i]; p.kind == asks {
			if t := m.table(p.a); len(t.slots) > 0 {
				touched += t.slots[t.home(p.a, m.shift)].next
			}
		}
	}
	m.touched = touched
}

// found is get for a key that was looked for.
func (m *keyMap) found(p *probe) int64 {
	if m.exact != nil {
		return p.at
	}
	if s := m.find(m.table(p.a), p.a, p.b, nil); s != nil {
		return s.next - 1
	}
	return -1
}

// reset empties the map and keeps its memory.
func (m *keyMap) reset() {
	for i := range m.tables {
		clear(m.tables[i].slots)
		m.tables[i].n = 0
	}
	if m.exact != nil {
		m.exact.reset()
	}
	m.n, m.latest = 0, -1
}
