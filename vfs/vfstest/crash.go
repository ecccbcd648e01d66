package vfstest

import (
	"slices"
	"sync"
	"time"

	"github.com/partlog/partlog/vfs"
)

// CrashOptions are what a Crash is and can. The zero value has mappings, eviction and a terabyte.
type CrashOptions struct {
	NoMmap  bool             // Traits.Mmap false, File.Map is ErrUnsupported
	NoEvict bool             // Traits.Evict false, File.Evict is ErrUnsupported
	Now     func() time.Time // of modification times; nil = time.Now
}

// Crash is a file system in memory that models a page cache above a device, see the package comment. It records every
// operation that changes something since the last Mark, and Disks yields what could be left after a crash behind each.
//
// As an FS it behaves like a POSIX one: open files survive Remove and Rename, permissions are kept but not enforced,
// a file may have up to 64 GiB. Lock files take part in nothing: they appear and vanish durably, at once. All methods
// are safe for concurrent use.
type Crash struct {
	opts CrashOptions

	mu    sync.RWMutex // guards all below and every node the state owns; only Now is called under it
	state *state
	base  *state // the state at the last Mark or Forget, frozen
	log   []change
	open  map[nodeID]int // open handles
	locks map[nodeID]bool
}

var _ vfs.FS = (*Crash)(nil)

// NewCrash makes an empty file system.
func NewCrash(opts CrashOptions) *Crash {
	c := &Crash{opts: opts, open: map[nodeID]int{}, locks: map[nodeID]bool{}}
	c.state = newState(c.now())
	c.base = c.state.freeze()
	return c
}

func (c *Crash) now() int64 {
	if c.opts.Now == nil {
		return time.Now().UnixNano()
	}
	return c.opts.Now().UnixNano()
}

// Mark makes everything that is there durable and starts the record anew: the stable point crashes are counted from.
func (c *Crash) Mark() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.flushAll()
	c.forget()
}

// Forget starts the record anew and leaves what is not durable as it is: a long simulation that crashes only the
// present state, by [Crash.PowerLoss], calls it now and then to keep memory small.
func (c *Crash) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget()
}

func (c *Crash) forget() {
	c.state.sweep(func(id nodeID) bool { return c.open[id] > 0 })
	c.log = nil
	c.base = c.state.freeze()
}

// Note puts v into the record: "offset 5 acknowledged durable". A disk tells which notes came before its crash. Two
// disks with the same content but different notes are different disks, since more may be asked of one than the other.
func (c *Crash) Note(v any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.do(&change{kind: OpNote, op: Op{Kind: OpNote, Note: v}})
}

// Ops is a copy of the record since the last Mark: what changed something, notes, and syncs whether or not there was
// anything to sync. A failed call is not in it, except a sync that lost its pages.
func (c *Crash) Ops() []Op {
	c.mu.RLock()
	defer c.mu.RUnlock()
	ops := make([]Op, len(c.log))
	for i := range c.log {
		ops[i] = c.log[i].op
	}
	return ops
}

// Len is how many operations Ops has: the crash point "now".
func (c *Crash) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.log)
}

// Kill is the file system a new process finds when the present one is killed now: nothing is lost, the locks are free,
// and what was not durable still is not. The old one can go on without the two seeing each other.
func (c *Crash) Kill() *Crash {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot(c.state.freeze())
}

// PowerLoss is one file system that could be left if the power failed now, chosen by the seed. See [Crash.Disks] for
// all of them.
func (c *Crash) PowerLoss(seed uint64) *Crash {
	c.mu.Lock()
	frozen := c.state.freeze()
	at := len(c.log)
	c.mu.Unlock()
	e := newEnum(c, DiskOptions{Seed: seed}.withDefaults())
	p := e.newPoint(frozen, at, 0)
	k := p.sample(seed)
	k.tree = p.tree(k.kept)
	return (&Disk{point: p, pick: k}).FS()
}

// boot makes a running file system of a state nobody else changes.
func (c *Crash) boot(s *state) *Crash {
	n := &Crash{opts: c.opts, state: s, open: map[nodeID]int{}, locks: map[nodeID]bool{}}
	n.base = s.freeze()
	return n
}

// do applies and records the change. c.mu is held.
func (c *Crash) do(ch *change) {
	if ch.now == 0 && ch.kind != OpNote {
		ch.now = c.now()
	}
	c.state.apply(ch)
	c.log = append(c.log, *ch)
}

// losePages carries a failed sync out: all dirty pages count as clean, the lost ones never reach the device.
func (c *Crash) losePages(id nodeID, op Op, lost func(page int64) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := change{kind: OpSync, id: id, op: op, fail: true}
	for _, v := range c.state.nodes[id].versions {
		if !slices.Contains(ch.lost, v.idx) && (lost == nil || lost(int64(v.idx))) {
			ch.lost = append(ch.lost, v.idx)
		}
	}
	c.do(&ch)
}
