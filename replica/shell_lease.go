package replica

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// lease is a buffer of records on their way from a leader to followers of the same process. Who is done with them gives it back, and
// when all have it is used again: the next batch finds it in the processor's cache, and no garbage is left. It travels beside the
// message, and only where nobody but two nodes gets to see that. A message that is lost, held or sent on takes the buffer with
// it, for the garbage collector.
type lease struct {
	raw  []byte
	held atomic.Int32 // by so many
}

// leaseBytes is the largest buffer that is used again.
const leaseBytes = 256 << 10

var leases = sync.Pool{New: func() any { return new(lease) }}

// newLease is held by the caller. nil: so much is not lent.
func newLease(size int64) *lease {
	if size > leaseBytes {
		return nil
	}
	l := leases.Get().(*lease)
	l.raw = slices.Grow(l.raw[:0], int(size))[:size]
	l.held.Store(1)
	return l
}

// of says that raw is the lease's.
func (l *lease) of(raw []byte) bool {
	return len(raw) > 0 && unsafe.SliceData(raw) == unsafe.SliceData(l.raw)
}

func (l *lease) hold() *lease {
	l.held.Add(1)
	return l
}

// free is for who does not look at raw any more. l may be nil.
func (l *lease) free() {
	if l != nil && l.held.Add(-1) == 0 {
		poison(l.raw)
		leases.Put(l)
	}
}
