package log

import (
	"context"
	"sync"
	"sync/atomic"
)

// Offsets is one consistent reading of a log's marks: LogStart <= LastStable <= HighWatermark <= LogEnd, and
// RecoveryPoint <= LogEnd, Durable <= LogEnd.
type Offsets struct {
	LogStart      int64 // first offset a reader may ask for
	LastStable    int64 // read-committed readers see everything below
	HighWatermark int64 // read-uncommitted readers see everything below
	LogEnd        int64 // offset of the next record

	Durable       int64 // bytes of the .log files below are on the device: acknowledgeable
	RecoveryPoint int64 // all files below are on the device: trusted after a crash
	LeaderEpoch   int32 // latest known leader epoch; -1 none
}

// Mark names one of the offsets that Wait can wait for.
type Mark uint8

const (
	MarkEnd           Mark = iota // Offsets.LogEnd
	MarkDurable                   // Offsets.Durable
	MarkHighWatermark             // Offsets.HighWatermark
	MarkLastStable                // Offsets.LastStable
)

func (o Offsets) at(m Mark) int64 {
	switch m {
	case MarkDurable:
		return o.Durable
	case MarkHighWatermark:
		return o.HighWatermark
	case MarkLastStable:
		return o.LastStable
	default:
		return o.LogEnd
	}
}

// marks holds the offsets that readers and waiters watch.
type marks struct {
	// mu guards all below. It is held for a few assignments only: never across I/O, a channel operation that could
	// block, or a call out of this file. It may be taken under Log.write and Dir.mu; nothing may be taken under it but the
	// lock inside producerstate.Unstable.
	mu      sync.Mutex
	o       Offsets
	cuts    uint64        // truncations so far; a reader that meets odd bytes compares it before it cries damage
	depths  []depth       // the latest of them and where they cut, both ascending: for those who wait for an offset
	forgot  uint64        // truncations up to this count may be missing in depths
	changed chan struct{} // closed at the next change; nil while nobody waits

	// Written under mu, read without it.
	end    atomic.Pointer[error] // set once the log is closed or failed: waiters get it
	closed atomic.Bool           // the log was closed, whether or not it had failed before: iterators end
}

func (m *marks) load() Offsets {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.o
}

// loadCuts also gives the truncation count the offsets belong to.
func (m *marks) loadCuts() (Offsets, uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.o, m.cuts
}

// update changes the offsets in one step and wakes whoever waits.
func (m *marks) update(change func(o *Offsets)) {
	m.mu.Lock()
	change(&m.o)
	m.wakeLocked()
	m.mu.Unlock()
}

// depth is one truncation: nothing written before it is left at or above end.
type depth struct {
	count uint64 // marks.cuts behind it
	end   int64
}

// maxDepths bounds what is remembered. Whoever waits through more truncations is told that it was truncated.
const maxDepths = 64

// cut is update for truncations to end: it also counts one.
func (m *marks) cut(end int64, change func(o *Offsets)) {
	m.mu.Lock()
	m.cuts++
	for n := len(m.depths); n > 0 && m.depths[n-1].end >= end; n-- {
		m.depths = m.depths[:n-1] // the new one is deeper
	}
	if len(m.depths) == maxDepths {
		m.forgot = m.depths[0].count
		m.depths = append(m.depths[:0], m.depths[1:]...)
	}
	m.depths = append(m.depths, depth{m.cuts, end})
	change(&m.o)
	m.wakeLocked()
	m.mu.Unlock()
}

// lostLocked says whether what was written below end when cuts was the count may have been truncated since. The caller
// holds mu.
func (m *marks) lostLocked(cuts uint64, end int64) bool {
	if m.cuts == cuts {
		return false
	}
	for _, d := range m.depths {
		if d.count > cuts { // the deepest one since
			return d.end < end || cuts < m.forgot
		}
	}
	return true
}

// lost is lostLocked with one reading of the offsets.
func (m *marks) lost(cuts uint64, end int64) (Offsets, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.o, m.lostLocked(cuts, end)
}

// finish makes err the answer to every present and later wait; the first one stays, and first says whether it is this.
// ErrClosed also ends iterators.
func (m *marks) finish(err error) (first bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == ErrClosed {
		m.closed.Store(true)
	}
	if first = m.end.Load() == nil; first {
		m.end.Store(&err)
	}
	m.wakeLocked()
	return first
}

// ended is the error of finish, or nil.
func (m *marks) ended() error {
	if end := m.end.Load(); end != nil {
		return *end
	}
	return nil
}

func (m *marks) wakeLocked() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// wait blocks until done says so for some reading of the marks; done runs under mu and must only look. It returns the
// reading that satisfied done, ctx's error, or the error of finish.
func (m *marks) wait(ctx context.Context, done func(o Offsets) bool) (Offsets, error) {
	for {
		m.mu.Lock()
		o, ok, end := m.o, done(m.o), m.ended()
		if ok || end != nil {
			m.mu.Unlock()
			if ok {
				return o, nil
			}
			return o, end
		}
		if m.changed == nil {
			m.changed = make(chan struct{})
		}
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return o, ctx.Err()
		}
	}
}
