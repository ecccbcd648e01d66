package mapped

import (
	"math"
	"sync/atomic"

	"github.com/partlog/partlog/vfs"
)

// retired is added to the pins of a lease that was given back: it can never be pinned again.
const retired = math.MinInt32 / 2

// lease is one thing held under a budget: an open file or a mapping of one. Readers pin it for the length of one
// look-up, without a lock. Its fields are set before it is published and never change.
type lease struct {
	src   *source
	m     vfs.Mapping // of a sealed file's entries, or nil
	f     vfs.File    // open file, or nil
	n     int         // entries of a sealed file
	fence []byte      // sealed and unmapped: the first entry of each chunk

	pins atomic.Int32
	used atomic.Bool // since the clock's hand came by

	next, prev *lease // guarded by Budget.mu
}

// pin keeps the lease from being evicted until unpin; false if it was given back.
func (l *lease) pin() bool {
	for {
		p := l.pins.Load()
		if p < 0 {
			return false
		}
		if l.pins.CompareAndSwap(p, p+1) {
			if !l.used.Load() {
				l.used.Store(true)
			}
			return true
		}
	}
}

func (l *lease) unpin() { l.pins.Add(-1) }

// retireIdle retires the lease unless it is pinned or retired already.
func (l *lease) retireIdle() bool { return l.pins.CompareAndSwap(0, retired) }

// retire retires the lease at once; running reads end, or meet fs.ErrClosed. False if it was retired already.
func (l *lease) retire() bool {
	for {
		p := l.pins.Load()
		if p < 0 {
			return false
		}
		if l.pins.CompareAndSwap(p, p+retired) {
			return true
		}
	}
}

// close gives back what a retired lease holds.
func (l *lease) close() error {
	l.src.lease.CompareAndSwap(l, nil)
	switch {
	case l.m != nil:
		return l.m.Close()
	case l.f != nil:
		return l.f.Close()
	}
	return nil
}

// source is one table's file in one of its lives: being written, or sealed. It holds at most one lease.
type source struct {
	table  *Table
	sealed bool
	lease  atomic.Pointer[lease] // stored under Table.open, cleared by whoever retires it
	dead   bool                  // guarded by Table.open: no new lease

	// Of a sealed file, found out once: the number of entries (-1 before) and the last of them, written first.
	n    atomic.Int64
	last Raw
}
