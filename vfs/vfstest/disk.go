package vfstest

import (
	"fmt"
	"path"
	"strings"
)

// Disk is what one crash left. It is immutable and safe for concurrent use, also after the loop that yielded it.
type Disk struct {
	point  *point
	pick   pick
	hash   uint64
	kill   bool
	inside int // pages done of the next operation, a write a kill cut short
}

// FS is a file system with this content, a new one at each call, so that one disk can be recovered twice. It is itself
// a Crash that records from here on: crashes inside recovery are enumerated by its Disks.
func (d *Disk) FS() *Crash {
	p := d.point
	if d.kill {
		p.e.mu.Lock()
		defer p.e.mu.Unlock()
		return p.e.c.boot(p.state.freeze())
	}
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	t := d.pick.tree
	s := &state{owner: new(owner), nodes: make([]*node, len(p.state.nodes)), seq: p.state.seq}
	for _, id := range t.dirs {
		n := p.state.nodes[id]
		if names, ok := t.names[id]; ok {
			// Shared by cache and device of a node nobody owns, like pages.
			n = &node{dir: true, perm: n.perm, mtime: n.mtime, names: names, dnames: names}
		}
		s.nodes[id] = n
	}
	for _, f := range t.files {
		if s.nodes[f.id] != nil {
			continue
		}
		if c := p.byID[f.id]; c != nil {
			s.nodes[f.id] = c.node(d.pick.vals)
		} else {
			s.nodes[f.id] = p.state.nodes[f.id]
		}
	}
	return p.e.c.boot(s)
}

// At is the number of recorded operations before the crash: it came right behind Crash.Ops()[At-1].
func (d *Disk) At() int { return d.point.at }

// Ops is the operations before the crash. The caller must not change them.
func (d *Disk) Ops() []Op { return d.point.e.ops[:d.point.at:d.point.at] }

// Notes is what was noted before the crash, oldest first. The caller must not change them.
func (d *Disk) Notes() []any { return d.point.e.notes[:d.point.notes:d.point.notes] }

// Hash tells contents apart: names and bytes of every file, not times or modes. It is the same in every run.
func (d *Disk) Hash() uint64 { return d.hash }

// Describe is several lines for a failing test: the last operations, and what of them was kept, lost and torn.
func (d *Disk) Describe() string {
	var b strings.Builder
	what := "power loss"
	if d.kill {
		what = "kill"
	}
	fmt.Fprintf(&b, "disk %016x: %s after %d operations\n", d.hash, what, d.At())
	const shown = 40
	for i := max(0, d.At()-shown); i < d.At(); i++ {
		fmt.Fprintf(&b, "%4d  %s\n", i, d.point.e.ops[i])
	}
	if d.kill {
		if d.inside > 0 {
			fmt.Fprintf(&b, "  inside %s, of which %d pages were done\n", d.point.e.ops[d.At()], d.inside)
		}
		return b.String()
	}
	p := d.point
	for i, e := range p.state.pending {
		fmt.Fprintf(&b, "  %s %s\n", keptOrLost(d.pick.kept[i]), p.e.operation(e.seq))
	}
	names := d.pick.tree.paths(p.state)
	for _, f := range p.files {
		d.describeFile(&b, f, names[f.id])
	}
	return b.String()
}

func keptOrLost(kept bool) string {
	if kept {
		return "kept:"
	}
	return "LOST:"
}

func (d *Disk) describeFile(b *strings.Builder, f *fileChoice, name string) {
	if name == "" {
		fmt.Fprintf(b, "  file %s: no name leads to it\n", f.e.lastName(f.n))
		return
	}
	m := int(d.pick.vals[f.first])
	fmt.Fprintf(b, "  %s: length %d of", name, f.sizeAt(m))
	for i := range len(f.n.lengths) + 1 {
		fmt.Fprintf(b, " %d", f.sizeAt(i))
	}
	b.WriteByte('\n')
	for i, u := range f.pages {
		opt := u.options[d.pick.vals[f.first+1+i]]
		fmt.Fprintf(b, "    page %d (bytes %d-%d): ", u.idx, u.idx*PageSize, (u.idx+1)*PageSize-1)
		b.WriteString(f.versionName(u, opt.ver))
		if opt.tear != notTorn {
			fmt.Fprintf(b, ", TORN before sector %d over what was there %s: %s", opt.cut, f.versionName(u, opt.base), opt.tear)
		}
		b.WriteByte('\n')
	}
}

func (f *fileChoice) versionName(u *pageChoice, k int) string {
	if k == 0 {
		return "LOST, as on the device"
	}
	return "as behind " + f.e.operation(u.versions[k-1].seq)
}

// operation names a recorded operation by the seq it had.
func (e *enum) operation(seq int) string {
	if i := seq - e.first; i >= 0 && i < len(e.ops) {
		return fmt.Sprintf("%d %s", i, e.ops[i])
	}
	return "an operation before the record"
}

// lastName is the name a file was last written or cut under.
func (e *enum) lastName(n *node) string {
	for _, v := range n.versions {
		if i := v.seq - e.first; i >= 0 && i < len(e.ops) {
			return e.ops[i].Name
		}
	}
	return "without a name"
}

// paths is a name for each file of the tree.
func (t *tree) paths(s *state) map[nodeID]string {
	out := map[nodeID]string{}
	seen := map[nodeID]bool{}
	var walk func(dir nodeID, at string)
	walk = func(dir nodeID, at string) {
		if seen[dir] {
			return
		}
		seen[dir] = true
		names, ok := t.names[dir]
		if !ok {
			names = s.nodes[dir].dnames
		}
		for name, id := range names {
			p := path.Join(at, name)
			if s.nodes[id].dir {
				walk(id, p)
			} else if old, ok := out[id]; !ok || p < old {
				out[id] = p
			}
		}
	}
	walk(rootID, "")
	return out
}
