package vfs

import (
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"sync"
	"time"
)

// node is a file or directory in memory. Open handles and mappings hold the node, not its name, so they survive a
// rename and a removal.
type node struct {
	mode fs.FileMode // with the type bits; never changes

	// Guarded by tree.mu: the shape of the tree.
	children map[string]*node // of a directory
	listed   bool             // children holds what the directory underneath has
	under    string           // name of the file or directory underneath; "" if there is none
	links    int              // names this node has

	mu      sync.RWMutex // guards what follows; may be taken under tree.mu, not the other way round
	pages   pages
	mtime   time.Time
	sized   bool // size and mtime have been taken from the file underneath
	written bool // content differs from the file underneath, or there is none
	maps    map[*memMapping]struct{}
	handles int

	lowMu sync.Mutex // guards low; taken last
	low   File       // the open file underneath, while there are handles
}

func (n *node) isDir() bool { return n.mode.IsDir() }

// describe is the node's Stat under a name.
func (t *tree) describe(n *node, name string) (memInfo, error) {
	if err := t.size(n); err != nil {
		return memInfo{}, err
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	return memInfo{name: path.Base(name), size: n.pages.size, mode: n.mode, mtime: n.mtime}, nil
}

// size takes size and time of the file underneath at first use; a directory is listed often, its files looked at
// rarely.
func (t *tree) size(n *node) error {
	if n.under == "" {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sized {
		return nil
	}
	fi, err := t.base.Stat(n.under)
	if err != nil {
		return err
	}
	if n.mode.IsRegular() {
		n.pages.size, n.pages.floor = fi.Size(), fi.Size()
	}
	n.mtime, n.sized = fi.ModTime(), true
	return nil
}

// source reads the file underneath, which stays open as long as the node has handles.
func (t *tree) source(n *node) source {
	return func(b []byte, off int64) error {
		low, err := t.openLow(n)
		if err != nil {
			return err
		}
		got, err := low.ReadAt(b, off)
		if got == len(b) {
			return nil
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF // cut by someone else since it was first looked at
		}
		return err
	}
}

func (t *tree) openLow(n *node) (File, error) {
	n.lowMu.Lock()
	defer n.lowMu.Unlock()
	if n.low == nil {
		low, err := t.base.OpenFile(n.under, 0, 0)
		if err != nil {
			return nil, err
		}
		n.low = low
	}
	return n.low, nil
}

func (n *node) closeLow() error {
	n.lowMu.Lock()
	defer n.lowMu.Unlock()
	if n.low == nil {
		return nil
	}
	low := n.low
	n.low = nil
	return low.Close()
}

// truncate cuts or grows the file; mappings that reached past the new end are spoilt for good. Called under n.mu.
func (n *node) truncate(size int64) {
	for m := range n.maps {
		if m.length > size {
			m.cut.Store(true)
			delete(n.maps, m)
		}
	}
	n.pages.truncate(size)
	n.touch()
}

// touch notes a change of content. Called under n.mu.
func (n *node) touch() {
	n.written = true
	n.mtime = time.Now()
}

// touchDir notes a change of the directory's entries.
func (n *node) touchDir() {
	n.mu.Lock()
	n.mtime, n.sized = time.Now(), true
	n.mu.Unlock()
}

// memInfo describes a node at one moment.
type memInfo struct {
	links int // 0 unknown
	name  string
	size  int64
	mode  fs.FileMode
	mtime time.Time
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) Mode() fs.FileMode  { return i.mode }
func (i memInfo) ModTime() time.Time { return i.mtime }
func (i memInfo) IsDir() bool        { return i.mode.IsDir() }
func (i memInfo) Sys() any           { return LinkCount(i.links) }

// memEntry is a directory entry; Info looks at the node when it is called.
type memEntry struct {
	tree *tree
	node *node
	name string
}

func (e memEntry) Name() string               { return e.name }
func (e memEntry) IsDir() bool                { return e.node.isDir() }
func (e memEntry) Type() fs.FileMode          { return e.node.mode.Type() }
func (e memEntry) Info() (fs.FileInfo, error) { return e.tree.describe(e.node, e.name) }
func (e memEntry) String() string             { return fs.FormatDirEntry(e) }

func sortedNames(children map[string]*node) []string {
	return slices.Sorted(maps.Keys(children))
}
