package vfstest

import (
	"iter"
	"sync"
)

// DiskOptions say which disks Disks yields. The zero value is a power loss at every point, torn pages included.
type DiskOptions struct {
	// Kill yields what a new process finds after the old one was killed, instead of what a power loss leaves: one disk
	// a point, and for a write of several pages also the points inside it. What was not durable then still is not: crash
	// the new file system again to lose it.
	Kill bool
	// From and To bound the crash points by Disk.At: From <= At <= To. To 0 means the end.
	From, To int
	// Limit is how many combinations at one crash point are gone through in full. Above it, only the boundary cases
	// (all kept, all lost, each thing alone kept or lost, each prefix of the history, each tear) and Samples picks by
	// chance are taken. 0 = 512.
	Limit int
	// Samples per crash point above Limit; 0 = 64, < 0 = none.
	Samples int
	// Seed of the samples; the same seed gives the same disks.
	Seed uint64
	// NoTorn leaves torn pages out.
	NoTorn bool
	// Cuts is the number of sectors at which a page is torn, of up to 7: the first, the last, and some between. 0 = 3.
	Cuts int
	// Overwrites lets zeros and garbage also take bytes that were durable and are being overwritten with others. A
	// device that writes sectors atomically does not do that.
	Overwrites bool
	// PerPoint yields a disk again at each crash point that can leave it, for an oracle that goes by Disk.At. Without it
	// a disk is yielded once for each number of notes before the crash.
	PerPoint bool
}

func (o DiskOptions) withDefaults() DiskOptions {
	if o.Limit == 0 {
		o.Limit = 512
	}
	if o.Samples == 0 {
		o.Samples = 64
	}
	if o.Cuts <= 0 {
		o.Cuts = 3
	}
	return o
}

// enum is one walk over the crash points.
type enum struct {
	c     *Crash // for its options
	opt   DiskOptions
	first int   // seq of the first operation
	ops   []Op  // all that were recorded, also those behind the present point
	notes []any // likewise
	seen  map[seenKey]struct{}

	mu    sync.Mutex // guards the memories below and those of points; held for moments
	torn  map[tornKey]*page
	clean map[*node]uint64
}

type seenKey struct {
	hash uint64
	at   int // notes before, or the point
}

func newEnum(c *Crash, opt DiskOptions) *enum {
	return &enum{c: c, opt: opt, seen: map[seenKey]struct{}{}, torn: map[tornKey]*page{}, clean: map[*node]uint64{}}
}

// cleanHash remembers the hash of a file without choices. e.mu is held.
func (e *enum) cleanHash(n *node) uint64 {
	h, ok := e.clean[n]
	if !ok {
		h = cleanHash(n)
		e.clean[n] = h
	}
	return h
}

// Disks yields the disks that could be left after a crash before the first and behind every operation recorded since
// the last Mark, in the order of the operations. The record is taken when the loop starts; c can be used meanwhile, and
// the disks after the loop and on other goroutines.
func (c *Crash) Disks(opt DiskOptions) iter.Seq[*Disk] {
	return func(yield func(*Disk) bool) {
		e := newEnum(c, opt.withDefaults())
		c.mu.Lock()
		s := c.base.freeze()
		changes := c.log[:len(c.log):len(c.log)]
		c.mu.Unlock()
		e.first = s.seq + 1
		for i := range changes {
			e.ops = append(e.ops, changes[i].op)
			if changes[i].kind == OpNote {
				e.notes = append(e.notes, changes[i].op.Note)
			}
		}
		notes := 0
		to := len(changes)
		if opt.To > 0 {
			to = min(to, opt.To)
		}
		for i := 0; i <= to; i++ {
			if i > 0 {
				ch := &changes[i-1]
				if opt.Kill && i > opt.From && !e.killInside(s, ch, i-1, notes, yield) {
					return
				}
				s.apply(ch)
				if ch.kind == OpNote {
					notes++
				}
			}
			if i < opt.From {
				continue
			}
			if !e.visit(s, i, notes, yield) {
				return
			}
		}
	}
}

func (e *enum) visit(s *state, at, notes int, yield func(*Disk) bool) bool {
	if e.opt.Kill {
		p := &point{e: e, state: s.freeze(), at: at, notes: notes}
		return yield(&Disk{point: p, kill: true, hash: cacheHash(p.state)})
	}
	p := e.newPoint(s.freeze(), at, notes)
	more := true
	emit := func(k *pick) bool {
		if k.tree == nil {
			k.tree = p.tree(k.kept)
		}
		key := seenKey{p.hash(k.tree, k.vals), p.notes}
		if e.opt.PerPoint {
			key.at = at
		}
		if _, ok := e.seen[key]; ok {
			return true
		}
		e.seen[key] = struct{}{}
		more = yield(&Disk{point: p, pick: k.clone(), hash: key.hash})
		return more
	}
	if all, _ := p.exhaustive(p.sizes, e.opt.Limit, emit); all || !more {
		return more
	}
	if !p.boundaries(emit) {
		return false
	}
	if all, _ := p.exhaustive(p.whole, e.opt.Limit, emit); all || !more {
		return more
	}
	for i := range max(e.opt.Samples, 0) {
		if k := p.sample(e.opt.Seed + uint64(i)*k1); !emit(&k) {
			return false
		}
	}
	return true
}

// killInside yields the states in which a kill leaves a write of several pages: whole pages from its start.
func (e *enum) killInside(s *state, ch *change, at, notes int, yield func(*Disk) bool) bool {
	if ch.kind != OpWrite || len(ch.pages) < 2 {
		return true
	}
	for _, n := range e.cuts(1, len(ch.pages)-1) {
		part := *ch
		part.pages = ch.pages[:n]
		part.size = max(s.nodes[ch.id].size, int64(ch.pages[n].idx)*PageSize)
		in := s.freeze()
		in.apply(&part)
		p := &point{e: e, state: in, at: at, notes: notes}
		if !yield(&Disk{point: p, kill: true, inside: n, hash: cacheHash(in)}) {
			return false
		}
	}
	return true
}

// cacheHash is the hash of what a program sees.
func cacheHash(s *state) uint64 {
	var h uint64
	var walk func(dir nodeID, path uint64)
	walk = func(dir nodeID, path uint64) {
		h += mix(path, k0)
		for name, id := range s.nodes[dir].names {
			p := mix(path, hashString(name))
			n := s.nodes[id]
			if n.dir {
				walk(id, p)
				continue
			}
			fh := mix(uint64(n.size), k1)
			for idx, page := range n.pages {
				fh += page.sum(idx)
			}
			h += mix(p, fh)
		}
	}
	walk(rootID, k0)
	return h
}
