package vfstest

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// A point is the moment behind one operation, with every choice a power loss has there.
type point struct {
	e     *enum
	state *state // frozen
	at    int
	notes int
	files []*fileChoice
	byID  map[nodeID]*fileChoice
	top   []uint32 // by value: the choice that keeps everything
	sizes []int    // by value: how many choices
	whole []int    // by value: how many choices without torn ones
	seqs  [][]int  // by value: seq of choices 1..top
	trees map[string]*tree
}

// pick is one disk: which directory events are kept, and the choice for each value.
type pick struct {
	kept []bool
	vals []uint32
	tree *tree // what kept comes to, once it is known
}

// clone is a copy that stays when k goes on to the next disk.
func (k *pick) clone() pick { return pick{slices.Clone(k.kept), slices.Clone(k.vals), k.tree} }

func (e *enum) newPoint(frozen *state, at, notes int) *point {
	p := &point{e: e, state: frozen, at: at, notes: notes, byID: map[nodeID]*fileChoice{}, trees: map[string]*tree{}}
	live := frozen.named()
	for id, n := range frozen.nodes {
		if n == nil || !live[id] || n.dir || n.clean() {
			continue
		}
		f := e.newFileChoice(nodeID(id), n, len(p.top))
		p.files = append(p.files, f)
		p.byID[f.id] = f
		p.top = append(p.top, uint32(len(n.lengths)))
		p.sizes = append(p.sizes, len(n.lengths)+1)
		p.whole = append(p.whole, len(n.lengths)+1)
		p.seqs = append(p.seqs, seqsOf(n.lengths, func(l length) int { return l.seq }))
		for _, u := range f.pages {
			p.top = append(p.top, uint32(u.whole-1))
			p.sizes = append(p.sizes, len(u.options))
			p.whole = append(p.whole, u.whole)
			p.seqs = append(p.seqs, seqsOf(u.versions, func(v version) int { return v.seq }))
		}
	}
	return p
}

func seqsOf[T any](list []T, seq func(T) int) []int {
	out := make([]int, len(list))
	for i, v := range list {
		out[i] = seq(v)
	}
	return out
}

// tree of the kept events.
func (p *point) tree(kept []bool) *tree {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	var b strings.Builder
	for _, k := range kept {
		if k {
			b.WriteByte('1')
		} else {
			b.WriteByte('0')
		}
	}
	t := p.trees[b.String()]
	if t == nil {
		t = newTree(p.state, kept)
		p.trees[b.String()] = t
	}
	return t
}

func (p *point) hash(t *tree, vals []uint32) uint64 {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	h := t.sum
	for _, f := range t.files {
		var fh uint64
		if c := p.byID[f.id]; c != nil {
			fh = c.hash(vals)
		} else {
			fh = p.e.cleanHash(p.state.nodes[f.id])
		}
		h += mix(f.path, fh)
	}
	return h
}

// reachable is the values that matter in the tree.
func (p *point) reachable(t *tree) []int {
	var list []int
	seen := map[nodeID]bool{}
	for _, f := range t.files {
		c := p.byID[f.id]
		if c == nil || seen[f.id] {
			continue
		}
		seen[f.id] = true
		for i := range len(c.pages) + 1 {
			list = append(list, c.first+i)
		}
	}
	slices.Sort(list)
	return list
}

func (p *point) all(kept bool) *pick {
	k := &pick{kept: make([]bool, len(p.state.pending)), vals: make([]uint32, len(p.top))}
	if kept {
		copy(k.vals, p.top)
		for i := range k.kept {
			k.kept[i] = true
		}
	}
	return k
}

// exhaustive emits every pick if there are at most limit, and says whether there were. sizes is p.sizes or p.whole.
func (p *point) exhaustive(sizes []int, limit int, emit func(*pick) bool) (all, more bool) {
	type branch struct {
		kept []bool
		tree *tree
		live []int
	}
	var branches []branch
	kept := make([]bool, len(p.state.pending))
	total := 0
	var grow func(i int) bool
	grow = func(i int) bool {
		if i < len(kept) {
			kept[i] = false
			if !grow(i + 1) {
				return false
			}
			if restsOnKept(p.state.pending, kept, i) {
				kept[i] = true
				ok := grow(i + 1)
				kept[i] = false
				return ok
			}
			return true
		}
		t := p.tree(kept)
		live := p.reachable(t)
		n := 1
		for _, v := range live {
			if n *= sizes[v]; n > limit {
				return false
			}
		}
		total += n
		branches = append(branches, branch{slices.Clone(kept), t, live})
		return total <= limit
	}
	if !grow(0) {
		return false, true
	}
	k := &pick{vals: make([]uint32, len(p.top))}
	for _, b := range branches {
		k.kept, k.tree = b.kept, b.tree
		clear(k.vals)
		for {
			if !emit(k) {
				return true, false
			}
			i := 0
			for ; i < len(b.live); i++ {
				v := b.live[i]
				if k.vals[v]++; int(k.vals[v]) < sizes[v] {
					break
				}
				k.vals[v] = 0
			}
			if i == len(b.live) {
				break
			}
		}
	}
	return true, true
}

// sample is one pick by chance: at first how likely things are kept, then each thing.
func (p *point) sample(seed uint64) pick {
	r := rand.New(rand.NewPCG(seed, uint64(p.at)))
	keep := [...]float64{0.1, 0.5, 0.5, 0.9, 0.98}[r.IntN(5)]
	k := p.all(false)
	for i := range k.kept {
		k.kept[i] = r.Float64() < keep
	}
	closeOver(p.state.pending, k.kept)
	for v := range k.vals {
		k.vals[v] = p.top[v]
		if r.Float64() >= keep {
			k.vals[v] = uint32(r.IntN(p.sizes[v]))
		}
	}
	return *k
}
