package vfstest

import (
	"maps"
	"slices"
)

// A tree is what a power loss makes of the directories when some pending events are kept: the names that are left, and
// the files they lead to. A file no name leads to is unborn or removed and plays no part.
type tree struct {
	files []treeFile
	names map[nodeID]map[string]nodeID // of the directories whose names were a choice
	dirs  []nodeID
	sum   uint64 // hash of the directories
}

type treeFile struct {
	id   nodeID
	path uint64 // hash
}

func newTree(s *state, kept []bool) *tree {
	t := &tree{names: map[nodeID]map[string]nodeID{}}
	edit := func(dir nodeID) map[string]nodeID {
		m := t.names[dir]
		if m == nil {
			m = maps.Clone(s.nodes[dir].dnames)
			t.names[dir] = m
		}
		return m
	}
	for i, e := range s.pending {
		if e.hasFrom {
			if m := edit(e.from.dir); kept[i] {
				delete(m, e.from.name)
			}
		}
		if e.hasTo {
			if m := edit(e.to.dir); kept[i] {
				m[e.to.name] = e.id
			}
		}
	}
	t.walk(s, rootID, k0)
	return t
}

func (t *tree) walk(s *state, dir nodeID, path uint64) {
	if slices.Contains(t.dirs, dir) {
		return
	}
	t.dirs = append(t.dirs, dir)
	t.sum += mix(path, k0)
	names, ok := t.names[dir]
	if !ok {
		names = s.nodes[dir].dnames
	}
	for name, id := range names {
		p := mix(path, hashString(name))
		if s.nodes[id].dir {
			t.walk(s, id, p)
			continue
		}
		t.files = append(t.files, treeFile{id, p})
	}
}

// closeOver drops from kept every event that rests on one that is not kept.
func closeOver(pending []dirEvent, kept []bool) {
	for i := range pending {
		kept[i] = kept[i] && restsOnKept(pending, kept, i)
	}
}

// openOver adds to kept every event that a kept one rests on.
func openOver(pending []dirEvent, kept []bool) {
	for i := len(pending) - 1; i >= 0; i-- {
		if !kept[i] {
			continue
		}
		for j := range i {
			if slices.Contains(pending[i].after, pending[j].seq) {
				kept[j] = true
			}
		}
	}
}

func restsOnKept(pending []dirEvent, kept []bool, i int) bool {
	for j := range i {
		if !kept[j] && slices.Contains(pending[i].after, pending[j].seq) {
			return false
		}
	}
	return true
}
