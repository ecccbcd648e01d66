package vfstest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/partlog/partlog/vfs"
	"pgregory.net/rapid"
)

// history is a second, much simpler account of what a crash may leave: for each file what its bytes and lengths have
// been since its last sync, for each name what it has led to since its directory's last sync. It knows nothing of pages
// or of which changes rest on which, so it allows more than Crash does; what it forbids no disk may show.
type history struct {
	live  map[string]*inode          // by name, as a program sees it
	names map[string]map[*inode]bool // what the name may lead to; nil key: to nothing
}

type inode struct {
	data  []byte
	sizes map[int]bool
	bytes []map[byte]bool // by offset; 0 is always possible where the length was not durable
}

func newHistory() *history { return &history{map[string]*inode{}, map[string]map[*inode]bool{}} }

func dirOf(name string) string {
	if name[0] == 'd' {
		return "d"
	}
	return "."
}

func (h *history) lead(name string, n *inode) {
	if h.names[name] == nil {
		h.names[name] = map[*inode]bool{nil: true}
	}
	h.names[name][n] = true
	if n == nil {
		delete(h.live, name)
	} else {
		h.live[name] = n
	}
}

func (n *inode) changed(data []byte) {
	for i, b := range data {
		for len(n.bytes) <= i {
			n.bytes = append(n.bytes, map[byte]bool{0: true})
		}
		n.bytes[i][b] = true
	}
	for i := len(data); i < len(n.data); i++ {
		n.bytes[i][0] = true
	}
	n.sizes[len(data)] = true
	n.data = data
}

func (n *inode) synced() {
	n.sizes = map[int]bool{len(n.data): true}
	n.bytes = nil
	for _, b := range n.data {
		n.bytes = append(n.bytes, map[byte]bool{b: true})
	}
}

func (n *inode) allows(content string) bool {
	if !n.sizes[len(content)] {
		return false
	}
	for i := range len(content) {
		if i < len(n.bytes) && !n.bytes[i][content[i]] || i >= len(n.bytes) && content[i] != 0 {
			return false
		}
	}
	return true
}

func (h *history) syncDir(dir string) {
	for name := range h.names {
		if dirOf(name) == dir {
			h.names[name] = map[*inode]bool{h.live[name]: true}
		}
	}
}

func (h *history) judge(tree map[string]string) error {
	for name, nodes := range h.names {
		content, there := tree[name]
		if !there {
			if !nodes[nil] {
				return fmt.Errorf("%s is gone", name)
			}
			continue
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(nodes)), func(n *inode) bool { return n != nil && n.allows(content) }) {
			return fmt.Errorf("%s holds %q, which it never could", name, content)
		}
	}
	for name := range tree {
		if name != "d/" && h.names[name] == nil {
			return fmt.Errorf("%s was never there", name)
		}
	}
	return nil
}

// step does one random operation on both. A move between directories is left out: history cannot tell the halves.
func step(t *rapid.T, c vfs.FS, h *history) {
	names := []string{"a", "b", "d/a", "d/b"}
	name := rapid.SampledFrom(names).Draw(t, "name")
	n := h.live[name]
	open := func() vfs.File { return must(c.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)) }
	verb := rapid.SampledFrom([]string{"write", "write", "cut", "sync", "syncdir", "rename", "remove", "create"}).Draw(t, "verb")
	if n == nil && verb != "syncdir" {
		verb = "create"
	}
	switch verb {
	case "create":
		open().Close()
		if n == nil {
			n = &inode{}
			n.synced()
			h.lead(name, n)
		}
	case "write":
		off, s := rapid.IntRange(0, 4).Draw(t, "off"), rapid.StringMatching("[a-z]{1,3}").Draw(t, "bytes")
		must(open().WriteAt([]byte(s), int64(off)))
		data := slices.Clone(n.data)
		data = append(data, make([]byte, max(0, off+len(s)-len(data)))...)
		copy(data[off:], s)
		n.changed(data)
	case "cut":
		size := rapid.IntRange(0, 6).Draw(t, "size")
		if err := open().Truncate(int64(size)); err != nil {
			t.Fatal(err)
		}
		data := append(slices.Clone(n.data[:min(size, len(n.data))]), make([]byte, max(0, size-len(n.data)))...)
		n.changed(data)
	case "sync":
		if err := open().Sync(); err != nil {
			t.Fatal(err)
		}
		n.synced()
	case "syncdir":
		if err := c.SyncDir(dirOf(name)); err != nil {
			t.Fatal(err)
		}
		h.syncDir(dirOf(name))
	case "rename":
		to := map[string]string{"a": "b", "b": "a", "d/a": "d/b", "d/b": "d/a"}[name]
		if err := c.Rename(name, to); err != nil {
			t.Fatal(err)
		}
		h.lead(name, nil)
		h.lead(to, n)
	case "remove":
		if err := c.Remove(name); err != nil {
			t.Fatal(err)
		}
		h.lead(name, nil)
	}
}

func TestEveryDiskIsOneThatTheHistoryAllows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := NewCrash(CrashOptions{})
		if err := c.MkdirAll("d", 0o755); err != nil {
			t.Fatal(err)
		}
		c.Mark()
		h := newHistory()
		for range rapid.IntRange(1, 7).Draw(t, "steps") {
			step(t, c, h)
			asSeen, live := false, show(contents(c))
			for d := range c.Disks(DiskOptions{NoTorn: true, From: c.Len(), Limit: 200}) {
				tree := contents(d.FS())
				if err := h.judge(tree); err != nil {
					t.Fatalf("%v\n%s", err, d.Describe())
				}
				asSeen = asSeen || show(tree) == live
			}
			if !asSeen {
				t.Fatalf("no disk keeps everything: %s", live)
			}
		}
	})
}

// both runs one call on two file systems and compares what it says.
func both(t *rapid.T, what string, a, b error) bool {
	class := func(err error) error {
		for _, e := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrInvalid, fs.ErrPermission, fs.ErrClosed, vfs.ErrUnsupported} {
			if errors.Is(err, e) {
				return e
			}
		}
		return nil
	}
	if (a == nil) != (b == nil) || class(a) != class(b) {
		t.Fatalf("%s: Crash says %v, Mem says %v", what, a, b)
	}
	return a == nil
}

func TestCrashAnswersLikeMem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, m := NewCrash(CrashOptions{}), vfs.Mem()
		paths := rapid.SampledFrom([]string{"a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "a/b", ".", "../a", ""})
		type pair struct{ c, m vfs.File }
		var handles []pair
		defer func() {
			for _, h := range handles {
				h.c.Close()
				h.m.Close()
			}
		}()
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			p, q := paths.Draw(t, "path"), paths.Draw(t, "other")
			switch rapid.IntRange(0, 8).Draw(t, "call") {
			case 0, 1:
				flag := rapid.SampledFrom([]int{os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE,
					os.O_RDWR | os.O_CREATE | os.O_EXCL, os.O_RDWR | os.O_TRUNC, os.O_WRONLY | os.O_CREATE}).Draw(t, "flag")
				a, err1 := c.OpenFile(p, flag, 0o644)
				b, err2 := m.OpenFile(p, flag, 0o644)
				if both(t, "open "+p, err1, err2) {
					handles = append(handles, pair{a, b})
				}
			case 2:
				both(t, "rename "+p+" "+q, c.Rename(p, q), m.Rename(p, q))
			case 3:
				both(t, "remove "+p, c.Remove(p), m.Remove(p))
			case 4:
				both(t, "mkdir "+p, c.MkdirAll(p, 0o755), m.MkdirAll(p, 0o755))
			case 5:
				both(t, "link "+p+" "+q, c.Link(p, q), m.Link(p, q))
			case 6, 7:
				if len(handles) == 0 {
					continue
				}
				h := handles[rapid.IntRange(0, len(handles)-1).Draw(t, "handle")]
				off := int64(rapid.IntRange(-1, 9000).Draw(t, "off"))
				data := make([]byte, rapid.IntRange(1, 5000).Draw(t, "len"))
				for i := range data {
					data[i] = byte(i) | 1
				}
				switch rapid.IntRange(0, 2).Draw(t, "verb") {
				case 0:
					_, err1 := h.c.WriteAt(data, off)
					_, err2 := h.m.WriteAt(data, off)
					both(t, "write", err1, err2)
				case 1:
					both(t, "truncate", h.c.Truncate(off), h.m.Truncate(off))
				case 2:
					other := make([]byte, len(data))
					n1, err1 := h.c.ReadAt(data, off)
					n2, err2 := h.m.ReadAt(other, off)
					if both(t, "read", err1, err2); n1 != n2 || string(data[:n1]) != string(other[:n2]) {
						t.Fatalf("read %d bytes, Mem %d", n1, n2)
					}
				}
			case 8:
				both(t, "syncdir "+p, c.SyncDir(p), m.SyncDir(p))
			}
			if a, b := contents(c), contents(m); !maps.Equal(a, b) {
				t.Fatalf("Crash has %s\nMem has   %s", show(a), show(b))
			}
		}
		c.Mark()
		if a, b := contents(c), contents(m); !maps.Equal(a, b) {
			t.Fatalf("after Mark Crash has %s\nMem has   %s", show(a), show(b))
		}
	})
}
