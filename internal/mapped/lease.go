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
	slot Slot
}

// pin keeps the lease from being evicted until unpin; false if it was given back.
func (l *lease) pin() bool {
	for {
		p := l.pins.Load()
		if p < 0 {
			return false
		}
		if l.pins.CompareAndSwap(p, p+1) {
			l.slot.Touch()
			return true
		}
	}
}

func (l *lease) unpin() { l.pins.Add(-1) }

// Retire retires the lease unless it is pinned or retired already.
func (l *lease) Retire() bool { return l.pins.CompareAndSwap(0, retired) }

// Unsettled is never so: what an index has in its file can be made anew from the log.
func (l *lease) Unsettled() bool { return false }

// Settle has nothing to do.
func (l *lease) Settle() {}

// GiveBack closes it. The close of a file that was written may be where its system says that something was lost.
func (l *lease) GiveBack() {
	if err := l.close(); err != nil && !l.src.sealed {
		l.src.table.lost.CompareAndSwap(nil, &err)
	}
}

// ring is where the lease is counted.
func (l *lease) ring(b *Budget) *ring {
	if l.m != nil {
		return &b.mappings
	}
	return &b.files
}

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

	exact atomic.Bool // nothing stood behind the entries when the file was last opened
}
