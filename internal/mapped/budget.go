package mapped

import "sync"

// defaultMappings is a quarter of Linux's usual vm.max_map_count (65530), so that the host keeps the rest.
const defaultMappings = 65530 / 4

// maxFiles bounds the open files of a budget whatever its mappings: descriptors are scarcer.
const maxFiles = 256

// Default is the budget of tables that name none.
var Default = NewBudget(0)

// Budget bounds how many mappings and open files the indexes that share it hold at one time. What has not been used
// for longest is given back first and comes back by itself on its next use; what is in use at the moment is never
// taken away, so the bound may be exceeded for as long as more readers than that are at work. Safe for concurrent use.
type Budget struct {
	mu       sync.Mutex // guards the rings; never held across I/O
	mappings ring
	files    ring
}

// NewBudget returns a budget of maxMappings mappings and of as many open files, at most 256 of these. A maxMappings
// of 0 or less means 16382, a quarter of Linux's usual limit for one process.
func NewBudget(maxMappings int) *Budget {
	if maxMappings <= 0 {
		maxMappings = defaultMappings
	}
	return &Budget{mappings: ring{limit: maxMappings}, files: ring{limit: min(maxMappings, maxFiles)}}
}

// Mappings is the number of mappings held now.
func (b *Budget) Mappings() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mappings.n
}

// Files is the number of open files held now.
func (b *Budget) Files() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.files.n
}

// admit takes l in and returns what had to leave for it; the caller gives those back outside its own locks.
func (b *Budget) admit(l *lease) (leaving []*lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.ringOf(l)
	r.add(l)
	return r.shrink(r.limit)
}

// shed empties the ring of open files, for a process that ran out of descriptors.
func (b *Budget) shed() (leaving []*lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.files.shrink(0)
}

// forget takes l out, if it is still in.
func (b *Budget) forget(l *lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ringOf(l).remove(l)
}

func (b *Budget) ringOf(l *lease) *ring {
	if l.m != nil {
		return &b.mappings
	}
	return &b.files
}

// ring is a clock: the hand goes round, passes over what was used since its last visit, and takes what was not.
type ring struct {
	limit int
	n     int
	hand  *lease
}

func (r *ring) add(l *lease) {
	if r.hand == nil {
		l.next, l.prev = l, l
		r.hand = l
	} else { // just behind the hand: last to be visited
		l.next, l.prev = r.hand, r.hand.prev
		l.prev.next, l.next.prev = l, l
	}
	r.n++
}

func (r *ring) remove(l *lease) {
	if l.next == nil {
		return
	}
	if r.hand == l {
		r.hand = l.next
	}
	if r.hand == l {
		r.hand = nil
	} else {
		l.prev.next, l.next.prev = l.next, l.prev
	}
	l.next, l.prev = nil, nil
	r.n--
}

// shrink takes out idle leases until at most limit are left or only busy ones are.
func (r *ring) shrink(limit int) (leaving []*lease) {
	for visits := 2 * r.n; r.n > limit && visits > 0; visits-- {
		l := r.hand
		r.hand = l.next
		if l.used.Swap(false) || !l.retireIdle() {
			continue
		}
		r.remove(l)
		leaving = append(leaving, l)
	}
	return leaving
}
