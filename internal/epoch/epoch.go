// Package epoch keeps the leader epochs of one partition: which epoch began at which offset. A follower asks where an
// epoch ended and cuts its log there; a reader asks in which epoch an offset was written.
//
//	epoch   0      1           4         5
//	offset  0......7...........20........31......LEO
//
// Both columns strictly ascend; epochs may be missing (nothing was written in them). The package does no I/O: it calls
// a [Store] when the entries must be on disk, and says by [Cache.Dirty] when they may be stale there. The file never
// lacks an entry; it may hold too many, which loading cuts off at both ends.
package epoch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

// None is the absent epoch.
const None int32 = -1

// Entry is the beginning of an epoch: records from StartOffset up to the next entry were written in it.
type Entry struct {
	Epoch       int32 // >= 0
	StartOffset int64 // >= 0
}

// Store makes the entries durable; it must not keep the slice. It runs under a lock of the cache and must not call back.
type Store func([]Entry) error

// ErrInvalid is returned for a negative epoch or offset. Batches without an epoch must not be assigned.
var ErrInvalid = errors.New("epoch: negative epoch or offset")

// Cache is the ordered list of epochs. Looking is lock-free and safe beside one another and beside changes; each look
// sees one consistent list.
type Cache struct {
	entries atomic.Pointer[[]Entry] // immutable once published
	dirty   atomic.Bool

	storing chan struct{} // the one token orders stores and is held across Store; only mu is locked under it
	store   Store         // changed under both
	mu      sync.Mutex    // orders changes of the list; nothing waits under it
}

// New makes a cache from entries as found on disk, in file order, resolving contradictions the way [Cache.Assign] does
// (a later line wins). It does not store; when lines were dropped the cache is dirty. store may be nil: memory only.
func New(entries []Entry, store Store) (*Cache, error) {
	c := &Cache{store: store, storing: make(chan struct{}, 1)}
	var list []Entry
	for _, e := range entries {
		if e.Epoch < 0 || e.StartOffset < 0 {
			return nil, fmt.Errorf("%w: epoch %d at offset %d", ErrInvalid, e.Epoch, e.StartOffset)
		}
		if needed(list, e) {
			list = append(list[:kept(list, e)], e) // the list is not shared yet
		}
	}
	c.entries.Store(&list)
	c.dirty.Store(!slices.Equal(list, entries))
	return c, nil
}

// Entries is a copy of the whole list, oldest first.
func (c *Cache) Entries() []Entry { return slices.Clone(c.list()) }

// Len is the number of entries.
func (c *Cache) Len() int { return len(c.list()) }

// Latest is the newest entry.
func (c *Cache) Latest() (Entry, bool) {
	list := c.list()
	if len(list) == 0 {
		return Entry{}, false
	}
	return list[len(list)-1], true
}

// Earliest is the oldest entry.
func (c *Cache) Earliest() (Entry, bool) {
	list := c.list()
	if len(list) == 0 {
		return Entry{}, false
	}
	return list[0], true
}

// Previous is the entry with the largest epoch below epoch.
func (c *Cache) Previous(epoch int32) (Entry, bool) {
	list := c.list()
	i := atLeast(list, epoch)
	if i == 0 {
		return Entry{}, false
	}
	return list[i-1], true
}

// Next is the entry with the smallest epoch above epoch.
func (c *Cache) Next(epoch int32) (Entry, bool) {
	list := c.list()
	i := above(list, epoch)
	if i == len(list) {
		return Entry{}, false
	}
	return list[i], true
}

// EndOffset answers a follower (KIP-101, KIP-279): the largest known epoch at or below epoch, and the offset where it
// ended. The newest epoch ends at logEnd. (-1, -1) if epoch is None, newer than anything known, or nothing is known;
// (epoch, start of the oldest entry) if epoch is older than all.
func (c *Cache) EndOffset(epoch int32, logEnd int64) (int32, int64) {
	list := c.list()
	if epoch == None || len(list) == 0 {
		return -1, -1
	}
	if list[len(list)-1].Epoch == epoch {
		return epoch, logEnd
	}
	i := above(list, epoch)
	switch i {
	case len(list):
		return -1, -1
	case 0:
		return epoch, list[0].StartOffset
	default:
		return list[i-1].Epoch, list[i].StartOffset
	}
}

// EpochFor is the epoch in which the record at offset was written; false if it is older than the first entry.
func (c *Cache) EpochFor(offset int64) (int32, bool) {
	list := c.list()
	i := startsAfter(list, offset)
	if i == 0 {
		return None, false
	}
	return list[i-1].Epoch, true
}

// Assign notes that epoch begins at start and stores the list before it returns. Entries it contradicts (epoch or start
// not below) go. Nothing happens when the newest entry has that epoch already and does not begin later. After an error
// the cache is unchanged; the disk may have the new list, which does no harm.
func (c *Cache) Assign(epoch int32, start int64) (changed bool, err error) {
	if epoch < 0 || start < 0 {
		return false, fmt.Errorf("%w: epoch %d at offset %d", ErrInvalid, epoch, start)
	}
	e := Entry{Epoch: epoch, StartOffset: start}
	if !needed(c.list(), e) {
		return false, nil
	}
	c.storing <- struct{}{}
	defer func() { <-c.storing }()
	was := c.entries.Load()
	next, needed := assigned(*was, e)
	if !needed {
		return false, nil
	}
	if err := c.put(next); err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries.Load() == was {
		c.publish(next)
		return true, nil
	}
	if next, needed = assigned(c.list(), e); needed { // truncated while it was stored
		c.change(next)
	}
	return needed, nil
}

// TruncateFromEnd drops the entries that begin at or after offset; a negative offset drops nothing. The disk learns of
// it by [Cache.Flush] or the next Assign.
func (c *Cache) TruncateFromEnd(offset int64) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.list()
	n := startsAfter(list, offset-1)
	if offset < 0 || n == len(list) {
		return false
	}
	c.change(slices.Clone(list[:n]))
	return true
}

// TruncateFromStart drops what lies below offset: the epoch that offset falls in begins there afterwards. The disk
// learns of it by [Cache.Flush] or the next Assign.
func (c *Cache) TruncateFromStart(offset int64) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.list()
	n := startsAfter(list, offset)
	if n == 0 || n == 1 && list[0].StartOffset == offset {
		return false
	}
	next := slices.Clone(list[n-1:])
	next[0].StartOffset = offset
	c.change(next)
	return true
}

// Clear drops all entries and stores that before it returns. After an error the cache is unchanged.
func (c *Cache) Clear() error {
	c.storing <- struct{}{}
	defer func() { <-c.storing }()
	if err := c.put(nil); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.publish(nil)
	return nil
}

// Restore puts an earlier list of [Cache.Entries] back, when what was assigned since could not be written. The disk learns of
// it by [Cache.Flush] or the next Assign; until then it may have too many entries, or, after a Clear, none.
func (c *Cache) Restore(entries []Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change(slices.Clone(entries))
}

// Dirty says whether the disk may hold entries that were truncated away here.
func (c *Cache) Dirty() bool { return c.dirty.Load() }

// Flush stores the entries if the cache is dirty. Looks and truncations do not wait for it; if one of these comes meanwhile the
// cache stays dirty. It waits for another store under ctx, whose error is then its own.
func (c *Cache) Flush(ctx context.Context) error {
	if !c.dirty.Load() {
		return nil
	}
	select {
	case c.storing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.storing }()
	if !c.dirty.Load() {
		return nil
	}
	was := c.entries.Load()
	if err := c.put(*was); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries.Load() == was {
		c.dirty.Store(false)
	}
	return nil
}

// Rebind gives the cache another place on disk (a renamed folder) and makes it dirty; nil detaches it.
func (c *Cache) Rebind(store Store) {
	c.storing <- struct{}{}
	defer func() { <-c.storing }()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store = store
	c.dirty.Store(store != nil)
}

func (c *Cache) list() []Entry { return *c.entries.Load() }

// put stores list; the caller holds storing.
func (c *Cache) put(list []Entry) error {
	if c.store == nil {
		return nil
	}
	err := c.store(list)
	if err != nil {
		c.dirty.Store(true) // whatever the disk has now, it is not known
	}
	return err
}

// publish makes list, which the disk has, the cache's; the caller holds storing and mu.
func (c *Cache) publish(list []Entry) {
	c.entries.Store(&list)
	c.dirty.Store(false)
}

// change publishes list and leaves the disk for later; the caller holds mu.
func (c *Cache) change(list []Entry) {
	c.entries.Store(&list)
	if c.store != nil {
		c.dirty.Store(true)
	}
}

func needed(list []Entry, e Entry) bool {
	if len(list) == 0 {
		return true
	}
	last := list[len(list)-1]
	return e.Epoch != last.Epoch || e.StartOffset < last.StartOffset
}

// assigned is a new list with e at its end and everything from the end removed that e contradicts.
func assigned(list []Entry, e Entry) ([]Entry, bool) {
	if !needed(list, e) {
		return list, false
	}
	n := kept(list, e)
	next := make([]Entry, 0, n+1)
	return append(append(next, list[:n]...), e), true
}

// kept is how many entries from the start e does not contradict.
func kept(list []Entry, e Entry) int {
	n := len(list)
	for n > 0 && (list[n-1].Epoch >= e.Epoch || list[n-1].StartOffset >= e.StartOffset) {
		n--
	}
	return n
}

// atLeast, above: index of the first entry with an epoch >= or > the given one.
func atLeast(list []Entry, epoch int32) int {
	return sort.Search(len(list), func(i int) bool { return list[i].Epoch >= epoch })
}

func above(list []Entry, epoch int32) int {
	return sort.Search(len(list), func(i int) bool { return list[i].Epoch > epoch })
}

// startsAfter is the index of the first entry that begins after offset.
func startsAfter(list []Entry, offset int64) int {
	return sort.Search(len(list), func(i int) bool { return list[i].StartOffset > offset })
}
