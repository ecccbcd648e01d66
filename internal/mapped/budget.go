package mapped

import (
	"sync"
	"sync/atomic"
)

// defaultMappings is a quarter of Linux's usual vm.max_map_count (65530), so that the host keeps the rest.
const defaultMappings = 65530 / 4

// maxFiles bounds the open files of a budget for which nobody named a number.
const maxFiles = 256

// settleAtOnce is how many files that must be synced before they can be closed are synced together when there is no other
// way to make room: a file system merges syncs that run at the same time.
const settleAtOnce = 16

// Default is the budget of tables and segments that name none.
var Default = NewBudget(0)

// Budget bounds how many mappings and open files those that share it hold at one time: indexes, and .log files. What has
// not been used for longest is given back first and comes back by itself on its next use; what is in use at the moment is
// never taken away, so the bound may be exceeded for as long as more users than that are at work. Safe for concurrent use.
type Budget struct {
	mu       sync.Mutex // guards the rings; never held across I/O
	mappings ring
	files    ring

	settling sync.Mutex // one at a time makes room by syncing; held across these syncs, and mu may be taken under it
}

// Holder is what a Slot stands for.
type Holder interface {
	// Retire takes it out of use for good if nobody is at it and it can be closed as it is. It runs under the budget's
	// lock: it looks at atomics, does no I/O and takes no lock.
	Retire() bool
	// GiveBack closes what was retired. No lock is held.
	GiveBack()
	// Unsettled says that it could be retired if it were settled before. As Retire.
	Unsettled() bool
	// Settle does what must be done before it can be retired. No lock is held; it may take long.
	Settle()
}

// Slot is the place of one open file or mapping in a Budget. It is embedded in what it stands for; the zero Slot holds
// nothing.
type Slot struct {
	used       atomic.Bool // since the clock's hand came by
	holder     Holder      // set by Budget.add
	next, prev *Slot       // guarded by Budget.mu
}

// Touch notes a use. It costs one load where there was one lately.
func (s *Slot) Touch() {
	if !s.used.Load() {
		s.used.Store(true)
	}
}

// NewBudget returns a budget of maxMappings mappings and of as many open files, at most 256 of these until LimitFiles says
// another number. A maxMappings of 0 or less means 16382, a quarter of Linux's usual limit for one process.
func NewBudget(maxMappings int) *Budget {
	if maxMappings <= 0 {
		maxMappings = defaultMappings
	}
	return &Budget{mappings: ring{limit: maxMappings}, files: ring{limit: min(maxMappings, maxFiles)}}
}

// LimitFiles makes n, 1 or more, the number of open files from the next one on.
func (b *Budget) LimitFiles(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.files.limit = max(n, 1)
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

// Open counts an open file in; Relieve must follow. The caller is at the file, and nobody else knows of it yet.
func (b *Budget) Open(s *Slot, of Holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.holder = of
	b.files.add(s)
}

// Closed counts an open file out; it is harmless if it is out already.
func (b *Budget) Closed(s *Slot) { b.forget(&b.files, s) }

// Shed closes every open file that can be, for a process that ran out of descriptors, and says whether there was one.
func (b *Budget) Shed() bool {
	b.mu.Lock()
	leaving := b.files.shrink(0)
	b.mu.Unlock()
	giveBack(leaving)
	return len(leaving) > 0
}

// admit takes a slot in and returns what had to leave for it; the caller gives those back outside its own locks.
func (b *Budget) admit(r *ring, s *Slot, of Holder) (leaving []Holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.holder = of
	r.add(s)
	return r.shrink(r.limit)
}

// forget takes a slot out, if it is still in.
func (b *Budget) forget(r *ring, s *Slot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.remove(s)
}

// Relieve closes what is open beyond the limit. Where what nobody is at has to be settled before, it does that for several
// at a time, so that the next ones find files that need not be. The caller holds no lock that a Holder's Settle or GiveBack
// takes.
func (b *Budget) Relieve() {
	b.mu.Lock()
	leaving := b.files.shrink(b.files.limit)
	crowded := b.files.n > b.files.limit
	b.mu.Unlock()
	if giveBack(leaving); crowded {
		b.settle()
	}
}

func (b *Budget) settle() {
	b.settling.Lock()
	defer b.settling.Unlock()
	b.mu.Lock()
	leaving, unsettled := b.files.shrink(b.files.limit), []Holder(nil)
	if b.files.n > b.files.limit {
		unsettled = b.files.unsettled(settleAtOnce)
	}
	b.mu.Unlock()
	giveBack(leaving)
	if len(unsettled) == 0 {
		return
	}
	var all sync.WaitGroup
	for _, h := range unsettled {
		all.Go(h.Settle)
	}
	all.Wait()
	b.mu.Lock()
	leaving = b.files.shrink(b.files.limit)
	b.mu.Unlock()
	giveBack(leaving)
}

func giveBack(leaving []Holder) {
	for _, h := range leaving {
		h.GiveBack()
	}
}

// ring is a clock: the hand goes round, passes over what was used since its last visit, and takes what was not.
type ring struct {
	limit int
	n     int
	hand  *Slot
}

func (r *ring) add(s *Slot) {
	if r.hand == nil {
		s.next, s.prev = s, s
		r.hand = s
	} else { // just behind the hand: last to be visited
		s.next, s.prev = r.hand, r.hand.prev
		s.prev.next, s.next.prev = s, s
	}
	r.n++
}

func (r *ring) remove(s *Slot) {
	if s.next == nil {
		return
	}
	if r.hand == s {
		r.hand = s.next
	}
	if r.hand == s {
		r.hand = nil
	} else {
		s.prev.next, s.next.prev = s.next, s.prev
	}
	s.next, s.prev = nil, nil
	r.n--
}

// shrink takes out idle slots until at most limit are left or only busy ones are.
func (r *ring) shrink(limit int) (leaving []Holder) {
	for visits := 2 * r.n; r.n > limit && visits > 0; visits-- {
		s := r.hand
		r.hand = s.next
		if s.used.Swap(false) || !s.holder.Retire() {
			continue
		}
		r.remove(s)
		leaving = append(leaving, s.holder)
	}
	return leaving
}

// unsettled is up to n of those that could leave if they were settled, from the hand on, which is where the next shrink
// begins.
func (r *ring) unsettled(n int) (found []Holder) {
	s := r.hand
	for range r.n {
		if s.holder.Unsettled() {
			if found = append(found, s.holder); len(found) == n {
				break
			}
		}
		s = s.next
	}
	return found
}
