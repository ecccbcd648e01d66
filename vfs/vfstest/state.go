package vfstest

import (
	"io/fs"
	"maps"
	"slices"
)

// A state is what a machine holds: the cache (what a program sees) above the device (what a power loss leaves), and in
// between the changes that are not yet durable. States share nodes: a state may change only nodes it owns, and takes a
// copy of others first.
//
//	           cache                device
//	file       pages, size     >    dpages, dsize        between: versions of pages, lengths
//	directory  names           >    dnames               between: state.pending
type state struct {
	owner   *owner
	nodes   []*node // by nodeID; nil = gone
	pending []dirEvent
	seq     int // of the last change; orders versions, lengths and directory events
}

// owner is compared by address only, so it must not be empty.
type owner struct{ _ byte }

type nodeID int

const rootID nodeID = 0

type node struct {
	owner *owner
	dir   bool
	perm  fs.FileMode
	mtime int64 // ns

	pages, dpages []*page
	size, dsize   int64
	versions      []version // of dirty pages, oldest first
	lengths       []length  // oldest first
	diverged      bool      // clean pages may differ from the device: a sync failed

	names, dnames map[string]nodeID
}

// version is what a page held after one change of the file.
type version struct {
	seq  int
	idx  int
	page *page
	lo   int // first and last+1 byte written, within the page
	hi   int
}

// length is what a file's length was after one change. A cut removed everything from size on.
type length struct {
	seq  int
	size int64
	cut  bool
}

// dirEvent is one directory operation that is not yet durable. It puts id under to, or takes from away, or both.
type dirEvent struct {
	seq      int
	op       Kind
	id       nodeID
	from, to dirKey
	hasFrom  bool
	hasTo    bool
	synced   [2]bool // from.dir, to.dir were synced since
	durable  bool    // all directories concerned were synced, or a durable event rests on this one
	after    []int   // seq of pending events this one cannot do without
}

type dirKey struct {
	dir  nodeID
	name string
}

func newState(now int64) *state {
	s := &state{owner: new(owner)}
	s.nodes = []*node{s.newDir(0o755, now)}
	return s
}

func (s *state) newDir(perm fs.FileMode, now int64) *node {
	return &node{owner: s.owner, dir: true, perm: perm, mtime: now, names: map[string]nodeID{}, dnames: map[string]nodeID{}}
}

// freeze returns a copy and makes both sides copy nodes before they change them.
func (s *state) freeze() *state {
	c := &state{owner: new(owner), nodes: slices.Clone(s.nodes), pending: slices.Clone(s.pending), seq: s.seq}
	s.owner = new(owner)
	return c
}

// mut is the node, owned by s.
func (s *state) mut(id nodeID) *node {
	n := s.nodes[id]
	if n.owner == s.owner {
		return n
	}
	c := *n
	c.owner = s.owner
	c.pages, c.dpages = slices.Clone(n.pages), slices.Clone(n.dpages)
	c.versions, c.lengths = slices.Clone(n.versions), slices.Clone(n.lengths)
	c.names, c.dnames = maps.Clone(n.names), maps.Clone(n.dnames)
	s.nodes[id] = &c
	return &c
}

// linksOf counts the names of a node.
func (s *state) linksOf(id nodeID) (links int) {
	for _, n := range s.nodes {
		if n == nil || !n.dir {
			continue
		}
		for _, named := range n.names {
			if named == id {
				links++
			}
		}
	}
	return links
}

func (n *node) dirty(idx int) bool {
	return slices.ContainsFunc(n.versions, func(v version) bool { return v.idx == idx })
}

// clean says that nothing of the file differs between cache and device.
func (n *node) clean() bool { return len(n.versions) == 0 && len(n.lengths) == 0 && !n.diverged }

// change is one recorded operation with its result, ready to be applied again.
type change struct {
	op    Op
	kind  Kind
	id    nodeID
	now   int64
	pages []version // seq unset; of writes and cuts
	size  int64     // new length of writes and truncates
	perm  fs.FileMode
	event dirEvent // of directory operations; seq, after unset
	solid bool     // a directory operation that is durable at once
	lost  []int    // pages a failed sync lost
	fail  bool     // a failed sync
}

// apply makes the change in the cache and notes what is not durable.
func (s *state) apply(c *change) {
	s.seq++
	switch c.kind {
	case OpWrite, OpTruncate:
		s.applyData(c)
	case OpSync, OpSyncData:
		s.mut(c.id).flush(c.lost)
	case OpEvict:
		s.applyEvict(c)
	case OpCreate, OpMkdir, OpRemove, OpRename, OpLink:
		s.applyDir(c)
	case OpSyncDir:
		s.syncDir(c.id)
	case OpChtimes:
		s.mut(c.id).mtime = c.now
	}
}

func (s *state) applyData(c *change) {
	n := s.mut(c.id)
	n.mtime = c.now
	if c.kind == OpTruncate && c.size < n.size {
		n.pages = cutPages(n.pages, c.size)
		n.lengths = append(n.lengths, length{seq: s.seq, size: c.size, cut: true})
	} else if c.size != n.size {
		n.grow(s.seq, c)
	}
	n.size = c.size
	for _, v := range c.pages {
		v.seq = s.seq
		n.pages = setPage(n.pages, v.idx, v.page)
		n.versions = append(n.versions, v)
	}
}

// grow notes the new length, and for a write of several pages two lengths on the way there: write-back moves the length
// as it gets along.
func (n *node) grow(seq int, c *change) {
	first, last := (n.size/PageSize+1)*PageSize, (c.size-1)/PageSize*PageSize
	if c.kind == OpWrite && len(c.pages) > 1 {
		first = max(first, int64(c.pages[1].idx)*PageSize)
		if first < c.size {
			n.lengths = append(n.lengths, length{seq: seq, size: first})
		}
		if last > first {
			n.lengths = append(n.lengths, length{seq: seq, size: last})
		}
	}
	n.lengths = append(n.lengths, length{seq: seq, size: c.size})
}

// flush carries all but the lost dirty pages to the device, and the length.
func (n *node) flush(lost []int) {
	for _, l := range n.lengths {
		if l.cut {
			n.dpages = cutPages(n.dpages, l.size)
		}
	}
	for _, v := range n.versions {
		if slices.Contains(lost, v.idx) {
			n.diverged = true
			continue
		}
		n.dpages = setPage(n.dpages, v.idx, pageAt(n.pages, v.idx))
	}
	n.dsize = n.size
	n.versions, n.lengths = nil, nil
}

func (s *state) applyEvict(c *change) {
	n := s.mut(c.id)
	if c.op.Off >= n.size {
		return
	}
	end := c.op.Off + c.op.Len
	if c.op.Len <= 0 || end >= n.size || end < 0 {
		end = n.size + PageSize - 1
	}
	for idx := int((c.op.Off + PageSize - 1) / PageSize); int64(idx+1)*PageSize <= end; idx++ {
		if idx >= len(n.pages) && idx >= len(n.dpages) {
			break
		}
		if n.dirty(idx) {
			continue
		}
		p := pageAt(n.dpages, idx)
		for _, l := range n.lengths {
			if l.cut {
				p = p.head(l.size - int64(idx)*PageSize)
			}
		}
		n.pages = setPage(n.pages, idx, p)
	}
}

// applyDir adds the event to the pending ones and changes the cache.
func (s *state) applyDir(c *change) {
	e := c.event
	e.seq, e.op = s.seq, c.kind
	if c.kind == OpCreate || c.kind == OpMkdir {
		e.id = nodeID(len(s.nodes))
		n := &node{owner: s.owner, perm: c.perm, mtime: c.now}
		if c.kind == OpMkdir {
			n = s.newDir(c.perm, c.now)
		}
		s.nodes = append(s.nodes, n)
	}
	e.durable = c.solid
	e.after = s.dependencies(&e)
	if e.hasFrom {
		d := s.mut(e.from.dir)
		delete(d.names, e.from.name)
		d.mtime = c.now
	}
	if e.hasTo {
		d := s.mut(e.to.dir)
		d.names[e.to.name] = e.id
		d.mtime = c.now
	}
	s.pending = append(s.pending, e)
	if c.solid {
		s.settle()
	}
}

// dependencies are the latest pending event on each name the event touches, and, for a move between directories, the
// events that gave the new directory and those above it their names: a move never loses the file to an unborn directory.
func (s *state) dependencies(e *dirEvent) []int {
	var after []int
	touch := func(k dirKey) {
		for _, o := range slices.Backward(s.pending) {
			if o.hasFrom && o.from == k || o.hasTo && o.to == k {
				after = append(after, o.seq)
				return
			}
		}
	}
	if e.hasFrom {
		touch(e.from)
	}
	if e.hasTo {
		touch(e.to)
	}
	if e.hasFrom && e.hasTo && e.from.dir != e.to.dir {
		for dir := e.to.dir; dir != rootID; {
			named, ok := s.lastNamed(dir)
			if !ok {
				break
			}
			after = append(after, named.seq)
			dir = named.to.dir
		}
	}
	return after
}

// lastNamed is the latest pending event that gave the node a name.
func (s *state) lastNamed(id nodeID) (dirEvent, bool) {
	for _, e := range slices.Backward(s.pending) {
		if e.hasTo && e.id == id {
			return e, true
		}
	}
	return dirEvent{}, false
}

func (s *state) syncDir(dir nodeID) {
	for i := range s.pending {
		e := &s.pending[i]
		e.synced[0] = e.synced[0] || !e.hasFrom || e.from.dir == dir
		e.synced[1] = e.synced[1] || !e.hasTo || e.to.dir == dir
		e.durable = e.durable || e.synced[0] && e.synced[1]
	}
	s.settle()
}

// settle carries durable events, and those they rest on, to the device.
func (s *state) settle() {
	for _, e := range slices.Backward(s.pending) {
		if !e.durable {
			continue
		}
		for i := range s.pending {
			if slices.Contains(e.after, s.pending[i].seq) {
				s.pending[i].durable = true
			}
		}
	}
	// A new slice: frozen states share the old one.
	var rest []dirEvent
	for _, e := range s.pending {
		if !e.durable {
			rest = append(rest, e)
			continue
		}
		if e.hasFrom {
			delete(s.mut(e.from.dir).dnames, e.from.name)
		}
		if e.hasTo {
			s.mut(e.to.dir).dnames[e.to.name] = e.id
		}
	}
	s.pending = rest
}

// flushAll makes everything durable.
func (s *state) flushAll() {
	for i := range s.pending {
		s.pending[i].durable = true
	}
	s.settle()
	for id, n := range s.nodes {
		if n == nil || n.dir || n.clean() {
			continue
		}
		m := s.mut(nodeID(id))
		m.versions, m.lengths, m.diverged = nil, nil, false
		m.dpages, m.dsize = slices.Clone(m.pages), m.size
	}
}

// sweep forgets nodes no name leads to, but keeps those in use.
func (s *state) sweep(inUse func(nodeID) bool) {
	live := s.named()
	for id := range s.nodes {
		if !live[id] && !inUse(nodeID(id)) {
			s.nodes[id] = nil
		}
	}
}

// named says by nodeID what a name leads to, in the cache, on the device or in between.
func (s *state) named() []bool {
	live := make([]bool, len(s.nodes))
	var walk func(id nodeID)
	walk = func(id nodeID) {
		if live[id] || s.nodes[id] == nil {
			return
		}
		live[id] = true
		for _, c := range s.nodes[id].names {
			walk(c)
		}
		for _, c := range s.nodes[id].dnames {
			walk(c)
		}
	}
	walk(rootID)
	for _, e := range s.pending {
		walk(e.id)
		if e.hasFrom {
			walk(e.from.dir)
		}
		if e.hasTo {
			walk(e.to.dir)
		}
	}
	return live
}
